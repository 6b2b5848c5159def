//! Predefined workloads. A workload mixes classes of traffic, such as pages and images. Each class has its own
//! popularity and its own distribution of sizes.

use std::fmt;
use std::str::FromStr;

use super::sizes::{Sizes, Tail};
use super::workload::{Class, Phase, Workload};

/// A predefined workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Pages, images and API responses: many small objects, most of them with one request.
    Web,
    /// Video segments of about 1 MB with their manifests and thumbnails.
    Video,
    /// All classes of traffic at once, with sizes from 10 B to more than 1 GiB.
    Mixed,
    /// The classes of `Mixed` in phases with different weights, which an adaptive policy must follow.
    Switch,
    /// A small workload, whose replay over HTTP takes less than a minute on two cores. Its sizes vary enough to
    /// show the effect of admission by size.
    Small,
    /// Downloads in chunks, all of 1 MiB: an order by size has nothing to decide by.
    Chunks,
    /// Pages, images and API responses, interrupted by crawlers that request objects without further requests.
    Scan,
    /// The objects of `Video`. Other objects are popular in each part of a day, and they return every day.
    Recurring,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 8] = [
        Self::Web,
        Self::Video,
        Self::Mixed,
        Self::Switch,
        Self::Small,
        Self::Chunks,
        Self::Scan,
        Self::Recurring,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Web => "web",
            Self::Video => "video",
            Self::Mixed => "mixed",
            Self::Switch => "switch",
            Self::Small => "small",
            Self::Chunks => "chunks",
            Self::Scan => "scan",
            Self::Recurring => "recurring",
        }
    }

    /// Returns the workload of the preset. The caller may change its fields.
    pub fn workload(self) -> Workload {
        // The weights of a phase distribute the requests over the classes; `catalogue_weight` distributes the objects.
        let single_phase = |weights: &[f64]| {
            vec![Phase {
                from: 0.0,
                weights: weights.to_vec(),
            }]
        };
        let base = Workload {
            requests: 1_000_000,
            objects: 150_000,
            // In practice 70 to 80 % of the objects at a CDN edge have one request.
            one_hit_share: 0.7,
            churn: 0.2,
            scans: 0,
            recurring_days: 0,
            requests_per_second: 10.0,
            diurnal: 0.5,
            classes: Vec::new(),
            phases: Vec::new(),
        };
        match self {
            Self::Web => Workload {
                classes: vec![pages(4.0), images(5.0), api(1.0)],
                phases: single_phase(&[4.0, 5.0, 1.0]),
                ..base
            },
            Self::Video => Workload {
                objects: 250_000,
                one_hit_share: 0.55,
                classes: vec![video(8.0), images(1.5), api(0.5)],
                phases: single_phase(&[7.0, 2.0, 1.0]),
                ..base
            },
            Self::Mixed => Workload {
                classes: every_class(),
                phases: single_phase(&[30.0, 35.0, 18.0, 2.0, 15.0]),
                ..base
            },
            Self::Switch => Workload {
                classes: every_class(),
                phases: [0.0, 0.25, 0.5, 0.75]
                    .into_iter()
                    .zip([
                        [45.0, 40.0, 2.0, 0.5, 12.5],
                        [5.0, 10.0, 75.0, 2.0, 8.0],
                        [45.0, 40.0, 2.0, 0.5, 12.5],
                        [15.0, 15.0, 20.0, 45.0, 5.0],
                    ])
                    .map(|(from, weights)| Phase {
                        from,
                        weights: weights.to_vec(),
                    })
                    .collect(),
                ..base
            },
            Self::Small => Workload {
                requests: 300_000,
                objects: 45_000,
                one_hit_share: 0.6,
                churn: 0.1,
                requests_per_second: 100.0,
                diurnal: 0.0,
                classes: small_classes(),
                phases: single_phase(&[6.0, 3.0, 1.0]),
                ..base
            },
            Self::Chunks => Workload {
                one_hit_share: 0.4,
                classes: vec![chunks()],
                phases: single_phase(&[1.0]),
                ..base
            },
            Self::Scan => Workload {
                scans: 10,
                ..Self::Web.workload()
            },
            Self::Recurring => Workload {
                recurring_days: 8,
                ..Self::Video.workload()
            },
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Preset {
    type Err = ParsePresetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|preset| preset.name() == text)
            .ok_or_else(|| ParsePresetError {
                text: text.to_owned(),
            })
    }
}

