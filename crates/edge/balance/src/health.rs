//! The health of one server: passive results of requests, active checks, and the slow start after a recovery.
//!
//! A server is ejected after consecutive failures. This is a circuit breaker: after the time of the ejection, one
//! request probes the server (half-open). If the probe succeeds, the server has recovered; if it fails, the next
//! ejection is twice as long. If active checks run, a successful check takes the place of the probe, so that no request
//! of a client is at risk.

use std::time::Duration;

use edgeward_types::Timestamp;

/// The limits of the health of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// Consecutive failures that eject a server. Default 3: a lost packet or a restarted worker process of the server
    /// fails one or two requests.
    pub failures_max: u32,
    /// Duration of the first ejection. Default 5 s: a restart of an application takes seconds.
    pub ejection_time: Duration,
    /// Longest ejection. Default 60 s: a server that was down for long is found again within a minute.
    pub ejection_time_max: Duration,
    /// Time after a recovery in which the share of the server grows to that of the other servers. Default 10 s: caches
    /// and connection pools of applications fill in seconds. 0 disables the slow start.
    pub slow_start: Duration,
    /// True if active checks run. The edge then sends no request to probe an ejected server.
    pub has_checks: bool,
    /// Consecutive failed checks after which a server is down. Default 3.
    pub check_failures: u32,
    /// Consecutive successful checks after which a server is up again. Default 2.
    pub check_successes: u32,
}

impl Default for HealthSettings {
    fn default() -> Self {
        Self {
            failures_max: 3,
            ejection_time: Duration::from_secs(5),
            ejection_time_max: Duration::from_secs(60),
            slow_start: Duration::from_secs(10),
            has_checks: false,
            check_failures: 3,
            check_successes: 2,
        }
    }
}

/// The result of a request, as evidence of the health of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The server sent the head of a response.
    Success,
    /// No connection, no response in time, or no valid response.
    Failure,
}

/// The state of a server for choices, status pages and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthState {
    /// The server gets requests.
    Up,
    /// The server has recovered, and gets fewer requests than others.
    SlowStart,
    /// The time of the ejection has passed: one request may probe the server.
    HalfOpen,
    /// The server gets no requests: it was ejected, or another request probes it.
    Ejected,
    /// The server gets no requests, because active checks fail.
    CheckFailed,
}

impl HealthState {
    /// Returns the word of the state in status pages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::SlowStart => "slow-start",
            Self::HalfOpen => "half-open",
            Self::Ejected => "ejected",
            Self::CheckFailed => "check-failed",
        }
    }

    /// Returns true if the server is among the usable ones.
    pub const fn is_usable(self) -> bool {
        matches!(self, Self::Up | Self::SlowStart)
    }
}

/// The health of one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    breaker: Breaker,
    /// Consecutive failures.
    failures: u32,
    /// Ejections since the server was last up for long.
    ejections: u32,
    last_failure: Option<Timestamp>,
    recovered_at: Option<Timestamp>,
    checks_failed: bool,
    /// Consecutive checks whose result differs from `checks_failed`.
    check_streak: u32,
    /// The part of a request, in thousandths, that the server has been spared in the slow start.
    credit: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Breaker {
    #[default]
    Closed,
    Open {
        until: Timestamp,
    },
    /// A request probes the server.
    Probed,
}

impl Health {
    /// Returns the health of a server that joins a group in use, with a slow start.
    pub(crate) fn joining(now: Timestamp) -> Self {
        Self {
            recovered_at: Some(now),
            ..Self::default()
        }
    }

    /// Returns the health for a group with these settings. A probe of the other group does not count.
    pub(crate) fn adopted(&self, settings: &HealthSettings, now: Timestamp) -> Self {
        let mut health = self.clone();
        health.end_probe(now);
        if !settings.has_checks {
            (health.checks_failed, health.check_streak) = (false, 0);
        }
        health
    }

    pub(crate) fn state(&self, settings: &HealthSettings, now: Timestamp) -> HealthState {
        if self.checks_failed {
            return HealthState::CheckFailed;
        }
        match self.breaker {
            Breaker::Closed if self.weight(settings, now) < FULL => HealthState::SlowStart,
            Breaker::Closed => HealthState::Up,
            Breaker::Open { until } if now >= until && !settings.has_checks => {
                HealthState::HalfOpen
            }
            Breaker::Open { .. } | Breaker::Probed => HealthState::Ejected,
        }
    }

    pub(crate) const fn last_failure(&self) -> Option<Timestamp> {
        self.last_failure
    }

