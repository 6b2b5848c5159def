//! The streams of QPACK (RFC 9204 §4.2), on which a client sends instructions.
//!
//! Neither side has a dynamic table: the server states a capacity of 0 for the client's, and never inserts into its
//! own. Few instructions are therefore legal.

use crate::error::{ConnectionError, ErrorCode};

/// Checks bytes of the encoder stream of a client (§4.3). The one legal instruction sets the capacity to 0: insertions
/// and duplicates need a table.
pub(crate) fn check_encoder_bytes(bytes: &[u8]) -> Result<(), ConnectionError> {
    match bytes.iter().all(|&byte| byte == SET_CAPACITY_0) {
        true => Ok(()),
        false => Err(ConnectionError::new(
            ErrorCode::QPACK_ENCODER_STREAM_ERROR,
            "an instruction needs a dynamic table, whose capacity is 0",
        )),
    }
}

/// Reads the decoder stream of a client (§4.4). Its one legal instruction cancels a stream: acknowledgements and
/// increments refer to a table that the server does not use.
#[derive(Debug, Default)]
pub(crate) struct DecoderStream {
    /// The number of bytes of the current instruction that were read.
    read: u32,
}

impl DecoderStream {
    /// Checks the next bytes of the stream.
    pub(crate) fn check(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        for &byte in bytes {
            let is_last = match self.read {
                0 if byte & 0xc0 != STREAM_CANCELLATION => return Err(NO_REFERENCES),
                0 => byte & 0x3f != 0x3f,
                // A stream id has 62 bits: 6 in the first byte, 7 in each of the others.
                INSTRUCTION_BYTES_MAX => return Err(TOO_LONG),
                _ => byte & 0x80 == 0,
            };
            self.read = if is_last { 0 } else { self.read + 1 };
        }
        Ok(())
    }
}

/// Set Dynamic Table Capacity (§4.3.1) with the value 0.
const SET_CAPACITY_0: u8 = 0x20;

/// Stream Cancellation (§4.4.2), before its prefix of 6 bits.
const STREAM_CANCELLATION: u8 = 0x40;

/// The longest instruction: its first byte, and nine bytes for values below 2^62.
const INSTRUCTION_BYTES_MAX: u32 = 10;

const NO_REFERENCES: ConnectionError = ConnectionError::new(
    ErrorCode::QPACK_DECODER_STREAM_ERROR,
    "an instruction acknowledges fields that this server never sent",
);

const TOO_LONG: ConnectionError = ConnectionError::new(
    ErrorCode::QPACK_DECODER_STREAM_ERROR,
    "an instruction has an integer above 62 bits",
);

#[cfg(test)]
mod tests {
    use super::super::integer::push_integer;
    use super::*;

    #[test]
    fn an_encoder_may_only_set_the_capacity_to_0() {
        assert_eq!(check_encoder_bytes(&[]), Ok(()));
        assert_eq!(check_encoder_bytes(&[0x20, 0x20]), Ok(()));
        // RFC 9204, appendix B.2 and B.3: a capacity of 220, two insertions, and a duplicate.
        for bytes in [
            &[0x3f, 0xbd, 0x01][..],
            &[0x20, 0xc0, 0x0f],
            &[0x4a],
            &[0x02],
            &[0x21],
        ] {
            let error = check_encoder_bytes(bytes).expect_err("a table is needed");
            assert_eq!(error.code, ErrorCode::QPACK_ENCODER_STREAM_ERROR);
        }
    }

    /// RFC 9204, appendix B.2 to B.4: an acknowledgement, a cancellation and an increment.
    #[test]
    fn a_decoder_may_only_cancel_streams() {
        assert_eq!(DecoderStream::default().check(&[0x48]), Ok(()));
        for bytes in [&[0x84][..], &[0x01], &[0x48, 0x84], &[0x00]] {
            assert_eq!(DecoderStream::default().check(bytes), Err(NO_REFERENCES));
        }
    }

    #[test]
    fn a_cancellation_may_arrive_in_pieces() {
        let mut bytes = Vec::new();
        for stream in [0, 62, 63, 64, 1 << 20, (1 << 62) - 4] {
            push_integer(&mut bytes, STREAM_CANCELLATION, 6, stream);
        }
        for piece in 1..bytes.len() {
            let mut stream = DecoderStream::default();
            assert!(
                bytes
                    .chunks(piece)
                    .all(|piece| stream.check(piece) == Ok(()))
            );
            assert_eq!(stream.read, 0);
        }
        let endless = [&[0x7f][..], &[0x80; 10]].concat();
        assert_eq!(DecoderStream::default().check(&endless), Err(TOO_LONG));
    }
}
