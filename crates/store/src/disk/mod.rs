//! The disk tier: objects of any size in append-only segments, found by a compact index.

mod device;
mod index;
mod location;

pub use device::{Device, FILE_NAME, FileDevice, WRITE_ALIGN};
pub use index::{Index, IndexConfig, IndexCounts, Inserted, LoadError, Part, Saved};
pub use location::Location;
