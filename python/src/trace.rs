//! `Trace` for Python: the requests of a trace in memory.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use edgeward_sim::Traffic;
use edgeward_trace::generate::{Generator, Preset};
use edgeward_trace::raw;
use edgeward_trace::{
    OnError, Position, QueryRule, ReadError, ReadOptions, Record, WriteError, WriteOptions, Writer,
};
use edgeward_types::{Seed, Timestamp, with_causes};
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes, PyString};

use crate::interrupt::{self, StopFlag};

/// The requests of a trace, in order.
#[pyclass(frozen, module = "edgeward_sim._native")]
pub(crate) struct Trace {
    records: Arc<Vec<Record>>,
}

/// Three columns of a trace: times in ms, keys, and sizes in bytes. The numbers have 64 bits in native byte order.
type Columns<'py> = (
    Bound<'py, PyByteArray>,
    Bound<'py, PyByteArray>,
    Bound<'py, PyByteArray>,
);

#[pymethods]
impl Trace {
    /// Makes a trace from the bytes of its columns: times in ms, keys, sizes in bytes.
    #[new]
    fn new(
        py: Python<'_>,
        times: PyBackedBytes,
        keys: PyBackedBytes,
        sizes: PyBackedBytes,
    ) -> PyResult<Self> {
        let [times_count, keys_count, sizes_count] =
            [&times, &keys, &sizes].map(|column| column.len() / size_of::<u64>());
        if times_count != keys_count || keys_count != sizes_count {
            return Err(PyValueError::new_err(format!(
                "{times_count} times, {keys_count} keys and {sizes_count} sizes are not one of each per request"
            )));
        }
        let record = |((time, key), size)| Record {
            time: Timestamp::from_millis(time),
            key,
            size,
        };
        Ok(py.detach(|| {
            let rows = numbers(&times).zip(numbers(&keys)).zip(numbers(&sizes));
            Self::of(rows.map(record).collect())
        }))
    }

    /// Reads files of any known format as one trace. Also returns a warning for each file with skipped lines.
    #[staticmethod]
    #[expect(
        clippy::too_many_arguments,
        reason = "they are the keyword arguments of a Python function"
    )]
    fn read(
        py: Python<'_>,
        paths: Vec<PathBuf>,
        format: Option<&str>,
        columns: Option<&str>,
        time_unit: &str,
        methods: Vec<String>,
        statuses: Vec<u16>,
        cut_query: bool,
        skip_malformed: bool,
        requests: Option<u64>,
    ) -> PyResult<(Self, Vec<String>)> {
        let invalid = |message: String| PyValueError::new_err(message);
        let mut options = ReadOptions::default();
        if let Some(format) = format {
            options.format = Some(format.parse().map_err(|e| invalid(format!("{e}")))?);
        }
        if let Some(columns) = columns {
            options.columns = columns.parse().map_err(|e| invalid(format!("{e}")))?;
            if options.columns.ttl.is_some() {
                return Err(invalid(
                    "a Trace has no lifetimes; use `edgeward simulate --columns ttl=…`".to_owned(),
                ));
            }
        }
        options.time_unit = time_unit.parse().map_err(invalid)?;
        options.access_log.methods = methods;
        options.access_log.statuses = statuses;
        if cut_query {
            options.access_log.query = QueryRule::Cut;
        }
        if skip_malformed {
            options.on_error = OnError::Skip;
        }
        let requests_max = requests.unwrap_or(u64::MAX);
        let (records, warnings) = interrupt::run(py, move |stop| {
            read_files(&paths, &options, requests_max, stop)
        })??;
        Ok((Self::of(records), warnings))
    }

    /// Generates a trace from a preset and a seed. If `requests` is `None`, the preset determines their number.
    #[staticmethod]
    fn generate(py: Python<'_>, preset: &str, requests: Option<u64>, seed: u64) -> PyResult<Self> {
        let preset: Preset = preset
            .parse()
            .map_err(|error| PyValueError::new_err(format!("{error}")))?;
        let workload = match requests {
            Some(requests) => preset.workload().scaled_to(requests),
            None => preset.workload(),
        };
        let generator = Generator::new(workload, Seed(seed))
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let records = interrupt::run(py, move |stop| {
            generator.take_while(|_| !stop.is_set()).collect()
        })?;
        Ok(Self::of(records))
    }

    /// Returns the columns: times in ms, keys and sizes.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Columns<'py>> {
        let column = |field: fn(&Record) -> u64| {
            PyByteArray::new_with(py, self.records.len() * size_of::<u64>(), |bytes| {
                let (numbers, _) = bytes.as_chunks_mut();
                for (number, record) in numbers.iter_mut().zip(self.records.iter()) {
                    *number = native_bytes(field(record));
                }
                Ok(())
            })
        };
        Ok((
            column(|record| record.time.as_millis())?,
            column(|record| record.key)?,
            column(|record| record.size)?,
        ))
    }

    /// Writes the trace to a file. The file name selects format and compression.
    fn write(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let records = self.records();
        interrupt::run(py, move |stop| write_file(&records, &path, stop))?
    }

    /// Returns the properties of the trace as JSON: requests, objects, bytes and others.
    fn facts(&self, py: Python<'_>) -> PyResult<String> {
        let records = self.records();
        let facts = interrupt::run(py, move |stop| {
            let mut traffic = Traffic::default();
            for record in records.iter().take_while(|_| !stop.is_set()) {
                _ = traffic.count(record);
            }
            traffic.facts()
        })?;
        serde_json::to_string(&facts).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn __len__(&self) -> usize {
        self.records.len()
    }
}

