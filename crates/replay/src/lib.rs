//! A synthetic origin, a load generator that checks every byte, a monitor of the target's resources.
