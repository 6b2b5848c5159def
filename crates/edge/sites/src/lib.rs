//! Sites and rules: which site a host belongs to, and which of the site's rules apply to a request.
//!
//! [`Sites`] finds the [`Site`] of a host. A site has settings and an ordered list of rules. The [`Condition`] of a
//! rule states to which requests the rule applies. It compares all [readings of the path](PathReadings): one of
//! `/%61dmin//x` is `/admin/x`. The [`Settings`] of all rules that apply are merged, and the later rule
//! counts.
//!
//! This crate has no clock, sockets or threads. `cli` reads the texts from the configuration file, and `proxy` calls
//! the functions for each request.
#![forbid(unsafe_code)]

mod class;
mod condition;
mod fields;
mod host;
mod names;
mod network;
mod path;
mod path_pattern;
mod query;
mod rate;
mod readings;
mod replace;
mod settings;
mod site;
mod stated;
mod status_map;
mod template;

pub use class::{CLASS_BYTES_MAX, Class, Device, ImageFormat, NoClass, ParseClassError};
pub use condition::{Condition, FieldCondition, RequestParts, RequestView};
pub use fields::Fields;
pub use host::{HostPattern, HostTable, ParseHostPatternError};
pub use network::{Network, ParseNetworkError};
pub use path::matching_path;
pub use path_pattern::{PathPattern, PathPatternError};
pub use query::QueryShape;
pub use rate::{Admission, RateKey, RateLimit, RateLimiter};
pub use readings::{Match, ParsePathFormsError, PathForm, PathForms, PathReadings};
pub use replace::{
    REPLACED_BYTES_MAX, REPLACEMENTS_MAX, Replacement, ReplacementError, Replacements, Replacer,
};
pub use settings::{
    DictionaryScope, DiskPlacement, FieldChange, FieldChanges, FixedAnswer, IdFilters,
    PAGE_BYTES_MAX, Page, REPLACE_TYPES, Redirect, Settings,
};
pub use site::{HostTaken, RULES_MAX, Rule, RuleSet, SITES_MAX, Site, SiteId, Sites, TooManyRules};
pub use stated::Stated;
pub use status_map::{ParseStatusSetError, StatusMap, StatusSet};
pub use template::{Template, TemplateError};
