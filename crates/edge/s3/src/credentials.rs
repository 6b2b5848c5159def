//! The credentials of a bucket: from variables of the environment, or from a file in the format of the AWS tools.

use std::fmt;

/// An access key with its secret, and a token if both are temporary. `Debug` prints none of them.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// The reason why there are no usable credentials. The text never contains a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// A line is neither empty, nor a comment, a section or a setting.
    #[error("line {line} is neither `[PROFILE]` nor `KEY = VALUE`")]
    Syntax {
        /// The number of the line; the first is 1.
        line: usize,
    },
    /// The file has no section of this profile.
    #[error("there is no section [{profile}]")]
    NoProfile {
        /// The name of the profile.
        profile: String,
    },
    /// A value is missing or empty.
    #[error("{key} is missing")]
    Missing {
        /// The key in the file, or the variable.
        key: &'static str,
    },
    /// A value has characters that credentials do not have.
    #[error("the value of {key} has a space or another character that credentials do not have")]
    Invalid {
        /// The key in the file, or the variable.
        key: &'static str,
    },
}

/// The names of the three values, in a file or in the environment.
struct Names {
    access_key_id: &'static str,
    secret_access_key: &'static str,
    session_token: &'static str,
}

const FILE_KEYS: Names = Names {
    access_key_id: "aws_access_key_id",
    secret_access_key: "aws_secret_access_key",
    session_token: "aws_session_token",
};

const VARIABLES: Names = Names {
    access_key_id: "AWS_ACCESS_KEY_ID",
    secret_access_key: "AWS_SECRET_ACCESS_KEY",
    session_token: "AWS_SESSION_TOKEN",
};

impl Credentials {
    /// Returns the credentials of a profile from the text of a credentials file of the AWS tools: sections
    /// `[PROFILE]` with `aws_access_key_id`, `aws_secret_access_key` and `aws_session_token`. Other keys are ignored.
    pub fn from_file(text: &str, profile: &str) -> Result<Self, CredentialsError> {
        let mut has_profile = false;
        let mut is_of_profile = false;
        let mut values: [Option<String>; 3] = Default::default();
        for (n, line) in text.lines().enumerate() {
            let is_nested = line.starts_with([' ', '\t']);
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(section) = line.strip_prefix('[') {
                let syntax = CredentialsError::Syntax { line: n + 1 };
                let name = section.split_once(']').ok_or(syntax)?.0.trim();
                // The form of the file `config` of the AWS tools.
                let name = name.strip_prefix("profile ").unwrap_or(name).trim();
                is_of_profile = name == profile;
                has_profile |= is_of_profile;
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                // Lines below a key such as `s3 =` are indented.
                if is_nested {
                    continue;
                }
                return Err(CredentialsError::Syntax { line: n + 1 });
            };
            if !is_of_profile {
                continue;
            }
            let keys = [
                FILE_KEYS.access_key_id,
                FILE_KEYS.secret_access_key,
                FILE_KEYS.session_token,
            ];
            let position = keys
                .iter()
                .position(|known| key.trim().eq_ignore_ascii_case(known));
            if let Some(position) = position {
                values[position] = Some(value.trim().to_owned());
            }
        }
        if !has_profile {
            let profile = profile.to_owned();
            return Err(CredentialsError::NoProfile { profile });
        }
        Self::new(values, &FILE_KEYS)
    }

    /// Returns the credentials of the environment: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and
    /// `AWS_SESSION_TOKEN`. `get` returns the value of a variable.
    pub fn from_variables(
        get: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Self, CredentialsError> {
        let values = [
            get(VARIABLES.access_key_id),
            get(VARIABLES.secret_access_key),
            get(VARIABLES.session_token),
        ];
        Self::new(values, &VARIABLES)
    }

    fn new(values: [Option<String>; 3], names: &Names) -> Result<Self, CredentialsError> {
        let check = |value: Option<String>, key| match value.filter(|value| !value.is_empty()) {
            // A visible character of ASCII is valid in a header field.
            Some(value) if value.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Some(value)),
            Some(_) => Err(CredentialsError::Invalid { key }),
            None => Ok(None),
        };
        let require = |value: Option<String>, key| {
            check(value, key)?.ok_or(CredentialsError::Missing { key })
        };
        let [access_key_id, secret_access_key, session_token] = values;
        let access_key_id = require(access_key_id, names.access_key_id)?;
        // The id is a part of a list that is separated by slashes and commas.
        if access_key_id.contains(['/', ',']) {
            let key = names.access_key_id;
            return Err(CredentialsError::Invalid { key });
        }
        Ok(Self {
            access_key_id,
            secret_access_key: require(secret_access_key, names.secret_access_key)?,
            session_token: check(session_token, names.session_token)?,
        })
    }

