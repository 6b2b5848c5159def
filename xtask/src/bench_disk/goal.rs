//! Compares measured values with their goals.

use std::fmt;

use serde_json::{Value, json};

/// A goal and the value measured for it.
#[derive(Clone, Debug)]
pub(crate) struct Goal {
    /// A description of the measured value.
    pub(crate) what: String,
    pub(crate) measured: f64,
    pub(crate) bound: Bound,
    /// The unit of both values, such as `x` or `MiB`.
    pub(crate) unit: &'static str,
}

/// The bound that the value must meet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    pub(crate) fn is_met(&self) -> bool {
        match self.bound {
            Bound::AtLeast(goal) => self.measured >= goal,
            Bound::AtMost(goal) => self.measured <= goal,
        }
    }

    /// Returns `ok`, or `short` if the goal is missed.
    pub(crate) fn verdict(&self) -> &'static str {
        if self.is_met() { "ok" } else { "short" }
    }

    pub(crate) fn bound_text(&self) -> String {
        let (sign, goal) = match self.bound {
            Bound::AtLeast(goal) => ('≥', goal),
            Bound::AtMost(goal) => ('≤', goal),
        };
        format!("{sign} {goal:.2} {}", self.unit)
    }

    pub(crate) fn measured_text(&self) -> String {
        format!("{:.2} {}", self.measured, self.unit)
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "goal": self.what,
            "asked": self.bound_text(),
            "reached": self.measured,
            "holds": self.is_met(),
        })
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<5} {:<62} {:>14}  goal {}",
            self.verdict(),
            self.what,
            self.measured_text(),
            self.bound_text()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_at_its_bound_and_missed_beyond_it() {
        let goal = |measured, bound| Goal {
            what: String::new(),
            measured,
            bound,
            unit: "x",
        };
        assert!(goal(4.0, Bound::AtLeast(4.0)).is_met());
        assert!(!goal(3.99, Bound::AtLeast(4.0)).is_met());
        assert!(goal(1.1, Bound::AtMost(1.1)).is_met());
        assert!(!goal(1.11, Bound::AtMost(1.1)).is_met());
        // A value that could not be measured does not reach the goal.
        assert!(!goal(f64::NAN, Bound::AtMost(1.1)).is_met());
        assert!(!goal(f64::NAN, Bound::AtLeast(1.1)).is_met());
    }
}
