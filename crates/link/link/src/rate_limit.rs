//! Limits the bytes per second that an endpoint sends, by the time of day.
//!
//! All connections of an endpoint share one [`RateLimiter`]. [`Paced`] is a socket that waits until it may send. TCP
//! then paces the packets of each write as usual.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime};

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// The limits of an endpoint by the time of day (UTC).
///
/// The text is a list of rules, such as `08:00-18:00=20Mbps,100Mbps`. The first rule that contains the current time
/// applies. A rule without a time applies at all times. If no rule applies, there is no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit(Vec<Rule>);

/// The limit at a time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    /// The first minute of the day, and the minute after the last one. If the first one is not lower, the time spans
    /// midnight.
    minutes: Option<(u16, u16)>,
    /// Bits per second, or `None` for no limit.
    rate: Option<u64>,
}

/// Why a text is not a limit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{0}` is not a rate limit; write 20Mbps, or 08:00-18:00=20Mbps,100Mbps (UTC; kbps, Mbps, Gbps or unlimited)"
)]
pub struct ParseRateLimitError(String);

impl RateLimit {
    /// Returns the limit in bits per second at this minute of the day, or `None` if there is no limit.
    fn bits_per_second_at(&self, minute: u16) -> Option<u64> {
        let applies = |rule: &&Rule| match rule.minutes {
            None => true,
            Some((start, end)) if start < end => (start..end).contains(&minute),
            Some((start, end)) => minute >= start || minute < end,
        };
        self.0.iter().find(applies)?.rate
    }
}

impl FromStr for RateLimit {
    type Err = ParseRateLimitError;

    fn from_str(text: &str) -> Result<Self, ParseRateLimitError> {
        let rules: Option<Vec<_>> = text
            .split(',')
            .map(|rule| parse_rule(rule.trim()))
            .collect();
        let is_bounded = |rules: &Vec<Rule>| rules.len() <= RULES_MAX;
        let rules = rules.filter(is_bounded);
        rules
            .map(Self)
            .ok_or_else(|| ParseRateLimitError(text.chars().take(80).collect()))
    }
}

impl fmt::Display for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, rule) in self.0.iter().enumerate() {
            if nth > 0 {
                f.write_str(",")?;
            }
            if let Some((start, end)) = rule.minutes {
                let [start, end] = [start, end].map(|minute| (minute / 60, minute % 60));
                write!(
                    f,
                    "{:02}:{:02}-{:02}:{:02}=",
                    start.0, start.1, end.0, end.1
                )?;
            }
            match rule.rate {
                None => f.write_str("unlimited")?,
                Some(bits) => {
                    let units = UNITS.into_iter().rev();
                    let (unit, scale) = units
                        .into_iter()
                        .find(|(_, scale)| bits % scale == 0)
                        .unwrap_or(("bps", 1));
                    write!(f, "{}{unit}", bits / scale)?;
                }
            }
        }
        Ok(())
    }
}

fn parse_rule(text: &str) -> Option<Rule> {
    let (time, rate) = match text.split_once('=') {
        Some((time, rate)) => (Some(time), rate),
        None => (None, text),
    };
    let minutes = match time {
        None => None,
        Some(time) => {
            let (start, end) = time.split_once('-')?;
            let (start, end) = (parse_minute(start)?, parse_minute(end)?);
            Some((start, end)).filter(|(start, end)| start != end && *start < DAY_MINUTES)
        }
    };
    // A time that cannot be parsed must not become a rule for the whole day.
    if time.is_some() && minutes.is_none() {
        return None;
    }
    Some(Rule {
        minutes,
        rate: parse_rate(rate.trim())?,
    })
}

/// Parses `HH:MM`, from 00:00 to 24:00.
fn parse_minute(text: &str) -> Option<u16> {
    let (hours, minutes) = text.trim().split_once(':')?;
    let is_number = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(hours) || !is_number(minutes) {
        return None;
    }
    let (hours, minutes): (u16, u16) = (hours.parse().ok()?, minutes.parse().ok()?);
    Some(hours * 60 + minutes).filter(|minute| minutes < 60 && *minute <= DAY_MINUTES)
}

