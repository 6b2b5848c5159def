//! The settings of `[[acme]]`.

use std::time::Duration;

use super::row::{Key, rows};
use crate::acme_settings::AcmeGroup;
use crate::config::draft::Part as _;
use crate::config::value::{
    AcmeNames, Contacts, Count, HttpsUrl, InputFile, PathName, Text, Time, Unset, WebUrl, Word,
};

pub(super) static ROWS: &[Key] = rows! {
    /// The names, each of which gets a certificate of its own: DNS names, `"*.DOMAIN"` (with `dns-01` only) and IP
    /// addresses.
    "acme.names" live: AcmeNames => AcmeGroup.names;

    /// The URL that decides about certificates on demand: names that are not configured, and that a client asks for in
    /// a handshake with a listener that has `acme = true`. The edge requests it with the parameter `domain`. The status
    /// 200 allows a certificate, and any other one refuses it. At most one `[[acme]]` has it, and says how these names
    /// are ordered; it needs no `names`. Default: none, only configured names get certificates.
    "acme.on_demand" live: Unset(WebUrl) => AcmeGroup.on_demand;

    /// The most new names on demand per hour. Default: 20.
    "acme.on_demand_names_per_hour" live: Count::of(1, 10_000) => AcmeGroup.on_demand_names_per_hour;

    /// The most requests to the URL of `on_demand` per minute. At most 8 requests are under way at once. A client that
    /// asks for a further name gets no certificate. Default: 60.
    "acme.on_demand_queries_per_minute" live: Count::of(1, 10_000) => AcmeGroup.on_demand_queries_per_minute;

    /// The most names on demand that are ordered for the first time at once. Clients that ask for a further one are
    /// refused. Default: 4.
    "acme.on_demand_pending_max" live: Count::of(1, 1000) => AcmeGroup.on_demand_pending_max;

    /// The most names on demand that are kept and renewed. Default: 1000.
    "acme.on_demand_names_max" live: Count::of(1, 10_000) => AcmeGroup.on_demand_names_max;

    /// The longest wait of a handshake for its certificate on demand. The order continues after it. Default: 20 s.
    "acme.on_demand_timeout" live:
        Time(Duration::from_secs(1), Duration::from_secs(120)) => AcmeGroup.on_demand_timeout;

    /// The URL of the directory of the issuer. By using it you agree to its terms of service. Default:
    /// that of Let's Encrypt, `https://acme-v02.api.letsencrypt.org/directory`.
    "acme.directory" live: HttpsUrl => AcmeGroup.directory;

    /// The directory of a second issuer. A name is ordered from it after three failures of the first one in a row.
    "acme.fallback_directory" live: Unset(HttpsUrl) => AcmeGroup.fallback_directory;

    /// Addresses at which the issuer may reach you about the account, such as `"mailto:admin@example.com"`.
    "acme.contact" live: Contacts => AcmeGroup.contact;

    /// How the issuer validates the names. `http-01`: by a request on port 80. `tls-alpn-01`: by a handshake on port
    /// 443. `dns-01`: by a record in DNS, which `dns_hook` sets. Default: `http-01`.
    "acme.challenge" live: Word::OF => AcmeGroup.challenge;

    /// The program that sets records for `dns-01`. It is called without a shell as `HOOK present NAME VALUE` and
    /// `HOOK cleanup NAME VALUE`, and must return with exit code 0 after the record `TXT` is visible or removed.
    "acme.dns_hook" live: Unset(InputFile) => AcmeGroup.dns_hook;

    /// The longest run of `dns_hook`, after which it is killed. Default: 2 minutes.
    "acme.dns_hook_timeout" live:
        Time(Duration::from_secs(1), Duration::from_secs(3600)) => AcmeGroup.dns_hook_timeout;

    /// The profile of the certificates, one of those that the issuer offers. Default: the issuer's.
    "acme.profile" live: Unset(Text) => AcmeGroup.profile;

    /// The common name of the root that the chain of a certificate should lead to, such as `ISRG Root X1`, if the
    /// issuer offers several chains. Certificates that are issued from then on have it. Default: the issuer's default
    /// chain, which is also used if no chain leads to this root.
    "acme.preferred_chain" live: Unset(Text) => AcmeGroup.preferred_chain;

    /// The identifier of the key that binds the account to one that you have at the issuer of `directory` (external
    /// account binding).
    "acme.eab_key_id" live: Unset(Text) => AcmeGroup.eab_key_id;

    /// The file with that key, as the issuer states it (base64url).
    "acme.eab_key_file" live: Unset(InputFile) => AcmeGroup.eab_key_file;

    /// Like `eab_key_id`, for the issuer of `fallback_directory`.
    "acme.fallback_eab_key_id" live: Unset(Text) => AcmeGroup.fallback_eab_key_id;

    /// Like `eab_key_file`, for the issuer of `fallback_directory`.
    "acme.fallback_eab_key_file" live: Unset(InputFile) => AcmeGroup.fallback_eab_key_file;

    /// PEM file of the root certificates that the issuers' servers must chain to. Default: the root certificates of the
    /// system.
    "acme.ca" live: Unset(InputFile) => AcmeGroup.ca;

    /// The folder of keys, certificates and the history of orders. It is made with access for its owner only. All
    /// `[[acme]]` have the same folder. Default: `/var/lib/edgeward/acme`.
    "acme.state" restart: PathName => AcmeGroup.state;

    /// The most new orders of each account per hour. All `[[acme]]` have the same value. Default: 90, below
    /// the 300 per three hours of Let's Encrypt.
    "acme.orders_per_hour" live: Count::of(1, 10_000) => AcmeGroup.orders_per_hour;
};
