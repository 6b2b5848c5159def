//! House rules and chores that need the whole workspace: `cargo xtask <chore>`.

mod bench_analyze;
mod bench_disk;
mod bench_hits;
mod bench_ids;
mod bench_link;
mod bench_negative;
mod bench_prediction;
mod tidy;
mod vectors;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Chores that need the whole workspace.

usage: cargo xtask <chore> [options]

  tidy          hold the house rules: who imports whom, pure crates, links, dead files
  bench-analyze counting a log's requests, beside DuckDB and awk; --help tells its options
  bench-disk    the disk cache: what is written, hits beside nginx's, writing beside fio's
  bench-hits    edgeward, nginx and Varnish side by side; --help tells its options
  bench-ids     ids out of real databases, and filters of them; --help tells its options
  bench-negative
                an edge with an id filter beside one without; --help likewise
  bench-link    what the link saves, beside zstd, borg, restic, casync, rsync
  bench-prediction
                the simulator's hit ratio beside one measured through HTTP; --help likewise
  vectors       write the golden files under vectors/ anew; --help likewise
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let outcome = match arguments.next().as_deref() {
        Some("tidy") => tidy::run(&workspace_root()),
        Some("bench-analyze") => bench_analyze::run(&workspace_root(), arguments),
        Some("bench-disk") => bench_disk::run(&workspace_root(), arguments),
        Some("bench-hits") => bench_hits::run(&workspace_root(), arguments),
        Some("bench-ids") => bench_ids::run(&workspace_root(), arguments),
        Some("bench-negative") => bench_negative::run(&workspace_root(), arguments),
        Some("bench-link") => bench_link::run(&workspace_root(), arguments),
        Some("bench-prediction") => bench_prediction::run(&workspace_root(), arguments),
        Some("vectors") => vectors::run(&workspace_root(), arguments),
        Some("help" | "--help" | "-h") | None => {
            say(HELP);
            Ok(true)
        }
        Some(other) => Err(anyhow::anyhow!(
            "no chore is called {other}\n  hint: cargo xtask --help lists them"
        )),
    };
    // 0 done, 1 the answer is no, 2 could not do it.
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The folder that holds the workspace's `Cargo.toml`: one above this crate's.
fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies inside the workspace")
        .to_path_buf()
}

/// Writes to stdout. A reader that went away (`| head`) is not an error.
pub(crate) fn say(text: impl AsRef<str>) {
    use std::io::Write as _;
    _ = std::io::stdout().write_all(text.as_ref().as_bytes());
}
