//! Parses the text of a plan into a [`Plan`] or a list of problems.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use edgeward_trace::generate::Preset;
use toml::de::DeValue;

use super::table::{Problem, Table, read_document};
use super::{
    Amount, ComparisonPlan, Generated, LoadPlan, Order, Plan, Server, SourceFigure, TraceOrigin,
    TracePlan, contender,
};
use crate::figure::{ComparisonKind, Figure};

impl Plan {
    /// Parses a plan.
    ///
    /// # Errors
    ///
    /// Returns all problems, ordered by line.
    pub fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        read_document(text, read)
    }
}

fn read(document: Table<'_>) -> Option<Plan> {
    let title = document.needed_text("title", "write title = \"What does … save?\"");
    let about = document.entry("about").and_then(|entry| entry.text());
    let trace = match document.table("trace") {
        Some(table) => trace(table),
        None => {
            document.missing(
                "trace",
                "write [trace] and preset = \"web\", or file = \"…\" below",
            );
            None
        }
    };
    let load = document
        .table("load")
        .map_or_else(|| Some(LoadPlan::default()), load);
    let origin = document
        .table("origin")
        .map_or(Some(Duration::ZERO), origin);
    let tables = document.tables("contender");
    if tables.is_empty() && document.entry("contender").is_none() {
        document.missing("contender", "write [[contender]] for each contender");
    }
    if tables.len() > CONTENDERS_MAX {
        document.wrong(
            format!("{} contenders are too many", tables.len()),
            format!("a plot can distinguish up to {CONTENDERS_MAX}"),
        );
        return None;
    }
    // Includes contenders that have problems of their own, because a comparison may still refer to them.
    let names_in_plan: Vec<&str> = tables
        .iter()
        .flat_map(|table| {
            let name = table.peek("name").or_else(|| table.peek("server"));
            [name, table.peek("group")]
        })
        .flatten()
        .collect();
    let mut contenders = Vec::new();
    let mut names = BTreeSet::new();
    let mut is_valid = !tables.is_empty();
    for table in tables {
        let line = table.line;
        let Some(contender) = contender::read(table) else {
            is_valid = false;
            continue;
        };
        if !names.insert(contender.name.clone()) {
            document.wrong_at(
                line,
                format!("two contenders have the name {}", contender.name),
                "give each contender its own name",
            );
            is_valid = false;
        }
        contenders.push(contender);
    }
    let compare = document
        .table("compare")
        .map(|table| compare(table, &names_in_plan));
    let sources: Vec<_> = document
        .tables("source")
        .into_iter()
        .map(|table| source(table, &names_in_plan))
        .collect();
    if load
        .as_ref()
        .is_some_and(|load| load.order == Order::Together)
    {
        for contender in &contenders {
            if matches!(
                &contender.server,
                Server::Edgeward {
                    settings_switch: Some(_),
                    ..
                }
            ) {
                document.wrong_at(
                    contender.line,
                    "a contender with a switch cannot run together with others",
                    "write order = \"in-turn\", or remove [contender.switch]",
                );
                is_valid = false;
            }
        }
    }
    document.finish();
    is_valid.then_some(())?;
    Some(Plan {
        title: title?,
        about: about.map(str::to_owned),
        trace: trace?,
        load: load?,
        origin_round_trip: origin?,
        comparison: compare.map_or(Some(None), |given| given.map(Some))?,
        contenders,
        sources: sources.into_iter().collect::<Option<_>>()?,
    })
}