impl Trace {
    fn of(records: Vec<Record>) -> Self {
        Self {
            records: Arc::new(records),
        }
    }

    /// Returns the requests, for use by another thread.
    pub(crate) fn records(&self) -> Arc<Vec<Record>> {
        Arc::clone(&self.records)
    }
}

/// Returns the keys of texts, as the readers of text and CSV compute them. A number without leading zeros is its own
/// key; the key of any other text is its hash. `keys` yields `str` or `bytes`.
#[pyfunction]
pub(crate) fn hash_keys<'py>(
    py: Python<'py>,
    keys: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyByteArray>> {
    let mut bytes = Vec::new();
    for (index, key) in keys.try_iter()?.enumerate() {
        let key = key?;
        let number = if let Ok(text) = key.cast::<PyString>() {
            raw::key(text.to_str()?.as_bytes())
        } else if let Ok(text) = key.cast::<PyBytes>() {
            raw::key(text.as_bytes())
        } else {
            let found = key.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "key {index} is {found}; the other keys are str or bytes"
            )));
        };
        bytes.extend_from_slice(&native_bytes(number));
    }
    Ok(PyByteArray::new(py, &bytes))
}

#[expect(
    clippy::host_endian_bytes,
    reason = "NumPy reads the columns as native numbers"
)]
fn native_bytes(number: u64) -> [u8; 8] {
    number.to_ne_bytes()
}

/// Returns the numbers of a column.
#[expect(
    clippy::host_endian_bytes,
    reason = "NumPy writes the columns as native numbers"
)]
fn numbers(column: &[u8]) -> impl Iterator<Item = u64> {
    let (numbers, _) = column.as_chunks();
    numbers.iter().map(|bytes| u64::from_ne_bytes(*bytes))
}

/// Reads all files. Returns the requests, and a warning for each file with skipped lines.
fn read_files(
    paths: &[PathBuf],
    options: &ReadOptions,
    requests_max: u64,
    stop: &StopFlag,
) -> PyResult<(Vec<Record>, Vec<String>)> {
    let requests_max = usize::try_from(requests_max).unwrap_or(usize::MAX);
    let mut records = Vec::new();
    let mut warnings = Vec::new();
    for path in paths {
        let label = path.display().to_string();
        let file = File::open(path).map_err(|error| os_error(&error, path))?;
        let options = ReadOptions {
            label: label.clone(),
            ..options.clone()
        };
        let mut reader = edgeward_trace::open(file, options).map_err(|error| refusal(&error))?;
        while records.len() < requests_max && !stop.is_set() {
            match reader.next_batch().map_err(|error| refusal(&error))? {
                Some(batch) => {
                    let take = batch.len().min(requests_max - records.len());
                    records.extend_from_slice(&batch[..take]);
                }
                None => break,
            }
        }
        let skipped = reader.skipped();
        if skipped.lines > 0 {
            let examples: Vec<_> = skipped.examples.iter().map(ToString::to_string).collect();
            warnings.push(format!(
                "{} malformed lines of {label} skipped, for example\n  {}",
                skipped.lines,
                examples.join("\n  ")
            ));
        }
    }
    Ok((records, warnings))
}

/// Converts a reader's error to a `ValueError` with the message of the command line.
fn refusal(error: &ReadError) -> PyErr {
    let mut message = error.problem().to_string();
    if let Some(cause) = std::error::Error::source(error) {
        message = format!("{message}: {cause}");
    }
    let label = error.label();
    message += &match error.position() {
        Position::Whole => format!("\n  in {label}"),
        Position::Line { number, .. } => format!("\n  in {label}, line {number}"),
        Position::Byte(byte) => format!("\n  in {label}, byte {byte}"),
    };
    if let Some(hint) = error.hint() {
        message += &format!("\n  hint: {hint}");
    }
    PyValueError::new_err(message)
}

/// Returns an `OSError` with the file name, for example a `FileNotFoundError`.
fn os_error(error: &io::Error, path: &Path) -> PyErr {
    match error.raw_os_error() {
        // Python selects the class by the code and adds the path to the message.
        Some(code) => PyOSError::new_err((code, strerror(error), path.as_os_str().to_owned())),
        None => PyOSError::new_err(error.to_string()),
    }
}

/// Returns the message of an error without its code, because Python adds the code.
fn strerror(error: &io::Error) -> String {
    let message = error.to_string();
    match message.split_once(" (os error") {
        Some((text, _)) => text.to_owned(),
        None => message,
    }
}

/// Writes the requests in the format of the file name. The file is incomplete if `stop` is set.
fn write_file(records: &[Record], path: &Path, stop: &StopFlag) -> PyResult<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let failed = |error: WriteError| match error {
        WriteError::Io(error) => PyErr::from(error),
        error => PyValueError::new_err(format!(
            "cannot write {}: {}",
            path.display(),
            with_causes(&error)
        )),
    };
    let file = BufWriter::with_capacity(
        1 << 20,
        File::create(path).map_err(|error| os_error(&error, path))?,
    );
    let mut writer = Writer::new(file, WriteOptions::for_file_name(&name)).map_err(failed)?;
    for record in records {
        if stop.is_set() {
            break;
        }
        writer.write(record).map_err(failed)?;
    }
    Ok(writer.finish().map_err(failed)?.flush()?)
}
