//! Passes the edge's sample of texts to the finder of caching faults, and writes its findings as JSON.

use edgeward_live::faults::{
    FIELD_BYTES_MAX as FAULT_FIELD_BYTES_MAX, Finding, ObjectFacts, Observed, ResponseFacts,
    ResponseSource,
};
use edgeward_proxy::watch::{FIELD_BYTES_MAX, FinishedRequest, SampledText, SeenFields};
use serde_json::{Value, json};

/// Returns a request as the finder follows it. It stands for `weight` requests.
pub(super) fn observed<'a>(
    seen: &'a FinishedRequest,
    text: &'a SampledText,
    weight: u32,
) -> Observed<'a> {
    let source = match seen.class {
        "hit" | "hit-stale" => Some(ResponseSource::Cache),
        "revalidated" => Some(ResponseSource::Confirmed),
        "miss" => Some(ResponseSource::Origin),
        "pass" => Some(ResponseSource::Passed),
        _ => None, // the edge has made the response
    };
    let request = |name: &str| field(&text.request, name);
    let codings = request("accept-encoding").unwrap_or_default();
    let object = seen.object.map(|object| ObjectFacts {
        key: object.key.0,
        lifetime_ms: u64::try_from(object.lifetime.as_millis()).unwrap_or(u64::MAX),
        has_validator: object.has_validator,
    });
    Observed {
        at: seen.at,
        weight,
        site: text.site,
        host: &text.host,
        target: &text.target,
        status: seen.status,
        is_get: text.is_get && source.is_some(),
        has_credentials: request("cookie").is_some() || request("authorization").is_some(),
        has_range: request("range").is_some(),
        accepts_coding: ["gzip", "br", "zstd"]
            .iter()
            .any(|coding| codings.contains(coding)),
        source: source.unwrap_or(ResponseSource::Passed),
        not_stored: text.detail.as_deref().unwrap_or_default(),
        body_bytes: seen.body_bytes,
        body: text.body_hash,
        object,
        head: text.response.as_ref().map(response_facts),
    }
}

fn response_facts(fields: &SeenFields) -> ResponseFacts<'_> {
    let text = |name: &str| field(fields, name).unwrap_or_default();
    ResponseFacts {
        cache_control: bytes(fields, "cache-control").unwrap_or_default(),
        content_type: text("content-type"),
        content_encoding: text("content-encoding"),
        vary: bytes(fields, "vary").unwrap_or_default(),
        has_expires: field(fields, "expires").is_some(),
        sets_cookie: field(fields, "set-cookie").is_some(),
    }
}

/// Returns the value of a field. A value that is not UTF-8 is empty.
fn field<'f>(fields: &'f SeenFields, name: &str) -> Option<&'f str> {
    let value = bytes(fields, name)?;
    Some(std::str::from_utf8(value).unwrap_or_default())
}

fn bytes<'f>(fields: &'f SeenFields, name: &str) -> Option<&'f [u8]> {
    let (_, value) = fields.iter().find(|(field, _)| field == name)?;
    Some(value)
}

// The finder knows which values the sample may have cut.
const _: () = assert!(FAULT_FIELD_BYTES_MAX <= FIELD_BYTES_MAX);

/// Returns findings as `/status.json` and `edgeward advise --json` have them.
pub(crate) fn json_of(findings: &[Finding]) -> Value {
    let rows = findings.iter().map(|finding| {
        json!({
            "fault": finding.kind.name(),
            "text": finding.kind.text(&finding.subject),
            "requests": finding.requests.round() as u64,
            "request_share": finding.request_share,
            "hit_share": finding.hit_share,
            "example": finding.example,
            "rule": finding.rule,
        })
    });
    rows.collect()
}
