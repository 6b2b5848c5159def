//! Decoding ahead of parsing, on a thread of its own.
//!
//! With more threads than logs, a log's decoder runs beside its parser: what it decodes goes
//! through a queue of a few buffers, which come back to be filled again.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::Scope;

/// The parser's end: reads what was decoded ahead.
pub(crate) struct Ahead {
    decoded: Receiver<io::Result<Vec<u8>>>,
    emptied: SyncSender<Vec<u8>>,
    current: Vec<u8>,
    at: usize,
}

impl Ahead {
    /// Begins to decode. The thread ends with its input, with its first failure, or when this end
    /// is dropped.
    pub(crate) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        mut input: impl Read + Send + 'scope,
    ) -> Self {
        let (full, decoded) = sync_channel(BUFFERS);
        let (emptied, empty) = sync_channel(BUFFERS + 1);
        scope.spawn(move || {
            loop {
                let buffer = match empty.try_recv() {
                    Ok(buffer) => buffer,
                    Err(TryRecvError::Empty) => Vec::new(),
                    Err(TryRecvError::Disconnected) => return,
                };
                let (buffer, failure) = fill(buffer, &mut input);
                let ended = buffer.len() < BUFFER_BYTES;
                // Nobody listens any more: the parser has seen enough.
                if full.send(Ok(buffer)).is_err() {
                    return;
                }
                if let Some(failure) = failure {
                    _ = full.send(Err(failure));
                    return;
                }
                if ended {
                    return;
                }
            }
        });
        Self {
            decoded,
            emptied,
            current: Vec::new(),
            at: 0,
        }
    }
}

/// Fills a buffer, less only at the end or where the input fails.
fn fill(mut buffer: Vec<u8>, input: &mut impl Read) -> (Vec<u8>, Option<io::Error>) {
    buffer.resize(BUFFER_BYTES, 0);
    let mut end = 0;
    let mut failure = None;
    while end < BUFFER_BYTES {
        match input.read(&mut buffer[end..]) {
            Ok(0) => break,
            Ok(count) => end += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    buffer.truncate(end);
    (buffer, failure)
}

impl Read for Ahead {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.at == self.current.len() {
            let Ok(next) = self.decoded.recv() else {
                return Ok(0);
            };
            let before = std::mem::replace(&mut self.current, next?);
            self.at = 0;
            // If there is no place for it, or nobody, it is dropped.
            _ = self.emptied.try_send(before);
        }
        let left = &self.current[self.at..];
        let count = left.len().min(out.len());
        out[..count].copy_from_slice(&left[..count]);
        self.at += count;
        Ok(count)
    }
}

/// What the decoder may be ahead by: enough that neither waits for the other's every pause.
const BUFFERS: usize = 4;

/// Two of zstd's blocks: switching threads costs some microseconds, decoding this a hundred.
const BUFFER_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Bytes in steps of an odd size, and then perhaps a failure.
    struct Steps {
        left: usize,
        fails: bool,
    }

    impl Read for Steps {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            if self.left == 0 && self.fails {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let count = out.len().min(self.left).min(70_001);
            for (n, byte) in out[..count].iter_mut().enumerate() {
                *byte = (self.left - n) as u8;
            }
            self.left -= count;
            Ok(count)
        }
    }

    /// Method: on both sides of a buffer's end, with and without a failure behind the last byte.
    #[test]
    fn all_that_was_decoded_arrives_in_order_and_then_the_failure() {
        for length in [0, 1, BUFFER_BYTES - 1, BUFFER_BYTES, 7 * BUFFER_BYTES + 5] {
            for fails in [false, true] {
                let input = Steps {
                    left: length,
                    fails,
                };
                let mut all = Vec::new();
                let result =
                    thread::scope(|scope| Ahead::start(scope, input).read_to_end(&mut all));
                assert_eq!(result.is_err(), fails, "{length}");
                let expected: Vec<u8> = (0..length).map(|n| (length - n) as u8).collect();
                assert!(all == expected, "{length}");
            }
        }
    }

    #[test]
    fn the_thread_ends_when_the_parser_has_seen_enough() {
        let input = Steps {
            left: usize::MAX,
            fails: false,
        };
        let mut first = [0; 10];
        thread::scope(|scope| Ahead::start(scope, input).read_exact(&mut first)).expect("bytes");
    }
}
