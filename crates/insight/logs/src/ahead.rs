//! Decompresses a log in a separate thread, ahead of the parser.
//!
//! The separate thread is used if the analysis has at least twice as many threads as logs. The decoder thread
//! sends decoded buffers through a short queue. The parser sends empty buffers back for reuse.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::Scope;

/// The reader that the parser uses. It returns the bytes that the decoder thread has decoded.
pub(crate) struct DecodeAhead {
    decoded: Receiver<io::Result<Vec<u8>>>,
    empty_sender: SyncSender<Vec<u8>>,
    current: Vec<u8>,
    /// The number of bytes of `current` that the parser has read.
    position: usize,
}

impl DecodeAhead {
    /// Starts the decoder thread. The thread ends at the end of `input`, after a read error, or when the
    /// returned reader is dropped.
    pub(crate) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        mut input: impl Read + Send + 'scope,
    ) -> Self {
        let (send_decoded, decoded) = sync_channel(BUFFERS);
        let (empty_sender, receive_empty) = sync_channel(BUFFERS + 1);
        scope.spawn(move || {
            loop {
                let buffer = match receive_empty.try_recv() {
                    Ok(buffer) => buffer,
                    Err(TryRecvError::Empty) => Vec::new(),
                    Err(TryRecvError::Disconnected) => return,
                };
                let (buffer, failure) = fill(buffer, &mut input);
                let ended = buffer.len() < BUFFER_BYTES;
                // Sending fails if the parser has stopped and dropped the reader.
                if send_decoded.send(Ok(buffer)).is_err() {
                    return;
                }
                if let Some(failure) = failure {
                    _ = send_decoded.send(Err(failure));
                    return;
                }
                if ended {
                    return;
                }
            }
        });
        Self {
            decoded,
            empty_sender,
            current: Vec::new(),
            position: 0,
        }
    }
}

/// Fills a buffer from `input`. If the returned buffer is not full, the input has ended or an error occurred.
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
        while self.position == self.current.len() {
            let Ok(next) = self.decoded.recv() else {
                return Ok(0);
            };
            let used = std::mem::replace(&mut self.current, next?);
            self.position = 0;
            // If the queue is full or the decoder has ended, the empty buffer is dropped.
            _ = self.empty_sender.try_send(used);
        }
        let remaining = &self.current[self.position..];
        let count = remaining.len().min(out.len());
        out[..count].copy_from_slice(&remaining[..count]);
        self.position += count;
        Ok(count)
    }
}

/// The length of the queue in buffers. Four buffers bridge short delays of both threads.
const BUFFERS: usize = 4;

/// The size of a buffer: two zstd blocks. Decoding a buffer takes about 100 µs, which is much more than the few
/// microseconds of a thread switch.
const BUFFER_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// An input that returns `remaining` bytes in steps of 70 001 bytes. Then it returns an error if `fails` is
    /// true.
    struct Steps {
        remaining: usize,
        fails: bool,
    }

    impl Read for Steps {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            if self.remaining == 0 && self.fails {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let count = out.len().min(self.remaining).min(70_001);
            for (n, byte) in out[..count].iter_mut().enumerate() {
                *byte = (self.remaining - n) as u8;
            }
            self.remaining -= count;
            Ok(count)
        }
    }

    /// Method: read inputs that end just before, at and after the end of a buffer, with and without an error
    /// after the last byte.
    #[test]
    fn decoded_bytes_arrive_in_order_before_the_error() {
        for length in [0, 1, BUFFER_BYTES - 1, BUFFER_BYTES, 7 * BUFFER_BYTES + 5] {
            for fails in [false, true] {
                let input = Steps {
                    remaining: length,
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
            remaining: usize::MAX,
            fails: false,
        };
        let mut first = [0; 10];
        thread::scope(|scope| DecodeAhead::start(scope, input).read_exact(&mut first))
            .expect("the input has ten bytes");
    }
}
