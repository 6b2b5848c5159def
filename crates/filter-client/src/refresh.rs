//! The background thread: polls the publisher, fetches snapshots and deltas, and passes them to the client.
//!
//! Two loops run concurrently, each with its own connection. The download of a snapshot of a hundred megabytes
//! must not delay new ids or proofs.
//!
//! The *poll* loop requests the manifest with a challenge and the client's position. The publisher delays its
//! response until there is news, at most a third of `max_staleness`, because a proof counts from when its
//! request was sent. The poll loop also fetches deltas. The *download* loop fetches the snapshot that the
//! newest manifest lists.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use edgeward_filter::LINE_BYTES_MAX;
use edgeward_filter::client::{Received, Refused};
use http::StatusCode;
use http::header::{CACHE_CONTROL, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::counters::count;
use crate::fetch::{FetchError, Fetcher};
use crate::keep::Keep;
use crate::shared::Shared;

pub(crate) struct Refresh {
    shared: Arc<Shared>,
    keep: Option<Keep>,
    /// Notified when there may be a snapshot to fetch.
    wanted: Notify,
}

/// Why a poll or a download failed.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("{what} was refused: {source}")]
    Refused { what: &'static str, source: Refused },
}

/// The result of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Polled {
    News,
    Nothing,
}

impl Refresh {
    pub(crate) fn new(shared: Arc<Shared>, keep: Option<Keep>) -> Self {
        Self {
            shared,
            keep,
            wanted: Notify::new(),
        }
    }

    /// Runs both loops; never returns.
    pub(crate) async fn run(&self, fetcher: Fetcher) {
        let beside = fetcher.another();
        tokio::join!(self.poll_forever(fetcher), self.download_forever(beside));
    }