/// Parses a number with a unit, or `unlimited`.
fn parse_rate(text: &str) -> Option<Option<u64>> {
    if text == "unlimited" {
        return Some(None);
    }
    let (number, scale) = UNITS.into_iter().find_map(|(unit, scale)| {
        let number = text.strip_suffix(unit)?;
        Some((number.trim_end(), scale))
    })?;
    let is_number = number.starts_with(|c: char| c.is_ascii_digit());
    let number: f64 = number.parse().ok().filter(|_| is_number)?;
    let bits = number * scale as f64;
    let range = RATE_MIN as f64..=RATE_MAX as f64;
    range.contains(&bits).then_some(Some(bits as u64))
}

/// Paces the bytes of all connections of an endpoint.
#[derive(Debug)]
pub struct RateLimiter {
    limit: RateLimit,
    started: Instant,
    bucket: Mutex<Bucket>,
    waits: AtomicU64,
}

impl RateLimiter {
    /// Creates a limiter.
    pub fn new(limit: RateLimit) -> Self {
        Self {
            limit,
            started: Instant::now(),
            bucket: Mutex::default(),
            waits: AtomicU64::new(0),
        }
    }

    /// Returns the current limit in bits per second, or `None` if bytes are unlimited.
    pub fn bits_per_second(&self) -> Option<u64> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let minute = now.unwrap_or_default().as_secs() / 60 % u64::from(DAY_MINUTES);
        self.limit
            .bits_per_second_at(u16::try_from(minute).expect("a day has 1440 minutes"))
    }

    /// Returns the number of writes that had to wait.
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Returns how many of these bytes may be written now, or how long the write has to wait.
    fn allowance(&self, bytes: usize, has_waited: bool) -> Result<usize, Duration> {
        let Some(rate) = self.bits_per_second() else {
            return Ok(bytes);
        };
        let bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.allowance(self.started.elapsed(), rate, bytes, has_waited)
    }

    /// Counts written bytes.
    fn spend(&self, bytes: usize) {
        if let Some(rate) = self.bits_per_second() {
            let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
            bucket.spend(self.started.elapsed(), rate, bytes);
        }
    }
}

/// The time until which the path is occupied by the bytes that were sent, since the start of the limiter.
#[derive(Debug, Default)]
struct Bucket {
    free_at: Duration,
}

impl Bucket {
    /// Returns how many of these bytes may be sent at `now`, or the time to wait. A short write may be sent earlier
    /// than a long one, so that a request does not wait behind a download. A long write that has waited may be sent as
    /// early as a short one: otherwise many short writes would keep it from being sent at all.
    fn allowance(
        &self,
        now: Duration,
        rate: u64,
        bytes: usize,
        has_waited: bool,
    ) -> Result<usize, Duration> {
        let is_early = bytes <= SHORT_BYTES || has_waited;
        let ahead_max = if is_early { AHEAD_SHORT } else { AHEAD };
        let wait = self.free_at.saturating_sub(now).saturating_sub(ahead_max);
        if wait > Duration::ZERO {
            return Err(wait);
        }
        let ahead_bytes = rate as f64 / 8.0 * AHEAD.as_secs_f64();
        Ok(bytes.min((ahead_bytes as usize).max(WRITE_BYTES_MIN)))
    }

    fn spend(&mut self, now: Duration, rate: u64, bytes: usize) {
        let seconds = bytes as f64 * 8.0 / rate as f64;
        self.free_at = self.free_at.max(now) + Duration::from_secs_f64(seconds);
    }
}

/// A TCP connection whose writes wait for the limiter.
pub(crate) struct Paced {
    tcp: TcpStream,
    limiter: Option<Arc<RateLimiter>>,
    /// The timer of a write that waits.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Paced {
    pub(crate) fn new(tcp: TcpStream, limiter: Option<&Arc<RateLimiter>>) -> Self {
        Self {
            tcp,
            limiter: limiter.cloned(),
            sleep: None,
        }
    }

