//! Carries out the steps of a request that no fresh stored response answers. `steps` decides them.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use edgeward_semantics::slices::FirstPart;
use edgeward_semantics::{CacheStatus, Forward, conditional};
use http::{Method, Response, StatusCode};

use super::follow::{FOLLOWS_MAX, find_new_fresh, is_purged, wait_for_head};
use super::lead::fetch_state::{Fetch, FetchResult};
use super::leader::leader_result;
use super::part::{has_range, part_to_fetch};
use super::respond::respond_fill;
use super::sliced::{Answered, Answering, OutdatedSlices, respond_stale};
use super::steps::{
    FirstStep, Fit, FollowStep, Followed, MissFacts, Stale, first_step, follow_step,
};
use super::{head, ranges, sliced};
use crate::cache::CacheKey;
use crate::cache::collapse::{FetchLeader, Role};
use crate::cache::fill::{Failure, FillHead, FillReader, FillVariant, FollowResult};
use crate::cache::stored::Stored;
use crate::exchange::{Request, RequestBody, RequestError};
use crate::observe::outcome::RequestOutcome;
use crate::observe::site_counters::OutcomeClass;
use crate::observe::spans::SampledRequest;
use crate::origin::as_origin_sees;
use crate::path::body::EdgeBody;
use crate::path::deliver::Reply;
use crate::path::lookup::{Query as _, lookup_again};
use crate::path::pass;
use crate::path::stale::StaleCause;

/// A request that no fresh stored response answers. It is boxed, because the future of each step would copy it.
pub(super) struct Miss {
    reply: Reply,
    request: Rc<Request>,
    key: CacheKey,
    reason: Forward,
    /// The stored response to validate.
    stale: Option<Arc<Stored>>,
    /// The part of the response to fetch first, if the response is fetched in slices.
    part: Option<FirstPart>,
}

impl Miss {
    pub(super) fn new(
        reply: Reply,
        request: Rc<Request>,
        key: CacheKey,
        reason: Forward,
        stale: Option<Arc<Stored>>,
    ) -> Box<Self> {
        Box::new(Self {
            part: part_to_fetch(&reply.worker, &request, &key, stale.as_ref()),
            reply,
            request,
            key,
            reason,
            stale,
        })
    }

    /// Carries out the first step, and those that follow from it.
    pub(super) async fn carry_out(self: Box<Self>, incoming: Option<RequestBody>) -> Answered {
        let step = first_step(self.facts(incoming.is_some()));
        // Other steps do not read the content of the request.
        let incoming = incoming.filter(|_| matches!(step, FirstStep::Pass { .. }));
        match step {
            FirstStep::Head => {
                let answer = head::miss(self.reply, self.request, self.key, self.reason);
                Ok(Box::pin(answer).await)
            }
            FirstStep::Pass { may_follow } => self.pass(incoming, may_follow).await,
            FirstStep::ValidateHead => self.validate_head().await,
            FirstStep::ServeStale => self.serve_stale().await,
            FirstStep::Share { for_head } => {
                if for_head {
                    self.reply.worker.counters.head_fetches.increment();
                }
                self.share().await
            }
        }
    }

    fn facts(&self, has_content: bool) -> MissFacts {
        let (worker, request) = (&self.reply.worker, &self.request);
        let is_head = request.method == Method::HEAD;
        let backs_off =
            |stale| StaleCause::of_back_off(&worker.shared, request, self.key.hash, stale);
        MissFacts {
            is_head,
            has_range: has_range(request), // plain requests have no range
            is_conditional: !request.plain && conditional::is_conditional(&request.headers),
            has_content,
            is_checked: self.is_checked(),
            has_part: self.part.is_some(),
            fetches_body: is_head && self.stale.is_none() && head::fetches_body(worker, &self.key),
            stale: self.stale.as_ref().map(|stale| Stale {
                is_reason: self.reason == Forward::Stale,
                backs_off: backs_off(stale).is_some(),
            }),
        }
    }

    /// Returns true if the origin decides about each client (`check_authorization`).
    fn is_checked(&self) -> bool {
        self.request.settings().caching.check_authorization
    }

