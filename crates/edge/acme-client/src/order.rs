//! Carries out the steps of one order.

use std::time::Duration;

use edgeward_acme::{Attempt, Failure, Name, OrderStatus, Step};
use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Identifier, NewOrder, Order,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use crate::account::{self, OrderError, with_nonce};
use crate::answers::PublishedAnswer;
use crate::certificates::{StoredCertificate, root_name};

use crate::hook;
use crate::http::Client;
use crate::settings::{Challenge, IssuerSettings, NameGroup};
use crate::state::State;

/// An order for one name at one issuer.
pub(crate) struct NameOrder<'a> {
    pub(crate) state: &'a State,
    pub(crate) group: &'a NameGroup,
    pub(crate) issuer: &'a IssuerSettings,
    pub(crate) name: &'a Name,
}

/// The answer to a challenge while it is published.
enum Answer {
    Published { _answer: PublishedAnswer },
    Record { name: String, value: String },
}

impl NameOrder<'_> {
    /// Orders a certificate and stores it. `resumed` is the URL of an order that was begun before, `replaces` the
    /// identifier of the certificate that it replaces.
    pub(crate) async fn run(
        &self,
        resumed: Option<&str>,
        replaces: Option<&str>,
    ) -> Result<StoredCertificate, OrderError> {
        let client = Client::new(self.group.roots.as_deref());
        let client =
            client.map_err(|error| OrderError::local("the roots of the issuer", &error))?;
        let account = self.state.account(self.issuer, self.group, &client).await?;
        let opened = match resumed {
            Some(url) => with_nonce!(account.order(url.to_owned())),
            None => self.new_order(&account, replaces).await,
        };
        let mut order = opened.map_err(|error| {
            let store = self.state.store();
            account::forget_unknown(store, &self.issuer.directory, &error);
            OrderError::of_request(&error, &client)
        })?;
        self.state.step("order opened");
        self.state.record_order(self.name, order.url())?;
        let mut answer = None;
        let ended = self
            .steps(
                &account,
                &mut order,
                &client,
                resumed.is_some(),
                &mut answer,
            )
            .await;
        if let (Some(Answer::Record { name, value }), Challenge::Dns { hook, timeout }) =
            (&answer, &self.group.challenge)
            && let Err(error) = hook::call(hook, ["cleanup", name, value], *timeout).await
        {
            tracing::warn!(name = %self.name, %error, "the DNS record of a challenge was not removed");
        }
        ended
    }

    async fn new_order(
        &self,
        account: &Account,
        replaces: Option<&str>,
    ) -> Result<Order, instant_acme::Error> {
        let identifier = match self.name {
            Name::Ip(address) => Identifier::Ip(*address),
            Name::Dns(_) | Name::Wildcard(_) => Identifier::Dns(self.name.to_string()),
        };
        let identifiers = [identifier];
        let request = || match &self.group.profile {
            Some(profile) => NewOrder::new(&identifiers).profile(profile),
            None => NewOrder::new(&identifiers),
        };
        let old = replaces.and_then(|id| id.split_once('.'));
        let Some((authority, serial)) = old else {
            return with_nonce!(account.new_order(&request()));
        };
        let replaced = request().replaces(CertificateIdentifier {
            authority_key_identifier: authority.into(),
            serial: serial.into(),
        });
        match with_nonce!(account.new_order(&replaced)) {
            // RFC 9773 §5: the issuer may refuse the replacement, for example if another order has made it.
            Err(instant_acme::Error::Api(problem))
                if problem
                    .status
                    .is_some_and(|status| (400..500).contains(&status) && status != 429) =>
            {
                tracing::debug!(name = %self.name, %problem, "the issuer refused `replaces`");
                with_nonce!(account.new_order(&request()))
            }
            Err(instant_acme::Error::Unsupported(_)) => with_nonce!(account.new_order(&request())),
            result => result,
        }
    }

    async fn steps(
        &self,
        account: &Account,
        order: &mut Order,
        client: &Client,
        is_resumed: bool,
        answer: &mut Option<Answer>,
    ) -> Result<StoredCertificate, OrderError> {
        let request_error = |error| OrderError::of_request(&error, client);
        let mut key = match is_resumed {
            true => self.state.pending_key(self.name)?,
            false => None,
        };
        let mut attempt = Attempt::new(status_of(order), key.is_some());
        loop {
            match attempt.next() {
                Step::Present => {
                    *answer = self.present(order, client).await?;
                    attempt.presented();
                    self.state.step("answer published");
                }
                Step::Respond => {
                    self.respond(order, client).await?;
                    attempt.responded();
                    self.state.step("issuer informed");
                }
                Step::Poll(delay) => {
                    tokio::time::sleep(delay).await;
                    with_nonce!(order.refresh()).map_err(request_error)?;
                    attempt.polled(status_of(order), client.retry_after());
                }
                Step::Finalize => {
                    // With a key an earlier process may have sent a request, which the issuer did not refuse.
                    let (pair, is_first) = match key.take() {
                        Some(pair) => (pair, false),
                        None => (self.state.make_pending_key(self.name)?, true),
                    };
                    self.state.step("key stored");
                    let request = self.certificate_request(&pair)?;
                    self.state.record_finalize(self.name)?;
                    let finalized = with_nonce!(order.finalize_csr(&request));
                    finalized.map_err(|error| {
                        if is_first && account::is_refusal(&error) {
                            self.state.take_finalize_back(self.name);
                        }
                        request_error(error)
                    })?;
                    attempt.finalized(status_of(order));
                    key = Some(pair);
                    self.state.step("order finalized");
                }
                Step::Download => {
                    let chain = with_nonce!(order.certificate()).map_err(request_error)?;
                    let chain = chain.ok_or_else(|| OrderError {
                        failure: Failure::Issuer,
                        message: "the issuer has not made the certificate".to_owned(),
                    })?;
                    let key = key.ok_or_else(|| OrderError {
                        failure: Failure::Local,
                        message: "the key of the certificate is lost".to_owned(),
                    })?;
                    let chain = self.preferred_chain(account, client, &key, chain).await;
                    return self.state.store_certificate(self.name, &key, &chain);
                }
                Step::Fail(failure) => {
                    return Err(OrderError {
                        failure,
                        message: self.reason(order).await,
                    });
                }
            }
        }
    }

    /// Returns the chain that leads to the preferred root, or else the default chain. The certificate is issued, so
    /// nothing here delays it for long, or fails it.
    async fn preferred_chain(
        &self,
        account: &Account,
        client: &Client,
        key: &KeyPair,
        default: String,
    ) -> String {
        let Some(preferred) = &self.group.preferred_chain else {
            return default;
        };
        if root_name(&default).is_some_and(|name| name == *preferred) {
            return default;
        }
        let alternates = client
            .take_download()
            .map_or_else(Vec::new, |download| download.alternates);
        let found = async {
            for url in alternates {
                // This signs a POST-as-GET for any URL. The response is no order, so the client keeps it.
                _ = with_nonce!(account.order(url.clone()));
                if let Some(download) = client.take_download()
                    && is_preferred(&download.chain, key, preferred)
                {
                    return Some(download.chain);
                }
            }
            None
        };
        if let Ok(Some(chain)) = tokio::time::timeout(ALTERNATES_TIMEOUT, found).await {
            return chain;
        }
        let (name, default_root) = (self.name, root_name(&default));
        tracing::warn!(%name, preferred, default_root, "no chain leads to the preferred root; the default is used");
        default
    }

    /// Publishes the answer to the challenge of the order's authorization. `None` if the issuer demands no answer.
    async fn present(
        &self,
        order: &mut Order,
        client: &Client,
    ) -> Result<Option<Answer>, OrderError> {
        with_nonce!(fetch_authorizations(order))
            .map_err(|error| OrderError::of_request(&error, client))?;
        let mut authorizations = order.authorizations();
        let Some(authorization) = authorizations.next().await else {
            return Ok(None);
        };
        let mut authorization =
            authorization.map_err(|error| OrderError::of_request(&error, client))?;
        if authorization.status != AuthorizationStatus::Pending {
            return Ok(None);
        }
        let challenge = authorization
            .challenge(self.challenge_type())
            .ok_or_else(|| OrderError {
                failure: Failure::Rejected,
                message: "the issuer does not offer the configured challenge for this name"
                    .to_owned(),
            })?;
        let authorization = challenge.key_authorization();
        let answers = self.state.answers();
        let published = match &self.group.challenge {
            Challenge::Http => answers.publish_http(&challenge.token, authorization.as_str()),
            Challenge::TlsAlpn => {
                let name = self.name.validation_name();
                let digest = authorization.digest();
                let published =
                    answers.publish_tls(&name, &self.name.identifier(), digest.as_ref());
                published
                    .map_err(|error| OrderError::local("the answer to the challenge", &error))?
            }
            Challenge::Dns { hook, timeout } => {
                let name = format!("_acme-challenge.{}", self.name.identifier());
                let value = authorization.dns_value();
                let called = hook::call(hook, ["present", &name, &value], *timeout).await;
                called.map_err(|error| OrderError::local("the DNS record", &error))?;
                return Ok(Some(Answer::Record { name, value }));
            }
        };
        Ok(Some(Answer::Published { _answer: published }))
    }

    /// Informs the issuer that the answer is published.
    async fn respond(&self, order: &mut Order, client: &Client) -> Result<(), OrderError> {
        let request_error = |error| OrderError::of_request(&error, client);
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(request_error)?;
            if authorization.status == AuthorizationStatus::Pending
                && let Some(mut challenge) = authorization.challenge(self.challenge_type())
            {
                with_nonce!(challenge.set_ready()).map_err(|error| {
                    let error = request_error(error);
                    // The authorization has failed meanwhile, which issuers count as a failed validation.
                    let failure = match error.failure {
                        Failure::Rejected => Failure::Validation,
                        failure => failure,
                    };
                    OrderError { failure, ..error }
                })?;
            }
        }
        Ok(())
    }

    const fn challenge_type(&self) -> ChallengeType {
        match self.group.challenge {
            Challenge::Http => ChallengeType::Http01,
            Challenge::TlsAlpn => ChallengeType::TlsAlpn01,
            Challenge::Dns { .. } => ChallengeType::Dns01,
        }
    }

    fn certificate_request(&self, key: &KeyPair) -> Result<Vec<u8>, OrderError> {
        let made = CertificateParams::new([self.name.to_string()]).and_then(|mut params| {
            params.distinguished_name = DistinguishedName::new();
            params.serialize_request(key)
        });
        let made =
            made.map_err(|error| OrderError::local("the request for a certificate", &error))?;
        Ok(made.der().to_vec())
    }

    /// Returns the reason why an order failed, as its issuer states it.
    async fn reason(&self, order: &mut Order) -> String {
        if let Some(problem) = &order.state().error {
            return problem.to_string();
        }
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            if let Ok(state) = authorization.refresh().await {
                let mut problems = state
                    .challenges
                    .iter()
                    .filter_map(|challenge| challenge.error.as_ref());
                if let Some(problem) = problems.next_back() {
                    return problem.to_string();
                }
            }
        }
        "the order was not completed in time".to_owned()
    }
}

