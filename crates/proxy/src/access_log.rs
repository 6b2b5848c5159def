//! Requests written down, off their own way.
//!
//! A worker puts a small struct into a ring of its own and goes on. One thread empties the rings,
//! formats and writes. A full ring drops the line and counts it: a slow disk must not slow requests.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use edgeward_semantics::{CacheStatus, Outcome};
use edgeward_types::Timestamp;
use http::header::{HeaderName, REFERER, USER_AGENT};
use http::{Method, StatusCode, Version};
use serde::Serialize;

use crate::config::{AccessLogConfig, LogDestination, LogFormat};
use crate::request::Ask;

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Pending {
    line: LogLine,
    began: Instant,
    /// Bytes of the body that were handed to the connection.
    given_bytes: u64,
    /// The response did not go out whole.
    pub(crate) aborted: bool,
}

/// A request that was answered.
#[derive(Debug)]
pub(crate) struct LogLine {
    time: Timestamp,
    peer: IpAddr,
    /// None of a request that could not be read.
    method: Option<Method>,
    scheme: &'static str,
    host: Box<str>,
    target: Box<str>,
    version: Version,
    status: StatusCode,
    bytes: u64,
    duration: Duration,
    cache: &'static str,
    detail: Option<Box<str>>,
    collapsed: bool,
    aborted: bool,
    referer: Option<Box<str>>,
    user_agent: Option<Box<str>>,
}

impl Pending {
    pub(crate) fn new(ask: &Ask, now: Timestamp) -> Self {
        let header = |name: &HeaderName| {
            ask.headers
                .get(name)
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into())
        };
        Self {
            line: LogLine {
                method: Some(ask.method.clone()),
                host: ask.authority().unwrap_or_default().into(),
                target: ask.path_and_query().into(),
                version: ask.version,
                referer: header(&REFERER),
                user_agent: header(&USER_AGENT),
                ..LogLine::unread(ask.peer.ip(), ask.scheme, now)
            },
            began: Instant::now(),
            given_bytes: 0,
            aborted: false,
        }
    }

    /// A request whose head could not be read, answered with `status` and no body.
    pub(crate) fn unread(
        peer: IpAddr,
        scheme: &'static str,
        now: Timestamp,
        status: StatusCode,
    ) -> Self {
        Self {
            line: LogLine {
                target: "-".into(),
                status,
                ..LogLine::unread(peer, scheme, now)
            },
            began: Instant::now(),
            given_bytes: 0,
            aborted: false,
        }
    }

    pub(crate) fn answered(&mut self, status: StatusCode, cache_status: &CacheStatus) {
        self.line.status = status;
        self.line.cache = match cache_status.outcome {
            Outcome::Hit => "hit",
            Outcome::Forward(reason) => reason.as_str(),
        };
        self.line.collapsed = cache_status.collapsed;
        self.line.detail = cache_status.detail.as_deref().map(Into::into);
    }

    pub(crate) fn refused(&mut self, status: StatusCode, cache_status: Option<&CacheStatus>) {
        match cache_status {
            Some(cache_status) => self.answered(status, cache_status),
            None => self.line.status = status,
        }
    }

    /// The body ended, or was given up, after `bytes` of it were handed to the connection.
    pub(crate) fn given(&mut self, bytes: u64, given_up: bool) {
        self.given_bytes = bytes;
        self.aborted |= given_up;
    }

    /// The connection ended before all was written that it was handed. `written` are the body's bytes that the socket took, of
    /// those handed over.
    pub(crate) fn cut(&mut self, written: impl FnOnce(u64) -> u64) {
        self.given_bytes = written(self.given_bytes).min(self.given_bytes);
        self.aborted = true;
    }

    /// The line, now that the response has left.
    pub(crate) fn finish(mut self) -> LogLine {
        self.line.bytes = self.given_bytes;
        self.line.duration = self.began.elapsed();
        self.line.aborted = self.aborted;
        self.line
    }
}

/// Why the log cannot be written where it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessLogError {
    /// The file cannot be opened for appending.
    #[error("the access log {} cannot be opened", .path.display())]
    Open {
        /// Where it should be.
        path: PathBuf,
        /// Why it cannot.
        source: io::Error,
    },
    /// The thread that writes it cannot be started.
    #[error("the access log's thread cannot be started")]
    Thread(#[source] io::Error),
}

/// Has the access log's file opened again by its path, as after a rotation has renamed it.
#[derive(Clone, Debug)]
pub struct LogReopener {
    asked: Arc<AtomicBool>,
    thread: std::thread::Thread,
}