    #[cfg(feature = "sign")]
    pub(crate) fn to_identity(&self) -> aws_credential_types::Credentials {
        aws_credential_types::Credentials::new(
            self.access_key_id.clone(),
            self.secret_access_key.clone(),
            self.session_token.clone(),
            None,
            "edgeward",
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = "# of the edge\n\
        [other]\naws_access_key_id = OTHER\naws_secret_access_key = x\n\n\
        [default]\r\n AWS_Access_Key_Id=AKID\r\naws_secret_access_key =\tse=cret/+ \r\n\
        region = eu-central-1\ns3 =\n  max_concurrent_requests = 20\n  nested\n; end\n\
        [profile temporary]\naws_access_key_id = ASIA\naws_secret_access_key = y\naws_session_token = t==\n";

    #[test]
    fn a_profile_of_a_file_has_its_own_values() {
        for (profile, id, secret, token) in [
            ("default", "AKID", "se=cret/+", None),
            ("other", "OTHER", "x", None),
            ("temporary", "ASIA", "y", Some("t==")),
        ] {
            let credentials = Credentials::from_file(FILE, profile).expect(profile);
            let expected = Credentials {
                access_key_id: id.to_owned(),
                secret_access_key: secret.to_owned(),
                session_token: token.map(str::to_owned),
            };
            assert!(credentials == expected, "{profile}");
        }
    }

    #[test]
    fn an_unusable_file_is_refused_without_its_values() {
        let missing = |key| CredentialsError::Missing { key };
        for (text, error) in [
            (
                "",
                CredentialsError::NoProfile {
                    profile: "default".to_owned(),
                },
            ),
            ("[default]", missing("aws_access_key_id")),
            (
                "[default]\naws_access_key_id = SECRETID",
                missing("aws_secret_access_key"),
            ),
            (
                "[default]\naws_access_key_id =\naws_secret_access_key = SECRET",
                missing("aws_access_key_id"),
            ),
            (
                "[default]\naws_access_key_id = A\naws_secret_access_key = SECRET SECRET",
                CredentialsError::Invalid {
                    key: "aws_secret_access_key",
                },
            ),
            (
                "[default]\naws_access_key_id = A/SECRET\naws_secret_access_key = x",
                CredentialsError::Invalid {
                    key: "aws_access_key_id",
                },
            ),
            ("[default]\nSECRET", CredentialsError::Syntax { line: 2 }),
            ("\n[SECRET", CredentialsError::Syntax { line: 2 }),
        ] {
            let refused = Credentials::from_file(text, "default").expect_err(text);
            assert_eq!(refused, error, "{text}");
            assert!(!refused.to_string().contains("SECRET"), "{refused}");
        }
    }

    #[test]
    fn the_environment_has_credentials_if_both_parts_are_set() {
        let of = |id: &'static str, secret: &'static str| {
            Credentials::from_variables(|name| match name {
                "AWS_ACCESS_KEY_ID" => Some(id.to_owned()),
                "AWS_SECRET_ACCESS_KEY" => Some(secret.to_owned()),
                _ => None,
            })
        };
        assert!(of("id", "secret").is_ok());
        let missing = |key| Err(CredentialsError::Missing { key });
        assert_eq!(of("", "secret"), missing("AWS_ACCESS_KEY_ID"));
        assert_eq!(of("id", ""), missing("AWS_SECRET_ACCESS_KEY"));
    }

    proptest! {
        /// No text causes a panic, and neither an error nor `Debug` shows a secret.
        #[test]
        fn no_message_has_a_secret(
            before in "[a-z\\[\\]=# \n]{0,20}",
            after in "[a-z\\[\\]=# \n]{0,20}",
        ) {
            let text = format!("[default]\n{before}\naws_secret_access_key = T0PSECRET\n{after}");
            let shown = format!("{:?}", Credentials::from_file(&text, "default"));
            prop_assert!(!shown.contains("T0PSECRET"), "{}", shown);
        }
    }
}