/// Returns true if an alternative chain leads to the preferred root, and can be used with the key.
fn is_preferred(chain: &str, key: &KeyPair, preferred: &str) -> bool {
    let pem = || format!("{}{chain}", key.serialize_pem());
    root_name(chain).is_some_and(|name| name == preferred)
        && StoredCertificate::parse(pem().as_bytes()).is_ok()
}

/// The longest download of all alternative chains.
const ALTERNATES_TIMEOUT: Duration = Duration::from_secs(60);

/// Fetches the authorizations of an order, which then has them.
async fn fetch_authorizations(order: &mut Order) -> Result<(), instant_acme::Error> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        authorization?;
    }
    Ok(())
}

fn status_of(order: &mut Order) -> OrderStatus {
    use instant_acme::OrderStatus as Stated;
    match order.state().status {
        Stated::Pending => OrderStatus::Pending,
        Stated::Ready => OrderStatus::Ready,
        Stated::Processing => OrderStatus::Processing,
        Stated::Valid => OrderStatus::Valid,
        Stated::Invalid => OrderStatus::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use rcgen::{BasicConstraints, DnType, IsCa, Issuer};

    #[test]
    fn an_alternative_chain_that_does_not_fit_the_key_is_not_used() {
        let mut root = CertificateParams::default();
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        root.distinguished_name.push(DnType::CommonName, "Root X");
        let issuer = Issuer::new(root, KeyPair::generate().expect("a key"));
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["a.example".to_owned()]).expect("a name");
        let chain = params.signed_by(&key, &issuer).expect("signed").pem();
        assert!(is_preferred(&chain, &key, "Root X"));
        assert!(!is_preferred(&chain, &key, "Root Y"));
        let other = KeyPair::generate().expect("a key");
        assert!(!is_preferred(&chain, &other, "Root X"));
        assert!(!is_preferred("torn", &key, "Root X"));
    }
}
