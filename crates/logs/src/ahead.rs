//! Decoding in a separate thread, ahead of the parser.
//!
//! If there are more threads than logs, a log's decoder runs in its own thread. It sends decoded buffers
//! through a short queue, and the parser returns them for reuse.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::Scope;

/// The parser's side: reads the decoded bytes.
pub(crate) struct DecodeAhead {
    decoded: Receiver<io::Result<Vec<u8>>>,
    emptied: SyncSender<Vec<u8>>,
    current: Vec<u8>,
    at: usize,
}

impl DecodeAhead {
    /// Starts the decoder thread. The thread ends at the end of its input, at its first error, or when this
    /// value is dropped.
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
                // The parser has stopped and no longer receives.
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

/// Fills a buffer. The buffer is not full only at the end of the input or after an error.
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

impl Read for DecodeAhead {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.at == self.current.len() {
            let Ok(next) = self.decoded.recv() else {
                return Ok(0);
            };
            let before = std::mem::replace(&mut self.current, next?);
            self.at = 0;
            // The buffer is dropped if the queue is full or the decoder has ended.
            _ = self.emptied.try_send(before);
        }
        let left = &self.current[self.at..];
        let count = left.len().min(out.len());
        out[..count].copy_from_slice(&left[..count]);
        self.at += count;
        Ok(count)
    }
}

/// The length of the queue: enough to bridge short delays of either thread.
const BUFFERS: usize = 4;

/// Two zstd blocks: a thread switch takes some microseconds, decoding this much a hundred.
const BUFFER_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Returns bytes in steps of an odd size, and then perhaps an error.
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

    /// Method: lengths on both sides of a buffer's end, with and without an error after the last byte.
    #[test]
    fn decoded_bytes_arrive_in_order_before_the_error() {
        for length in [0, 1, BUFFER_BYTES - 1, BUFFER_BYTES, 7 * BUFFER_BYTES + 5] {
            for fails in [false, true] {
                let input = Steps {
                    left: length,
                    fails,
                };
                let mut all = Vec::new();
                let result =
                    thread::scope(|scope| DecodeAhead::start(scope, input).read_to_end(&mut all));
                assert_eq!(result.is_err(), fails, "{length}");
                let expected: Vec<u8> = (0..length).map(|n| (length - n) as u8).collect();
                assert!(all == expected, "{length}");
            }
        }
    }

    #[test]
    fn the_thread_ends_when_the_parser_stops() {
        let input = Steps {
            left: usize::MAX,
            fails: false,
        };
        let mut first = [0; 10];
        thread::scope(|scope| DecodeAhead::start(scope, input).read_exact(&mut first))
            .expect("bytes");
    }
}
