//! Which attempts to open a QUIC connection are accepted.
//!
//! The first datagram of a client proves nothing: its source address may be false. An attempt that is accepted takes
//! memory and the time of a handshake. While few handshakes are under way, every attempt is accepted, because a proof
//! of the address (Retry, RFC 9000 §8.1.2) costs a client a round trip. Under load a proof is demanded first.

/// An attempt to open a connection, and the load of the worker at this moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    /// The handshakes under way.
    pub(super) handshakes: u64,
    /// The worker's share of `limits.quic_handshakes_max`.
    pub(super) handshakes_max: u64,
    /// True if the address of the client is validated (RFC 9000 §8.1).
    pub(super) is_validated: bool,
    /// True if a new connection needs the place, the descriptor or the memory of another one.
    pub(super) is_full: bool,
}

/// The answer to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Accept,
    /// The client must prove its address.
    Retry,
    /// The client gets a refusal (CONNECTION_REFUSED).
    Refuse,
    /// Nothing is sent, because the address is perhaps that of a victim.
    Ignore,
}

impl Attempt {
    /// Returns the answer. A client without a proof never takes the place of another connection.
    pub(super) fn answer(self) -> Answer {
        let is_busy = self.handshakes >= self.handshakes_max / 2;
        let is_at_limit = self.handshakes >= self.handshakes_max;
        match (self.is_validated, is_at_limit) {
            (true, true) => Answer::Refuse,
            (true, false) => Answer::Accept,
            // Retry takes no memory, but a packet for each datagram.
            (false, true) => Answer::Ignore,
            (false, false) if is_busy || self.is_full => Answer::Retry,
            (false, false) => Answer::Accept,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(handshakes: u64, is_validated: bool, is_full: bool) -> Answer {
        let attempt = Attempt {
            handshakes,
            handshakes_max: 8,
            is_validated,
            is_full,
        };
        attempt.answer()
    }

    #[test]
    fn a_proof_of_the_address_is_demanded_from_half_of_the_handshakes_on() {
        assert_eq!(answer(3, false, false), Answer::Accept);
        assert_eq!(answer(4, false, false), Answer::Retry);
        assert_eq!(answer(7, false, false), Answer::Retry);
        assert_eq!(answer(8, false, false), Answer::Ignore);
    }

    #[test]
    fn a_client_with_a_proved_address_is_accepted_below_the_limit_of_handshakes() {
        assert_eq!(answer(7, true, false), Answer::Accept);
        assert_eq!(answer(7, true, true), Answer::Accept);
        assert_eq!(answer(8, true, false), Answer::Refuse);
    }

    #[test]
    fn a_client_without_a_proof_takes_no_place_of_another_connection() {
        assert_eq!(answer(0, false, true), Answer::Retry);
    }
}
