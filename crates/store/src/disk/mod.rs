//! The disk tier: objects of any size in append-only segments, found by a compact index.

mod device;
mod location;

pub use device::{Device, FILE_NAME, FileDevice, WRITE_ALIGN};
pub use location::Location;
