//! The servers of a benchmark: their files, processes, resources and counters.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use edgeward_replay::load::{Stop, Target};
use edgeward_replay::monitor::{Usage, fetch_page, usage_of_tree};

use serde_json::Value;

use super::command::POLL;
use super::measure::Measures;
use super::plan::{Counter, CounterValue, ServerPlan};
use super::run::BenchmarkError;
use super::text::{self, Values};
use crate::process::{self, Ready, StartError};
use crate::scratch::Scratch;

/// A server of the plan, with its process while it runs.
pub(super) struct Server<'a> {
    pub(super) plan: &'a ServerPlan,
    program: PathBuf,
    plan_folder: PathBuf,
    /// The ports by name.
    ports: Vec<(String, u16)>,
    process: Option<process::Server>,
    /// The CPU time and the disk bytes of processes that have ended and were started again.
    ended: Usage,
    /// The resources at the latest sample.
    latest: Usage,
    /// The number of times that the process was started again.
    pub(super) restarts: u64,
    // Declared last, so that the folder is removed after the process has ended.
    folder: Scratch,
}

impl<'a> Server<'a> {
    /// Creates the folder and selects the ports. Starts no process.
    pub(super) fn new(
        plan: &'a ServerPlan,
        program: PathBuf,
        plan_folder: PathBuf,
        folder: Scratch,
    ) -> io::Result<Self> {
        let ports = plan.ports.iter();
        let ports = ports.map(|name| Ok((name.clone(), process::free_port()?)));
        Ok(Self {
            plan,
            program,
            plan_folder,
            ports: ports.collect::<io::Result<_>>()?,
            process: None,
            ended: Usage::default(),
            latest: Usage::default(),
            restarts: 0,
            folder,
        })
    }

    /// Adds the ports, the folder and the process id to `values`. Each name has the prefix.
    pub(super) fn add_values(&self, prefix: &str, values: &mut Values) {
        let mut add = |name: &str, value: String| values.insert(format!("{prefix}{name}"), value);
        for (name, port) in &self.ports {
            add(name, port.to_string());
        }
        add("dir", self.folder.path().display().to_string());
        if let Some(process) = &self.process {
            add("pid", process.pid().to_string());
        }
    }

    /// Writes the files, runs the commands of `prepare`, starts the process and waits until it is ready.
    pub(super) fn start(
        &mut self,
        values: &Values,
        stop: &Stop,
        run: impl Fn(&[String], &Path) -> Result<(), BenchmarkError>,
    ) -> Result<(), BenchmarkError> {
        let folder = self.folder.path();
        if self.plan.is_fresh {
            fs::remove_dir_all(folder)?;
            fs::create_dir(folder)?;
        }
        for file in &self.plan.files {
            let path = self.plan_folder.join(file);
            let read = fs::read_to_string(&path);
            let text = read.map_err(|source| BenchmarkError::File { path, source })?;
            let name = file.file_name().unwrap_or(file.as_os_str());
            fs::write(folder.join(name), text::expand(&text, values))?;
        }
        for command in &self.plan.prepare {
            run(command, folder)?;
        }
        self.ended = Usage::default();
        self.launch(values, stop)
    }

    fn launch(&mut self, values: &Values, stop: &Stop) -> Result<(), BenchmarkError> {
        let words = self.plan.run.iter().skip(1);
        let arguments: Vec<String> = words.map(|word| text::expand(word, values)).collect();
        let port = self.ports.first().map_or(0, |(_, port)| *port);
        let ready = match &self.plan.ready {
            Some(path) => Ready::Answers(port, path.clone()),
            None => Ready::Accepts(port),
        };
        let folder = self.folder.path();
        let started = process::Server::start(
            &self.program,
            &arguments,
            folder,
            self.plan.core,
            &ready,
            stop,
        );
        self.process = Some(started.map_err(|error| match error {
            StartError::Interrupted => BenchmarkError::Interrupted,
            error => BenchmarkError::Start {
                server: self.plan.name.clone(),
                why: error.to_string(),
            },
        })?);
        Ok(())
    }

    /// Ends the process.
    pub(super) fn stop(&mut self) {
        self.process = None;
    }

