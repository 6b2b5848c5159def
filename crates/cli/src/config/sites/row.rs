//! A row of the list of keys, and the macro that defines the rows of a file.

use super::draft::{RuleDraft, SiteDraft};
use super::reader::{Entry, Reader};

/// A key of a site or a rule.
pub(super) struct SiteKey {
    /// The path within the table, such as `query.sort`.
    pub(super) path: &'static str,
    /// Returns the type in the reference.
    pub(super) type_name: fn() -> String,
    /// The default in the reference.
    pub(super) default: &'static str,
    /// An example for the reference: lines of a file.
    pub(super) example: &'static str,
    /// The description in the reference. Each of its lines begins with a space.
    pub(super) doc: &'static str,
    /// Reads the value into the draft, or reports why it is wrong.
    pub(super) read: Read,
}

/// The function that reads the value of a key, by the place of the key.
#[derive(Clone, Copy)]
pub(super) enum Read {
    /// A key of `[[site]]` only.
    Site(fn(&mut Reader<'_>, &Entry<'_>, &mut SiteDraft)),
    /// A condition, a key of `[[site.rule]]` only.
    Condition(fn(&mut Reader<'_>, &Entry<'_>, &mut RuleDraft)),
    /// A setting, a key of both tables.
    Setting(fn(&mut Reader<'_>, &Entry<'_>, &mut RuleDraft)),
}

/// Writes a value into a draft.
pub(super) fn store<D, T>(draft: &mut D, value: Option<T>, set: fn(&mut D, T)) {
    if let Some(value) = value {
        set(draft, value);
    }
}

/// Defines the rows of a file. A row has a description, the path, the word `site`, `condition` or `setting`, the type,
/// the default and an example. The value is stored in a field of the conditions or settings, or by a function. A row
/// whose value no type reads has the name of the type in the reference, and a function that reads the value.
macro_rules! rows {
    ($(
        $(#[doc = $doc:literal])+
        $path:literal $place:ident: $kind:expr $(=> $field:ident)?, default $default:expr, example $example:literal
            $(, set: $set:expr)? $(, read: $read:expr)?;
    )+) => {
        &[$(
            SiteKey {
                path: $path,
                type_name: || rows!(@name $kind $(, $read)?),
                default: $default,
                example: $example,
                doc: concat!($($doc),+),
                read: rows!(@$place $kind $(=> $field)? $(, set: $set)? $(, read: $read)?),
            },
        )+]
    };
    (@name $kind:expr) => { $crate::config::sites::values::SiteValue::name(&$kind) };
    (@name $kind:expr, $read:expr) => { $kind.to_owned() };
    (@site $kind:expr, set: $set:expr) => { rows!(@typed Site $kind, $set) };
    (@site $kind:expr, read: $read:expr) => { $crate::config::sites::row::Read::Site($read) };
    (@condition $kind:expr => $field:ident) => {
        rows!(@typed Condition $kind, |rule, value| rule.condition.$field = value)
    };
    (@condition $kind:expr, read: $read:expr) => { $crate::config::sites::row::Read::Condition($read) };
    (@setting $kind:expr => $field:ident) => {
        rows!(@typed Setting $kind, |rule, value| rule.settings.$field = Some(value))
    };
    (@setting $kind:expr, set: $set:expr) => { rows!(@typed Setting $kind, $set) };
    (@setting $kind:expr, read: $read:expr) => { $crate::config::sites::row::Read::Setting($read) };
    (@typed $place:ident $kind:expr, $set:expr) => {
        $crate::config::sites::row::Read::$place(|reader, entry, draft| {
            let value = $crate::config::sites::values::SiteValue::read(&$kind, reader, entry);
            $crate::config::sites::row::store(draft, value, $set);
        })
    };
}
pub(super) use rows;
