//! The configuration of an edge, checked and with all defaults filled in.
//!
//! The crate `cli` parses flags and the TOML file into types of its own, and converts them into the types of this
//! module. The comment of each field states its default and the reason. Address and origin URL have no default.

mod admin;
mod caching;
mod certificates; // those that are renewed, implemented by other crates
mod compression;
mod disk;
mod edge;
pub(crate) mod fleet;
mod fleet_purges;
mod forwarding;
pub mod id_filter;
mod insight;
pub(crate) mod interfaces; // names and connections of origins, implemented by other crates
mod limits;
mod listener;
pub(crate) mod live; // the configuration that a reload changes
pub(crate) mod log_template;
mod logs;
mod origin;
mod origin_url;
mod overload;
pub(crate) mod s3;
pub(crate) mod site_urls; // keys of URLs without a request
pub mod watch; // samples of requests, for a watcher of other crates

pub use edgeward_httpd::{AdminToken, Roles, Token};
pub use edgeward_purge::PurgeMethods;

pub use admin::{AdminConfig, PurgeConfig};
pub use caching::{CachingConfig, RangesConfig};
pub use certificates::{CertificateSource, CertificateWait, RenewedCertificate, SourceFacts};
pub use compression::{CompressionConfig, OriginAccepts};
pub use disk::{DiskConfig, HostAdmission, RestartConfig};
pub use edge::{EdgeConfig, LOOPBACK_ANY_PORT, StatedSetting, default_sites};
pub use fleet::{
    FleetConfig, FleetError, FleetKey, FleetMember, FleetTls, KEY_BYTES_MIN, NODE_WEIGHT_MAX,
    NodeGroup,
};
pub use fleet_purges::{FleetPurges, WhenCutOff};
pub use forwarding::{ClientField, FieldNames, ForwardingConfig, Networks, ParseListError};
pub use insight::InsightConfig;
pub(crate) use limits::HEADERS_ON_STACK;
pub use limits::LimitsConfig;
pub use listener::{
    InvalidListenAddress, ListenAddress, ListenerConfig, ListenerTls, SiteCertificate,
};
pub use log_template::{LogTemplate, LogTemplateError};
pub use logs::{
    AccessLogConfig, InvalidSyslogServer, JOURNALD_SOCKET, LogDestination, LogFormat, SampledFlag,
    SyslogServer, TracingConfig,
};
pub(crate) use origin::OriginId;
pub use origin::{
    AllDown, Balance, CertificateFiles, ChecksConfig, HostPolicy, ORIGINS_MAX, OriginConfig,
    OriginProtocol, OriginTls, ProxyProtocol, Resolution,
};
pub use origin_url::{OriginUrl, ParseOriginUrlError};
pub use overload::{OverloadConfig, WatchdogConfig};
pub use s3::{Credentials, CredentialsError, CredentialsSource, ReadCredentialsError, S3Config};
