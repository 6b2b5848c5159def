//! The plan of the benchmark: kinds of request, sizes, servers, rounds and durations.

use std::fmt;
use std::path::PathBuf;

use crate::options::Options;

pub(crate) const HELP: &str = "\
Compares requests per CPU-second with nginx and Varnish.

usage: cargo xtask bench-hits [options]

  --sizes LIST        body sizes [1k,16k,128k,1m for hits over http, fewer over
                      the other transports; 1k,64k for misses and passes]
  --transports LIST   http, https, h2 (over TLS) on kept connections; http-new,
                      https-new: a connection per request. Misses and passes
                      are measured only over http [all]
  --kinds LIST        hit, miss (new storable keys), pass (not storable) [all]
  --servers LIST      edgeward, edgeward-adaptsize, edgeward-sites (ten),
                      edgeward-observed (log, traces), varnish, nginx [all]
  --runs N            runs of each server and workload [5]
  --seconds N         duration of a run [4]
  --connections N     connections of wrk or h2load [64]
  --keys N            number of keys for hits [1000]
  --server-core N     core of the measured server [0]
  --client-core N     core of wrk and the origin [1]
  --edgeward NAME     a cargo profile or a path to the binary [dist]
  --edgeward-args S   further arguments of `edgeward serve`
  --out FOLDER        results [bench/runs/DATE-hits, or bench/scratch/hits for
                      a part of the plan]

example: cargo xtask bench-hits --sizes 1k --kinds hit --servers edgeward,nginx
";

/// The options of the command.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) workloads: Vec<Workload>,
    pub(crate) servers: Vec<Subject>,
    pub(crate) runs: u32,
    pub(crate) seconds: u32,
    pub(crate) connections: u32,
    pub(crate) keys: u64,
    pub(crate) server_core: u32,
    pub(crate) client_core: u32,
    /// A path, or the name of a cargo profile.
    pub(crate) edgeward: String,
    pub(crate) edgeward_args: Vec<String>,
    pub(crate) out: Option<PathBuf>,
    /// True if an option other than `--edgeward`, `--out` and `--runs` is given, or if `--runs` is less than in the
    /// whole plan.
    pub(crate) partial: bool,
}

/// The load that every server gets. Each workload is a column of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Workload {
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    pub(crate) transport: Transport,
}

/// The protocol and connection use of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// HTTP/1.1 over kept connections.
    Http,
    /// HTTP/1.1 with a new connection for each request.
    HttpNew,
    /// HTTP/1.1 over kept TLS connections.
    Https,
    /// HTTP/1.1 with a new TLS connection and a full handshake for each request.
    HttpsNew,
    /// HTTP/2 over kept TLS connections, with ten concurrent requests on each.
    H2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Keys that are in the cache.
    Hit,
    /// A new key for each request; the response may be stored.
    Miss,
    /// A new key for each request; the response must not be stored.
    Pass,
}

/// The number of sites of [`Subject::EdgewardSites`].
pub(crate) const SITES: u32 = 10;

/// A measured server with its settings. Each subject is a row of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Edgeward {
        policy: &'static str,
    },
    /// With the policy LRU, [`SITES`] sites and the rules of `bench/hits/site.toml` for each of them.
    EdgewardSites,
    /// With the policy LRU, an access log and traces, as in `bench/hits/observed.toml`.
    EdgewardObserved,
    Nginx {
        sendfile: bool,
        tcp_nopush: bool,
    },
    Varnish,
}

impl Subject {
    pub(crate) const fn is_edgeward(self) -> bool {
        matches!(
            self,
            Self::Edgeward { .. } | Self::EdgewardSites | Self::EdgewardObserved
        )
    }

    pub(crate) const LRU: Self = Self::Edgeward { policy: "lru" };
    pub(crate) const ADAPTSIZE: Self = Self::Edgeward {
        policy: "adaptsize",
    };

