//! The access log, which a separate thread writes.
//!
//! Each worker pushes a small struct into its own ring ([`LogQueue`]). One thread drains the rings, formats the lines and writes
//! them. If a ring is full, further lines are dropped and counted, because a slow disk must not slow requests.

mod line;
mod request_text;

use std::cell::RefCell;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::header::HeaderName;

use crate::base::background::Background;
use crate::base::config::{AccessLogConfig, LogDestination};
use crate::base::error_chain::ErrorChain;
use line::Formatter;
pub(crate) use line::LogLine;
pub(crate) use request_text::{RequestFacts, RequestText};

/// The reason why the access log cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessLogError {
    /// The file cannot be opened for appending.
    #[error("the access log {} cannot be opened", .path.display())]
    Open {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The thread that writes the log cannot be started.
    #[error("the access log's thread cannot be started")]
    Thread(#[source] io::Error),
}

/// Opens the access log's file again by its path. This is needed after a log rotation has renamed the open file.
#[derive(Clone, Debug)]
pub struct LogReopener {
    requested: Arc<AtomicBool>,
    thread: std::thread::Thread,
}

impl LogReopener {
    /// Asks the log thread to reopen the file, and returns at once. Lines queued before this call go to the old file.
    pub fn reopen(&self) {
        self.requested.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// The thread that writes the log. Dropping this value writes the lines that are still in the rings.
pub(crate) struct AccessLog {
    reopen: Arc<AtomicBool>,
    thread: Background,
}

impl AccessLog {
    /// Starts the writer with one queue for each worker, and returns the queues.
    pub(crate) fn start(
        config: &AccessLogConfig,
        workers: usize,
    ) -> Result<(Self, Vec<LogQueue>), AccessLogError> {
        let sink = open(&config.destination)?;
        let fields: Arc<[HeaderName]> = line::fields_of(config.format).into();
        let (queues, consumers) = (0..workers)
            .map(|_| LogQueue::new(config.queue_lines_max.get(), Arc::clone(&fields)))
            .unzip();
        let reopen = Arc::new(AtomicBool::new(false));
        let mut writer = Writer {
            rings: consumers,
            sink,
            buffer: Vec::with_capacity(WRITE_BYTES),
            destination: config.destination.clone(),
            formatter: Formatter::new(config.format),
            reopen: Arc::clone(&reopen),
            is_failing: false,
        };
        let thread = Background::start("edgeward-log", WRITE_INTERVAL, move || writer.run())
            .map_err(AccessLogError::Thread)?;
        Ok((Self { reopen, thread }, queues))
    }

    pub(crate) fn reopener(&self) -> Option<LogReopener> {
        Some(LogReopener {
            requested: Arc::clone(&self.reopen),
            thread: self.thread.thread()?,
        })
    }
}

/// A worker's end of the access log.
pub(crate) struct LogQueue {
    ring: RefCell<rtrb::Producer<LogLine>>,
    /// The request fields that a line has.
    fields: Arc<[HeaderName]>,
    scratch: RefCell<Vec<u8>>,
}

impl LogQueue {
    fn new(lines_max: usize, fields: Arc<[HeaderName]>) -> (Self, rtrb::Consumer<LogLine>) {
        let (ring, consumer) = rtrb::RingBuffer::new(lines_max);
        let queue = Self {
            ring: RefCell::new(ring),
            fields,
            scratch: RefCell::default(),
        };
        (queue, consumer)
    }

    /// Returns the text of a request. `value` returns the value of a request field.
    pub(crate) fn text<'f>(
        &self,
        facts: &RequestFacts<'_>,
        value: impl Fn(&HeaderName) -> Option<&'f [u8]>,
    ) -> RequestText {
        let fields = self.fields.iter().map(value);
        RequestText::new(&mut self.scratch.borrow_mut(), facts, fields)
    }

    /// Queues a line. Returns false if the queue is full.
    pub(crate) fn push(&self, line: LogLine) -> bool {
        self.ring.borrow_mut().push(line).is_ok()
    }
}

type Sink = Box<dyn Write + Send>;

fn open(destination: &LogDestination) -> Result<Sink, AccessLogError> {
    let path = match destination {
        LogDestination::Stdout => return Ok(Box::new(io::stdout())),
        LogDestination::File(path) => path,
    };
    let open_error = |source| AccessLogError::Open {
        path: path.clone(),
        source,
    };
    let opened = OpenOptions::new().create(true).append(true).open(path);
    Ok(Box::new(opened.map_err(open_error)?))
}

struct Writer {
    rings: Vec<rtrb::Consumer<LogLine>>,
    sink: Sink,
    /// Lines that are not written to the sink yet.
    buffer: Vec<u8>,
    destination: LogDestination,
    formatter: Formatter,
    reopen: Arc<AtomicBool>,
    is_failing: bool,
}

impl Writer {
    /// Writes the lines that are in the rings, then reopens the file if this was requested.
    fn run(&mut self) {
        // The flag is read first, so that lines pushed before the request to reopen go to the old file.
        let reopen = self.reopen.swap(false, Ordering::AcqRel);
        match self.drain_rings() {
            Err(error) if !self.is_failing => {
                self.is_failing = true;
                tracing::error!(%error, "the access log cannot be written; lines are lost");
            }
            Err(_) => {}
            Ok(()) => self.is_failing = false,
        }
        if reopen {
            self.reopen();
        }
    }

    /// Opens the configured path and continues there. If it cannot be opened, the old file stays in use.
    fn reopen(&mut self) {
        match open(&self.destination) {
            // Bytes that could not be written to the old file are lost. This loss was logged before.
            Ok(sink) => self.sink = sink,
            Err(error) => {
                let error = ErrorChain(&error);
                tracing::error!(%error, "the access log continues in the open file");
            }
        }
    }

    fn drain_rings(&mut self) -> io::Result<()> {
        let mut result = Ok(());
        for ring in &mut self.rings {
            while let Ok(line) = ring.pop() {
                self.formatter.write(&line, &mut self.buffer);
                if self.buffer.len() >= WRITE_BYTES {
                    result = result.and(self.sink.write_all(&self.buffer));
                    self.buffer.clear();
                }
            }
        }
        result = result.and(self.sink.write_all(&self.buffer));
        self.buffer.clear();
        // Lines with very long texts of a client do not keep their memory.
        self.buffer.shrink_to(2 * WRITE_BYTES);
        result.and_then(|()| self.sink.flush())
    }
}

/// The size of one write: a few hundred lines per system call.
const WRITE_BYTES: usize = 64 << 10;

/// The longest time that a line waits in its ring. The default ring of 8192 lines overflows above 160 000 lines/s.
const WRITE_INTERVAL: Duration = Duration::from_millis(50);
