//! The settings of an index, and the number of buckets that they require.

use edgeward_types::ByteSize;

use super::bucket::SLOTS;
use super::geometry::Geometry;
use crate::disk::location::Location;

/// The largest number of objects of an index, and the size of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexConfig {
    /// The size of the device with the records. A smaller device needs fewer bits for locations and leaves more
    /// for tags.
    pub device: ByteSize,

    /// The most objects in the index. Memory is allocated as objects arrive, not in advance.
    pub objects_max: u64,
}

impl IndexConfig {
    /// Returns a configuration for objects of 16 KiB on average. A full index then takes 0.5 GiB of RAM per TiB of the
    /// device. For a smaller mean size, a disk is not useful.
    pub const fn for_device(device: ByteSize) -> Self {
        Self {
            device,
            objects_max: device.bytes() / MEAN_OBJECT_MIN.bytes() + 1,
        }
    }

    pub(super) fn geometry(&self) -> Geometry {
        let units = self.device.bytes().div_ceil(Location::UNIT_BYTES).max(2);
        assert!(
            units <= Location::UNITS_MAX,
            "the store uses only the part of a device that locations reach"
        );
        let expected = self.device.bytes() / MEAN_OBJECT_MAX.bytes();
        Geometry {
            bases: (expected * 100 / (SLOTS as u64 * LOAD_PERCENT_MAX)).max(BASES_MIN),
            location_bits: units.next_power_of_two().ilog2(),
        }
    }

    /// Returns the number of buckets for `objects_max` objects at the load at which the table grows.
    pub(super) fn buckets_max(&self) -> u64 {
        let slots = self.objects_max.saturating_mul(100) / LOAD_PERCENT_MAX;
        (slots / SLOTS as u64 + 1).max(self.geometry().bases)
    }
}

/// The share of used slots, in percent, at which the table grows. 64 / 9 / 0.94 = 7.57 bytes per object. At
/// this load an insertion moves 0.9 other entries on average (`bench/runs/2026-11-21-disk-index`). Some of these
/// moves happen because buckets are unevenly filled while only a part of the bases has the newest layer. A higher
/// load would save a tenth of a byte per object and move more entries.
pub(super) const LOAD_PERCENT_MAX: u64 = 94;

/// The mean object size for which the first layer of buckets is sized: objects of this mean size fill the
/// device and the first layer at the same time. If the index has more objects than fit in the first layer, it
/// takes at most eight bytes per object. The first layer takes 7.9 MB per TiB of device.
const MEAN_OBJECT_MAX: ByteSize = ByteSize::mib(1);

/// The mean object size for which the largest index is sized.
const MEAN_OBJECT_MIN: ByteSize = ByteSize::kib(16);

/// The smallest number of buckets in the first layer, which then takes 4 KiB. With fewer buckets, the two
/// buckets of a key would often be the same bucket.
const BASES_MIN: u64 = 64;