    fn stale(&self) -> Arc<Stored> {
        let stale = self.stale.as_ref();
        Arc::clone(stale.expect("the step is for a request with a stored response"))
    }

    /// Forwards the request, unless a fetch that is under way has the range.
    async fn pass(
        mut self: Box<Self>,
        incoming: Option<RequestBody>,
        may_follow: bool,
    ) -> Answered {
        self.reply.count(RequestOutcome::forwarded(self.reason));
        let (request, reason) = (self.request, self.reason);
        let mut reply = self.reply;
        if may_follow {
            reply = match Box::pin(ranges::follow(reply, &request, &self.key, reason)).await {
                Ok(answered) => return answered,
                Err(reply) => reply,
            };
        }
        let detail = if has_range(&request) { "range" } else { "head" };
        let status = CacheStatus::forward(reason).with_detail(detail);
        Ok(Box::pin(pass::pass(reply, request, incoming, status)).await)
    }

    async fn validate_head(mut self: Box<Self>) -> Answered {
        self.reply.count(RequestOutcome::forwarded(self.reason));
        let stale = self.stale();
        let validation = head::validate(self.reply, self.request, self.key, self.reason, stale);
        Box::pin(validation).await
    }

    async fn serve_stale(self: Box<Self>) -> Answered {
        let (stale, cause) = (self.stale(), StaleCause::BackOff);
        respond_stale(
            self.reply,
            self.request,
            self.key,
            stale,
            cause,
            self.reason,
        )
        .await
    }

    /// Answers with a stored response.
    fn answer(self: Box<Self>, stored: Arc<Stored>, status: Option<CacheStatus>) -> Answering {
        sliced::respond(self.reply, self.request, self.key, stored, status, None)
    }

    /// Shares a fetch with other requests for the key: leads it, or follows it.
    async fn share(mut self: Box<Self>) -> Answered {
        let worker = Rc::clone(&self.reply.worker);
        let collapse = &worker.cache.collapse;
        let is_checked = self.is_checked();
        let mut follows_left = FOLLOWS_MAX;
        let mut failed: Option<FillReader> = None;
        loop {
            let primary = self.key.primary_hash();
            let is_uncollapsed = is_checked
                || follows_left == 0
                || worker.cache.hit_for_miss.contains(primary, worker.now());
            let role = match failed.take() {
                _ if is_uncollapsed => Role::Uncollapsed,
                Some(failed) => collapse.join_after(&failed, self.key.hash, &self.key.bytes),
                None => collapse.join(self.key.hash, &self.key.bytes),
            };
            if follows_left == FOLLOWS_MAX {
                // The request is counted after it has joined, so that tests can wait for requests that have joined.
                self.reply.count(RequestOutcome::forwarded(self.reason));
            }
            let reader = match role {
                Role::Follower(reader) => reader,
                Role::Leader(leader, reader) => return self.lead(leader, reader).await,
                Role::FurtherLeader(leader, reader) => {
                    worker.counters.collapse_full.increment();
                    return self.lead(leader, reader).await;
                }
                Role::Uncollapsed => return self.fetch_alone().await,
                Role::Overdue => {
                    worker.counters.collapse_timeouts.increment();
                    return self.fetch_alone().await;
                }
            };
            follows_left -= 1;
            let followed = self.followed(wait_for_head(&reader).await, &reader);
            match follow_step(followed, follows_left == 0) {
                FollowStep::Read(head) => return Ok(self.read(&head, reader).await),
                FollowStep::Answer(stored) => return self.answer_shared(stored).await,
                FollowStep::AskForRange(head) => {
                    return Ok(self.ask_for_range(&head, reader).await);
                }
                FollowStep::LookUpAgain => {
                    // A marker is now stored, so a new lookup can compute the key of this request's response.
                    let (key, fresh) = lookup_again(&worker, &self.request).await;
                    self.key = key;
                    if let Some(stored) = fresh {
                        return self.answer(stored, None).await;
                    }
                }
                FollowStep::JoinNewer => {
                    collapse.stop_joining_fill(self.key.hash, reader.fill());
                    // The purge may cover the stale response too.
                    let key = &self.key;
                    self.stale = self.stale.filter(|stale| !is_purged(&worker, key, stale));
                }
                FollowStep::JoinAfterFailure => failed = Some(reader),
                FollowStep::FindOrFetchAlone => {
                    if let Some(stored) = find_new_fresh(&worker, &self.key, self.stale.as_ref()) {
                        return self.answer(stored, None).await;
                    }
                    follows_left = 0;
                }
                FollowStep::FetchAlone => follows_left = 0,
                FollowStep::Refuse(failure) => {
                    let status = self.collapsed().with_detail(failure.detail);
                    let text = "the shared request to the origin failed";
                    let error = RequestError::after_lookup(failure.status, status, text);
                    return Ok(self.reply.refuse(&error));
                }
            }
        }
    }

