//! Orders certificates and keeps them (RFC 8555).
//!
//! [`Acme::start`] loads the certificates of a folder and starts a thread. The thread asks the
//! [scheduler](edgeward_acme::Scheduler) what to do next, carries it out, and persists each step before the next one.
//! [`Certificates`] is the part that handshakes and requests read: certificates by name, and the answers to challenges.
//!
//! Several processes may use one folder. The one that holds its lease orders, and the others load new certificates.
#![forbid(unsafe_code)]

mod account;
mod answers;
mod certificates;
mod clocks;
mod demand;
mod driver;
mod hook;
mod http;
mod import;
mod load;
mod order;
mod settings;
mod state;
mod status;
mod store;
mod tasks;

pub use certificates::{CertificateFacts, Certificates, Counts};
pub use driver::Acme;
pub use import::{Import, ImportError, ImportedCertificate, import_certbot};
pub use load::StartError;
pub use settings::{
    AccountBinding, AcmeSettings, Challenge, IssuerSettings, NameGroup, OnDemandSettings,
};
pub use status::{NameReport, StatusError, report, request_renewal};
pub use store::{FolderStore, Lease, StateStore};