    pub(crate) const fn ejections(&self) -> u32 {
        self.ejections
    }

    /// Returns the share of the server in thousandths of that of other servers.
    fn weight(&self, settings: &HealthSettings, now: Timestamp) -> u32 {
        let Some(recovered_at) = self.recovered_at else {
            return FULL;
        };
        let elapsed = now.since(recovered_at);
        if elapsed >= settings.slow_start {
            return FULL;
        }
        let share = elapsed.as_millis() * u128::from(FULL) / settings.slow_start.as_millis().max(1);
        u32::try_from(share).unwrap_or(FULL).max(WEIGHT_MIN)
    }

    /// Returns true if a server that the method has chosen takes the request. In the slow start it takes the share of
    /// its weight, evenly distributed: of the requests for which the method chooses it with a weight of one tenth, it
    /// takes each tenth.
    pub(crate) fn takes_request(&mut self, settings: &HealthSettings, now: Timestamp) -> bool {
        let weight = self.weight(settings, now);
        if weight >= FULL {
            self.credit = 0;
            return true;
        }
        self.credit += weight;
        let takes = self.credit >= FULL;
        if takes {
            self.credit -= FULL;
        }
        takes
    }

    /// Records that a request probes the server.
    pub(crate) fn begin_probe(&mut self) {
        self.breaker = Breaker::Probed;
    }

    /// Records that the request which probes the server ended without a verdict. Another request may probe the server.
    pub(crate) fn end_probe(&mut self, now: Timestamp) {
        if self.breaker == Breaker::Probed {
            self.breaker = Breaker::Open { until: now };
        }
    }

    /// Records the result of a request. Returns true if the server is ejected now.
    pub(crate) fn record(
        &mut self,
        settings: &HealthSettings,
        verdict: Verdict,
        is_trial: bool,
        now: Timestamp,
    ) -> bool {
        match (verdict, self.breaker) {
            (Verdict::Success, Breaker::Probed | Breaker::Open { .. }) if is_trial => {
                self.recover(now);
            }
            (Verdict::Success, _) => self.failures = 0,
            (Verdict::Failure, breaker) => {
                self.last_failure = Some(now);
                self.failures += 1;
                let is_ejected = match breaker {
                    Breaker::Closed => self.failures >= settings.failures_max,
                    Breaker::Probed => is_trial,
                    Breaker::Open { .. } => false,
                };
                if is_ejected {
                    self.eject(settings, now);
                }
                return is_ejected;
            }
        }
        false
    }

    fn eject(&mut self, settings: &HealthSettings, now: Timestamp) {
        let was_up_for_long = |since| now.since(since) >= settings.ejection_time_max;
        if self.breaker == Breaker::Closed && self.recovered_at.is_none_or(was_up_for_long) {
            self.ejections = 0;
        }
        let doubled = 1_u32.checked_shl(self.ejections).unwrap_or(u32::MAX);
        let time = settings.ejection_time.saturating_mul(doubled);
        self.ejections += 1;
        self.breaker = Breaker::Open {
            until: now.after(time.min(settings.ejection_time_max)),
        };
    }

    fn recover(&mut self, now: Timestamp) {
        self.breaker = Breaker::Closed;
        (self.failures, self.credit) = (0, 0);
        self.recovered_at = Some(now);
    }

    /// Records the result of an active check. Returns true if the checks now have another result than before.
    pub(crate) fn record_check(
        &mut self,
        settings: &HealthSettings,
        is_ok: bool,
        now: Timestamp,
    ) -> bool {
        let had_failed = self.checks_failed;
        if !is_ok {
            self.last_failure = Some(now);
        }
        if is_ok != self.checks_failed {
            // The result confirms the state.
            self.check_streak = 0;
        } else {
            self.check_streak += 1;
            let needed = match is_ok {
                true => settings.check_successes,
                false => settings.check_failures,
            };
            if self.check_streak >= needed {
                self.checks_failed = !is_ok;
                self.check_streak = 0;
                if is_ok {
                    self.recover(now);
                }
            }
        }
        let is_due = matches!(self.breaker, Breaker::Open { until } if now >= until);
        if is_ok && !self.checks_failed && is_due {
            self.recover(now);
        }
        self.checks_failed != had_failed
    }
}

/// The weight of a server without slow start, in thousandths.
const FULL: u32 = 1000;

/// The weight at the beginning of the slow start: a tenth, so that a server with few requests recovers too.
const WEIGHT_MIN: u32 = FULL / 10;