/// The text is not the name of a preset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a preset; use web, video, mixed, switch, small, chunks, scan or recurring"
)]
pub struct ParsePresetError {
    text: String,
}

fn every_class() -> Vec<Class> {
    vec![
        pages(30.0),
        images(40.0),
        video(15.0),
        downloads(5.0),
        api(10.0),
    ]
}

/// HTML, style sheets and scripts.
fn pages(catalogue_weight: f64) -> Class {
    Class {
        name: "pages",
        catalogue_weight,
        zipf_exponent: 0.9,
        sizes: Sizes {
            median_bytes: 6.0 * KIB,
            sigma: 1.5,
            tail: Some(Tail {
                share: 0.02,
                from_bytes: 128.0 * KIB,
                alpha: 1.3,
            }),
            min_bytes: 64,
            max_bytes: 32 << 20,
        },
    }
}

fn images(catalogue_weight: f64) -> Class {
    Class {
        name: "images",
        catalogue_weight,
        zipf_exponent: 0.8,
        sizes: Sizes {
            median_bytes: 20.0 * KIB,
            sigma: 1.4,
            tail: Some(Tail {
                share: 0.03,
                from_bytes: 512.0 * KIB,
                alpha: 1.5,
            }),
            min_bytes: 100,
            max_bytes: 64 << 20,
        },
    }
}

/// Video segments of two to ten seconds at several bit rates.
fn video(catalogue_weight: f64) -> Class {
    Class {
        name: "video",
        catalogue_weight,
        zipf_exponent: 0.75,
        sizes: Sizes {
            median_bytes: 1024.0 * KIB,
            sigma: 0.8,
            tail: None,
            min_bytes: 16 << 10,
            max_bytes: 32 << 20,
        },
    }
}

/// Installers, updates, archives. The largest size fits into the 32-bit size field of the
/// `oracleGeneral` trace format.
fn downloads(catalogue_weight: f64) -> Class {
    Class {
        name: "downloads",
        catalogue_weight,
        zipf_exponent: 1.0,
        sizes: Sizes {
            median_bytes: 4096.0 * KIB,
            sigma: 2.2,
            tail: Some(Tail {
                share: 0.05,
                from_bytes: 256.0 * 1024.0 * KIB,
                alpha: 0.9,
            }),
            min_bytes: 1 << 10,
            max_bytes: (1 << 32) - 1,
        },
    }
}

/// JSON responses; the smallest are empty lists.
fn api(catalogue_weight: f64) -> Class {
    Class {
        name: "api",
        catalogue_weight,
        zipf_exponent: 1.1,
        sizes: Sizes {
            median_bytes: 300.0,
            sigma: 1.6,
            tail: None,
            min_bytes: 10,
            max_bytes: 1 << 20,
        },
    }
}

fn chunks() -> Class {
    Class {
        name: "chunks",
        catalogue_weight: 1.0,
        zipf_exponent: 0.8,
        sizes: Sizes {
            median_bytes: 1024.0 * KIB,
            sigma: 0.0,
            tail: None,
            min_bytes: 1 << 20,
            max_bytes: 1 << 20,
        },
    }
}

fn small_classes() -> Vec<Class> {
    let class = |name, catalogue_weight, zipf_exponent, median_bytes, sigma, max_bytes| Class {
        name,
        catalogue_weight,
        zipf_exponent,
        sizes: Sizes {
            median_bytes,
            sigma,
            tail: None,
            min_bytes: 64,
            max_bytes,
        },
    };
    vec![
        class("pages", 6.0, 0.95, 1.5 * KIB, 1.0, 1 << 20),
        class("images", 3.0, 0.85, 6.0 * KIB, 1.2, 4 << 20),
        class("downloads", 1.0, 0.6, 40.0 * KIB, 1.3, 8 << 20),
    ]
}

const KIB: f64 = 1024.0;
