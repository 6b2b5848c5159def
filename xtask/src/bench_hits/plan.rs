//! What is measured: kinds of request, sizes, servers, how often and how long.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context as _, bail};

pub(crate) const HELP: &str = "\
edgeward, nginx and Varnish side by side: requests per CPU-second of the server, and latency.

The server under test has one core, wrk and the origin have another. Runs of the servers
alternate, so that a change in the machine's mood touches all of them.

usage: cargo xtask bench-hits [options]

  --sizes LIST        body sizes, such as 1k,16k,128k,1m (default: those four for hits,
                      1k and 64k for misses)
  --kinds LIST        hit, miss (a new storable key each), pass (a new key that must not be
                      stored); default all
  --servers LIST      edgeward, edgeward-adaptsize, nginx (each of sendfile on/off with
                      tcp_nopush on/off), varnish; default all
  --runs N            runs of each server and workload, default 5
  --seconds N         length of a run, default 4
  --connections N     of wrk, default 64
  --keys N            hot keys, default 1000
  --server-core N     default 0
  --client-core N     default 1
  --edgeward PATH     the binary, or the name of a cargo profile (default dist)
  --edgeward-args S   further arguments of `edgeward serve`, separated by spaces
  --out DIR           where results go; default bench/runs/DATE-hits for the whole plan,
                      bench/scratch/hits for a part of it

example: cargo xtask bench-hits --sizes 1k --kinds hit --servers edgeward,nginx --runs 3
";

/// What was asked for.
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
    /// A path, or the name of a profile.
    pub(crate) edgeward: String,
    pub(crate) edgeward_args: Vec<String>,
    pub(crate) out: Option<PathBuf>,
    /// Fewer sizes, kinds, servers or runs than the whole.
    pub(crate) partial: bool,
}

/// One column of the result: what is asked of every server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Workload {
    pub(crate) kind: Kind,
    pub(crate) size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Keys that are in the cache.
    Hit,
    /// A new key each time; the answer may be stored.
    Miss,
    /// A new key each time; the answer must not be stored.
    Pass,
}

/// One row of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Edgeward { policy: &'static str },
    Nginx { sendfile: bool, tcp_nopush: bool },
    Varnish,
}

impl Subject {
    pub(crate) const LRU: Self = Self::Edgeward { policy: "lru" };
    pub(crate) const ADAPTSIZE: Self = Self::Edgeward {
        policy: "adaptsize",
    };

    const ALL: [Self; 7] = [
        Self::LRU,
        Self::ADAPTSIZE,
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

    /// As in `--servers`.
    fn family(self) -> &'static str {
        match self {
            Self::Edgeward { policy: "lru" } => "edgeward",
            Self::Edgeward { .. } => "edgeward-adaptsize",
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

    /// As in `--kinds` and in the script that wrk runs.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Pass => "pass",
        }
    }

    /// The sizes of the whole plan.
    const fn sizes(self) -> &'static [u64] {
        match self {
            Self::Hit => &[1 << 10, 16 << 10, 128 << 10, 1 << 20],
            Self::Miss | Self::Pass => &[1 << 10, 64 << 10],
        }
    }
}

impl Workload {
    /// The least ratio to nginx at its best that is good enough.
    pub(crate) fn goal_against_nginx(self) -> f64 {
        match (self.kind, self.size) {
            (Kind::Hit, ..=0xFFF) => 1.5,
            (Kind::Hit, ..=0xFFFF) => 1.4,
            _ => 1.0,
        }
    }

    /// The least ratio to Varnish, which is set for small hits only.
    pub(crate) fn goal_against_varnish(self) -> Option<f64> {
        (self.kind == Kind::Hit && self.size <= 16 << 10).then_some(2.5)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.name();
        match self.size {
            size if size % (1 << 20) == 0 => write!(f, "{kind} {} MiB", size >> 20),
            size if size % (1 << 10) == 0 => write!(f, "{kind} {} KiB", size >> 10),
            size => write!(f, "{kind} {size} B"),
        }
    }
}