fn trace(table: Table<'_>) -> Option<TracePlan> {
    let line = table.line;
    let requests = table
        .entry("requests")
        .map(|entry| entry.whole(REQUESTS_MIN..=REQUESTS_MAX));
    let size_max = table
        .entry("max_size")
        .map(|entry| entry.bytes(1..=1 << 40));
    let file = table.entry("file");
    let preset = table.entry("preset");
    let synthetic_entries = [
        table.entry("seed"),
        table.entry("objects"),
        table.entry("one_hit_share"),
        table.entry("churn"),
    ];
    let origin = match (&file, &preset) {
        (Some(file), None) => {
            for entry in synthetic_entries.iter().flatten() {
                entry.wrong("is for a synthetic trace", "remove this key or file");
            }
            file.text()
                .map(|path| TraceOrigin::File(PathBuf::from(path)))
        }
        (None, Some(preset)) => {
            let [seed, objects, one_hit_share, churn] = &synthetic_entries;
            let parsed_preset = preset.text().and_then(|name| {
                let known = Preset::from_str(name).ok();
                if known.is_none() {
                    let names: Vec<_> = Preset::ALL.iter().map(|p| p.name()).collect();
                    preset.wrong("is not a preset", format!("use {}", names.join(", ")));
                }
                known
            });
            // The numbers of TOML have 64 bits with a sign.
            let seed = seed
                .as_ref()
                .map_or(Some(1), |e| e.whole(0..=u64::MAX >> 1));
            let objects = objects.as_ref().map(|e| e.whole(1..=REQUESTS_MAX));
            let one_hit_share = one_hit_share.as_ref().map(super::table::Entry::share);
            let churn = churn.as_ref().map(super::table::Entry::share);
            (|| {
                Some(TraceOrigin::Generated(Generated {
                    preset: parsed_preset?,
                    seed: seed?,
                    objects: optional_value(objects)?,
                    one_hit_share: optional_value(one_hit_share)?,
                    churn: optional_value(churn)?,
                }))
            })()
        }
        _ => {
            table.wrong(
                "a trace needs either a preset or a file",
                "write preset = \"web\" or file = \"…\"",
            );
            None
        }
    };
    table.finish();
    Some(TracePlan {
        origin: origin?,
        requests: requests.map_or(Some(REQUESTS_DEFAULT), |given| given)?,
        size_bytes_max: optional_value(size_max)?,
        line,
    })
}

impl Default for LoadPlan {
    fn default() -> Self {
        Self {
            connections: NonZeroUsize::new(32).expect("the number is not zero"),
            rate: None,
            // The behaviour of a cache that is still filling says little about its steady state.
            warmup: Amount::Share(0.2),
            round_trip: Duration::ZERO,
            order: Order::InTurn,
            time_max: Duration::from_secs(600),
        }
    }
}

fn load(table: Table<'_>) -> Option<LoadPlan> {
    let default = LoadPlan::default();
    let connections = table
        .entry("connections")
        .map(|entry| entry.whole(1..=4096));
    let rate = table.entry("rate").map(|entry| {
        let closed = matches!(entry.value.get_ref(), DeValue::String(text) if text == "closed");
        let rate = entry.positive(RATE_MAX);
        if rate.is_none() && !closed {
            entry.wrong(
                "is not a rate",
                "write 2000 (requests per second), or \"closed\" for a closed loop",
            );
            return None;
        }
        Some(rate)
    });
    let warmup = table.entry("warmup").map(|entry| entry.amount());
    let round_trip = table
        .entry("round_trip")
        .map(|entry| entry.time(ROUND_TRIPS));
    let order = table.entry("order").map(|entry| {
        Some(match entry.choice(&["in-turn", "together"])? {
            "together" => Order::Together,
            _ => Order::InTurn,
        })
    });
    let second = Duration::from_secs(1);
    let time_max = table
        .entry("time_max")
        .map(|entry| entry.time(second..=second * 86_400));
    table.finish();
    let connections = connections.map_or(Some(default.connections), |given| {
        given.and_then(|n| NonZeroUsize::new(usize::try_from(n).ok()?))
    });
    Some(LoadPlan {
        connections: connections?,
        rate: rate.map_or(Some(default.rate), |given| given)?,
        warmup: warmup.map_or(Some(default.warmup), |given| given)?,
        round_trip: round_trip.map_or(Some(default.round_trip), |given| given)?,
        order: order.map_or(Some(default.order), |given| given)?,
        time_max: time_max.map_or(Some(default.time_max), |given| given)?,
    })
}