    /// Returns true if the process has ended and the plan lets it start again.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has ended and the plan does not expect it.
    pub(super) fn has_ended(&mut self) -> Result<bool, BenchmarkError> {
        let Some(process) = &mut self.process else {
            return Ok(false);
        };
        match process.exit_status() {
            None => Ok(false),
            Some(_) if self.plan.restarts => Ok(true),
            Some(status) => Err(BenchmarkError::Ended {
                server: self.plan.name.clone(),
                why: format!("{status}{}", process.last_output()),
            }),
        }
    }

    /// Starts a process that has ended again.
    pub(super) fn restart(&mut self, values: &Values, stop: &Stop) -> Result<(), BenchmarkError> {
        self.ended = self.latest;
        self.restarts += 1;
        self.launch(values, stop)
    }

    /// Returns the resources of the process and its descendants. CPU time and disk bytes include earlier processes of
    /// the same run.
    pub(super) fn usage(&mut self) -> Option<Usage> {
        let mut usage = usage_of_tree(self.process.as_ref()?.pid()).ok()?;
        usage.cpu_seconds += self.ended.cpu_seconds;
        usage.disk_read_bytes += self.ended.disk_read_bytes;
        usage.disk_write_bytes += self.ended.disk_write_bytes;
        self.latest = usage;
        Some(usage)
    }

    /// Adds the values of the counters to `counts`.
    pub(super) fn add_counts(
        &self,
        values: &Values,
        counts: &mut Measures,
    ) -> Result<(), BenchmarkError> {
        for counter in &self.plan.counters {
            let count = count(counter, values);
            let count = count.map_err(|why| BenchmarkError::Counter {
                name: counter.name.clone(),
                why,
            })?;
            counts.insert(counter.name.clone(), count);
        }
        Ok(())
    }
}

fn count(counter: &Counter, values: &Values) -> Result<f64, String> {
    let url = text::expand(&counter.url, values);
    let target: Target = url
        .parse()
        .map_err(|error| format!("{url} is not a URL of an HTTP server: {error}"))?;
    let deadline = Instant::now() + TIMEOUT;
    let page = loop {
        match fetch_page(&target, TIMEOUT) {
            // An admin server may listen slightly later than the server itself.
            Err(error)
                if error.kind() == io::ErrorKind::ConnectionRefused
                    && Instant::now() < deadline =>
            {
                thread::sleep(POLL);
            }
            page => break page.map_err(|error| format!("{url}: {error}"))?,
        }
    };
    let page = String::from_utf8_lossy(&page);
    number_on(&page, &counter.value).ok_or_else(|| format!("{url} has no such number"))
}

/// Returns the number on a page. `None` if the page does not have it.
fn number_on(page: &str, value: &CounterValue) -> Option<f64> {
    match value {
        CounterValue::Json(pointer) => {
            let page: Value = serde_json::from_str(page).ok()?;
            page.pointer(pointer)?.as_f64()
        }
        CounterValue::Word(n) => page.split_whitespace().nth(n - 1)?.parse().ok(),
        CounterValue::Metric(name) => {
            let lines = page
                .lines()
                .filter_map(|line| line.strip_prefix(name.as_str()));
            // The name is followed by labels or a blank, otherwise it is the start of another name.
            let lines = lines.filter(|rest| rest.starts_with(['{', ' ']));
            let values = lines.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok());
            values.reduce(|sum, value| sum + value)
        }
    }
}

const TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_a_word_of_a_page_a_number_of_its_json_or_the_sum_of_a_metric() {
        let json = CounterValue::Json("/a/1/b".to_owned());
        assert_eq!(number_on(r#"{"a": [0, {"b": 7}]}"#, &json), Some(7.0));
        assert_eq!(number_on("{}", &json), None);
        let stub_status =
            "Active connections: 1 \nserver accepts handled requests\n 3 3 17 \nReading: 0\n";
        assert_eq!(number_on(stub_status, &CounterValue::Word(10)), Some(17.0));
        assert_eq!(number_on(stub_status, &CounterValue::Word(7)), None);
        assert_eq!(number_on(stub_status, &CounterValue::Word(99)), None);
        let metrics = "# HELP a_total Requests.\na_total{x=\"1 2\"} 3\na_total{x=\"2\"} 4.5\na_total_more 9\nb 2\n";
        for (name, value) in [("a_total", Some(7.5)), ("b", Some(2.0)), ("a", None)] {
            let metric = CounterValue::Metric(name.to_owned());
            assert_eq!(number_on(metrics, &metric), value, "{name}");
        }
    }
}
