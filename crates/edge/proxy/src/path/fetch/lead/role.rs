//! The role in which this node stores a response: as the owner of its object in the fleet, or as a copy.

use edgeward_sites::DiskPlacement;

use super::fetch_state::Fetch;
use crate::cache::stored::Stored;
use crate::exchange::request_settings::Placement;
use crate::path::peer;
use crate::path::question::Storing;

/// The role in which this node stores a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectRole {
    /// The node owns the object. Without a fleet always.
    Owner,
    /// Another node owns the object, and this node keeps a copy in memory.
    Copy,
    /// Another node owns the object, and this node does not store the response.
    Other,
}

impl Fetch {
    /// Returns the role in which this node stores a response. `charge_bytes` is `None` if the length of its body is
    /// unknown.
    pub(super) fn role(&self, storing: Storing, charge_bytes: Option<u64>) -> ObjectRole {
        match storing {
            Storing::Fetched | Storing::Received(_) => ObjectRole::Owner,
            Storing::Copy { owner_rate, .. }
                if charge_bytes
                    .is_some_and(|bytes| peer::keeps_copy(&self.worker, owner_rate, bytes)) =>
            {
                ObjectRole::Copy
            }
            Storing::Copy { .. } | Storing::Never => ObjectRole::Other,
        }
    }

    /// Returns true if this node keeps a stored response that was validated. An object that this node owned before does
    /// not become a copy, because the disk may have it.
    pub(super) fn keeps(&self, storing: Storing, stored: &Stored) -> bool {
        match self.role(storing, Some(stored.charge_bytes())) {
            ObjectRole::Owner => true,
            ObjectRole::Copy => stored.is_copy(),
            ObjectRole::Other => false,
        }
    }

    /// Returns the tiers that may store a response.
    pub(super) fn placement(&self, role: ObjectRole) -> Placement {
        let placement = self.request.settings().placement;
        match role {
            ObjectRole::Owner => placement,
            ObjectRole::Copy => Placement {
                disk: DiskPlacement::Never,
                ..placement
            },
            ObjectRole::Other => Placement::NOWHERE,
        }
    }
}
