//! Tokens of an admin server, and the roles that they have.

use std::fmt;
use std::str::FromStr;

use crate::token::Token;

/// A group of requests that a token may allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Read the state: metrics, status, settings, stored responses and explanations.
    Read,
    /// Purge stored responses.
    Purge,
    /// Change the process: reload its configuration, replace it by a new process, change a setting.
    Reload,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Read, Self::Purge, Self::Reload];

    /// Returns the name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Purge => "purge",
            Self::Reload => "reload",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// All roles.
    pub const ALL: Self = Self(Role::Read.bit() | Role::Purge.bit() | Role::Reload.bit());

    /// Returns true if the set has `role`.
    pub const fn has(self, role: Role) -> bool {
        self.0 & role.bit() != 0
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Self {
        Self(roles.into_iter().fold(0, |all, role| all | role.bit()))
    }
}

/// Lists the roles with commas.
impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles = Role::ALL.into_iter().filter(|role| self.has(*role));
        f.write_str(&roles.map(Role::name).collect::<Vec<_>>().join(","))
    }
}

/// A word is not the name of a role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("has the unknown role `{0}`; the roles are read, purge and reload")]
pub struct ParseRolesError(String);

/// Parses names of roles with commas between them.
impl FromStr for Roles {
    type Err = ParseRolesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let roles = text.split(',').map(|word| {
            let named = |role: &Role| role.name() == word.trim();
            let role = Role::ALL.into_iter().find(named);
            role.ok_or_else(|| ParseRolesError(word.trim().to_owned()))
        });
        roles.collect()
    }
}

/// A token with a name, which logs show, and its roles.
#[derive(Clone, Debug)]
pub struct AdminToken {
    /// The name.
    pub name: String,
    /// The secret.
    pub token: Token,
    /// The roles.
    pub roles: Roles,
}

/// The client of an allowed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The request needs no token.
    Anyone,
    /// The client has sent the token with this name.
    Token(String),
}

/// Writes the caller for logs.
impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anyone => f.write_str("anyone"),
            Self::Token(name) => write!(f, "token {name}"),
        }
    }
}

/// The reason why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The request has no `Authorization`.
    #[error("the request needs `Authorization: Bearer` with a configured token")]
    NoToken,
    /// The value of `Authorization` has no token of the configuration.
    #[error("the token in `Authorization: Bearer` is not a configured one")]
    UnknownToken,
    /// The token lacks the role.
    #[error("the token `{token}` does not have the role `{}`", .role.name())]
    MissingRole {
        /// The name of the token.
        token: String,
        /// The role that the request needs.
        role: Role,
    },
}

/// The token that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The request needs no token.
    Open,
    /// A token with this role, if the server requires tokens for reading.
    IfRequired(Role),
    /// A token with this role, if the server requires tokens for reading or listens on an address that other machines
    /// reach.
    IfRemote(Role),
    /// A token with this role.
    Always(Role),
}

impl Access {
    /// Returns the role that a request needs, or `None` if it needs no token. `is_local` is true if only programs of
    /// the server's machine reach the server.
    pub fn role(self, requires_token: bool, is_local: bool) -> Option<Role> {
        match self {
            Self::Open => None,
            Self::IfRequired(role) => requires_token.then_some(role),
            Self::IfRemote(role) => (requires_token || !is_local).then_some(role),
            Self::Always(role) => Some(role),
        }
    }
}

/// Decides if a request with this value of `Authorization` may use `role`. Each token is compared, so that the time
/// does not depend on the position of the matching one.
pub fn authorize<'a>(
    tokens: impl IntoIterator<Item = &'a AdminToken>,
    authorization: Option<&[u8]>,
    role: Role,
) -> Result<Caller, Denied> {
    let sent = authorization.ok_or(Denied::NoToken)?;
    let mut matching = None;
    for known in tokens {
        if known.token.matches_authorization(sent) {
            matching = Some(known);
        }
    }
    let known = matching.ok_or(Denied::UnknownToken)?;
    match known.roles.has(role) {
        true => Ok(Caller::Token(known.name.clone())),
        false => Err(Denied::MissingRole {
            token: known.name.clone(),
            role,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Method: all sets of roles, as text and back.
    #[test]
    fn a_set_of_roles_has_exactly_the_roles_that_its_text_lists() {
        for bits in 1..8u8 {
            let roles = Roles(bits);
            assert_eq!(roles.to_string().parse(), Ok(roles));
            for role in Role::ALL {
                assert_eq!(roles.has(role), roles.to_string().contains(role.name()));
            }
        }
        assert_eq!("reload, read".parse(), Ok(Roles(0b101)));
        for invalid in ["", "read,", "write", "Read", "read purge"] {
            assert!(invalid.parse::<Roles>().is_err(), "{invalid}");
        }
    }
}