    const ALL: [Self; 9] = [
        Self::LRU,
        Self::ADAPTSIZE,
        Self::EdgewardSites,
        Self::EdgewardObserved,
        Self::Nginx {
            sendfile: false,
            tcp_nopush: false,
        },
        Self::Nginx {
            sendfile: true,
            tcp_nopush: false,
        },
        Self::Nginx {
            sendfile: false,
            tcp_nopush: true,
        },
        Self::Nginx {
            sendfile: true,
            tcp_nopush: true,
        },
        Self::Varnish,
    ];

    const FAMILIES: [&str; 6] = [
        "edgeward",
        "edgeward-adaptsize",
        "edgeward-sites",
        "edgeward-observed",
        "nginx",
        "varnish",
    ];

    /// Returns the name in `--servers`.
    fn family(self) -> &'static str {
        match self {
            Self::Edgeward { policy: "lru" } => "edgeward",
            Self::Edgeward { .. } => "edgeward-adaptsize",
            Self::EdgewardSites => "edgeward-sites",
            Self::EdgewardObserved => "edgeward-observed",
            Self::Nginx { .. } => "nginx",
            Self::Varnish => "varnish",
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = |set: bool| if set { "on" } else { "off" };
        match *self {
            Self::Edgeward { policy } => write!(f, "edgeward {policy}"),
            Self::EdgewardSites => write!(f, "edgeward lru {SITES} sites"),
            Self::EdgewardObserved => f.write_str("edgeward lru observed"),
            Self::Nginx {
                sendfile,
                tcp_nopush,
            } => {
                write!(
                    f,
                    "nginx sendfile {} tcp_nopush {}",
                    on(sendfile),
                    on(tcp_nopush)
                )
            }
            Self::Varnish => f.write_str("varnish"),
        }
    }
}

impl Kind {
    const ALL: [Self; 3] = [Self::Hit, Self::Miss, Self::Pass];

    /// Returns the name in `--kinds` and in the wrk script.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Pass => "pass",
        }
    }

    /// Returns the body sizes of the whole plan.
    const fn sizes(self, transport: Transport) -> &'static [u64] {
        match (self, transport) {
            (Self::Hit, Transport::Http) => &[1 << 10, 16 << 10, 128 << 10, 1 << 20],
            (Self::Hit, Transport::Https | Transport::H2) => &[1 << 10, 16 << 10, 128 << 10],
            (Self::Hit, Transport::HttpNew | Transport::HttpsNew) => &[1 << 10],
            (Self::Miss | Self::Pass, _) => &[1 << 10, 64 << 10],
        }
    }
}

impl Transport {
    const ALL: [Self; 5] = [
        Self::Http,
        Self::HttpNew,
        Self::Https,
        Self::HttpsNew,
        Self::H2,
    ];

    /// Returns the name in `--transports`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::HttpNew => "http-new",
            Self::Https => "https",
            Self::HttpsNew => "https-new",
            Self::H2 => "h2",
        }
    }

    pub(crate) const fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::HttpsNew | Self::H2)
    }

    pub(crate) const fn is_kept(self) -> bool {
        matches!(self, Self::Http | Self::Https | Self::H2)
    }
}

impl Workload {
    /// Returns the goal: the minimum of edgeward's requests per CPU-second, divided by those of the best nginx
    /// setting.
    pub(crate) fn goal_against_nginx(self) -> f64 {
        match (self.transport, self.kind, self.size) {
            (Transport::Https | Transport::HttpsNew, ..) => 1.6,
            (Transport::H2, ..) => 1.3,
            (Transport::HttpNew, ..) => 1.0,
            (Transport::Http, Kind::Hit, ..=0xFFF) => 1.5,
            (Transport::Http, Kind::Hit, ..=0xFFFF) => 1.4,
            (Transport::Http, ..) => 1.0,
        }
    }

