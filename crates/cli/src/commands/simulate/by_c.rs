//! `simulate --by-c`: the object hit ratio for each parameter `c` of AdaptSize, simulated and predicted, as in figure 9
//! of the AdaptSize paper.

use std::num::NonZeroU32;

use edgeward_report::{Axis, Plot, Series, Unit};
use edgeward_sim::{CurveConfig, CurveMean, CurveStudy};
use edgeward_types::{ByteSize, Seed};
use serde::Serialize;

use super::args::SimulateArgs;

/// The comparison at one capacity.
#[derive(Debug, Serialize)]
pub(super) struct ByC {
    capacity_bytes: u64,
    /// Requests per window.
    window_requests: u64,
    /// The number of compared windows. The hit ratios are means over them.
    windows: u64,
    points: Vec<CurveMean>,
}

/// A running comparison.
#[derive(Debug)]
pub(super) struct Comparison {
    capacity_bytes: u64,
    window_requests: u64,
    pub(super) study: CurveStudy,
}

impl Comparison {
    /// Starts a comparison. `requests` is the number of requests of the trace, if it is known.
    pub(super) fn new(args: &SimulateArgs, capacity_bytes: u64, requests: Option<u64>) -> Self {
        let window = args.window.map_or(WINDOW_REQUESTS, NonZeroU32::get);
        let window = u64::from(window);
        let window = requests.map_or(window, |requests| window.min(requests / WINDOWS).max(1));
        let windows = requests.map_or(WINDOWS, |requests| requests / window);
        Self {
            capacity_bytes,
            window_requests: window,
            study: CurveStudy::new(CurveConfig {
                capacity_bytes,
                window_requests: usize::try_from(window).unwrap_or(usize::MAX),
                every: windows / WINDOWS,
                candidates: CurveConfig::candidates_up_to(capacity_bytes),
                seed: Seed(args.seed.first().copied().unwrap_or(0)),
            }),
        }
    }

    pub(super) fn report(&self) -> ByC {
        ByC {
            capacity_bytes: self.capacity_bytes,
            window_requests: self.window_requests,
            windows: self.study.warm_windows(),
            points: self.study.means(),
        }
    }
}

impl ByC {
    /// Returns the name of the plot's file.
    pub(super) fn name(&self) -> String {
        format!("by-c-{}", ByteSize(self.capacity_bytes))
    }

    pub(super) fn plot(&self) -> Plot {
        let mut plot = Plot::new(
            format!("Object hit ratio by AdaptSize's c at {}", ByteSize(self.capacity_bytes)),
            Axis::new("c", Unit::Bytes).log(),
            Axis::new("object hit ratio", Unit::Share),
        )
        .note(format!(
            "An object of c bytes is admitted with probability 1/e. Means over {} windows of {} requests. Levels: all \
             objects are admitted.",
            self.windows, self.window_requests,
        ));
        type Ratio = fn(&CurveMean) -> f64;
        let series: [(&str, Ratio, bool); 3] = [
            ("simulated", |point| point.simulated_ohr, false),
            ("predicted for a window", |point| point.predicted_ohr, true),
            (
                "predicted for the steady state",
                |point| point.stationary_ohr,
                true,
            ),
        ];
        for (colour, (name, ratio, is_dashed)) in series.into_iter().enumerate() {
            let point = |point: &CurveMean| Some((point.c_bytes? as f64, ratio(point)));
            let line = Series::line(name, self.points.iter().filter_map(point)).colour(colour);
            plot.add(if is_dashed { line.dashed() } else { line });
        }
        if let Some(all) = self.points.iter().find(|point| point.c_bytes.is_none()) {
            plot.add(Series::level("simulated, all admitted", all.simulated_ohr).colour(3));
        }
        plot
    }
}

/// The default number of requests per window, as in the paper.
const WINDOW_REQUESTS: u32 = 250_000;

/// The intended number of compared windows. More windows take longer and hardly change the means.
const WINDOWS: u64 = 8;
