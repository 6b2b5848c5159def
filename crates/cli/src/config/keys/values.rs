//! Converts a parsed [`Value`] to the type that a key's setter needs.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use edgeward_types::ByteSize;

use super::super::choice::Choice;
use super::super::kind::Value;

/// Conversions for setters. Each accepts one variant and panics for any other variant. The kind of a key determines
/// the variant of its values. A panic therefore shows that the setter of a key does not match the kind in the list
/// of keys. No configuration can cause it.
impl Value {
    pub(super) fn wrong_variant(&self) -> ! {
        unreachable!("the setter of a key does not accept {self:?}, which the key's kind produced")
    }

    /// Converts the value by `inner`, or returns `None` for the word `none`.
    pub(in crate::config) fn optional<T>(self, inner: fn(Self) -> T) -> Option<T> {
        (self != Self::None).then(|| inner(self))
    }

    pub(in crate::config) fn size(self) -> ByteSize {
        match self {
            Self::Size(size) => size,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn duration(self) -> Duration {
        match self {
            Self::Duration(duration) => duration,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn share(self) -> f64 {
        match self {
            Self::Share(share) => share,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn number32(self) -> u32 {
        u32::try_from(self.number()).expect("the key's maximum fits the type")
    }

    pub(super) fn count(self) -> usize {
        usize::try_from(self.number()).expect("the key's maximum fits the type")
    }

    pub(super) fn nonzero(self) -> NonZeroUsize {
        NonZeroUsize::new(self.count()).expect("the key's minimum is above zero")
    }

    pub(super) fn nonzero32(self) -> NonZeroU32 {
        NonZeroU32::new(self.number32()).expect("the key's minimum is above zero")
    }

    pub(super) fn switch(self) -> bool {
        match self {
            Self::Switch(on) => on,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn choice<T: Choice>(self) -> T {
        match self {
            Self::Text(word) => {
                T::from_word(&word).unwrap_or_else(|| Self::Text(word).wrong_variant())
            }
            other => other.wrong_variant(),
        }
    }

    pub(super) fn address(self) -> std::net::SocketAddr {
        match self {
            Self::Address(address) => address,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn listen_address(self) -> edgeward_proxy::config::ListenAddress {
        match self {
            Self::ListenAddress(address) => address,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn url(self) -> edgeward_proxy::config::OriginUrl {
        match self {
            Self::Url(url) => url,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn file(self) -> std::path::PathBuf {
        match self {
            Self::File(path) => path,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn disk_admission(self) -> edgeward_policy::DiskAdmissionSpec {
        match self {
            Self::DiskAdmission(rule) => rule,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn host_pattern(self) -> edgeward_sites::HostPattern {
        match self {
            Self::HostPattern(host) => host,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn reinsertion(self) -> edgeward_policy::log::Reinsertion {
        match self {
            Self::Reinsertion(rule) => rule,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn pattern(self) -> edgeward_proxy::negative::PathPattern {
        match self {
            Self::Pattern(pattern) => pattern,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn filter(self) -> crate::negative::FilterLocation {
        match self {
            Self::Filter(location) => location,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn public_keys(self) -> Vec<edgeward_filter::PublicKey> {
        match self {
            Self::PublicKeys(keys) => keys,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn name_servers(self) -> Vec<std::net::SocketAddr> {
        match self {
            Self::NameServers(servers) => servers,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn urls(self) -> Vec<edgeward_proxy::config::OriginUrl> {
        match self {
            Self::Urls(urls) => urls,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn networks(self) -> edgeward_proxy::config::Networks {
        match self {
            Self::Networks(networks) => networks,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn parameters(self) -> edgeward_semantics::IgnoredParameters {
        match self {
            Self::Parameters(names) => names,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn media_types(self) -> edgeward_semantics::content_coding::CompressibleTypes {
        match self {
            Self::MediaTypes(types) => types,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn codings(self) -> Vec<edgeward_semantics::content_coding::Coding> {
        match self {
            Self::Codings(codings) => codings,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn field_names(self) -> edgeward_proxy::config::FieldNames {
        match self {
            Self::FieldNames(names) => names,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn path_forms(self) -> edgeward_sites::PathForms {
        match self {
            Self::PathForms(forms) => forms,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn upgrades(self) -> edgeward_semantics::upgrade::Upgrades {
        match self {
            Self::Upgrades(upgrades) => upgrades,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn hosts(self) -> Vec<String> {
        match self {
            Self::Hosts(hosts) => hosts,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn roles(self) -> edgeward_proxy::config::Roles {
        match self {
            Self::Roles(roles) => roles,
            other => other.wrong_variant(),
        }
    }

    pub(super) fn policy(self) -> edgeward_policy::PolicySpec {
        match self {
            Self::Policy(policy) => policy,
            other => other.wrong_variant(),
        }
    }
}
