//! The types of settings: how a value is written, its bounds, and how it is parsed and shown.

mod files;
mod kind;
mod numbers;
mod raw;
mod texts;
mod units;

pub(super) use files::{InputFile, OutputFile, PathName};
pub(super) use kind::{NONE, OrNone, SettingValue, Unset, read};
pub(super) use numbers::{Count, REQUEST_BODY_SIZES, Seed, Share, Size, Switch, Time};
pub(super) use raw::{Raw, ValueError, read_error_text, to_value_error};
pub(super) use texts::{
    AcmeNames, Address, Bucket, Codings, Contacts, DiskRule, Filter, Host, HostName, HostPort,
    HostPorts, Hosts, HttpsUrl, Listed, Listen, Log, MediaTypes, NameServers, NatsUrls, OriginHost,
    PathOfId, Policy, ProxyNetworks, PublicKeys, RateLimit, ReinsertionRule, RoleList, StreamName,
    Syslog, Target, Text, Token, UpgradeList, Url, Urls, WebUrl, Word,
};
#[cfg(test)]
pub(super) use units::DURATION_UNITS;
