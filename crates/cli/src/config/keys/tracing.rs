//! The settings of `[tracing]`: traces of sampled requests.

use edgeward_proxy::config::SampledFlag;

use super::super::choice::Choice as _;
use super::super::kind::ValueKind;
use super::Key;

pub(super) const ENDPOINT: Key = Key {
    path: "tracing.endpoint",
    flag: None,
    kind: ValueKind::Url,
    doc: "The collector that gets the spans by OTLP over HTTP in JSON, at the path `/v1/traces`. Without it, no \
          request is traced, and `traceparent` is forwarded like any other field.",
    set: |draft, _, value| draft.tracing_endpoint = Some(value.url()),
    show: |draft, _| Some(draft.tracing_endpoint.as_ref()?.to_string()),
};

pub(super) const SAMPLE: Key = Key {
    path: "tracing.sample",
    flag: None,
    kind: ValueKind::Share,
    doc: "The share of requests that is sampled, from 0 to 1.",
    set: |draft, _, value| draft.tracing.sample = value.share(),
    show: |draft, _| Some(draft.tracing.sample.to_string()),
};

pub(super) const SAMPLED_FLAG: Key = Key {
    path: "tracing.sampled_flag",
    flag: None,
    kind: ValueKind::Choice(SampledFlag::WORDS),
    doc: "The clients whose `traceparent` decides by its sampled flag whether a request is sampled: \
          `forwarding.trusted_proxies`, all clients, or none. In each case a sampled request continues the trace of a \
          valid `traceparent`.",
    set: |draft, _, value| draft.tracing.sampled_flag = value.choice(),
    show: |draft, _| Some(draft.tracing.sampled_flag.word().to_owned()),
};

pub(super) const QUEUE_REQUESTS_MAX: Key = Key {
    path: "tracing.queue_requests_max",
    flag: None,
    kind: ValueKind::Count {
        min: 1,
        max: 1 << 20,
    },
    doc: "The maximum of sampled requests per worker that wait for the export. Further ones are dropped and \
          counted, so a slow collector does not delay requests.",
    set: |draft, _, value| draft.tracing.queue_requests_max = value.nonzero(),
    show: |draft, _| Some(draft.tracing.queue_requests_max.to_string()),
};
