//! Axes: the visible range, the position of a value, and the ticks.

use crate::unit::Unit;

/// One axis of a plot.
#[derive(Clone, Debug)]
pub struct Axis {
    pub(crate) label: String,
    pub(crate) unit: Unit,
    log: bool,
    tight: bool,
    range: Option<(f64, f64)>,
}

impl Axis {
    /// Makes a linear axis. A vertical axis starts at zero, so that heights can be compared.
    pub fn new(label: impl Into<String>, unit: Unit) -> Self {
        Self {
            label: label.into(),
            unit,
            log: false,
            tight: false,
            range: None,
        }
    }

    /// Makes the axis logarithmic. Values that are not above zero are omitted.
    #[must_use]
    pub fn log(mut self) -> Self {
        self.log = true;
        self
    }

    /// Makes the axis show only the range of the values, even if this range does not include zero.
    #[must_use]
    pub fn tight(mut self) -> Self {
        self.tight = true;
        self
    }

    /// Makes the axis show exactly this range, independent of the values.
    #[must_use]
    pub fn range(mut self, from: f64, to: f64) -> Self {
        self.range = Some((from, to));
        self
    }

    /// Returns true if the axis can show `value`.
    pub(crate) fn can_show(&self, value: f64) -> bool {
        value.is_finite() && value.abs() < MAGNITUDE_MAX && (!self.log || value > MAGNITUDE_MIN)
    }

    /// Returns the scale of a horizontal axis, which covers exactly the range of the values.
    pub(crate) fn horizontal(&self, values: impl Iterator<Item = f64>) -> Scale {
        let (from, to) = self.extent(values);
        self.scale(from, to, HORIZONTAL_STEPS)
    }

    /// Returns the scale of a vertical axis. A linear axis includes zero (unless it is tight), and begins and ends on
    /// a tick. A logarithmic axis begins and ends on a power of its base. A fixed range is not extended.
    pub(crate) fn vertical(&self, values: impl Iterator<Item = f64>) -> Scale {
        let (mut from, mut to) = self.extent(values);
        if self.range.is_some() {
            return self.scale(from, to, VERTICAL_STEPS);
        }
        if self.log {
            let base = self.log_base();
            from = base.powf((from.log(base) + TICK_TOLERANCE).floor());
            to = base.powf((to.log(base) - TICK_TOLERANCE).ceil());
            if from >= to {
                to = from * base;
            }
        } else {
            if !self.tight {
                from = from.min(0.0);
                to = to.max(0.0);
                if from >= to {
                    to = from + 1.0;
                }
            }
            let step = nice_step((to - from) / VERTICAL_STEPS, self.unit);
            from = (from / step + TICK_TOLERANCE).floor() * step;
            to = (to / step - TICK_TOLERANCE).ceil() * step;
            if from >= to {
                to = from + step;
            }
        }
        self.scale(from, to, VERTICAL_STEPS)
    }

    /// Returns the fixed range, or otherwise the smallest range that contains the values. If all values are equal, the
    /// range has a margin.
    fn extent(&self, values: impl Iterator<Item = f64>) -> (f64, f64) {
        if let Some((from, to)) = self.range
            && self.can_show(from)
            && self.can_show(to)
            && from < to
        {
            return (from, to);
        }
        let (mut from, mut to) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|&value| self.can_show(value)) {
            // A value counts as zero if it is so close to zero that the distance between two ticks would
            // underflow.
            let value = if value.abs() < MAGNITUDE_MIN {
                0.0
            } else {
                value
            };
            from = from.min(value);
            to = to.max(value);
        }
        if from > to {
            (from, to) = if self.log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        // If all values are equal, or nearly equal for a float, the range gets a margin on both sides.
        if (to - from).abs() <= to.abs().max(from.abs()) * 1e-12 {
            if self.log {
                (from, to) = (from / 2.0, to * 2.0);
            } else if from == 0.0 {
                to = 1.0;
            } else {
                let margin = from.abs() * 0.1;
                (from, to) = (from - margin, to + margin);
            }
        }
        (from, to)
    }

