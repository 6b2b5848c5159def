//! Connects the certificates of `[[acme]]` to the edge.
//!
//! The edge asks a `CertificateSource` and does not know where certificates come from; `acme-client` does not know the
//! edge.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use edgeward_acme::{Limits, Rate};
use edgeward_acme_client::{
    AccountBinding, Acme, AcmeSettings, Certificates, Challenge, IssuerSettings, NameGroup,
    OnDemandSettings,
};
use edgeward_proxy::config::{CertificateSource, CertificateWait, RenewedCertificate, SourceFacts};
use rustls::sign::CertifiedKey;

use crate::acme_settings::{AcmeGroup, BindingKeys, ChallengeKind};

/// The certificates of `[[acme]]`, if there is one.
#[derive(Debug, Default)]
pub(crate) struct AcmeService(Mutex<Option<Acme>>);

impl AcmeService {
    /// Starts or changes the orders so that they are those of `groups`. Returns the certificates for the edge.
    pub(crate) fn apply(
        &self,
        groups: &[AcmeGroup],
    ) -> anyhow::Result<Option<Arc<dyn CertificateSource>>> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(settings) = settings_of(groups)? else {
            *running = None;
            return Ok(None);
        };
        let acme = match running.take() {
            Some(acme) => {
                acme.update(settings)?;
                acme
            }
            None => Acme::start(settings)?,
        };
        let source = Source(acme.certificates());
        *running = Some(acme);
        Ok(Some(Arc::new(source)))
    }

    /// Orders no more certificates, so that another process may. Those that are loaded stay in use.
    pub(crate) fn stop(&self) {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(running);
    }
}

/// Returns the settings of all `[[acme]]`. `None` without one.
pub(crate) fn settings_of(groups: &[AcmeGroup]) -> anyhow::Result<Option<AcmeSettings>> {
    let Some(first) = groups.first() else {
        return Ok(None);
    };
    let hour = Duration::from_secs(3600);
    let limits = Limits {
        orders_per_issuer: Rate {
            count: first.orders_per_hour,
            window: hour,
        },
        ..Limits::default()
    };
    let names = groups.iter().map(name_group).collect::<Result<_, _>>()?;
    // The check of the configuration refuses a second one.
    let mut on_demand = groups.iter().enumerate().filter_map(|(index, group)| {
        Some(OnDemandSettings {
            group: index,
            url: group.on_demand.clone()?,
            new_names: Rate {
                count: group.on_demand_names_per_hour,
                window: hour,
            },
            queries_per_minute: group.on_demand_queries_per_minute,
            pending_max: group.on_demand_pending_max as usize,
            names_max: group.on_demand_names_max as usize,
            timeout: group.on_demand_timeout,
        })
    });
    Ok(Some(AcmeSettings {
        groups: names,
        folder: first.state.clone(),
        limits,
        on_demand: on_demand.next(),
    }))
}

fn name_group(group: &AcmeGroup) -> anyhow::Result<NameGroup> {
    let [binding, of_fallback] = group.bindings().map(|binding| binding.read());
    let of_fallback = of_fallback?;
    let fallback = group
        .fallback_directory
        .iter()
        .map(|directory| IssuerSettings {
            directory: directory.as_str().into(),
            binding: of_fallback.clone(),
        });
    let first = IssuerSettings {
        directory: group.directory.as_str().into(),
        binding: binding?,
    };
    let dns = || Challenge::Dns {
        hook: group.dns_hook.clone().unwrap_or_default(),
        timeout: group.dns_hook_timeout,
    };
    Ok(NameGroup {
        names: group.names.clone(),
        issuers: std::iter::once(first).chain(fallback).collect(),
        contacts: group.contact.clone(),
        challenge: match group.challenge {
            ChallengeKind::Http => Challenge::Http,
            ChallengeKind::TlsAlpn => Challenge::TlsAlpn,
            ChallengeKind::Dns => dns(),
        },
        profile: group.profile.clone(),
        preferred_chain: group.preferred_chain.clone(),
        roots: group.ca.clone(),
    })
}

impl BindingKeys<'_> {
    /// Reads the key. `None` if the account is not bound.
    pub(crate) fn read(&self) -> anyhow::Result<Option<AccountBinding>> {
        let (Some(key_id), Some(file)) = (self.key_id, self.key_file) else {
            return Ok(None);
        };
        let (path, shown) = (self.paths[1], file.display());
        let text =
            fs::read_to_string(file).with_context(|| format!("{path} = {shown} cannot be read"))?;
        let binding = AccountBinding::parse(key_id, text.trim());
        binding
            .map(Some)
            .with_context(|| format!("{path} = {shown} has no key in base64url"))
    }
}

/// The certificates, in the form that the edge queries.
#[derive(Debug)]
struct Source(Arc<Certificates>);

impl CertificateSource for Source {
    fn of_name(&self, server_name: &str) -> Option<Arc<CertifiedKey>> {
        self.0.of_name(server_name)
    }

    fn default_key(&self, server_name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        self.0.default_key(server_name)
    }

    fn of_challenge(&self, server_name: &str) -> Option<Arc<CertifiedKey>> {
        self.0.of_challenge(server_name)
    }

    fn http_answer(&self, token: &str) -> Option<Box<str>> {
        self.0.http_answer(token)
    }

    fn is_on_demand(&self) -> bool {
        self.0.is_on_demand()
    }

    fn demand(&self, server_name: &str) -> Option<CertificateWait> {
        Some(Box::pin(self.0.demand(server_name)?))
    }

    fn facts(&self) -> SourceFacts {
        let counts = self.0.counts();
        let certificates = self.0.facts().into_iter().map(|facts| RenewedCertificate {
            name: facts.name,
            not_after_at: facts.not_after_at,
            next_order_at: facts.next_order_at,
            failures: facts.failures,
        });
        SourceFacts {
            certificates: certificates.collect(),
            orders: counts.orders(),
            stored: counts.stored(),
            failures: counts.failures().collect(),
            has_lease: counts.has_lease(),
            demands: counts.demands().collect(),
            names_on_demand: counts.on_demand(),
        }
    }
}
