//! The level of overload: a state machine with hysteresis.

use std::time::Duration;

/// A class of work, in the order in which it is shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A new connection of a client.
    Connection,
    /// A request that bypasses the cache.
    Pass,
    /// A request that needs the origin because the cache has no fresh response.
    Miss,
    /// A request that the cache answers.
    Hit,
}

/// The level of overload. Each level sheds the work of the levels below it, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing is shed.
    #[default]
    Normal,
    /// New connections are shed.
    Connections,
    /// Requests that bypass the cache are shed.
    Passes,
    /// Misses are shed.
    Misses,
    /// All requests are shed.
    Hits,
}

impl Level {
    /// All levels, in ascending order.
    pub const ALL: [Self; 5] = [
        Self::Normal,
        Self::Connections,
        Self::Passes,
        Self::Misses,
        Self::Hits,
    ];

    /// Returns true if work of this class is shed.
    #[must_use]
    pub const fn sheds(self, work: Work) -> bool {
        self as u8 > work as u8
    }

    /// Returns the level with this number, or the highest one.
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Normal,
            1 => Self::Connections,
            2 => Self::Passes,
            3 => Self::Misses,
            _ => Self::Hits,
        }
    }

    /// Returns the name of the level.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Connections => "connections",
            Self::Passes => "passes",
            Self::Misses => "misses",
            Self::Hits => "hits",
        }
    }
}

/// A bounded resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// The memory of the process.
    Memory,
    /// The processor: the delay of a worker's event loop.
    Lag,
    /// The open descriptors.
    Descriptors,
}

impl Resource {
    /// All resources.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Lag, Self::Descriptors];

    /// Returns the name of the resource.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Lag => "lag",
            Self::Descriptors => "descriptors",
        }
    }

    /// Returns the highest level that this resource causes. A hit takes no memory and no descriptor that the process
    /// does not already have, so only a busy processor sheds hits.
    #[must_use]
    pub const fn level_max(self) -> Level {
        match self {
            Self::Memory | Self::Descriptors => Level::Misses,
            Self::Lag => Level::Hits,
        }
    }

    /// Returns the share of the bound below which the resource counts as recovered. Lag varies much from one
    /// measurement to the next. Memory and descriptors do not.
    const fn recovered_share(self) -> f64 {
        match self {
            Self::Memory | Self::Descriptors => 0.95,
            Self::Lag => 0.5,
        }
    }
}

/// The bounds of the resources. A bound of `None` is not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// The delay of the slowest worker's event loop.
    pub lag: Option<Duration>,
    /// Open descriptors.
    pub descriptors: Option<u64>,
}

impl Bounds {
    /// Returns the used share of a resource's bound, or 0 without a bound or a measurement.
    #[must_use]
    pub fn used_share(&self, resource: Resource, sample: &Sample) -> f64 {
        let share = |used: f64, bound: f64| used / bound.max(f64::MIN_POSITIVE);
        let of = |used: Option<u64>, bound: Option<u64>| Some(share(used? as f64, bound? as f64));
        let used = match resource {
            Resource::Memory => of(sample.memory_bytes, self.memory_bytes),
            Resource::Descriptors => of(sample.descriptors, self.descriptors),
            Resource::Lag => self
                .lag
                .map(|bound| share(sample.lag.as_secs_f64(), bound.as_secs_f64())),
        };
        used.unwrap_or(0.0)
    }
}

/// The measured use of the resources. A value of `None` could not be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// The delay of the slowest worker's event loop.
    pub lag: Duration,
    /// Open descriptors.
    pub descriptors: Option<u64>,
}

/// A change of the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The level before.
    pub from: Level,
    /// The level now.
    pub to: Level,
    /// The resource that uses the largest share of its bound.
    pub resource: Resource,
}

/// The state machine. While a resource exceeds its bound, the level rises by one at each step. When all resources have
/// recovered, it falls by one at each step. Between bound and recovery, it stays.
#[derive(Clone, Debug)]
pub struct Overload {
    bounds: Bounds,
    step: Duration,
    level: Level,
    /// The time of the last change, or of the start.
    changed: Duration,
}

impl Overload {
    /// Returns a machine at [`Level::Normal`]. Two changes of the level are at least `step` apart, and the first one
    /// comes at least `step` after the start.
    #[must_use]
    pub const fn new(bounds: Bounds, step: Duration) -> Self {
        Self {
            bounds,
            step,
            level: Level::Normal,
            changed: Duration::ZERO,
        }
    }

    /// Returns the current level.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// Returns the bounds.
    #[must_use]
    pub const fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Moves to the level that a sample demands. `now` is the time since the start.
    pub fn update(&mut self, now: Duration, sample: &Sample) -> Option<Transition> {
        if now.saturating_sub(self.changed) < self.step {
            return None;
        }
        let share = |resource: &Resource| self.bounds.used_share(*resource, sample);
        let highest = |resources: &[Resource]| {
            let levels = resources.iter().map(|resource| resource.level_max());
            levels.max().unwrap_or_default()
        };
        let exceeded: Vec<_> = Resource::ALL
            .into_iter()
            .filter(|resource| share(resource) > 1.0)
            .collect();
        let not_recovered: Vec<_> = Resource::ALL
            .into_iter()
            .filter(|resource| share(resource) >= resource.recovered_share())
            .collect();
        let from = self.level;
        let to = if from < highest(&exceeded) {
            Level::from_number(from as u8 + 1)
        } else if from > highest(&not_recovered) {
            Level::from_number(from as u8 - 1)
        } else {
            return None;
        };
        self.level = to;
        self.changed = now;
        let resource = Resource::ALL
            .into_iter()
            .max_by(|a, b| share(a).total_cmp(&share(b)))
            .expect("the list of resources is not empty");
        Some(Transition { from, to, resource })
    }
}