    fn scale(&self, from: f64, to: f64, step_count: f64) -> Scale {
        let ticks = if self.log {
            self.log_ticks(from, to)
        } else {
            let step = nice_step((to - from) / step_count, self.unit);
            let first = (from / step - TICK_TOLERANCE).ceil();
            (0..MAX_TICKS)
                .map(|n| (first + f64::from(n)) * step)
                .take_while(|&tick| tick <= to + step * TICK_TOLERANCE)
                .collect()
        };
        Scale {
            from,
            to,
            log: self.log,
            inset: 0.0,
            ticks,
        }
    }

    /// Returns ticks at powers of the base, and omits some if there are too many to read. A range with at most two
    /// powers of ten also has ticks at 2 and 5 times each power.
    fn log_ticks(&self, from: f64, to: f64) -> Vec<f64> {
        let base = self.log_base();
        let first = (from.log(base) - TICK_TOLERANCE).ceil();
        let powers = (to.log(base) + TICK_TOLERANCE).floor() - first + 1.0;
        if powers <= 2.0 && self.unit != Unit::Bytes {
            let decade = from.log10().floor();
            let ticks: Vec<f64> = (0..4)
                .flat_map(|n| [1.0, 2.0, 5.0].map(|m| m * 10f64.powf(decade + f64::from(n))))
                .filter(|&tick| {
                    tick >= from * (1.0 - TICK_TOLERANCE) && tick <= to * (1.0 + TICK_TOLERANCE)
                })
                .collect();
            if ticks.len() >= 2 {
                return ticks;
            }
        }
        let stride = (powers / (VERTICAL_STEPS + 1.0)).ceil().max(1.0);
        (0..MAX_TICKS)
            .map(|n| first + f64::from(n) * stride)
            .map(|power| base.powf(power))
            .take_while(|&tick| tick <= to * (1.0 + TICK_TOLERANCE))
            .collect()
    }

    fn log_base(&self) -> f64 {
        if self.unit == Unit::Bytes { 2.0 } else { 10.0 }
    }
}

/// The range of an axis and its ticks. It converts values to positions.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    from: f64,
    to: f64,
    log: bool,
    inset: f64,
    pub(crate) ticks: Vec<f64>,
}

impl Scale {
    /// Leaves this share of the axis free at both ends, so that the columns at the first and the last value are
    /// completely visible.
    pub(crate) fn inset(mut self, share: f64) -> Self {
        self.inset = share;
        self
    }

