//! Where a record begins, small enough for the index.

use std::fmt;

/// The start of a record, in units of [`Location::UNIT_BYTES`] from the device's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    unit: u64,
}

impl Location {
    /// Records begin at multiples of this: the smallest sector. A record wastes half of it on
    /// average, 1.6 % of one of 16 KiB; with 4 KiB it would be 12 %.
    pub const UNIT_BYTES: u64 = 512;

    /// Bits a location takes in the index.
    pub const BITS: u32 = 36;

    /// Locations are below this; 2^36 × 512 B = 32 TiB a device.
    pub const UNITS_MAX: u64 = 1 << Self::BITS;

    /// Bytes of a device that locations reach.
    pub const DEVICE_BYTES_MAX: u64 = Self::UNITS_MAX * Self::UNIT_BYTES;

    /// The location of unit number `unit`.
    ///
    /// # Panics
    ///
    /// If it needs more than [`Self::BITS`] bits: devices are cut to what can be reached.
    pub const fn from_unit(unit: u64) -> Self {
        assert!(
            unit < Self::UNITS_MAX,
            "devices are cut to what locations reach"
        );
        Self { unit }
    }

    /// The location at a byte offset, a multiple of the unit.
    pub(crate) const fn from_offset(offset: u64) -> Self {
        assert!(
            offset.is_multiple_of(Self::UNIT_BYTES),
            "records begin at units"
        );
        Self::from_unit(offset / Self::UNIT_BYTES)
    }

    /// The number of its unit.
    pub const fn unit(self) -> u64 {
        self.unit
    }

    /// Bytes from the device's start.
    pub const fn offset(self) -> u64 {
        self.unit * Self::UNIT_BYTES
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.offset())
    }
}
