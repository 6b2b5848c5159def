//! A row of the list of settings, and the macro that defines the rows of a table.

use std::path::Path;
use std::time::Duration;

use edgeward_types::ByteSize;

use crate::config::draft::ConfigDraft;
use crate::config::value::{self, Raw, SettingValue, Time, ValueError};

/// One setting.
pub(in crate::config) struct Key {
    /// The path: table and name, separated by a dot.
    pub(in crate::config) path: &'static str,
    /// The flag of `serve` that sets this key, if it has one.
    pub(in crate::config) flag: Option<Flag>,
    /// True if a reload applies the setting. The others keep the value of the start; an upgrade applies them too.
    pub(in crate::config) is_live: bool,
    /// The description in the reference. Each of its lines begins with a space.
    pub(super) doc: &'static str,
    /// The type of the value and its field.
    pub(in crate::config) field: &'static dyn Field,
}

impl Key {
    /// The description in the reference.
    pub(in crate::config) fn doc(&self) -> &'static str {
        self.doc.trim_start()
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.path)
    }
}

/// A flag of `serve`.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) struct Flag {
    /// The flag and the name of its value, such as `--hot SIZE`. A flag without the name of a value stands for `true`.
    pub(super) spec: &'static str,
    /// The short help.
    pub(in crate::config) help: &'static str,
    /// True if the flag may be given several times. The nth value belongs to the nth item of the array of tables.
    pub(in crate::config) is_repeatable: bool,
    /// True if only the long help shows the flag.
    pub(in crate::config) is_hidden: bool,
}

impl Flag {
    /// The flag, such as `--hot`.
    pub(in crate::config) fn name(&self) -> &'static str {
        self.spec.split(' ').next().unwrap_or(self.spec)
    }

    /// The name of the value, such as `SIZE`.
    pub(in crate::config) fn value_name(&self) -> Option<&'static str> {
        self.spec.split_once(' ').map(|(_, value)| value)
    }
}

/// The field that a setting changes. `item` is the index of the item if the table is repeated, otherwise 0.
pub(in crate::config) trait Field: Sync {
    /// Parses a value and writes it into the draft. Relative paths start at `folder`.
    fn set(
        &self,
        draft: &mut ConfigDraft,
        item: usize,
        raw: &Raw,
        folder: &Path,
    ) -> Result<(), ValueError>;

    /// Returns the value from the draft in the form that a user would write, or `None` if it is not set and has no
    /// default.
    fn show(&self, draft: &ConfigDraft, item: usize) -> Option<String>;

    /// The name of the type in the reference.
    fn type_name(&self) -> String;

    /// The minimum and the maximum, as text.
    fn bounds(&self) -> Option<(String, String)>;

    /// True if the configuration file needs quotes around the value.
    fn is_quoted(&self) -> bool;
}

/// A field with the type of its value.
pub(super) struct Typed<T: SettingValue> {
    pub(super) kind: T,
    pub(super) get: fn(&ConfigDraft, usize) -> Option<T::Parsed>,
    pub(super) set: fn(&mut ConfigDraft, usize, T::Parsed),
}

impl<T: SettingValue> Field for Typed<T> {
    fn set(
        &self,
        draft: &mut ConfigDraft,
        item: usize,
        raw: &Raw,
        folder: &Path,
    ) -> Result<(), ValueError> {
        let value = value::read(&self.kind, raw, folder)?;
        (self.set)(draft, item, value);
        Ok(())
    }

    fn show(&self, draft: &ConfigDraft, item: usize) -> Option<String> {
        self.kind.show(&(self.get)(draft, item)?)
    }

    fn type_name(&self) -> String {
        self.kind.name()
    }

    fn bounds(&self) -> Option<(String, String)> {
        self.kind.bounds()
    }

    fn is_quoted(&self) -> bool {
        self.kind.is_quoted()
    }
}

/// Defines the rows of a table. A row has a description, the path, the word `live` if a reload applies the setting or
/// else `restart`, the flag, the type with its bounds, and the field: `Part.field`, or functions that get and set it.
/// The flag has the name of its value and a short help. It is written as `flag`, as `flags` if it may be given several
/// times, or as `hidden_flag` if only the long help shows it.
macro_rules! rows {
    ($(
        $(#[doc = $doc:literal])+
        $path:literal $when:ident $(, $flag:ident $spec:literal $help:literal)?: $kind:expr
            $(=> $part:ident $(. $field:ident)+)? $(, get: $get:expr, set: $set:expr)?;
    )+) => {
        &[$(
            Key {
                path: $path,
                flag: rows!(@flag $($flag $spec $help)?),
                is_live: rows!(@$when),
                doc: concat!($($doc),+),
                field: &$crate::config::keys::row::Typed {
                    kind: $kind,
                    $(
                        get: |draft, item| $part::of(draft, item).map(|part| part$(.$field)+.clone()),
                        set: |draft, item, value| $part::of_mut(draft, item)$(.$field)+ = value,
                    )?
                    $(get: $get, set: $set,)?
                },
            },
        )+]
    };
    (@flag) => { None };
    (@flag $flag:ident $spec:literal $help:literal) => {
        Some($crate::config::keys::row::Flag {
            spec: $spec,
            help: $help,
            is_repeatable: rows!(@$flag is_repeatable),
            is_hidden: rows!(@$flag is_hidden),
        })
    };
    (@flag is_repeatable) => { false };
    (@flag is_hidden) => { false };
    (@flags is_repeatable) => { true };
    (@flags is_hidden) => { false };
    (@hidden_flag is_repeatable) => { false };
    (@hidden_flag is_hidden) => { true };
    (@live) => { true };
    (@restart) => { false };
}
pub(super) use rows;

/// The bounds of timeouts. A timeout below a millisecond would make every operation fail; a timeout above a day
/// has no effect.
pub(super) const DURATION: Time = Time(Duration::from_millis(1), Duration::from_secs(86_400));

/// The bounds of durations that may be 0: waiting times and lifetimes.
pub(super) const DURATION_OR_ZERO: Time = Time(Duration::ZERO, Duration::from_secs(86_400));

pub(super) const TIB_16: ByteSize = ByteSize::gib(16 << 10);
