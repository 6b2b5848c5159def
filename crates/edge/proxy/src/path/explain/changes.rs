//! The changes that rules demand: of header fields, of bodies, of the tiers that store them, and the error page.

use edgeward_sites::{DiskPlacement, FieldChange, IdFilters, REPLACE_TYPES, Replacement};
use http::StatusCode;
use http::header::{HOST, HeaderName, HeaderValue};

use crate::exchange::{FieldEdit, Request};
use crate::path::rules::with_view;

/// The page that describes sites and rules.
pub(super) const RULES_PAGE: &str = "docs/how-to/sites.md";

/// The section about strings that rules replace.
const REPLACE_PAGE: &str = "docs/how-to/sites.md#replace-strings-in-bodies";

/// The section about responses whose media type contradicts the extension of their path.
const EXTENSION_PAGE: &str = "docs/how-to/sites.md#private-pages-under-the-names-of-static-files";

/// A step of the explanation.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) text: String,
    /// The page that describes the rule.
    pub(super) page: &'static str,
}

/// Returns the changes of the request and of the origin's response.
pub(super) fn steps(request: &Request) -> Vec<Step> {
    let step = |page| move |(name, text)| Step { name, text, page };
    let field = |name| move |text| (name, text);
    let of_fields = kept_fields(request)
        .map(field("origin fields"))
        .into_iter()
        .chain(of_request(request).map(field("origin field")))
        .chain(
            of_origin_response(request)
                .into_iter()
                .map(field("stored field")),
        )
        .chain(placement(request));
    let of_bodies = replacements(request).into_iter().map(field("replace"));
    of_fields
        .map(step(RULES_PAGE))
        .chain(authorization_check(request).map(step(RULES_PAGE)))
        .chain(extension_check(request).map(step(EXTENSION_PAGE)))
        .chain(of_bodies.map(step(REPLACE_PAGE)))
        .collect()
}

/// Returns the changes of the request that the origin gets, in which rules have already changed the fields.
fn of_request(request: &Request) -> impl Iterator<Item = String> {
    let changes = request.settings().stated.request.iter();
    changes.filter_map(|(name, change)| {
        let values = request.headers.get_all(name);
        let edit = match change {
            FieldChange::Remove => FieldEdit::Remove,
            _ if *name == HOST => FieldEdit::Set(request.forwarded_host.clone()?),
            FieldChange::Set(_) => FieldEdit::Set(values.iter().next()?.clone()),
            FieldChange::Add(_) => FieldEdit::Add(values.iter().next_back()?.clone()),
        };
        Some(text(name, &edit))
    })
}

/// Returns the fields of the client's request that the origin gets, if rules state them.
fn kept_fields(request: &Request) -> Option<String> {
    let patterns = request.settings().stated.request_only.value()?;
    let mut text = String::from("only ");
    for pattern in patterns.iter() {
        text.push_str(pattern.as_str());
        text.push_str(", ");
    }
    text.push_str("and the fields that HTTP needs");
    Some(text)
}

/// Returns the responses whose media type must fit the extension of the path, if a rule states it.
fn extension_check(request: &Request) -> Option<(&'static str, String)> {
    let text = match request.settings().stated.check_extension? {
        true => "a response whose media type contradicts the extension of the path is not stored",
        false => "the media type of a response may contradict the extension of the path",
    };
    Some(("extension", text.to_owned()))
}

/// Returns that the origin decides about each use of a stored response, if a rule states it.
fn authorization_check(request: &Request) -> Option<(&'static str, String)> {
    let text = match request.settings().stated.check_authorization? {
        true => "the origin is asked before each use of a stored response",
        false => "the origin is not asked before a stored response is used",
    };
    Some(("authorization", text.to_owned()))
}

/// Returns the changes of the origin's response, before it is stored.
fn of_origin_response(request: &Request) -> Vec<String> {
    let changes = request.settings().stated.origin_response.iter();
    with_view(request, |view| {
        let texts = changes.map(|(name, change)| text(name, &FieldEdit::of(change, view)));
        texts.collect()
    })
}

/// Returns the tiers and the id filters that rules state.
fn placement(request: &Request) -> Vec<(&'static str, String)> {
    let stated = &request.settings().stated;
    let memory = stated.memory.map(|stores| match stores {
        true => ("memory", "the policy decides".to_owned()),
        false => ("memory", "the body is not stored there".to_owned()),
    });
    let disk = stated.disk.map(|placement| {
        let text = match placement {
            DiskPlacement::Normal => "admission decides",
            DiskPlacement::Never => "the body is not stored there",
            DiskPlacement::FirstRequest => "the body is stored at the first request",
        };
        ("disk", text.to_owned())
    });
    let filters = stated.id_filters.as_ref().map(|filters| {
        let text = match filters {
            IdFilters::All => "all filters count".to_owned(),
            IdFilters::Off => "no filter counts".to_owned(),
            IdFilters::Named(name) => format!("only the filters with the name {name} count"),
        };
        ("id filter", text)
    });
    [memory, disk, filters].into_iter().flatten().collect()
}

/// Returns the strings that are replaced in the origin's response, before it is stored.
fn replacements(request: &Request) -> Vec<String> {
    let stated = &request.settings().stated;
    let Some(list) = stated.replacements() else {
        return Vec::new();
    };
    let mut places: Vec<String> = match &stated.replace_types {
        Some(types) => types.iter().map(ToString::to_string).collect(),
        None => REPLACE_TYPES.map(str::to_owned).to_vec(),
    };
    let fields = stated.replace_fields.iter().flat_map(|names| names.iter());
    places.extend(fields.map(|name| format!("field {name}")));
    let places = places.join(", ");
    with_view(request, |view| {
        let texts = list.iter().map(|Replacement { from, to }| {
            let to = String::from_utf8_lossy(&to.field_value(view)).into_owned();
            format!("{from} by {to} in {places}")
        });
        texts.collect()
    })
}

/// Returns the changes of the response that the client gets.
pub(super) fn of_response(request: &Request) -> impl Iterator<Item = String> {
    let changes = request.response_fields.iter().flat_map(|all| all.iter());
    changes.map(|(name, edit)| text(name, edit))
}

/// Returns the status if its response gets an error page of the site.
pub(super) fn page_status(request: &Request, status: Option<StatusCode>) -> Option<StatusCode> {
    let is_error = |status: &StatusCode| status.is_client_error() || status.is_server_error();
    let status = status.filter(is_error)?;
    let settings = request.settings.as_ref()?;
    settings.stated.error_pages.get(status).map(|_| status)
}

fn text(name: &HeaderName, edit: &FieldEdit) -> String {
    let shown = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    match edit {
        FieldEdit::Set(value) => format!("set {name}: {}", shown(value)),
        FieldEdit::Add(value) => format!("add {name}: {}", shown(value)),
        FieldEdit::Remove => format!("remove {name}"),
    }
}
