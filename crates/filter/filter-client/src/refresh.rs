//! The background thread: polls the publisher, fetches snapshots and deltas, and passes them to the client.
//!
//! Two loops run concurrently, each with its own connection. The download of a snapshot of a hundred megabytes
//! must not delay new ids, or the proofs that keep the filter fresh.
//!
//! The *poll* loop requests the manifest with a challenge (random bytes) and the client's position. A *proof* is the
//! publisher's signed answer to the challenge, and states which manifest is the newest one. The publisher delays its
//! response until it has published new ids, but at most a third of `max_staleness`. The time for which a proof keeps
//! the filter fresh begins when the request is sent, so a longer delay would use up more of this time. The poll loop
//! also fetches deltas. The *download* loop fetches the snapshot that the newest manifest lists.
//!
//! If `clock_error` is set, the client does not need proofs, because the date of the manifest shows how fresh it is.
//! The request then has neither challenge nor position, so all clients send the same request, and caches may answer it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use edgeward_filter::LINE_BYTES_MAX;
use edgeward_filter::client::{ReceivedSnapshot, UpdateError};
use http::StatusCode;
use http::header::{CACHE_CONTROL, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::counters::count;
use crate::fetch::{FetchError, Fetcher};
use crate::shared::Shared;
use crate::stored_snapshot::StoredSnapshot;

pub(crate) struct Refresh {
    shared: Arc<Shared>,
    /// The files that keep the newest snapshot for the next start; `None` if it is not stored.
    stored: Option<StoredSnapshot>,
    /// Notified when a newer snapshot may be available.
    download_needed: Notify,
}

/// Why a poll or a download failed.
#[derive(Debug, thiserror::Error)]
enum RefreshError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("{what} was refused: {source}")]
    Update {
        what: &'static str,
        source: UpdateError,
    },
}

/// The start of the next poll after a successful poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextPoll {
    /// About [`PAUSE_MIN`] after this poll, because the publisher sent a manifest and may soon publish more ids.
    Soon,
    /// One period after the start of this poll.
    AfterPeriod,
}

impl Refresh {
    pub(crate) fn new(shared: Arc<Shared>, stored: Option<StoredSnapshot>) -> Self {
        Self {
            shared,
            stored,
            download_needed: Notify::new(),
        }
    }

    /// Runs both loops; never returns.
    pub(crate) async fn run(&self, fetcher: Fetcher) {
        let download_fetcher = fetcher.with_new_connection();
        tokio::join!(
            self.poll_forever(fetcher),
            self.download_forever(download_fetcher)
        );
    }

    async fn poll_forever(&self, mut fetcher: Fetcher) {
        let mut failures = 0;
        let mut tag = None;
        loop {
            let started = Instant::now();
            let next_poll = self.poll(&mut fetcher, &mut tag).await;
            let next_poll = match next_poll {
                Ok(next_poll) => {
                    let fetched = self.fetch_deltas(&mut fetcher).await;
                    fetched.map(|()| next_poll)
                }
                Err(error) => Err(error),
            };
            if self.shared.read().to_fetch().snapshot.is_some() {
                self.download_needed.notify_one();
            }
            let pause = match next_poll {
                Ok(next_poll) => {
                    failures = 0;
                    match next_poll {
                        // More ids may be published immediately.
                        NextPoll::Soon => PAUSE_MIN,
                        // A server that answers without delay, such as a cache, must not be polled continuously.
                        NextPoll::AfterPeriod => self.period().saturating_sub(started.elapsed()),
                    }
                }
                Err(error) => {
                    failures += 1;
                    count(&self.shared.counters.failed);
                    self.shared.record_error("poll failed", &error);
                    self.backoff(failures)
                }
            };
            self.shared.changed();
            tokio::time::sleep(jittered(pause).max(PAUSE_MIN)).await;
        }
    }

    /// A third of `max_staleness`, so that one lost response does not make the filter stale.
    fn period(&self) -> Duration {
        (self.shared.config.max_staleness / 3).clamp(PERIOD_MIN, PERIOD_MAX)
    }

    fn backoff(&self, failures: u32) -> Duration {
        let pause = BACKOFF_FIRST * 2u32.saturating_pow(failures.min(16) - 1);
        pause.min(self.period().max(BACKOFF_FIRST))
    }

