//! The changes of header fields that rules demand, and the error page.

use edgeward_sites::{DiskPlacement, FieldChange, IdFilters, REPLACE_TYPES, Replacement};
use http::StatusCode;
use http::header::{HOST, HeaderName, HeaderValue};

use crate::exchange::{FieldEdit, Request};
use crate::path::rules::with_view;

/// Returns the changes of the request that the origin gets, in which rules have already changed the fields.
pub(super) fn of_request(request: &Request) -> impl Iterator<Item = String> {
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

/// Returns the changes of the origin's response, before it is stored.
pub(super) fn of_origin_response(request: &Request) -> Vec<String> {
    let changes = request.settings().stated.origin_response.iter();
    with_view(request, |view| {
        let texts = changes.map(|(name, change)| text(name, &FieldEdit::of(change, view)));
        texts.collect()
    })
}

/// Returns the tiers and the id filters that rules state.
pub(super) fn placement(request: &Request) -> Vec<(&'static str, String)> {
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
pub(super) fn replacements(request: &Request) -> Vec<String> {
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
