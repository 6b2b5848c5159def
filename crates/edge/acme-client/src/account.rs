//! Accounts at issuers. Each issuer has one, whose key is persisted.

use edgeward_acme::Failure;
use instant_acme::{Account, AccountCredentials, Error, ExternalAccountKey, NewAccount, Problem};
use serde::{Deserialize, Serialize};

use crate::http::Client;
use crate::settings::{IssuerSettings, NameGroup};
use crate::store::StateStore;

/// The reason why an order failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct OrderError {
    pub(crate) failure: Failure,
    pub(crate) message: String,
}

impl OrderError {
    pub(crate) fn local(what: &str, error: &dyn std::error::Error) -> Self {
        Self {
            failure: Failure::Local,
            message: format!("{what}: {}", edgeward_types::with_causes(error)),
        }
    }

    /// Classifies an error of a request.
    pub(crate) fn of_request(error: &Error, client: &Client) -> Self {
        let failure = match error {
            Error::Api(problem) => of_problem(problem, client),
            Error::Unsupported(_) => Failure::Rejected,
            Error::Crypto | Error::KeyRejected => Failure::Local,
            _ => Failure::Issuer,
        };
        Self {
            failure,
            message: edgeward_types::with_causes(error),
        }
    }
}

/// Classifies a refusal by its type (RFC 8555 §6.7).
fn of_problem(problem: &Problem, client: &Client) -> Failure {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    match kind.strip_prefix(ERROR_PREFIX) {
        Some("rateLimited") => Failure::RateLimited(client.retry_after()),
        Some("badNonce" | "serverInternal") => Failure::Issuer,
        _ if problem.status.is_some_and(|status| status >= 500) => Failure::Issuer,
        _ => Failure::Rejected,
    }
}

/// Awaits a request, and repeats it while the issuer rejects its nonce. Issuers may reject any nonce (RFC 8555 §6.5);
/// `instant-acme` repeats each request twice, which is too little if every other nonce is rejected.
macro_rules! with_nonce {
    ($request:expr) => {{
        let mut repeats = 0;
        loop {
            match $request.await {
                Err(error)
                    if repeats < crate::account::NONCE_REPEATS_MAX
                        && crate::account::is_bad_nonce(&error) =>
                {
                    repeats += 1;
                }
                result => break result,
            }
        }
    }};
}
pub(crate) use with_nonce;

/// Repetitions after the two of `instant-acme`.
pub(crate) const NONCE_REPEATS_MAX: u32 = 5;

pub(crate) fn is_bad_nonce(error: &Error) -> bool {
    is_problem(error, "badNonce")
}

/// Returns true if the issuer has answered, and carried nothing out.
pub(crate) fn is_refusal(error: &Error) -> bool {
    let Error::Api(problem) = error else {
        return false;
    };
    let status = problem.status.unwrap_or_default();
    (400..500).contains(&status)
}

fn is_problem(error: &Error, kind: &str) -> bool {
    let Error::Api(problem) = error else {
        return false;
    };
    let stated = problem.r#type.as_deref().unwrap_or_default();
    stated.strip_prefix(ERROR_PREFIX) == Some(kind)
}

/// A stored account.
#[derive(Serialize, Deserialize)]
struct StoredAccount {
    directory: Box<str>,
    contacts: Vec<String>,
    credentials: AccountCredentials,
}

/// Returns the account at an issuer. Without a stored one it is created and stored.
pub(crate) async fn open(
    store: &dyn StateStore,
    issuer: &IssuerSettings,
    group: &NameGroup,
    client: &Client,
) -> Result<Account, OrderError> {
    let name = file_name(&issuer.directory);
    let bytes = store
        .load(&name)
        .map_err(|error| OrderError::local(&name, &error))?;
    let builder = || Account::builder_with_http(Box::new(client.clone()));
    let request_error = |error| OrderError::of_request(&error, client);
    if let Some(bytes) = bytes {
        let stored: StoredAccount =
            serde_json::from_slice(&bytes).map_err(|error| OrderError::local(&name, &error))?;
        let account = builder().from_credentials(stored.credentials).await;
        return account.map_err(request_error);
    }
    let contacts: Vec<_> = group.contacts.iter().map(String::as_str).collect();
    let request = NewAccount {
        contact: &contacts,
        terms_of_service_agreed: true,
        only_return_existing: false,
    };
    let binding = issuer.binding.as_ref();
    let binding = binding.map(|key| ExternalAccountKey::new(key.key_id.clone(), &key.key));
    let directory = || issuer.directory.to_string();
    let created = with_nonce!(builder().create(&request, directory(), binding.as_ref()));
    let (account, credentials) = created.map_err(request_error)?;
    let stored = StoredAccount {
        directory: issuer.directory.clone(),
        contacts: group.contacts.clone(),
        credentials,
    };
    let bytes = serde_json::to_vec_pretty(&stored).expect("an account has only strings as keys");
    store
        .store(&name, &bytes)
        .map_err(|error| OrderError::local(&name, &error))?;
    tracing::info!(directory = %issuer.directory, account = account.id(), "an ACME account was created");
    Ok(account)
}

/// Forgets the account if the issuer does not know it any more.
pub(crate) fn forget_unknown(store: &dyn StateStore, directory: &str, error: &Error) {
    if is_problem(error, "accountDoesNotExist") {
        tracing::warn!(
            directory,
            "the issuer does not know the ACME account; the next order creates one"
        );
        _ = store.remove(&file_name(directory));
    }
}

/// Returns the file of an issuer's account: the URL of the directory with other characters than letters, digits and
/// dots replaced.
pub(crate) fn file_name(directory: &str) -> String {
    let rest = directory.strip_prefix("https://").unwrap_or(directory);
    let is_kept = |c: char| c.is_ascii_alphanumeric() || c == '.';
    let stem: String = rest
        .chars()
        .map(|c| if is_kept(c) { c } else { '-' })
        .collect();
    format!("accounts/{stem}.json")
}

const ERROR_PREFIX: &str = "urn:ietf:params:acme:error:";