    /// Returns the position of `value`: 0 at the start of the axis, 1 at its end.
    pub(crate) fn position(&self, value: f64) -> f64 {
        let share = if self.log {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        // A value outside a fixed range gets the position of the nearer end.
        self.inset + share.clamp(0.0, 1.0) * (1.0 - 2.0 * self.inset)
    }

    /// Returns the position at which bars begin: the position of zero, or the end of the axis that is nearer to zero.
    /// On a logarithmic axis, it is the start.
    pub(crate) fn floor(&self) -> f64 {
        if self.log { 0.0 } else { self.position(0.0) }
    }
}

/// Returns the smallest round distance between ticks that is at least `rough`.
fn nice_step(rough: f64, unit: Unit) -> f64 {
    let rough = rough.max(MAGNITUDE_MIN);
    if unit == Unit::Bytes && rough >= 1.0 {
        return rough.log2().ceil().exp2();
    }
    if unit == Unit::Seconds
        && let Some(&step) = CLOCK_STEPS.iter().find(|&&step| step >= rough)
        && rough > 10.0
    {
        return step;
    }
    let decade = 10f64.powf(rough.log10().floor());
    let leading = rough / decade;
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .find(|&step| step >= leading * (1.0 - TICK_TOLERANCE))
        .unwrap_or(10.0);
    step * decade
}

/// The approximate number of steps on a vertical axis.
const VERTICAL_STEPS: f64 = 5.0;

/// The approximate number of steps on a horizontal axis. A narrow screen shows every second label.
const HORIZONTAL_STEPS: f64 = 7.0;

/// The maximum number of ticks.
const MAX_TICKS: u32 = 12;

/// A relative tolerance, so that a rounding error does not remove the tick at the edge.
const TICK_TOLERANCE: f64 = 1e-9;

/// The range of absolute values that an axis can show. Outside of it, differences and ratios of two values
/// overflow or underflow. A linear axis shows smaller values as zero.
const MAGNITUDE_MAX: f64 = 1e150;
const MAGNITUDE_MIN: f64 = 1e-150;

/// The distances between ticks in seconds that are usual on clocks: round numbers of seconds, minutes and
/// hours.
const CLOCK_STEPS: [f64; 13] = [
    15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 21_600.0, 43_200.0,
    86_400.0,
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ticks(scale: &Scale, unit: Unit) -> Vec<String> {
        scale.ticks.iter().map(|&tick| unit.short(tick)).collect()
    }

    #[test]
    fn heights_start_at_zero_and_end_on_a_tick() {
        let scale = Axis::new("OHR", Unit::Share).vertical([0.31, 0.58].into_iter());
        assert_eq!(ticks(&scale, Unit::Share), ["0 %", "20 %", "40 %", "60 %"]);
        assert_eq!(scale.position(0.0), 0.0);
        assert!((scale.position(0.6) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_tight_axis_need_not_show_zero() {
        let scale = Axis::new("OHR", Unit::Share)
            .tight()
            .vertical([0.51, 0.58].into_iter());
        assert!(scale.ticks[0] >= 0.5, "{:?}", scale.ticks);
    }

    #[test]
    fn sizes_get_binary_ticks() {
        let axis = Axis::new("cache size", Unit::Bytes);
        let scale = axis.vertical([0.0, 3.3 * 1024.0 * 1024.0].into_iter());
        assert_eq!(
            ticks(&scale, Unit::Bytes),
            ["0 B", "1 MiB", "2 MiB", "3 MiB", "4 MiB"]
        );
        let scale = axis.log().horizontal([1024.0, 65536.0].into_iter());
        assert_eq!(
            ticks(&scale, Unit::Bytes),
            ["1 KiB", "4 KiB", "16 KiB", "64 KiB"]
        );
    }

    #[test]
    fn a_narrow_log_axis_gets_ticks_between_its_powers() {
        let scale = Axis::new("latency", Unit::Seconds)
            .log()
            .horizontal([0.001, 0.009].into_iter());
        assert_eq!(ticks(&scale, Unit::Seconds), ["1 ms", "2 ms", "5 ms"]);
    }

    proptest! {
        /// For any values, the axis has a few ticks in ascending order within its range, and all positions are
        /// inside the plot.
        #[test]
        fn any_values_get_a_valid_axis(
            values in prop::collection::vec(prop::num::f64::ANY, 0..20),
            log: bool,
            tight: bool,
            unit in prop::sample::select(vec![Unit::Count, Unit::Share, Unit::Bytes, Unit::Seconds]),
        ) {
            let mut axis = Axis::new("any", unit);
            axis.log = log;
            axis.tight = tight;
            for scale in [axis.horizontal(values.iter().copied()), axis.vertical(values.iter().copied())] {
                prop_assert!(scale.from < scale.to, "{scale:?}");
                prop_assert!(scale.ticks.len() <= MAX_TICKS as usize);
                prop_assert!(scale.ticks.is_sorted(), "{scale:?}");
                for &value in scale.ticks.iter().chain(values.iter().filter(|&&v| axis.can_show(v))) {
                    let position = scale.position(value);
                    prop_assert!((0.0..=1.0).contains(&position), "{value} at {position} of {scale:?}");
                }
            }
        }

        /// A range of ordinary values has enough ticks to read a value.
        #[test]
        fn ordinary_values_get_enough_ticks(from in 0.0..1e9f64, spread in 1e-3..1e9f64) {
            let axis = Axis::new("any", Unit::Count);
            let scale = axis.vertical([from, from + spread].into_iter());
            prop_assert!((3..=8).contains(&scale.ticks.len()), "{scale:?}");
        }
    }
}
