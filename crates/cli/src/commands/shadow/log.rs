//! Reads the incumbent's log, from a growing file or from stdin, and passes its requests to the shadow.

use std::fs;
use std::io::{self, BufRead as _, Read as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use edgeward_analysis::{FieldNames, Format, Parser, detect_format};
use edgeward_logs::{FollowState, Follower, LogPosition, Start};
use edgeward_replay::load::Stop;
use edgeward_replay::shadow::ShadowFeeder;
use edgeward_shadow::{LineMark, PositionReport, Skip, logged};

use super::args::ShadowArgs;
use crate::commands::analyze::named_or_compiled_format;
use crate::diagnostic::Diagnostic;

/// The log of the incumbent.
pub(super) struct Source {
    input: Input,
    lines: LineParser,
    default_host: String,
}

enum Input {
    Stdin,
    File {
        path: PathBuf,
        follower: Box<Follower>,
        until_end: bool,
        /// True if the lines that were written before the end of the run are read then: those of mirrored requests.
        reads_rest: bool,
        position_file: Option<PathBuf>,
    },
}

impl Source {
    /// Opens the log. The format of a file that has lines is detected at once.
    pub(super) fn open(args: &ShadowArgs, default_host: String) -> anyhow::Result<Self> {
        let format = match args.format.as_deref() {
            Some(text) => Some(named_or_compiled_format(text, &args.fields)?),
            None => None,
        };
        let names = FieldNames::with_custom(args.fields.iter().cloned());
        let mut lines = LineParser::new(format, names);
        let input = match &args.source {
            Some(path) if !args.is_stdin() => {
                let start = match args.position.as_deref().map(read_position).transpose()? {
                    Some(Some(position)) => Start::At(position),
                    _ if args.from_start => Start::Beginning,
                    _ => Start::End,
                };
                let follower =
                    Follower::open(path, start).map_err(|error| Diagnostic::from_error(&error))?;
                lines.add_beginning(&follower.beginning()?)?;
                if follower.counts().is_position_lost {
                    eprintln!(
                        "warning: the file of the position in {} is gone; reading from the start of {}",
                        args.position.as_deref().unwrap_or(path).display(),
                        path.display()
                    );
                }
                Input::File {
                    path: path.clone(),
                    follower: Box::new(follower),
                    until_end: args.until_end,
                    reads_rest: args.mirror.is_some(),
                    position_file: args.position.clone(),
                }
            }
            _ => Input::Stdin,
        };
        Ok(Self {
            input,
            lines,
            default_host,
        })
    }

    /// Reads until the end of the source or of the run. Returns the last position in a file.
    pub(super) fn run(
        self,
        feeder: &ShadowFeeder,
        stop: &Stop,
    ) -> anyhow::Result<Option<PositionReport>> {
        let Self {
            input,
            mut lines,
            default_host,
        } = self;
        match input {
            Input::Stdin => {
                read_stdin(&mut |line| lines.take(line, feeder, &default_host))?;
                lines.check()?;
                Ok(None)
            }
            Input::File {
                path,
                mut follower,
                until_end,
                reads_rest,
                position_file,
            } => {
                let mut saved = Instant::now();
                while !stop.is_requested() {
                    let mut take = |line: &[u8]| lines.take(line, feeder, &default_host);
                    let state = read_lines(&mut follower, &mut take, &mut || {
                        stop.is_requested() || saved.elapsed() >= SAVE_INTERVAL
                    });
                    // Without its log, the run would compare no further request.
                    let state = state.inspect_err(|_| stop.request())?;
                    if state == FollowState::End && until_end {
                        lines.check()?;
                        break;
                    }
                    if saved.elapsed() >= SAVE_INTERVAL {
                        save(position_file.as_deref(), &follower)?;
                        saved = Instant::now();
                    }
                    if state == FollowState::End {
                        thread::park_timeout(READ_INTERVAL);
                    }
                }
                if reads_rest {
                    let mut take = |line: &[u8]| lines.take(line, feeder, &default_host);
                    read_lines(&mut follower, &mut take, &mut || false)?;
                }
                save(position_file.as_deref(), &follower)?;
                let counts = follower.counts();
                Ok(Some(PositionReport {
                    path: path.display().to_string(),
                    lines: counts.lines,
                    long_lines: counts.long_lines,
                    rotations: counts.rotations,
                    truncations: counts.truncations,
                    behind_bytes: follower.behind_bytes(),
                }))
            }
        }
    }
}

/// Passes lines to `take` until the end of the file, until `take` breaks, or until `pauses` returns true.
fn read_lines(
    follower: &mut Follower,
    take: &mut dyn FnMut(&[u8]) -> anyhow::Result<ControlFlow<()>>,
    pauses: &mut dyn FnMut() -> bool,
) -> anyhow::Result<FollowState> {
    let mut failure = None;
    let state = follower.read(&mut |line| match take(line) {
        Ok(flow) if !pauses() => flow,
        Ok(_) => ControlFlow::Break(()),
        Err(error) => {
            failure = Some(error);
            ControlFlow::Break(())
        }
    })?;
    match failure {
        Some(error) => Err(error),
        None => Ok(state),
    }
}

fn save(file: Option<&Path>, follower: &Follower) -> anyhow::Result<()> {
    match file {
        Some(file) => write_position(file, follower.position()?),
        None => Ok(()),
    }
}

/// Parses the lines of a log, whose format may become known only after a few lines.
struct LineParser {
    names: FieldNames,
    parser: Option<Parser>,
    /// The lines before the format was known.
    unparsed: Vec<u8>,
    unparsed_lines: usize,
}

impl LineParser {
    fn new(format: Option<Format>, names: FieldNames) -> Self {
        Self {
            names,
            parser: format.as_ref().map(Parser::new),
            unparsed: Vec::new(),
            unparsed_lines: 0,
        }
    }

    /// Detects the format of a file by its beginning, and reads the header of a W3C log.
    fn add_beginning(&mut self, beginning: &[u8]) -> anyhow::Result<()> {
        let is_blank = beginning.trim_ascii().is_empty();
        if self.parser.is_none() && !is_blank {
            let format = detect_format(beginning, &self.names).map_err(|_| unrecognised())?;
            self.parser = Some(Parser::new(&format));
        }
        if let Some(parser) = &mut self.parser {
            let headers = beginning.split(|byte| *byte == b'\n');
            for line in headers.filter(|line| line.starts_with(b"#")) {
                _ = parser.parse(line.strip_suffix(b"\r").unwrap_or(line));
            }
        }
        Ok(())
    }

    /// Passes the request of a line to the shadow.
    fn take(
        &mut self,
        line: &[u8],
        feeder: &ShadowFeeder,
        default_host: &str,
    ) -> anyhow::Result<ControlFlow<()>> {
        if let Some(parser) = &mut self.parser {
            return Ok(pass(parser, line, feeder, default_host));
        }
        self.unparsed.extend_from_slice(line);
        self.unparsed.push(b'\n');
        self.unparsed_lines += 1;
        match detect_format(&self.unparsed, &self.names) {
            Ok(format) => {
                let parser = self.parser.insert(Parser::new(&format));
                let unparsed = std::mem::take(&mut self.unparsed);
                let lines = unparsed.split(|byte| *byte == b'\n');
                for line in lines {
                    if pass(parser, line, feeder, default_host).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                Ok(ControlFlow::Continue(()))
            }
            Err(_) if self.unparsed_lines < LINES_TRIED => Ok(ControlFlow::Continue(())),
            Err(_) => Err(unrecognised()),
        }
    }

    /// Returns an error if no line of the log had a known format.
    fn check(&self) -> anyhow::Result<()> {
        match self.parser.is_none() && !self.unparsed.trim_ascii().is_empty() {
            true => Err(unrecognised()),
            false => Ok(()),
        }
    }
}

fn pass(
    parser: &mut Parser,
    line: &[u8],
    feeder: &ShadowFeeder,
    default_host: &str,
) -> ControlFlow<()> {
    match parser.parse(line) {
        Ok(Some(entry)) => match logged(&entry, default_host) {
            Ok((request, answer)) => {
                let mark = LineMark::of(line, &request.target);
                return feeder.push(request, answer, mark);
            }
            Err(skip) => feeder.skip(skip),
        },
        Ok(None) => {}
        Err(_) => feeder.skip(Skip::Malformed),
    }
    ControlFlow::Continue(())
}

fn unrecognised() -> anyhow::Error {
    Diagnostic::new("the format of the log is unknown")
        .hint("give --format: a name or a format string, as docs/how-to/analyze.md describes")
        .into()
}

/// Reads the lines of stdin until its end. A line that is too long is skipped.
fn read_stdin(
    take: &mut dyn FnMut(&[u8]) -> anyhow::Result<ControlFlow<()>>,
) -> anyhow::Result<()> {
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    let mut is_long = false;
    loop {
        line.clear();
        let max = Follower::LINE_BYTES_MAX as u64 + 1;
        let count = input.by_ref().take(max).read_until(b'\n', &mut line);
        if count.context("cannot read stdin")? == 0 {
            return Ok(());
        }
        let is_end = line.last() == Some(&b'\n');
        if is_end && !is_long {
            let text = line.trim_ascii_end();
            if take(text)?.is_break() {
                return Ok(());
            }
        }
        is_long = !is_end;
    }
}

/// The position in a log, as a file has it.
#[derive(Debug, Serialize, Deserialize)]
struct SavedPosition {
    device: u64,
    inode: u64,
    offset: u64,
    beginning_bytes: u64,
    beginning: u64,
    // Positions of earlier versions do not have these.
    #[serde(default)]
    end_bytes: u64,
    #[serde(default)]
    end: u64,
}

fn read_position(path: &Path) -> anyhow::Result<Option<LogPosition>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let saved: SavedPosition = serde_json::from_str(&text)
        .map_err(|error| Diagnostic::new(format!("{} is no position: {error}", path.display())))?;
    Ok(Some(LogPosition {
        device: saved.device,
        inode: saved.inode,
        offset: saved.offset,
        beginning_bytes: saved.beginning_bytes,
        beginning: saved.beginning,
        end_bytes: saved.end_bytes,
        end: saved.end,
    }))
}

/// Replaces the file, so that a process that is killed leaves a whole one.
fn write_position(path: &Path, position: LogPosition) -> anyhow::Result<()> {
    let saved = SavedPosition {
        device: position.device,
        inode: position.inode,
        offset: position.offset,
        beginning_bytes: position.beginning_bytes,
        beginning: position.beginning,
        end_bytes: position.end_bytes,
        end: position.end,
    };
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let text = serde_json::to_string(&saved)?;
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The number of lines at the start of a log. At least one of them must have a known format.
const LINES_TRIED: usize = 64;

/// The time between two reads at the end of a log.
const READ_INTERVAL: Duration = Duration::from_millis(200);

/// The time between two saves of the position. After a crash, at most the requests of this time are sent again.
const SAVE_INTERVAL: Duration = Duration::from_secs(5);
