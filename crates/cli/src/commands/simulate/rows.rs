//! The results as rows with typed columns, and the files of `simulate --csv` and `--parquet`.

use std::fmt;
use std::path::Path;

use anyhow::Context as _;
use edgeward_sim::RunReport;

use super::runs::TraceResults;

/// A header and rows of equal length.
pub(super) struct Rows {
    pub(super) columns: Vec<RowColumn>,
    pub(super) rows: Vec<Vec<Cell>>,
}

/// The name of a column and the type of its values.
#[derive(Clone, Copy)]
pub(super) struct RowColumn {
    pub(super) name: &'static str,
    pub(super) kind: CellKind,
}

/// The type of the values of a column, see [`Cell`].
#[derive(Clone, Copy, PartialEq)]
pub(super) enum CellKind {
    Text,
    Count,
    Number,
}

/// A value of a row.
pub(super) enum Cell {
    Text(String),
    /// A whole number, for example of requests or bytes.
    Count(u64),
    /// A ratio or another fraction.
    Number(f64),
    /// The run has no such value.
    Absent,
}

impl RowColumn {
    pub(super) const fn text(name: &'static str) -> Self {
        let kind = CellKind::Text;
        Self { name, kind }
    }

    pub(super) const fn count(name: &'static str) -> Self {
        let kind = CellKind::Count;
        Self { name, kind }
    }

    pub(super) const fn number(name: &'static str) -> Self {
        let kind = CellKind::Number;
        Self { name, kind }
    }
}

impl Cell {
    fn text(value: Option<&String>) -> Self {
        value.map_or(Self::Absent, |text| Self::Text(text.clone()))
    }

    fn count(value: Option<u64>) -> Self {
        value.map_or(Self::Absent, Self::Count)
    }

    fn is_of(&self, kind: CellKind) -> bool {
        match self {
            Self::Text(_) => kind == CellKind::Text,
            Self::Count(_) => kind == CellKind::Count,
            Self::Number(_) => kind == CellKind::Number,
            Self::Absent => true,
        }
    }

    fn number(value: Option<f64>) -> Self {
        value.map_or(Self::Absent, Self::Number)
    }
}

/// Formats the value for CSV. An absent value is empty.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Count(count) => count.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Absent => Ok(()),
        }
    }
}

impl Rows {
    /// Makes a table with these columns and no rows.
    pub(super) fn new(columns: &[RowColumn]) -> Self {
        Self {
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// Panics if a value is missing or has another type than its column.
    pub(super) fn add(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let cells: Vec<Cell> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.columns.len(), "a row has all columns");
        let mut values = self.columns.iter().zip(&cells);
        assert!(
            values.all(|(column, cell)| cell.is_of(column.kind)),
            "a value has the type of its column"
        );
        self.rows.push(cells);
    }

    /// Writes the rows as CSV.
    pub(super) fn write_csv(&self, path: &Path) -> anyhow::Result<()> {
        let cannot_write = || format!("cannot write {}", path.display());
        let mut writer = csv::Writer::from_path(path).with_context(cannot_write)?;
        let names = self.columns.iter().map(|column| column.name);
        writer.write_record(names).with_context(cannot_write)?;
        for row in &self.rows {
            let fields = row.iter().map(Cell::to_string);
            writer.write_record(fields).with_context(cannot_write)?;
        }
        writer.flush().with_context(cannot_write)
    }
}

/// Returns one row for each run and for each upper bound, trace by trace.
pub(super) fn rows(results: &[TraceResults]) -> Rows {
    let mut rows = Rows::new(&COLUMNS);
    for TraceResults { name, simulation } in results {
        for run in &simulation.runs {
            rows.add(row(run, name));
        }
        for bound in &simulation.bounds {
            let mut cells = [const { Cell::Absent }; COLUMNS.len()];
            cells[0] = Cell::Text(name.clone());
            cells[1] = Cell::Text("upper bound".to_owned());
            cells[2] = Cell::Count(bound.capacity_bytes);
            cells[OBJECT_HIT_RATIO] = Cell::Number(bound.object_hit_ratio_max);
            cells[OBJECT_HIT_RATIO + 1] = Cell::Number(bound.byte_hit_ratio_max);
            rows.add(cells);
        }
    }
    rows
}

fn row(run: &RunReport, trace: &str) -> [Cell; COLUMNS.len()] {
    let disk = run.disk.as_ref();
    let fetches = run.fetches.as_ref();
    [
        Cell::Text(trace.to_owned()),
        Cell::Text(run.policy.clone()),
        Cell::Count(run.capacity_bytes),
        Cell::Count(run.seed),
        Cell::count(disk.map(|disk| disk.capacity_bytes)),
        Cell::text(disk.map(|disk| &disk.admission)),
        Cell::text(disk.map(|disk| &disk.eviction)),
        Cell::Count(run.requests),
        Cell::Count(run.hits),
        Cell::Number(run.object_hit_ratio),
        Cell::Number(run.byte_hit_ratio),
        Cell::count(fetches.map(|fetches| fetches.delayed_hits)),
        Cell::number(fetches.map(|fetches| fetches.mean_wait_ms)),
        Cell::count(disk.map(|disk| disk.done.written_bytes)),
        Cell::count(disk.map(|disk| disk.origin_bytes)),
        Cell::text(run.objective.as_ref()),
        Cell::Number(run.origin_cost_saved_ratio),
    ]
}

/// The columns of runs. An upper bound has values in the first three columns and in those of the hit ratios.
const COLUMNS: [RowColumn; 17] = [
    RowColumn::text("trace"),
    RowColumn::text("policy"),
    RowColumn::count("capacity_bytes"),
    RowColumn::count("seed"),
    RowColumn::count("disk_bytes"),
    RowColumn::text("disk_admission"),
    RowColumn::text("disk_eviction"),
    RowColumn::count("requests"),
    RowColumn::count("hits"),
    RowColumn::number("object_hit_ratio"),
    RowColumn::number("byte_hit_ratio"),
    RowColumn::count("delayed_hits"),
    RowColumn::number("mean_wait_ms"),
    RowColumn::count("disk_written_bytes"),
    RowColumn::count("origin_bytes"),
    RowColumn::text("objective"),
    RowColumn::number("origin_cost_saved_ratio"),
];

/// The index of the column `object_hit_ratio`. The next column is the byte hit ratio.
const OBJECT_HIT_RATIO: usize = 9;