impl LogReopener {
    /// Returns at once. Lines of responses that ended before go to the old file.
    pub fn reopen(&self) {
        self.asked.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// The writing thread; stopping it writes what the rings still hold.
pub(crate) struct AccessLog {
    stop: Arc<AtomicBool>,
    reopen: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl AccessLog {
    /// Starts the writer with one ring for each worker, whose other ends are returned.
    pub(crate) fn start(
        config: &AccessLogConfig,
        workers: usize,
    ) -> Result<(Self, Vec<rtrb::Producer<LogLine>>), AccessLogError> {
        let sink = open(&config.destination)?;
        let (producers, consumers) = (0..workers)
            .map(|_| rtrb::RingBuffer::new(config.queue_lines_max.get()))
            .unzip();
        let stop = Arc::new(AtomicBool::new(false));
        let reopen = Arc::new(AtomicBool::new(false));
        let mut writer = Writer {
            rings: consumers,
            sink: BufWriter::with_capacity(WRITE_BYTES, sink),
            destination: config.destination.clone(),
            format: config.format,
            stop: Arc::clone(&stop),
            reopen: Arc::clone(&reopen),
            failing: false,
        };
        let thread = std::thread::Builder::new()
            .name("edgeward-log".to_owned())
            .spawn(move || writer.run())
            .map_err(AccessLogError::Thread)?;
        let log = Self {
            stop,
            reopen,
            thread: Some(thread),
        };
        Ok((log, producers))
    }

    pub(crate) fn reopener(&self) -> Option<LogReopener> {
        Some(LogReopener {
            asked: Arc::clone(&self.reopen),
            thread: self.thread.as_ref()?.thread().clone(),
        })
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            _ = thread.join();
        }
    }
}

type Sink = Box<dyn Write + Send>;

fn open(destination: &LogDestination) -> Result<Sink, AccessLogError> {
    let path = match destination {
        LogDestination::Stdout => return Ok(Box::new(io::stdout())),
        LogDestination::File(path) => path,
    };
    let opened = OpenOptions::new().create(true).append(true).open(path);
    match opened {
        Ok(file) => Ok(Box::new(file)),
        Err(source) => Err(AccessLogError::Open {
            path: path.clone(),
            source,
        }),
    }
}

struct Writer {
    rings: Vec<rtrb::Consumer<LogLine>>,
    sink: BufWriter<Sink>,
    destination: LogDestination,
    format: LogFormat,
    stop: Arc<AtomicBool>,
    reopen: Arc<AtomicBool>,
    failing: bool,
}

impl Writer {
    fn run(&mut self) {
        loop {
            // Asked before the rings are emptied: what came in before the stop is written.
            let stop = self.stop.load(Ordering::Acquire);
            let reopen = self.reopen.swap(false, Ordering::AcqRel);
            let result = self.empty_rings();
            match result {
                Err(error) if !self.failing => {
                    self.failing = true;
                    tracing::error!(%error, "the access log cannot be written; lines are lost");
                }
                Err(_) => {}
                Ok(()) => self.failing = false,
            }
            if reopen {
                self.reopen();
            }
            if stop {
                return;
            }
            std::thread::park_timeout(WRITE_INTERVAL);
        }
    }

    /// Goes on in the file that has the path now. If it cannot be opened, in the old one.
    fn reopen(&mut self) {
        match open(&self.destination) {
            Ok(sink) => {
                // What the old file did not take is lost and was logged.
                self.sink = BufWriter::with_capacity(WRITE_BYTES, sink);
            }
            Err(error) => {
                let error = crate::request::Chain(&error);
                tracing::error!(%error, "the access log goes on in the file that was open");
            }
        }
    }

    fn empty_rings(&mut self) -> io::Result<()> {
        let mut result = Ok(());
        for ring in &mut self.rings {
            while let Ok(line) = ring.pop() {
                let written = match self.format {
                    LogFormat::Json => line.write_json(&mut self.sink),
                    LogFormat::Combined => line.write_combined(&mut self.sink, false),
                    LogFormat::CombinedCache => line.write_combined(&mut self.sink, true),
                };
                result = result.and(written);
            }
        }
        result.and_then(|()| self.sink.flush())
    }
}

#[derive(Serialize)]
struct JsonLine<'a> {
    time: String,
    client: IpAddr,
    method: &'a str,
    scheme: &'a str,
    host: &'a str,
    target: &'a str,
    protocol: &'a str,
    status: u16,
    bytes: u64,
    duration_us: u64,
    cache: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    collapsed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    aborted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    referer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<&'a str>,
}

impl LogLine {
    /// A request whose head is not read yet: only its client is known.
    fn unread(peer: IpAddr, scheme: &'static str, now: Timestamp) -> Self {
        Self {
            time: now,
            peer: peer.to_canonical(),
            method: None,
            scheme,
            host: Box::default(),
            target: Box::default(),
            version: Version::HTTP_11,
            status: StatusCode::OK,
            bytes: 0,
            duration: Duration::ZERO,
            cache: "none",
            detail: None,
            collapsed: false,
            aborted: false,
            referer: None,
            user_agent: None,
        }
    }

    fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let line = JsonLine {
            time: rfc3339(self.time),
            client: self.peer,
            method: self.method.as_ref().map_or("-", Method::as_str),
            scheme: self.scheme,
            host: &self.host,
            target: &self.target,
            protocol: protocol(self.version),
            status: self.status.as_u16(),
            bytes: self.bytes,
            duration_us: u64::try_from(self.duration.as_micros()).unwrap_or(u64::MAX),
            cache: self.cache,
            collapsed: self.collapsed,
            aborted: self.aborted,
            detail: self.detail.as_deref(),
            referer: self.referer.as_deref(),
            user_agent: self.user_agent.as_deref(),
        };
        serde_json::to_writer(&mut *out, &line)?;
        out.write_all(b"\n")
    }

    /// `host ident user [time] "request" status bytes "referer" "agent"`, and the cache's word behind it if `with_cache`.
    fn write_combined(&self, out: &mut impl Write, with_cache: bool) -> io::Result<()> {
        write!(out, "{} - - [{}] \"", self.peer, clf_time(self.time))?;
        match &self.method {
            Some(method) => {
                write!(out, "{method} ")?;
                write_quoted(out, &self.target)?;
                write!(out, " {}", protocol(self.version))?;
            }
            None => out.write_all(b"-")?,
        }
        write!(out, "\" {} {} \"", self.status.as_u16(), self.bytes)?;
        write_quoted(out, self.referer.as_deref().unwrap_or("-"))?;
        out.write_all(b"\" \"")?;
        write_quoted(out, self.user_agent.as_deref().unwrap_or("-"))?;
        out.write_all(b"\"")?;
        if with_cache {
            write!(out, " {}", self.cache)?;
        }
        out.write_all(b"\n")
    }
}

/// A client must not be able to end the quotes or the line: `"` and `\` get a backslash, control
/// characters become `\xhh`, as in Apache httpd.
fn write_quoted(out: &mut impl Write, text: &str) -> io::Result<()> {
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.write_all(&[b'\\', byte])?,
            0..0x20 | 0x7f => write!(out, "\\x{byte:02x}")?,
            _ => out.write_all(&[byte])?,
        }
    }
    Ok(())
}

const fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

/// Year, month, day, hour, minute, second in UTC.
fn civil(time: Timestamp) -> (u64, u64, u64, u64, u64, u64) {
    let secs = time.as_secs();
    let (days, in_day) = (secs / 86_400, secs % 86_400);
    // Days since 0000-03-01, so that a leap day ends its year; 400 years are 146 097 days.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (
        year,
        month,
        day,
        in_day / 3600,
        in_day / 60 % 60,
        in_day % 60,
    )
}

fn rfc3339(time: Timestamp) -> String {
    let (year, month, day, hour, minute, second) = civil(time);
    let millis = time.as_millis() % 1000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

fn clf_time(time: Timestamp) -> String {
    let (year, month, day, hour, minute, second) = civil(time);
    let month = MONTHS[usize::try_from(month - 1).expect("a month is 1 to 12")];
    format!("{day:02}/{month}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000")
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// What is written at a time: a few hundred lines a system call.
const WRITE_BYTES: usize = 64 << 10;

/// How long a line may wait. 8192 lines in 50 ms are 160 000 a second.
const WRITE_INTERVAL: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> LogLine {
        LogLine {
            time: Timestamp::from_millis(951_827_696_789),
            peer: [192, 0, 2, 7].into(),
            method: Some(Method::GET),
            scheme: "http",
            host: "example.com".into(),
            target: "/a?b=\"c\"".into(),
            version: Version::HTTP_11,
            status: StatusCode::OK,
            bytes: 1234,
            duration: Duration::from_micros(56),
            cache: "hit",
            detail: None,
            collapsed: false,
            aborted: false,
            referer: None,
            user_agent: Some("curl \\ \n\u{7f}".into()),
        }
    }

    #[test]
    fn a_combined_line_reads_as_in_apache_and_cannot_be_broken_out_of() {
        let mut out = Vec::new();
        line()
            .write_combined(&mut out, true)
            .expect("memory takes it");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "192.0.2.7 - - [29/Feb/2000:12:34:56 +0000] \"GET /a?b=\\\"c\\\" HTTP/1.1\" 200 1234 \
             \"-\" \"curl \\\\ \\x0a\\x7f\" hit\n"
        );
    }

    #[test]
    fn a_json_line_has_every_field_that_is_known() {
        let mut out = Vec::new();
        line().write_json(&mut out).expect("memory takes it");
        let parsed: serde_json::Value = serde_json::from_slice(&out).expect("one JSON object");
        assert_eq!(parsed["time"], "2000-02-29T12:34:56.789Z");
        assert_eq!(parsed["cache"], "hit");
        assert_eq!(parsed["bytes"], 1234);
        assert_eq!(parsed["target"], "/a?b=\"c\"");
        assert!(parsed.get("referer").is_none());
        assert_eq!(out.iter().filter(|&&byte| byte == b'\n').count(), 1);
    }

    #[test]
    fn days_around_leap_years_and_centuries_are_right() {
        for (secs, shown) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(rfc3339(Timestamp::from_secs(secs)), shown);
        }
    }
}