    /// Returns the minimum of edgeward's requests per CPU-second, divided by those of Varnish. Only small hits
    /// have this goal.
    pub(crate) fn goal_against_varnish(self) -> Option<f64> {
        let is_small_hit = self.kind == Kind::Hit && self.size <= 16 << 10;
        (is_small_hit && self.transport == Transport::Http).then_some(2.5)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.transport != Transport::Http {
            write!(f, "{} ", self.transport.name())?;
        }
        let kind = self.kind.name();
        match self.size {
            size if size % (1 << 20) == 0 => write!(f, "{kind} {} MiB", size >> 20),
            size if size % (1 << 10) == 0 => write!(f, "{kind} {} KiB", size >> 10),
            size => write!(f, "{kind} {size} B"),
        }
    }
}

impl Plan {
    pub(crate) fn from_options(options: &Options) -> anyhow::Result<Self> {
        let runs = options.count("--runs", 5)?;
        // With these options, the figures remain comparable with those of the whole plan.
        let comparable_options = ["--edgeward", "--out", "--runs"];
        let families = options.choice("--servers", &Subject::FAMILIES, |family| family)?;
        let is_selected = |subject: &Subject| families.contains(&subject.family());
        let kinds = options.choice("--kinds", &Kind::ALL, Kind::name)?;
        let transports = options.choice("--transports", &Transport::ALL, Transport::name)?;
        let sizes = match options.value("--sizes") {
            Some(_) => Some(options.sizes("--sizes", "")?),
            None => None,
        };
        let measured = kinds.iter().flat_map(|&kind| {
            let transports = transports.iter().copied();
            transports
                .filter(move |&transport| kind == Kind::Hit || transport == Transport::Http)
                .map(move |transport| (kind, transport))
        });
        let workloads = measured.flat_map(|(kind, transport)| {
            let sizes = sizes.as_deref();
            let sizes = sizes.unwrap_or_else(|| kind.sizes(transport));
            sizes.iter().map(move |&size| Workload {
                kind,
                size,
                transport,
            })
        });
        Ok(Self {
            workloads: workloads.collect(),
            servers: Subject::ALL.into_iter().filter(is_selected).collect(),
            runs,
            seconds: options.count("--seconds", 4)?,
            connections: options.count("--connections", 64)?,
            keys: options.count("--keys", 1000)?,
            server_core: options.number("--server-core", 0)?,
            client_core: options.number("--client-core", 1)?,
            edgeward: options.text("--edgeward", "dist"),
            edgeward_args: options.space_separated("--edgeward-args"),
            out: options.value("--out").map(PathBuf::from),
            partial: runs < 5
                || options
                    .names()
                    .any(|name| !comparable_options.contains(&name)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> anyhow::Result<Plan> {
        let words = line.split_whitespace().map(str::to_owned);
        let options = Options::parse(HELP, words)?.expect("the line does not ask for help");
        Plan::from_options(&options)
    }

    #[test]
    fn the_defaults_are_the_whole_plan() {
        let plan = plan("").expect("options are not required");
        assert!(!plan.partial);
        assert_eq!(plan.workloads.len(), (4 + 1 + 3 + 1 + 3) + 2 + 2);
        assert_eq!(plan.servers.len(), 9);
    }

    #[test]
    fn options_that_reduce_the_plan_make_it_partial() {
        let plan = plan(
            "--sizes 1k,1m --kinds hit --transports http,h2 --servers edgeward,nginx --runs 3",
        )
        .expect("the options are valid");
        assert!(plan.partial);
        let names: Vec<_> = plan.workloads.iter().map(ToString::to_string).collect();
        assert_eq!(
            names,
            ["hit 1 KiB", "hit 1 MiB", "h2 hit 1 KiB", "h2 hit 1 MiB"]
        );
        assert_eq!(plan.servers.len(), 1 + 4);
    }

    #[test]
    fn invalid_options_are_rejected() {
        for line in [
            "--sizes 1x",
            "--kinds hot",
            "--transports quic",
            "--servers squid",
            "--runs",
            "--runs 0",
            "--x 1",
        ] {
            assert!(plan(line).is_err(), "{line} was accepted");
        }
    }
}
