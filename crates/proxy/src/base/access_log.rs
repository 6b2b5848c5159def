//! The access log, written off the request path.
//!
//! A worker puts a small struct into a ring of its own and goes on. One thread empties the rings,
//! formats and writes. A full ring drops the line and counts it: a slow disk must not slow requests.

mod line;

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::base::config::{AccessLogConfig, LogDestination, LogFormat};
use crate::base::error_chain::ErrorChain;
pub(crate) use line::{LogLine, PendingLine};

/// Why the log cannot be written where it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessLogError {
    /// The file cannot be opened for appending.
    #[error("the access log {} cannot be opened", .path.display())]
    Open {
        /// Where it should be.
        path: PathBuf,
        /// Why it cannot.
        source: io::Error,
    },
    /// The thread that writes it cannot be started.
    #[error("the access log's thread cannot be started")]
    Thread(#[source] io::Error),
}

/// Has the access log's file opened again by its path, as after a rotation has renamed it.
#[derive(Clone, Debug)]
pub struct LogReopener {
    requested: Arc<AtomicBool>,
    thread: std::thread::Thread,
}

impl LogReopener {
    /// Returns at once. Lines of responses that ended before go to the old file.
    pub fn reopen(&self) {
        self.requested.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// The writing thread; stopping it writes what the rings still hold.
pub(crate) struct AccessLog {
    stop: Arc<AtomicBool>,
    reopen: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl AccessLog {
    /// Starts the writer with one ring for each worker, whose other ends are returned.
    pub(crate) fn start(
        config: &AccessLogConfig,
        workers: usize,
    ) -> Result<(Self, Vec<rtrb::Producer<LogLine>>), AccessLogError> {
        let sink = open(&config.destination)?;
        let (producers, consumers) = (0..workers)
            .map(|_| rtrb::RingBuffer::new(config.queue_lines_max.get()))
            .unzip();
        let stop = Arc::new(AtomicBool::new(false));
        let reopen = Arc::new(AtomicBool::new(false));
        let mut writer = Writer {
            rings: consumers,
            sink: BufWriter::with_capacity(WRITE_BYTES, sink),
            destination: config.destination.clone(),
            format: config.format,
            stop: Arc::clone(&stop),
            reopen: Arc::clone(&reopen),
            failing: false,
        };
        let thread = std::thread::Builder::new()
            .name("edgeward-log".to_owned())
            .spawn(move || writer.run())
            .map_err(AccessLogError::Thread)?;
        let log = Self {
            stop,
            reopen,
            thread: Some(thread),
        };
        Ok((log, producers))
    }

    pub(crate) fn reopener(&self) -> Option<LogReopener> {
        Some(LogReopener {
            requested: Arc::clone(&self.reopen),
            thread: self.thread.as_ref()?.thread().clone(),
        })
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            _ = thread.join();
        }
    }
}

type Sink = Box<dyn Write + Send>;

fn open(destination: &LogDestination) -> Result<Sink, AccessLogError> {
    let path = match destination {
        LogDestination::Stdout => return Ok(Box::new(io::stdout())),
        LogDestination::File(path) => path,
    };
    let opened = OpenOptions::new().create(true).append(true).open(path);
    match opened {
        Ok(file) => Ok(Box::new(file)),
        Err(source) => Err(AccessLogError::Open {
            path: path.clone(),
            source,
        }),
    }
}

struct Writer {
    rings: Vec<rtrb::Consumer<LogLine>>,
    sink: BufWriter<Sink>,
    destination: LogDestination,
    format: LogFormat,
    stop: Arc<AtomicBool>,
    reopen: Arc<AtomicBool>,
    failing: bool,
}

impl Writer {
    fn run(&mut self) {
        loop {
            // Asked before the rings are emptied: what came in before the stop is written.
            let stop = self.stop.load(Ordering::Acquire);
            let reopen = self.reopen.swap(false, Ordering::AcqRel);
            let result = self.empty_rings();
            match result {
                Err(error) if !self.failing => {
                    self.failing = true;
                    tracing::error!(%error, "the access log cannot be written; lines are lost");
                }
                Err(_) => {}
                Ok(()) => self.failing = false,
            }
            if reopen {
                self.reopen();
            }
            if stop {
                return;
            }
            std::thread::park_timeout(WRITE_INTERVAL);
        }
    }

    /// Goes on in the file that has the path now. If it cannot be opened, in the old one.
    fn reopen(&mut self) {
        match open(&self.destination) {
            Ok(sink) => {
                // What the old file did not take is lost and was logged.
                self.sink = BufWriter::with_capacity(WRITE_BYTES, sink);
            }
            Err(error) => {
                let error = ErrorChain(&error);
                tracing::error!(%error, "the access log goes on in the file that was open");
            }
        }
    }

    fn empty_rings(&mut self) -> io::Result<()> {
        let mut result = Ok(());
        for ring in &mut self.rings {
            while let Ok(line) = ring.pop() {
                let written = match self.format {
                    LogFormat::Json => line.write_json(&mut self.sink),
                    LogFormat::Combined => line.write_combined(&mut self.sink, false),
                    LogFormat::CombinedCache => line.write_combined(&mut self.sink, true),
                };
                result = result.and(written);
            }
        }
        result.and_then(|()| self.sink.flush())
    }
}

/// What is written at a time: a few hundred lines a system call.
const WRITE_BYTES: usize = 64 << 10;

/// How long a line may wait. 8192 lines in 50 ms are 160 000 a second.
const WRITE_INTERVAL: Duration = Duration::from_millis(50);