impl Plan {
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut plan = Self {
            workloads: Vec::new(),
            servers: Subject::ALL.to_vec(),
            runs: 5,
            seconds: 4,
            connections: 64,
            keys: 1000,
            server_core: 0,
            client_core: 1,
            edgeward: "dist".to_owned(),
            edgeward_args: Vec::new(),
            out: None,
            partial: false,
        };
        let mut sizes: Option<Vec<u64>> = None;
        let mut kinds = Kind::ALL.to_vec();
        let mut arguments = arguments.peekable();
        while let Some(option) = arguments.next() {
            let value = arguments
                .next()
                .with_context(|| format!("{option} wants a value"))?;
            let value = value.as_str();
            // Whatever makes the figures incomparable with those of the whole plan.
            let is_whole = matches!(option.as_str(), "--edgeward" | "--out" | "--runs");
            plan.partial |= !is_whole;
            match option.as_str() {
                "--sizes" => sizes = Some(list(value).map(size).collect::<Result<_, _>>()?),
                "--kinds" => kinds = list(value).map(kind).collect::<Result<_, _>>()?,
                "--servers" => {
                    let families = list(value).map(family).collect::<Result<Vec<_>, _>>()?;
                    plan.servers
                        .retain(|subject| families.contains(&subject.family()));
                }
                "--runs" => {
                    plan.runs = number(&option, value)?;
                    plan.partial |= plan.runs < 5;
                }
                "--seconds" => plan.seconds = number(&option, value)?,
                "--connections" => plan.connections = number(&option, value)?,
                "--keys" => plan.keys = number(&option, value)?,
                "--server-core" => plan.server_core = number(&option, value)?,
                "--client-core" => plan.client_core = number(&option, value)?,
                "--edgeward" => value.clone_into(&mut plan.edgeward),
                "--edgeward-args" => {
                    plan.edgeward_args = value.split_whitespace().map(str::to_owned).collect();
                }
                "--out" => plan.out = Some(PathBuf::from(value)),
                _ => bail!(
                    "bench-hits has no option {option}\n  hint: cargo xtask bench-hits --help"
                ),
            }
        }
        if plan.runs == 0 || plan.seconds == 0 || plan.connections == 0 || plan.keys == 0 {
            bail!("--runs, --seconds, --connections and --keys want at least 1");
        }
        for kind in kinds {
            let sizes = sizes.as_deref().unwrap_or_else(|| kind.sizes());
            plan.workloads
                .extend(sizes.iter().map(|&size| Workload { kind, size }));
        }
        Ok(plan)
    }
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

fn number<N: FromStr>(option: &str, text: &str) -> anyhow::Result<N> {
    text.parse()
        .ok()
        .with_context(|| format!("{option} wants a number, not {text}"))
}

fn size(text: &str) -> anyhow::Result<u64> {
    let (digits, unit) = match text.to_ascii_lowercase() {
        text if text.ends_with('k') => (text.trim_end_matches('k').to_owned(), 10),
        text if text.ends_with('m') => (text.trim_end_matches('m').to_owned(), 20),
        text => (text, 0),
    };
    let size = digits
        .parse::<u64>()
        .ok()
        .filter(|size| (1..=1 << 20).contains(size));
    Ok(size.with_context(|| format!("{text} is no size; write 1024, 16k or 1m"))? << unit)
}

fn kind(text: &str) -> anyhow::Result<Kind> {
    let found = Kind::ALL.into_iter().find(|kind| kind.name() == text);
    found.with_context(|| format!("{text} is no kind of request; there are hit, miss and pass"))
}

fn family(text: &str) -> anyhow::Result<&'static str> {
    let found = Subject::ALL
        .into_iter()
        .map(Subject::family)
        .find(|family| *family == text);
    found.with_context(|| {
        format!("{text} is no server; there are edgeward, edgeward-adaptsize, nginx and varnish")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> anyhow::Result<Plan> {
        Plan::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn without_options_it_is_the_whole_plan() {
        let plan = plan("").expect("no options are fine");
        assert!(!plan.partial);
        assert_eq!(plan.workloads.len(), 4 + 2 + 2);
        assert_eq!(plan.servers.len(), 7);
    }

    #[test]
    fn a_part_of_the_plan_knows_that_it_is_one() {
        let plan = plan("--sizes 1k,1m --kinds hit --servers edgeward,nginx --runs 3")
            .expect("these are options");
        assert!(plan.partial);
        let names: Vec<_> = plan.workloads.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["hit 1 KiB", "hit 1 MiB"]);
        assert_eq!(plan.servers.len(), 1 + 4);
    }

    #[test]
    fn mistakes_are_named() {
        for line in [
            "--sizes 1x",
            "--kinds hot",
            "--servers squid",
            "--runs",
            "--runs 0",
            "--x 1",
        ] {
            assert!(plan(line).is_err(), "{line} was accepted");
        }
    }
}