    /// Compares the result of a shared fetch with this request. `None` is a fetch without a head at its deadline.
    fn followed(
        &self,
        result: Option<FollowResult>,
        reader: &FillReader,
    ) -> Followed<Arc<FillHead>, Arc<Stored>, Failure> {
        let (worker, request, key) = (&self.reply.worker, &self.request, &self.key);
        match result {
            Some(FollowResult::Head(head)) => {
                let is_answered = |variant: &FillVariant| {
                    let edge = worker.edge_info(request);
                    variant.answers(&as_origin_sees(edge, request, &variant.fields))
                };
                let fit = if worker
                    .cache
                    .is_purged(key.primary(), &head.headers, head.stamp)
                {
                    Fit::Purged
                } else if head.covers(key.target()) && head.variant.as_ref().is_none_or(is_answered)
                {
                    Fit::Answers
                } else {
                    Fit::OtherVariant
                };
                let arrived = reader.fill().arrived_bytes();
                Followed::Head {
                    fit,
                    is_far: self.part.is_some() && ranges::is_far(request, &head, arrived),
                    head,
                }
            }
            Some(FollowResult::Stored(stored)) => {
                let fit = if is_purged(worker, key, &stored) {
                    Fit::Purged
                } else if stored.has_key(&key.bytes) {
                    Fit::Answers
                } else {
                    Fit::OtherVariant
                };
                Followed::Stored {
                    fit,
                    is_too_stale: fit == Fit::Answers && self.is_too_stale(&stored),
                    stored,
                }
            }
            Some(FollowResult::Released) => Followed::Released,
            Some(FollowResult::Failed(failure)) => Followed::Failed(failure),
            None => {
                worker.counters.collapse_timeouts.increment();
                Followed::TimedOut
            }
        }
    }

    /// Returns true if the leader has accepted a stale response after an error, and this request does not.
    fn is_too_stale(&self, stored: &Stored) -> bool {
        let (policy, now) = (&stored.response().policy, self.reply.worker.now());
        let stale_if_error = self.request.directives().stale_if_error;
        !policy.is_fresh(now) && policy.is_too_stale_for(stale_if_error, now)
    }

    /// Returns the `Cache-Status` of a request that was answered by the fetch of another one.
    fn collapsed(&self) -> CacheStatus {
        let mut status = CacheStatus::forward(self.reason);
        status.collapsed = true;
        status
    }

    /// Answers with the body of a shared fetch.
    async fn read(self: Box<Self>, head: &Arc<FillHead>, reader: FillReader) -> Response<EdgeBody> {
        let worker = &self.reply.worker;
        worker.counters.collapsed.increment();
        if let Some(disk) = worker.cache.disk() {
            let secondary = head.variant.as_ref().map(|variant| &variant.secondary[..]);
            disk.record_follower(self.key.primary(), secondary);
        }
        let (status, headers) = (self.collapsed(), head.headers.clone());
        respond_fill(self.reply, &self.request, head, headers, reader, status).await
    }

    /// Answers with a response that a shared fetch has stored or validated.
    async fn answer_shared(mut self: Box<Self>, stored: Arc<Stored>) -> Answered {
        let worker = &self.reply.worker;
        worker.counters.collapsed.increment();
        let (policy, now) = (&stored.response().policy, worker.now());
        let mut status = self.collapsed();
        status.ttl = Some(policy.ttl_secs(now));
        let class = match policy.is_fresh(now) {
            true => OutcomeClass::Revalidated,
            false => OutcomeClass::HitStale,
        };
        self.reply.observation.set_class(class);
        self.answer(stored, Some(status)).await
    }

