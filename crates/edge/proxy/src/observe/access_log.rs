//! The access log, which a separate thread writes.
//!
//! Each worker pushes a small struct into its own ring ([`LogQueue`]). The thread `edgeward-log` drains the rings,
//! formats the lines and writes them. If a ring is full, further lines are dropped and counted, because a slow disk
//! must not slow requests.

mod datagrams;
mod destination;
mod journald;
mod line;
mod request_text;
mod syslog;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::header::HeaderName;

use super::log::ErrorChain;
use crate::config::{AccessLogConfig, LogDestination};
use crate::rt::background::Background;
pub use destination::AccessLogError;
use destination::{Destination, Written};
use line::Formatter;
pub(crate) use line::LogLine;
pub(crate) use request_text::{RequestFacts, RequestText};

/// Opens the access log's file again by its path. This is needed after a log rotation has renamed the open file.
#[derive(Clone, Debug)]
pub(crate) struct LogReopener {
    requested: Arc<AtomicBool>,
    thread: std::thread::Thread,
}

impl LogReopener {
    /// Asks the log thread to reopen the file, and returns at once. Lines queued before this call go to the old file.
    pub(crate) fn reopen(&self) {
        self.requested.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// The thread that writes the log. Dropping this value writes the lines that are still in the rings.
pub(crate) struct AccessLog {
    reopen: Arc<AtomicBool>,
    /// The number of lines that the destination did not accept.
    lost: Arc<AtomicU64>,
    thread: Background,
}

impl AccessLog {
    /// Starts the writer with one queue for each worker, and returns the queues.
    pub(crate) fn start(
        config: &AccessLogConfig,
        workers: usize,
    ) -> Result<(Self, Vec<LogQueue>), AccessLogError> {
        let destination = Destination::open(&config.destination)?;
        let fields: Arc<[HeaderName]> = line::fields_of(&config.format).into();
        let (queues, consumers) = (0..workers)
            .map(|_| LogQueue::new(config.queue_lines_max.get(), Arc::clone(&fields)))
            .unzip();
        let reopen = Arc::new(AtomicBool::new(false));
        let lost = Arc::new(AtomicU64::new(0));
        let mut writer = Writer {
            rings: consumers,
            destination,
            config: config.destination.clone(),
            formatter: Formatter::new(config.format.clone()),
            lost: Arc::clone(&lost),
            reopen: Arc::clone(&reopen),
            is_failing: false,
        };
        let thread = Background::start("edgeward-log", WRITE_INTERVAL, move || writer.run())
            .map_err(AccessLogError::Thread)?;
        let log = Self {
            reopen,
            lost,
            thread,
        };
        Ok((log, queues))
    }

    /// Returns the number of lines that the destination did not accept, which grows while the log is open.
    pub(crate) fn lost_lines(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lost)
    }

    pub(crate) fn reopener(&self) -> Option<LogReopener> {
        Some(LogReopener {
            requested: Arc::clone(&self.reopen),
            thread: self.thread.thread()?,
        })
    }
}

/// The text of a request, with the queue for its line. A reload may replace the log while the request is under way.
#[derive(Debug)]
pub(crate) struct LogText {
    pub(crate) request: RequestText,
    pub(crate) queue: Rc<LogQueue>,
}

/// A worker's end of the access log.
pub(crate) struct LogQueue {
    ring: RefCell<rtrb::Producer<LogLine>>,
    /// The request fields that a line has.
    fields: Arc<[HeaderName]>,
    scratch: RefCell<Vec<u8>>,
}

impl std::fmt::Debug for LogQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogQueue")
    }
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

struct Writer {
    rings: Vec<rtrb::Consumer<LogLine>>,
    destination: Destination,
    config: LogDestination,
    formatter: Formatter,
    reopen: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
    is_failing: bool,
}

impl Writer {
    /// Writes the lines that are in the rings, then reopens the file if this was requested.
    fn run(&mut self) {
        // The flag is read first, so that lines pushed before the request to reopen go to the old file.
        let reopen = self.reopen.swap(false, Ordering::AcqRel);
        let mut error = None;
        for ring in &mut self.rings {
            while let Ok(line) = ring.pop() {
                let written = self.destination.write(&line, &mut self.formatter);
                record(&self.lost, written, &mut error);
            }
        }
        record(&self.lost, self.destination.flush(), &mut error);
        if let Some(error) = &error
            && !self.is_failing
        {
            tracing::error!(%error, "the access log cannot be written; lines are lost");
        }
        self.is_failing = error.is_some();
        if reopen {
            self.reopen();
        }
    }

    /// Opens the configured path and continues there. If it cannot be opened, the old file stays in use.
    fn reopen(&mut self) {
        match Destination::open(&self.config) {
            Ok(destination) => self.destination = destination,
            Err(error) => {
                let error = ErrorChain(&error);
                tracing::error!(%error, "the access log continues in the open file");
            }
        }
    }
}

/// Counts the lines that a write has lost, and keeps the first error.
fn record(lost_lines: &AtomicU64, written: Written, first_error: &mut Option<io::Error>) {
    if let Err(lost) = written {
        lost_lines.fetch_add(lost.lines, Ordering::Relaxed);
        first_error.get_or_insert(lost.error);
    }
}

/// The longest time that a line waits in its ring. The default ring of 8192 lines overflows above 160 000 lines/s.
const WRITE_INTERVAL: Duration = Duration::from_millis(50);