    /// Requests the manifest, and a proof if the client needs one.
    async fn poll(
        &self,
        fetcher: &mut Fetcher,
        tag: &mut Option<HeaderValue>,
    ) -> Result<NextPoll, RefreshError> {
        count(&self.shared.counters.polls);
        // Without `clock_error`, only a proof makes the filter fresh.
        let uses_manifest_date = self.shared.config.clock_error.is_some();
        let mut fields = Vec::new();
        let mut subpath = String::new();
        let mut extra_wait = Duration::ZERO;
        if uses_manifest_date {
            fields.extend(tag.clone().map(|tag| (IF_NONE_MATCH, tag)));
        } else {
            let mut random = [0; 16];
            let drawn =
                rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty());
            if drawn.is_ok() {
                let challenge = self.shared.write().challenge(self.shared.now(), random);
                let challenge = HeaderValue::try_from(challenge).expect("hex digits");
                fields.push((CHALLENGE, challenge));
            }
            // RFC 9111 §5.2.1.4: an intermediate cache must ask the publisher.
            fields.push((CACHE_CONTROL, HeaderValue::from_static("no-cache")));
            if let Some((lineage, epoch, head)) = self.shared.read().position() {
                extra_wait = self.period();
                let wait = extra_wait.as_millis();
                subpath = format!("?have={lineage}-{epoch}-{head}&wait={wait}");
            }
        }
        let response = fetcher.get(&subpath, &fields, LINE_BYTES_MAX as u64, extra_wait);
        let (status, headers, line) = response.await?;
        let next_poll = match status {
            StatusCode::OK => {
                if uses_manifest_date {
                    *tag = headers.get(ETAG).cloned();
                }
                let accepted = self
                    .shared
                    .write()
                    .accept_manifest(self.shared.now(), &line);
                self.check_accepted("the manifest", accepted)?;
                count(&self.shared.counters.manifests);
                // An error states that the newest snapshot is larger than `snapshot_bytes_max`, so it is not fetched.
                let too_large = self.shared.read().snapshot_refused();
                match too_large {
                    None => NextPoll::Soon,
                    Some(error) => {
                        self.shared.record_error("snapshot not fetched", &error);
                        count(&self.shared.counters.snapshots_refused);
                        // As long as the client has another snapshot than the publisher, the publisher answers
                        // immediately. The loop therefore waits before the next poll.
                        NextPoll::AfterPeriod
                    }
                }
            }
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => NextPoll::AfterPeriod,
            status => return Err(FetchError::Status(status).into()),
        };
        if let Some(proof) = headers.get(&PROOF) {
            let accepted = self
                .shared
                .write()
                .accept_proof(self.shared.now(), proof.as_bytes());
            self.check_accepted("the proof", accepted)?;
            count(&self.shared.counters.proofs);
        }
        Ok(if uses_manifest_date {
            // The request had no `wait`, so the publisher or a cache answered immediately.
            NextPoll::AfterPeriod
        } else {
            next_poll
        })
    }

    /// Fetches the missing deltas, in order.
    async fn fetch_deltas(&self, fetcher: &mut Fetcher) -> Result<(), RefreshError> {
        let missing = self.shared.read().to_fetch().deltas;
        for entry in missing {
            let bytes_max = DELTA_HEADER_BYTES + 8 * self.shared.config.overlay_ids_max as u64;
            if entry.bytes > bytes_max {
                return Err(FetchError::TooLarge(bytes_max).into());
            }
            let subpath = format!("/delta/{}", entry.sha256);
            let bytes = match fetcher.file(&subpath, entry.bytes, 1).await {
                // The delta was merged in the meantime. The next manifest lists its replacement.
                Err(FetchError::Status(StatusCode::NOT_FOUND)) => return Ok(()),
                // The received file is not the listed one, so it counts as refused.
                Err(error @ (FetchError::TooLarge(_) | FetchError::Truncated { .. })) => {
                    count(&self.shared.counters.deltas_refused);
                    return Err(error.into());
                }
                other => other?,
            };
            let accepted = self.shared.write().accept_delta(self.shared.now(), &bytes);
            self.check_accepted("a delta", accepted)?;
            count(&self.shared.counters.deltas);
        }
        Ok(())
    }

    async fn download_forever(&self, mut fetcher: Fetcher) {
        let mut failures = 0;
        loop {
            self.download_needed.notified().await;
            match self.download(&mut fetcher).await {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    count(&self.shared.counters.failed);
                    self.shared
                        .record_error("download of the snapshot failed", &error);
                    tokio::time::sleep(jittered(self.backoff(failures))).await;
                    self.download_needed.notify_one();
                }
            }
            self.shared.changed();
        }
    }

    async fn download(&self, fetcher: &mut Fetcher) -> Result<(), RefreshError> {
        let Some(listed) = self.shared.read().to_fetch().snapshot else {
            return Ok(());
        };
        let subpath = format!("/snapshot/{}", listed.sha256);
        let bytes = match fetcher
            .file(&subpath, listed.bytes, DOWNLOAD_ATTEMPTS)
            .await
        {
            Err(error @ (FetchError::TooLarge(_) | FetchError::Truncated { .. })) => {
                count(&self.shared.counters.snapshots_refused);
                return Err(error.into());
            }
            other => Bytes::from(other?),
        };
        let stored_bytes = bytes.clone();
        let opened = tokio::task::spawn_blocking(move || ReceivedSnapshot::open(bytes)).await;
        let Ok(received) = opened else {
            // The thread panicked, which the panic hook logs. The next poll tries again.
            return Ok(());
        };
        let accepted = self
            .shared
            .write()
            .accept_received(self.shared.now(), received);
        match accepted {
            Ok(()) => count(&self.shared.counters.snapshots),
            Err(UpdateError::Older) => return Ok(()),
            // A newer manifest arrived during the download and lists another snapshot.
            Err(UpdateError::Unlisted)
                if self
                    .shared
                    .read()
                    .to_fetch()
                    .snapshot
                    .is_some_and(|newest| newest != listed) =>
            {
                self.download_needed.notify_one();
                return Ok(());
            }
            Err(source) => self.check_accepted("the snapshot", Err(source))?,
        }
        self.save(stored_bytes).await;
        self.fetch_deltas(fetcher).await
    }

    async fn save(&self, snapshot: Bytes) {
        let (Some(stored), Some(line)) = (self.stored.clone(), self.shared.read().manifest_line())
        else {
            return;
        };
        let saved = tokio::task::spawn_blocking(move || stored.save(&line, &snapshot)).await;
        if let Ok(Err(error)) = saved {
            self.shared
                .record_error("storing the snapshot failed", &error);
        }
    }

    /// Returns an error and counts it if a document or file was refused.
    fn check_accepted(
        &self,
        what: &'static str,
        accepted: Result<(), UpdateError>,
    ) -> Result<(), RefreshError> {
        let Err(source) = accepted else {
            return Ok(());
        };
        let counters = &self.shared.counters;
        let counter = match what {
            "the manifest" => &counters.manifests_refused,
            "the proof" => &counters.proofs_refused,
            "the snapshot" => &counters.snapshots_refused,
            _ => &counters.deltas_refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        Err(RefreshError::Update { what, source })
    }
}

/// Varies a pause by up to 20 %, so that many clients do not poll at the same moment.
fn jittered(pause: Duration) -> Duration {
    let mut random = [0; 2];
    // If no random bytes are available there is no jitter, which is harmless.
    _ = rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty());
    let share = 0.8 + 0.4 * f64::from(u16::from_le_bytes(random)) / f64::from(u16::MAX);
    pause.mul_f64(share)
}

const CHALLENGE: HeaderName = HeaderName::from_static("edgeward-challenge");
const PROOF: HeaderName = HeaderName::from_static("edgeward-proof");

/// The shortest pause between two requests.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PERIOD_MIN: Duration = Duration::from_millis(50);
/// The longest period of polls, shorter than the idle timeout of common proxies.
const PERIOD_MAX: Duration = Duration::from_secs(25);
const BACKOFF_FIRST: Duration = Duration::from_millis(100);

/// The number of attempts to download a snapshot. Each attempt continues where the last one ended, if the
/// publisher supports ranges.
const DOWNLOAD_ATTEMPTS: u32 = 8;

const DELTA_HEADER_BYTES: u64 = 64;
