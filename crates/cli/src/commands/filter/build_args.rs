//! The options of `edgeward filter build`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use edgeward_filter::guava::Funnel;
use edgeward_filter::{IdForm, Rate};

use super::database::DatabaseArgs;
use super::source::SourceArgs;

/// Build an id filter from a list of ids or a database
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct BuildArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,

    #[command(flatten)]
    pub(super) database: DatabaseArgs,

    /// Checkpoint of a database scan, from which the same command continues after a crash
    #[arg(long, value_name = "FILE", requires = "query")]
    pub(super) resume: Option<PathBuf>,

    /// Filter file to write
    #[arg(long, short, value_name = "FILE")]
    pub(super) output: PathBuf,

    /// False-positive rate: 0.01 or 1%
    ///
    /// The share of absent ids that may be reported as present.
    #[arg(long, value_name = "RATE", default_value = "1%")]
    pub(super) fpr: Rate,

    /// Form of the ids, so that all spellings match: text, uuid, integer [default: by the type of the
    /// database column, otherwise text]
    #[arg(long, value_name = "FORM")]
    pub(super) ids: Option<IdForm>,

    /// Build a filter to which ids can be added; about 1.5 times the size
    #[arg(long, conflicts_with = "guava")]
    pub(super) updatable: bool,

    /// Capacity of an updatable filter in ids [default: a tenth more than the source has]
    #[arg(long, value_name = "N", requires = "updatable", hide_short_help = true)]
    pub(super) capacity: Option<u64>,

    /// Write Guava's format for BloomFilter.readFrom: utf8, unencoded-chars, long
    ///
    /// The value is the funnel, which converts an id to the bytes that Guava hashes. The reader must use the same
    /// funnel.
    #[arg(long, value_name = "FUNNEL")]
    pub(super) guava: Option<Funnel>,

    /// Number of the build, higher than the number of every earlier build [default: seconds since 1970]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(super) epoch: Option<u64>,

    /// Seed of the hash of ids, the same for all builds of a set
    #[arg(long, value_name = "N", default_value_t = 0, hide_short_help = true)]
    pub(super) hash_seed: u64,

    /// Maximum number of ids; each takes 8 bytes while building (16 for Guava)
    #[arg(long, value_name = "N", default_value_t = 1 << 30, hide_short_help = true)]
    pub(super) ids_max: u64,

    /// Reject a source whose number of ids is below this share of the number in the filter that --output replaces; 0
    /// also accepts a source without ids
    #[arg(
        long,
        default_value_t = 0.5,
        value_name = "SHARE",
        hide_short_help = true
    )]
    pub(super) least_share: f64,

    /// Skip and count ids that do not have the form of --ids, instead of stopping
    #[arg(long, hide_short_help = true)]
    pub(super) skip_malformed: bool,

    /// Threads of the build [default: one per core]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(super) threads: Option<NonZeroUsize>,

    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  edgeward filter build --source ids.txt --fpr 1% -o resource.ids
  edgeward filter build --source export.csv --column id --ids uuid -o resource.ids
  edgeward filter build --source postgres://me@db/shop --query 'SELECT id FROM resource' \\
    -o resource.ids
  edgeward filter build --source sqlite://shop.db --query 'SELECT id FROM resource' -o resource.ids
  mysql -BNe 'SELECT id FROM resource' | edgeward filter build -s - -o resource.ids
  edgeward filter build --source ids.txt --guava utf8 -o resource.bloom

A static filter is the smallest; --updatable builds a filter to which ids can be added.
docs/how-to/negative-lookups.md describes the forms of ids and which spellings are equal.";
