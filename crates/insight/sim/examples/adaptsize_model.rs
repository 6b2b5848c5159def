//! Compares AdaptSize's model with simulation over a trace; writes CSV to stdout.
//!
//! Run: `cargo run --release -p edgeward-sim --example adaptsize_model -- curve TRACE BYTES..`. `BYTES..` are
//! capacities of the cache. The trace is divided into windows of 250 000 requests.
//!
//! `curve` compares every fourth window. For each value of AdaptSize's parameter `c` it writes the simulated hit
//! ratio, the prediction of the finite-horizon model (`horizon`), and the prediction of the paper's model
//! (`stationary`). The simulated cache is empty at the start of the window (`cold`), or has processed the earlier
//! windows (`warm`).
//!
//! `tuner` runs AdaptSize with the tuner of each model. For each window it writes the hit ratio that the tuner had
//! predicted before the window, and the measured one.
//!
//! A summary is written to stderr.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program whose result is its output"
)]

use std::error::Error;
use std::fs::File;
use std::path::Path;

use edgeward_policy::PolicySpec;
use edgeward_sim::{CurveConfig, CurveStudy, Run, RunConfig};
use edgeward_trace::{ReadOptions, Record};
use edgeward_types::Seed;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, trace, capacities @ ..] = arguments.as_slice() else {
        return Err("usage: adaptsize_model curve|tuner TRACE BYTES..".into());
    };
    let records: Vec<Record> = edgeward_trace::open(File::open(trace)?, ReadOptions::default())?
        .collect::<Result<_, _>>()?;
    let name = Path::new(trace)
        .file_name()
        .map_or_else(|| trace.clone(), |name| name.to_string_lossy().into_owned());
    let name = name.trim_end_matches(".tr.zst");
    match what.as_str() {
        "curve" => {
            println!("trace,capacity_bytes,window,start,c_bytes,simulated,horizon,stationary");
        }
        "tuner" => println!(
            "trace,capacity_bytes,policy,requests_end,c_bytes,measured,predicted_before,error"
        ),
        _ => return Err(format!("`{what}` is neither curve nor tuner").into()),
    }
    for capacity in capacities {
        let capacity_bytes = capacity.parse()?;
        if what == "curve" {
            curve(name, capacity_bytes, &records);
        } else {
            for policy in [PolicySpec::ADAPTSIZE, PolicySpec::ADAPTSIZE_HORIZON] {
                tuner(name, capacity_bytes, policy, &records);
            }
        }
    }
    Ok(())
}

fn curve(name: &str, capacity_bytes: u64, records: &[Record]) {
    let mut study = CurveStudy::new(CurveConfig {
        capacity_bytes,
        window_requests: WINDOW_REQUESTS,
        every: 4,
        candidates: CurveConfig::candidates_up_to(capacity_bytes),
        seed: SEED,
    });
    study.feed(records);
    for row in study.rows() {
        println!(
            "{name},{capacity_bytes},{},{},{},{:.4},{:.4},{:.4}",
            row.window,
            if row.warm { "warm" } else { "cold" },
            row.c_bytes
                .map_or_else(|| "inf".to_owned(), |c| c.to_string()),
            row.simulated_ohr,
            row.predicted_ohr,
            row.stationary_ohr,
        );
    }
    for warm in [false, true] {
        let rows: Vec<_> = study.rows().iter().filter(|row| row.warm == warm).collect();
        let points = |errors: Vec<f64>| 100.0 * errors.iter().sum::<f64>() / errors.len() as f64;
        eprintln!(
            "{name} {capacity_bytes} {}: mean error in points, horizon {:.2}, stationary {:.2}",
            if warm { "warm" } else { "cold" },
            points(
                rows.iter()
                    .map(|row| (row.predicted_ohr - row.simulated_ohr).abs())
                    .collect()
            ),
            points(
                rows.iter()
                    .map(|row| (row.stationary_ohr - row.simulated_ohr).abs())
                    .collect()
            ),
        );
    }
}

fn tuner(name: &str, capacity_bytes: u64, policy: PolicySpec, records: &[Record]) {
    let mut run = Run::new(RunConfig {
        policy,
        capacity_bytes,
        warmup_requests: 0,
        object_overhead_bytes: 0,
        seed: SEED,
        window_requests: None,
        interval_requests: u64::MAX,
    });
    run.feed(records);
    let report = run.report();
    let mut errors = Vec::new();
    // The `c` that was used in this window; it was chosen at the end of the previous one.
    let mut c_bytes = "inf".to_owned();
    for tuned in &report.tuned {
        if let Some(error) = tuned.model_error {
            errors.push(error.abs());
            println!(
                "{name},{capacity_bytes},{policy},{},{c_bytes},{:.4},{:.4},{error:.4}",
                tuned.requests_end,
                tuned.measured_ohr,
                tuned.measured_ohr + error,
            );
        }
        c_bytes = tuned
            .c_bytes
            .map_or_else(|| "inf".to_owned(), |c| format!("{c:.0}"));
    }
    eprintln!(
        "{name} {capacity_bytes} {policy}: object hit ratio {:.4}, byte hit ratio {:.4}, mean error {:.2} points",
        report.object_hit_ratio,
        report.byte_hit_ratio,
        100.0 * errors.iter().sum::<f64>() / errors.len().max(1) as f64,
    );
}

/// The number of requests in a window: Δ in the AdaptSize paper.
const WINDOW_REQUESTS: usize = 250_000;
const SEED: Seed = Seed(1);
