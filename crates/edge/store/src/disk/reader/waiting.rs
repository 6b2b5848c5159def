//! Reads that may wait for the device, and reads that must not.

use crate::disk::error::{Miss, NonBlockingRead};

/// States whether a read may wait for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Never,
    Allowed,
}

/// The reason why a read returned no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotRead {
    WouldBlock,
    Miss(Miss),
}

impl From<Miss> for NotRead {
    fn from(miss: Miss) -> Self {
        Self::Miss(miss)
    }
}

impl<T> From<Result<T, NotRead>> for NonBlockingRead<T> {
    fn from(result: Result<T, NotRead>) -> Self {
        match result {
            Ok(value) => Self::Ready(value),
            Err(NotRead::WouldBlock) => Self::WouldBlock,
            Err(NotRead::Miss(miss)) => Self::Miss(miss),
        }
    }
}

pub(super) fn into_blocking<T>(result: Result<T, NotRead>) -> Result<T, Miss> {
    result.map_err(|not_read| match not_read {
        NotRead::Miss(miss) => miss,
        NotRead::WouldBlock => unreachable!("a blocking read waits for the device"),
    })
}