    async fn poll_forever(&self, mut fetcher: Fetcher) {
        let mut failures = 0;
        let mut tag = None;
        loop {
            let begun = Instant::now();
            let polled = self.poll(&mut fetcher, &mut tag).await;
            let polled = match polled {
                Ok(polled) => {
                    let fetched = self.fetch_deltas(&mut fetcher).await;
                    fetched.map(|()| polled)
                }
                Err(error) => Err(error),
            };
            if self.shared.read().wants().snapshot.is_some() {
                self.wanted.notify_one();
            }
            let pause = match polled {
                Ok(polled) => {
                    failures = 0;
                    match polled {
                        // More news may follow immediately.
                        Polled::News => PAUSE_MIN,
                        // A server that did not wait, such as a cache, must not be polled continuously.
                        Polled::Nothing => self.period().saturating_sub(begun.elapsed()),
                    }
                }
                Err(error) => {
                    failures += 1;
                    count(&self.shared.counters.failed);
                    self.shared.complain("poll failed", &error);
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
    ) -> Result<Polled, RoundError> {
        count(&self.shared.counters.polls);
        let dated = self.shared.config.clock_error.is_some();
        let mut fields = Vec::new();
        let mut beneath = String::new();
        let mut patience = Duration::ZERO;
        if dated {
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
                patience = self.period();
                let wait = patience.as_millis();
                beneath = format!("?have={lineage}-{epoch}-{head}&wait={wait}");
            }
        }
        let answer = fetcher.get(&beneath, &fields, LINE_BYTES_MAX as u64, patience);
        let (status, headers, line) = answer.await?;
        let polled = match status {
            StatusCode::OK => {
                if dated {
                    *tag = headers.get(ETAG).cloned();
                }
                let taken = self.shared.write().manifest(self.shared.now(), &line);
                self.judge("the manifest", taken)?;
                count(&self.shared.counters.manifests);
                let refused = self.shared.read().snapshot_refused();
                match refused {
                    None => Polled::News,
                    Some(error) => {
                        self.shared.complain("snapshot not fetched", &error);
                        count(&self.shared.counters.snapshots_refused);
                        // The publisher answers immediately while its snapshot differs, so wait before the next
                        // poll.
                        Polled::Nothing
                    }
                }
            }
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => Polled::Nothing,
            status => return Err(FetchError::Status(status).into()),
        };
        if let Some(proof) = headers.get(&PROOF) {
            let taken = self
                .shared
                .write()
                .proof(self.shared.now(), proof.as_bytes());
            self.judge("the proof", taken)?;
            count(&self.shared.counters.proofs);
        }
        Ok(if dated { Polled::Nothing } else { polled })
    }

    /// Fetches the missing deltas, in order.
    async fn fetch_deltas(&self, fetcher: &mut Fetcher) -> Result<(), RoundError> {
        let wanted = self.shared.read().wants().deltas;
        for entry in wanted {
            let bytes_max = DELTA_HEADER_BYTES + 8 * self.shared.config.overlay_ids_max as u64;
            if entry.bytes > bytes_max {
                return Err(FetchError::TooLarge(bytes_max).into());
            }
            let beneath = format!("/delta/{}", entry.sha256);
            let bytes = match fetcher.file(&beneath, entry.bytes, 1).await {
                // The delta was merged in the meantime. The next manifest lists its replacement.
                Err(FetchError::Status(StatusCode::NOT_FOUND)) => return Ok(()),
                // Counts as refused: the received file is not the listed one.
                Err(error @ (FetchError::TooLarge(_) | FetchError::Short { .. })) => {
                    count(&self.shared.counters.deltas_refused);
                    return Err(error.into());
                }
                other => other?,
            };
            let taken = self.shared.write().delta(self.shared.now(), &bytes);
            self.judge("a delta", taken)?;
            count(&self.shared.counters.deltas);
        }
        Ok(())
    }

    async fn download_forever(&self, mut fetcher: Fetcher) {
        let mut failures = 0;
        loop {
            self.wanted.notified().await;
            match self.download(&mut fetcher).await {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    count(&self.shared.counters.failed);
                    self.shared
                        .complain("download of the snapshot failed", &error);
                    tokio::time::sleep(jittered(self.backoff(failures))).await;
                    self.wanted.notify_one();
                }
            }
            self.shared.changed();
        }
    }

    async fn download(&self, fetcher: &mut Fetcher) -> Result<(), RoundError> {
        let Some(named) = self.shared.read().wants().snapshot else {
            return Ok(());
        };
        let beneath = format!("/snapshot/{}", named.sha256);
        let bytes = match fetcher.file(&beneath, named.bytes, DOWNLOAD_ATTEMPTS).await {
            Err(error @ (FetchError::TooLarge(_) | FetchError::Short { .. })) => {
                count(&self.shared.counters.snapshots_refused);
                return Err(error.into());
            }
            other => Bytes::from(other?),
        };
        let kept = bytes.clone();
        let opened = tokio::task::spawn_blocking(move || Received::open(bytes)).await;
        let Ok(received) = opened else {
            // The thread panicked, which the panic hook logs. The next poll tries again.
            return Ok(());
        };
        let taken = self.shared.write().received(self.shared.now(), received);
        match taken {
            Ok(()) => count(&self.shared.counters.snapshots),
            // A newer manifest arrived during the download and lists another snapshot.
            Err(Refused::Older) => return Ok(()),
            Err(Refused::Unlisted)
                if self
                    .shared
                    .read()
                    .wants()
                    .snapshot
                    .is_some_and(|now| now != named) =>
            {
                self.wanted.notify_one();
                return Ok(());
            }
            Err(source) => self.judge("the snapshot", Err(source))?,
        }
        self.save(kept).await;
        self.fetch_deltas(fetcher).await
    }

    async fn save(&self, snapshot: Bytes) {
        let (Some(keep), Some(line)) = (self.keep.clone(), self.shared.read().manifest_line())
        else {
            return;
        };
        let saved = tokio::task::spawn_blocking(move || keep.save(&line, &snapshot)).await;
        if let Ok(Err(error)) = saved {
            self.shared.complain("storing the snapshot failed", &error);
        }
    }

    /// Counts a refused document or file.
    fn judge(&self, what: &'static str, taken: Result<(), Refused>) -> Result<(), RoundError> {
        let Err(source) = taken else {
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
        Err(RoundError::Refused { what, source })
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
/// Below the idle timeout of common proxies.
const PERIOD_MAX: Duration = Duration::from_secs(25);
const BACKOFF_FIRST: Duration = Duration::from_millis(100);

/// Each attempt continues where the last one ended, if the publisher supports ranges.
const DOWNLOAD_ATTEMPTS: u32 = 8;

const DELTA_HEADER_BYTES: u64 = 64;
