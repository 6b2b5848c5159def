//! Settings whose value is one of several words. Each setting has an enum; this file maps the words to its variants.

use edgeward_policy::Objective;
use edgeward_proxy::config::{
    AllDown, Balance, ClientField, NodeGroup, OriginAccepts, OriginProtocol, Resolution,
    SampledFlag, WhenCutOff,
};
use edgeward_semantics::{ClientDirectives, SetCookie};
use edgeward_store::disk::DirectWrites;
use edgeward_store::hot::TunerMode;

use crate::acme_settings::ChallengeKind;
use crate::link_settings::Compression;
use crate::negative::IdKind;

/// An enum whose values have words in the configuration.
pub(super) trait Choice: Sized {
    /// All words, in the order in which the reference lists them.
    const WORDS: &'static [&'static str];

    /// Returns the value of a word.
    fn from_word(word: &str) -> Option<Self>;

    /// Returns the word of a value.
    fn word(self) -> &'static str;
}

/// Implements [`Choice`] from a list of words. A variant without a word is a compile error.
macro_rules! choices {
    ($($choice:ident { $($word:literal => $value:ident),+ })+) => {$(
        impl Choice for $choice {
            const WORDS: &'static [&'static str] = &[$($word),+];

            fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$value),)+
                    _ => None,
                }
            }

            fn word(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }
        }
    )+};
}

choices! {
    AllDown { "try" => Try, "refuse" => Refuse }
    NodeGroup { "edge" => Edge, "shield" => Shield }
    Balance { "least-requests" => LeastRequests, "round-robin" => RoundRobin, "hash" => Hash }
    OriginAccepts { "forward" => Forward, "identity" => Identity }
    Resolution { "system" => System, "dns" => Dns }
    OriginProtocol { "http1" => Http1, "http2" => Http2 }
    ProxyHeader { "none" => None, "v1" => V1, "v2" => V2 }
    BucketStyle { "auto" => Auto, "path" => Path, "host" => Host }
    Objective { "requests" => Requests, "bytes" => Bytes, "origin-cost" => OriginCost }
    WhenCutOff { "serve" => Serve, "validate" => Validate, "refuse" => Refuse }
    TunerMode { "thread" => Thread, "inline" => Inline }
    DirectWrites { "auto" => Auto, "always" => Always, "never" => Never }
    SetCookie { "refuse" => Refuse, "strip" => Strip, "share" => Share }
    ClientDirectives { "ignore" => Ignore, "honour" => Honour }
    ClientField { "x-forwarded-for" => XForwardedFor, "forwarded" => Forwarded, "none" => None }
    SampledFlag { "trusted" => Trusted, "always" => Always, "never" => Never }
    Compression { "zstd" => Zstd, "lz4" => Lz4, "none" => None }
    ChallengeKind { "http-01" => Http, "tls-alpn-01" => TlsAlpn, "dns-01" => Dns }
    IdKind { "text" => Text, "uuid" => Uuid, "integer" => Integer, "hex" => Hex }
}

/// The PROXY header that begins connections to an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyHeader {
    None,
    V1,
    V2,
}

/// How requests name the bucket of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BucketStyle {
    /// By `Host` if it begins with the name of the bucket, otherwise by the path.
    Auto,
    Path,
    Host,
}
