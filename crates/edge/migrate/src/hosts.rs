//! Hosts, and when something holds for the requests of a host.

use regex::Regex;

use crate::rule::When;
use crate::values;

/// When something holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cond {
    Always,
    Never,
    /// One of these holds.
    Any(Vec<When>),
    /// None of these holds.
    Not(Vec<When>),
}

impl Cond {
    pub(super) fn negated(self) -> Self {
        match self {
            Self::Always => Self::Never,
            Self::Never => Self::Always,
            Self::Any(all) => Self::Not(all),
            Self::Not(all) => Self::Any(all),
        }
    }
}

/// The reason why a condition cannot be a condition of rules.
pub(super) type Reason = String;

/// The hosts of a site of the edge.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Host {
    /// One name.
    Exact(String),
    /// All names below a domain: `*.example.org`.
    Below(String),
    /// All other hosts.
    Other,
}

impl Host {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Exact(name) => name.clone(),
            Self::Below(domain) => format!("*.{domain}"),
            Self::Other => "*".to_owned(),
        }
    }

    /// Returns true if each name of `other` is one of this host.
    pub(super) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Other, _) => true,
            (Self::Below(domain), Self::Exact(name) | Self::Below(name)) => {
                name.strip_suffix(domain.as_str())
                    .is_some_and(|rest| rest.ends_with('.'))
                    || matches!(other, Self::Below(same) if same == domain)
            }
            (Self::Exact(a), Self::Exact(b)) => a == b,
            _ => false,
        }
    }

    /// Compares the host of a request. `is_free` is true if a rule may have a condition on the host.
    pub(super) fn compare(&self, op: &str, literal: &str, is_free: bool) -> Result<Cond, Reason> {
        let holds = |holds: bool| if holds { Cond::Always } else { Cond::Never };
        match (self, op) {
            (Self::Exact(name), "=") => Ok(holds(name.eq_ignore_ascii_case(literal))),
            // A literal is a site of its own, so it is not one of these hosts.
            (_, "=") => Ok(Cond::Never),
            (Self::Exact(name), _) => {
                let regex = values::regex(literal, op == "~*")?;
                let regex = Regex::new(&regex).map_err(|error| error.to_string())?;
                Ok(holds(regex.is_match(name)))
            }
            _ if is_free => Ok(Cond::Any(vec![When {
                host_regexes: vec![values::regex(literal, op == "~*")?],
                ..When::default()
            }])),
            _ => Err("a second expression for the host".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_covers_the_names_below_it() {
        let below = Host::Below("example.org".to_owned());
        let exact = |name: &str| Host::Exact(name.to_owned());
        assert!(below.covers(&exact("a.example.org")));
        assert!(below.covers(&Host::Below("a.example.org".to_owned())));
        assert!(below.covers(&below));
        assert!(!below.covers(&exact("example.org")));
        assert!(!below.covers(&exact("badexample.org")));
        assert!(!exact("a").covers(&Host::Other));
    }
}