    /// Returns how many of these bytes may be written.
    fn poll_allowance(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<usize> {
        let Some(limiter) = &self.limiter else {
            return Poll::Ready(bytes);
        };
        let mut has_waited = false;
        loop {
            if let Some(sleep) = &mut self.sleep {
                ready!(sleep.as_mut().poll(cx));
                (self.sleep, has_waited) = (None, true);
            }
            match limiter.allowance(bytes, has_waited) {
                Ok(allowed) => return Poll::Ready(allowed),
                Err(wait) => {
                    limiter.waits.fetch_add(1, Ordering::Relaxed);
                    self.sleep = Some(Box::pin(tokio::time::sleep(wait)));
                }
            }
        }
    }

    fn spend(&self, written: &Poll<io::Result<usize>>) {
        if let (Some(limiter), Poll::Ready(Ok(bytes))) = (&self.limiter, written) {
            limiter.spend(*bytes);
        }
    }
}

impl AsyncRead for Paced {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Paced {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let allowed = ready!(self.poll_allowance(cx, bytes.len()));
        let written = Pin::new(&mut self.tcp).poll_write(cx, &bytes[..allowed]);
        self.spend(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        let mut allowed = ready!(self.poll_allowance(cx, bytes));
        let whole = slices.iter().take_while(|slice| {
            let fits = slice.len() <= allowed;
            allowed -= if fits { slice.len() } else { 0 };
            fits
        });
        let count = whole.count();
        let tcp = Pin::new(&mut self.tcp);
        let written = match slices.first() {
            Some(first) if count == 0 => tcp.poll_write(cx, &first[..allowed]),
            _ => tcp.poll_write_vectored(cx, &slices[..count]),
        };
        self.spend(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

const DAY_MINUTES: u16 = 24 * 60;

/// The highest number of rules: one for each half hour of a day.
const RULES_MAX: usize = 48;

const UNITS: [(&str, u64); 3] = [("kbps", 1000), ("Mbps", 1_000_000), ("Gbps", 1_000_000_000)];

/// The lowest limit. Below it, one frame of 448 KiB would take longer than a minute.
const RATE_MIN: u64 = 64_000;
const RATE_MAX: u64 = 1_000_000_000_000;

/// A write may begin this long before the path is free. It is longer than the resolution of the timer, one millisecond.
const AHEAD: Duration = Duration::from_millis(10);

/// A write of at most [`SHORT_BYTES`] may begin this long before the path is free.
const AHEAD_SHORT: Duration = Duration::from_millis(50);

/// A request, or an acknowledgement.
const SHORT_BYTES: usize = 4 << 10;

/// A write of up to this length is not divided: about one packet.
const WRITE_BYTES_MIN: usize = 1500;

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(text: &str) -> RateLimit {
        text.parse().expect("the text is a rate limit")
    }

    /// Both sides of each boundary, and a time that spans midnight.
    #[test]
    fn the_first_rule_for_the_time_applies() {
        let minute = |text| parse_minute(text).expect("the text is a time");
        let by_time = limit("08:00-18:00=20Mbps,22:00-06:30=unlimited,1.5Mbps");
        for (time, rate) in [
            ("00:00", None),
            ("06:29", None),
            ("06:30", Some(1_500_000)),
            ("07:59", Some(1_500_000)),
            ("08:00", Some(20_000_000)),
            ("17:59", Some(20_000_000)),
            ("18:00", Some(1_500_000)),
            ("21:59", Some(1_500_000)),
            ("22:00", None),
            ("23:59", None),
        ] {
            assert_eq!(by_time.bits_per_second_at(minute(time)), rate, "{time}");
        }
        assert_eq!(
            limit("00:00-24:00=64kbps").bits_per_second_at(1439),
            Some(64_000)
        );
        assert_eq!(limit("08:00-09:00=1Gbps").bits_per_second_at(0), None);
    }

    #[test]
    fn a_limit_is_displayed_as_it_is_written() {
        for text in [
            "20Mbps",
            "unlimited",
            "64kbps",
            "1000Gbps",
            "08:00-18:00=20Mbps,22:00-06:00=unlimited,100Mbps",
            "00:00-24:00=1500kbps",
        ] {
            assert_eq!(limit(text).to_string(), text);
        }
        assert_eq!(
            limit("1.5Mbps, 08:00 - 09:00=2 Gbps").to_string(),
            "1500kbps,08:00-09:00=2Gbps"
        );
        let long = vec!["1Mbps"; RULES_MAX + 1].join(",");
        for text in [
            "",
            "20",
            "Mbps",
            "-1Mbps",
            "nanMbps",
            "infGbps",
            "+2Mbps",
            "63kbps",
            "1001Gbps",
            "20MBps",
            "08:00=1Mbps",
            "08:00-08:00=1Mbps",
            "8:00-09:00=1Mbps",
            "08:60-09:00=1Mbps",
            "24:00-08:00=1Mbps",
            "08:00-24:01=1Mbps",
            "08:00-09:00=",
            "=1Mbps",
            "1Mbps,,2Mbps",
            &long,
        ] {
            assert!(text.parse::<RateLimit>().is_err(), "{text}");
        }
    }

    /// Three connections that always have bytes to send share the rate: in each interval of virtual time, they send at
    /// most the bytes of the rate and a burst, and over a long time all of them. The limit changes in the middle.
    #[test]
    fn the_bytes_of_each_interval_are_limited() {
        let mut bucket = Bucket::default();
        let mut now = Duration::ZERO;
        let mut sent: Vec<(Duration, u64)> = Vec::new();
        let mut writes = [(300_000, false), (16 << 10, false), (1000, false)];
        let end = Duration::from_secs(20);
        let rate_at = |now: Duration| if now < end / 2 { 8_000_000 } else { 80_000_000 };
        while now < end {
            let mut next = end;
            for (bytes, has_waited) in &mut writes {
                match bucket.allowance(now, rate_at(now), *bytes, *has_waited) {
                    Ok(allowed) => {
                        *has_waited = false;
                        bucket.spend(now, rate_at(now), allowed);
                        sent.push((now, allowed as u64));
                        next = now;
                    }
                    Err(wait) => {
                        *has_waited = true;
                        next = next.min(now + wait);
                    }
                }
            }
            now = next;
        }
        let bytes_between = |start: Duration, end: Duration| -> u64 {
            let within = sent.iter().filter(|(at, _)| (start..end).contains(at));
            within.map(|(_, bytes)| bytes).sum()
        };
        for (start, end, rate) in [(0, 10, 1_000_000), (10, 20, 10_000_000)] {
            let seconds = end - start;
            let all = bytes_between(Duration::from_secs(start), Duration::from_secs(end));
            let most = seconds * rate;
            assert!(
                all <= most + most / 100 && all >= most - most / 100,
                "{all} of {most}"
            );
            for nth in 0..(seconds * 10 - 1) {
                let from = Duration::from_secs(start) + Duration::from_millis(100) * nth as u32;
                let bytes = bytes_between(from, from + Duration::from_millis(100));
                // 100 ms, and the 50 ms that short writes may be ahead.
                assert!(bytes <= rate / 1000 * 165, "{bytes} at {from:?}");
            }
        }
    }

    /// A short write need not wait as long as a long one.
    #[test]
    fn a_short_write_may_overtake() {
        let mut bucket = Bucket::default();
        let rate = 8_000_000;
        bucket.spend(Duration::ZERO, rate, 40_000);
        assert_eq!(bucket.allowance(Duration::ZERO, rate, 100, false), Ok(100));
        let wait = bucket.allowance(Duration::ZERO, rate, SHORT_BYTES + 1, false);
        assert_eq!(wait, Err(Duration::from_millis(30)));
        assert_eq!(
            bucket.allowance(Duration::from_millis(30), rate, 100_000, false),
            Ok(10_000)
        );
    }

    /// Short writes that take the whole rate do not keep a long one from being sent.
    #[test]
    fn a_long_write_is_sent_beside_short_ones() {
        let (mut bucket, rate) = (Bucket::default(), 8_000_000);
        let (mut now, mut has_waited) = (Duration::ZERO, false);
        while bucket.allowance(now, rate, 100_000, has_waited).is_err() || now < AHEAD {
            while bucket.allowance(now, rate, 1000, false).is_ok() {
                bucket.spend(now, rate, 1000);
            }
            (now, has_waited) = (now + Duration::from_millis(1), true);
            assert!(now < Duration::from_millis(100), "the long write starves");
        }
    }
}
