//! SETTINGS (RFC 9114 §7.2.4).

use crate::error::{ConnectionError, ErrorCode};
use crate::varint::{push_varint, read_varint};

/// The settings of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The largest field section that the endpoint accepts, counted as in RFC 9114 §4.2.2. `None` is no limit.
    pub field_section_bytes_max: Option<u64>,
    /// True if the endpoint accepts extended CONNECT (RFC 9220 §3).
    pub extended_connect: bool,
}

impl Settings {
    /// Reads the payload of a SETTINGS frame. Unknown settings are ignored.
    pub fn parse(mut payload: &[u8]) -> Result<Self, ConnectionError> {
        let mut settings = Self::default();
        let mut ids = Vec::new();
        while !payload.is_empty() {
            let (id, id_bytes) = read_varint(payload).ok_or(INCOMPLETE)?;
            let (value, value_bytes) = read_varint(&payload[id_bytes..]).ok_or(INCOMPLETE)?;
            payload = &payload[id_bytes + value_bytes..];
            ids.push(id);
            match id {
                // §7.2.4.1 and §11.2.2: settings of HTTP/2 that HTTP/3 does not have.
                0x0 | 0x2..=0x5 => return Err(invalid("SETTINGS has a setting of HTTP/2")),
                FIELD_SECTION_BYTES_MAX => settings.field_section_bytes_max = Some(value),
                EXTENDED_CONNECT if value > 1 => {
                    return Err(invalid(
                        "SETTINGS_ENABLE_CONNECT_PROTOCOL is neither 0 nor 1",
                    ));
                }
                EXTENDED_CONNECT => settings.extended_connect = value == 1,
                // The capacity of the client's table does not matter to an encoder that uses none.
                _ => {}
            }
        }
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(invalid("SETTINGS has a setting twice"));
        }
        Ok(settings)
    }

    /// Appends the payload of a SETTINGS frame. The capacity of the dynamic table has its default, 0.
    pub fn push(&self, out: &mut Vec<u8>) {
        let mut push = |id, value| {
            push_varint(out, id);
            push_varint(out, value);
        };
        if let Some(bytes) = self.field_section_bytes_max {
            push(FIELD_SECTION_BYTES_MAX, bytes);
        }
        if self.extended_connect {
            push(EXTENDED_CONNECT, 1);
        }
        push(RESERVED, 0);
    }
}

const FIELD_SECTION_BYTES_MAX: u64 = 0x6;
const EXTENDED_CONNECT: u64 = 0x8;

/// A setting without a meaning: each endpoint should send one, so that peers learn to ignore others (§7.2.4.1).
const RESERVED: u64 = 0x1f * 5 + 0x21;

const fn invalid(reason: &'static str) -> ConnectionError {
    ConnectionError::new(ErrorCode::H3_SETTINGS_ERROR, reason)
}

const INCOMPLETE: ConnectionError =
    ConnectionError::new(ErrorCode::H3_FRAME_ERROR, "SETTINGS ends within a setting");

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(pairs: &[(u64, u64)]) -> Result<Settings, ErrorCode> {
        let mut payload = Vec::new();
        for &(id, value) in pairs {
            push_varint(&mut payload, id);
            push_varint(&mut payload, value);
        }
        Settings::parse(&payload).map_err(|error| error.code)
    }

    #[test]
    fn written_settings_are_read_again() {
        for field_section_bytes_max in [None, Some(0), Some(1 << 40)] {
            for extended_connect in [false, true] {
                let settings = Settings {
                    field_section_bytes_max,
                    extended_connect,
                };
                let mut payload = Vec::new();
                settings.push(&mut payload);
                assert_eq!(Settings::parse(&payload), Ok(settings));
            }
        }
    }

    #[test]
    fn unknown_settings_are_ignored_and_invalid_ones_refused() {
        let error = Err(ErrorCode::H3_SETTINGS_ERROR);
        assert_eq!(parsed(&[]), Ok(Settings::default()));
        assert_eq!(
            parsed(&[(0x1, 4096), (0x7, 100), (0x33, 1), (0x21, 9)]),
            Ok(Settings::default())
        );
        for id in [0x0, 0x2, 0x3, 0x4, 0x5] {
            assert_eq!(parsed(&[(id, 1)]), error);
        }
        assert_eq!(parsed(&[(0x8, 0)]), Ok(Settings::default()));
        assert_eq!(parsed(&[(0x8, 2)]), error);
        assert_eq!(parsed(&[(0x6, 1), (0x21, 0), (0x6, 1)]), error);
        assert_eq!(parsed(&[(0x21, 0), (0x21, 1)]), error);
    }

    #[test]
    fn settings_cut_short_are_an_error_of_the_frame() {
        for payload in [&[0x06][..], &[0x40], &[0x06, 0x40]] {
            let error = Settings::parse(payload).expect_err("a byte is missing");
            assert_eq!(error.code, ErrorCode::H3_FRAME_ERROR);
        }
    }
}
