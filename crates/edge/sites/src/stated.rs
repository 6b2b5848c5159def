//! A setting that rules can also switch off.

/// A setting of a site or a rule that a later rule can switch off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stated<T> {
    /// The site or the rule does not state it.
    #[default]
    Unstated,
    /// Switched off, so that the value of an earlier rule does not apply.
    Off,
    /// Switched on with this value.
    On(T),
}

impl<T> Stated<T> {
    /// Returns the value, if the setting is on.
    pub const fn value(&self) -> Option<&T> {
        match self {
            Self::On(value) => Some(value),
            Self::Unstated | Self::Off => None,
        }
    }

    /// Returns true if the setting is on.
    pub const fn is_on(&self) -> bool {
        matches!(self, Self::On(_))
    }

    /// Returns true if the site or the rule switches the setting on or off.
    pub const fn is_stated(&self) -> bool {
        !matches!(self, Self::Unstated)
    }
}

impl<T: Clone> Stated<T> {
    /// Applies the setting of a later rule, if that rule states one.
    pub(crate) fn merge(&mut self, later: &Self) {
        if later.is_stated() {
            self.clone_from(later);
        }
    }
}

/// `None` is off.
impl<T> From<Option<T>> for Stated<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Off, Self::On)
    }
}