    async fn ask_for_range(
        self: Box<Self>,
        head: &Arc<FillHead>,
        reader: FillReader,
    ) -> Response<EdgeBody> {
        let (request, key) = (&self.request, &self.key);
        let passed = CacheStatus::forward(self.reason).with_detail("far-range");
        let answer = ranges::answer_far(self.reply, request, key, passed, head, reader);
        Box::pin(answer).await
    }

    /// Leads a fetch for this request and its followers.
    async fn lead(self: Box<Self>, mut leader: FetchLeader, reader: FillReader) -> Answered {
        // Another fetch may have stored a fresh response between the lookup and `join`.
        match find_new_fresh(&self.reply.worker, &self.key, self.stale.as_ref()) {
            Some(stored) => {
                leader.close();
                leader.fill.finish_with_stored(Arc::clone(&stored));
                self.answer(stored, None).await
            }
            None => self.run(leader, reader).await,
        }
    }

    async fn fetch_alone(self: Box<Self>) -> Answered {
        let (leader, reader) = self.reply.worker.cache.collapse.lead_uncollapsed();
        self.run(leader, reader).await
    }

    /// Runs a fetch, and answers the request with its result.
    async fn run(mut self: Box<Self>, leader: FetchLeader, reader: FillReader) -> Answered {
        let worker = Rc::clone(&self.reply.worker);
        let result = Rc::new(Cell::new(None));
        let fill = Arc::clone(&leader.fill);
        let fetch = Fetch {
            worker: Rc::clone(&worker),
            request: Rc::clone(&self.request),
            key: self.key.clone(),
            leader,
            part: self.part,
            result: Some(Rc::clone(&result)),
        };
        let fetch = Box::pin(fetch.run(self.stale.take()));
        self.reply.observation.trace(SampledRequest::begin_fetch);
        let outcome = leader_result(&self.reply, &self.request, fill, &result, fetch).await;
        self.reply.observation.trace(SampledRequest::end_fetch);
        let Self {
            mut reply,
            request,
            key,
            reason,
            ..
        } = *self;
        let mut status = CacheStatus::forward(reason);
        match outcome {
            FetchResult::Shared { head, headers } => {
                if request.method == Method::HEAD && !head.stored {
                    head::keep_head(&worker, &key);
                }
                status.fwd_status = Some(head.status.as_u16());
                Ok(respond_fill(reply, &request, &head, headers, reader, status).await)
            }
            FetchResult::Direct(response, detail) => {
                drop(reader);
                if request.method == Method::HEAD {
                    head::keep_head(&worker, &key);
                }
                status.detail = detail.map(Into::into);
                let (parts, body) = response;
                Ok(pass::respond(reply, &request, *parts, body, status))
            }
            FetchResult::Found {
                stored,
                stale: Some(cause),
            } => respond_stale(reply, request, key, stored, cause, reason).await,
            FetchResult::Found {
                stored,
                stale: None,
            } => {
                worker.counters.revalidated.increment();
                reply.observation.set_class(OutcomeClass::Revalidated);
                status.fwd_status = Some(StatusCode::NOT_MODIFIED.as_u16());
                status.ttl = Some(stored.response().policy.ttl_secs(worker.now()));
                sliced::respond(reply, request, key, stored, Some(status), None).await
            }
            FetchResult::Sliced { stored, first } => {
                status.fwd_status = Some(StatusCode::PARTIAL_CONTENT.as_u16());
                status.stored = true;
                sliced::respond(reply, request, key, stored, Some(status), first).await
            }
            FetchResult::Unsliced(_) if request.method == Method::HEAD || !has_range(&request) => {
                // A stale response in slices is no longer available in slices, so the complete response is fetched.
                Err(Box::new(OutdatedSlices {
                    reply,
                    request,
                    key,
                    reason,
                }))
            }
            FetchResult::Unsliced(detail) => {
                tracing::debug!(detail, "a range is passed to the origin");
                let status = status.with_detail(detail);
                Ok(Box::pin(pass::pass(reply, request, None, status)).await)
            }
            FetchResult::Failed(error) => Ok(pass::refuse(reply, &error, status)),
        }
    }
}
