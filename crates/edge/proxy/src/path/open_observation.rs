//! [`OpenObservation`], the record of a request that has no response yet.

use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use super::worker::Worker;
use crate::exchange::Request;
use crate::observe::observation::Observation;
use crate::observe::outcome::ClientProtocol;
use crate::observe::spans::SampledRequest;

/// The record of a request without a response. If this value is dropped, the client has left, and the record ends.
pub(crate) struct OpenObservation {
    worker: Rc<Worker>,
    /// `Some` until the response begins.
    observation: Option<Observation>,
}

impl OpenObservation {
    pub(super) fn begin(worker: &Rc<Worker>, request: &Request) -> Self {
        let settings = request.settings.as_ref();
        let site = settings.map_or(&worker.other_site, |settings| &settings.counters);
        let protocol = ClientProtocol::from(request.version);
        worker.counters.client_requests[protocol].increment();
        let text = worker.log_text(|queue, now| request.log_text(queue, now));
        let mut observation = Observation::begin(site, text);
        if let Some(watch) = &worker.watch {
            observation.seen_text = watch.text(|| request.seen_text());
        }
        Self {
            observation: Some(observation),
            worker: Rc::clone(worker),
        }
    }

    /// Calls `record` if the request is sampled.
    pub(super) fn trace(&mut self, record: impl FnOnce(&mut SampledRequest)) {
        if let Some(sampled) = &mut self.sampled {
            record(sampled);
        }
    }

    /// Returns the record for the body of the response, which ends it.
    pub(super) fn into_inner(mut self) -> Observation {
        self.observation.take().expect(PRESENT)
    }
}

impl Deref for OpenObservation {
    type Target = Observation;

    fn deref(&self) -> &Observation {
        self.observation.as_ref().expect(PRESENT)
    }
}

impl DerefMut for OpenObservation {
    fn deref_mut(&mut self) -> &mut Observation {
        self.observation.as_mut().expect(PRESENT)
    }
}

impl Drop for OpenObservation {
    fn drop(&mut self) {
        if let Some(mut observation) = self.observation.take() {
            observation.set_aborted();
            self.worker.finish(observation);
        }
    }
}

const PRESENT: &str = "only `into_inner`, which consumes the value, takes the record";