fn origin(table: Table<'_>) -> Option<Duration> {
    let round_trip = table
        .entry("round_trip")
        .map_or(Some(Duration::ZERO), |entry| entry.time(ROUND_TRIPS));
    table.finish();
    round_trip
}

fn compare(table: Table<'_>, names: &[&str]) -> Option<ComparisonPlan> {
    let subject = match table.entry("subject") {
        Some(entry) => entry.text().filter(|name| check_name(&entry, name, names)),
        None => {
            table.missing("subject", "write the name of a contender or a group");
            None
        }
    };
    let with = match table.entry("with") {
        Some(entry) => entry.texts().filter(|texts| {
            let mut all = true;
            for name in texts {
                all &= check_name(&entry, name, names);
            }
            all
        }),
        None => {
            table.missing("with", "write with = [\"nginx\", \"varnish\"]");
            None
        }
    };
    table.finish();
    Some(ComparisonPlan {
        subject: subject?.to_owned(),
        with: with?,
    })
}

/// Reads `[[source]]`: a published figure, which the report shows beside the measured one.
fn source(table: Table<'_>, names: &[&str]) -> Option<SourceFigure> {
    let words: Vec<&'static str> = Figure::ALL.iter().map(|figure| figure.word()).collect();
    let figure = match table.entry("figure") {
        Some(entry) => entry.choice(&words).and_then(Figure::from_word),
        None => {
            table.missing("figure", format!("write one of {}", words.join(", ")));
            None
        }
    };
    let words: Vec<&'static str> = ComparisonKind::ALL
        .iter()
        .map(|comparison| comparison.word())
        .collect();
    let comparison = match table.entry("as") {
        Some(entry) => entry.choice(&words).and_then(ComparisonKind::from_word),
        None => {
            table.missing("as", format!("write one of {}", words.join(", ")));
            None
        }
    };
    let side = |key| match table.entry(key) {
        Some(entry) => {
            let name = entry.text().filter(|name| check_name(&entry, name, names));
            name.map(str::to_owned)
        }
        None => {
            table.missing(key, "write the name of a contender or a group");
            None
        }
    };
    let (before, after) = (side("before"), side("after"));
    let published = table.needed_text("says", "write the published figure in words");
    let citation = table.needed_text("from", "write the citation");
    table.finish();
    Some(SourceFigure {
        figure: figure?,
        comparison: comparison?,
        before: before?,
        after: after?,
        published: published?,
        citation: citation?,
    })
}

/// Returns true if a contender or a group has this name, and reports a problem otherwise.
fn check_name(entry: &super::table::Entry<'_>, name: &str, names: &[&str]) -> bool {
    let found = names.contains(&name);
    if !found {
        entry.wrong(
            &format!("names {name}, which is neither a contender nor a group"),
            format!("the names are {}", names.join(", ")),
        );
    }
    found
}

/// Converts the value of an optional key: returns `Some(None)` if the key is absent, and `None` if its value is
/// invalid.
fn optional_value<T>(given: Option<Option<T>>) -> Option<Option<T>> {
    match given {
        None => Some(None),
        Some(value) => value.map(Some),
    }
}

/// The minimum length of a trace in requests. Shorter traces have no meaningful figures.
const REQUESTS_MIN: u64 = 100;

/// The maximum length of a trace in requests: about one day at 1,000 requests per second. The sizes of its objects fit
/// in memory.
const REQUESTS_MAX: u64 = 100_000_000;

const REQUESTS_DEFAULT: u64 = 300_000;

/// The maximum rate of the load, in requests per second.
const RATE_MAX: f64 = 1e6;

/// The bounds of the emulated round-trip times.
const ROUND_TRIPS: std::ops::RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(10);

/// The maximum number of contenders. A plot has eight colours, each for a solid and a dashed line.
const CONTENDERS_MAX: usize = 16;
