//! Tests of `edgeward simulate --plan`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// The commands and the plan of the documentation run as written. The results have each combination of trace, capacity,
/// policy and seed, and equal those of runs without a plan.
#[test]
fn the_sweep_of_the_documentation_runs_as_written() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let folder = folder.path();
    fs::write(folder.join("sweep.toml"), block("toml")).expect("the plan is written");
    let program = Path::new(env!("CARGO_BIN_EXE_edgeward"));
    let programs = program.parent().expect("the program is in a folder");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = [programs.to_owned()]
        .into_iter()
        .chain(std::env::split_paths(&path));
    let done = Command::new("sh")
        .args(["-e", "-c", &block("sh")])
        .current_dir(folder)
        .env("PATH", std::env::join_paths(path).expect("a search path"))
        .output()
        .expect("sh starts");
    assert!(done.status.success(), "{done:?}");
    let rows = fs::read_to_string(folder.join("sweep.csv")).expect("the rows were written");
    assert_eq!(rows.lines().count(), 1 + 2 * (2 * 3 * 2 + 2), "{rows}");
    let page = fs::read_to_string(folder.join("sweep.html")).expect("the page was written");
    let headline = "density has the highest object hit ratio in 4 of 4 cases";
    assert!(page.contains(headline), "the page names the best policy");

    let plan = json(folder, &["--plan", "sweep.toml", "--json", "--no-series"]);
    let runs = |trace: usize| {
        plan["traces"][trace]["runs"]
            .as_array()
            .expect("runs are an array")
    };
    assert_eq!(
        (&plan["traces"][0]["name"], runs(1).len()),
        (&Value::from("web"), 12)
    );
    let options = [
        "--policy=lru,gdsf,density",
        "--capacity=0.3%,3%",
        "--seed=1,2",
        "--warmup=20%",
    ];
    let single = json(
        folder,
        &[&options[..], &["--json", "crawlers.csv"]].concat(),
    );
    for (planned, run) in runs(1).iter().zip(single["runs"].as_array().expect("runs")) {
        for key in [
            "policy",
            "capacity_bytes",
            "seed",
            "requests",
            "hits",
            "digest",
        ] {
            assert_eq!(planned[key], run[key], "{key}");
        }
    }
    // An option replaces the key of the plan.
    let replaced = json(
        folder,
        &[
            "--plan",
            "sweep.toml",
            "--json",
            "-p=lru",
            "--seed=7",
            "-c=1MiB",
        ],
    );
    let runs = replaced["traces"][0]["runs"]
        .as_array()
        .expect("runs are an array");
    assert_eq!((runs.len(), &runs[0]["seed"]), (1, &Value::from(7)));
}

/// A plan with the two mistakes of the documentation gets the documented messages.
#[test]
fn mistakes_are_reported_as_documented() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let plan =
        "policies = [\"lru\", \"gdfs\"]\ncapacites = [\"1%\"]\n[traces]\nweb = \"sweep.toml\"\n";
    fs::write(folder.path().join("sweep.toml"), plan).expect("the plan is written");
    let output = simulate(folder.path(), &["--plan", "sweep.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stderr), block("text"));
}

/// The message about each mistake has the line of the mistake and a hint.
#[test]
fn every_mistake_of_a_plan_has_its_line_and_a_hint() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let path = folder.path().join("p.toml");
    let traces = "[traces]\nweb = \"p.toml\"\n";
    for (plan, line, message, hint) in [
        (
            "policies = \"lru\"\n",
            1,
            "capacities is missing",
            "write capacities",
        ),
        (
            "capacities = 5\nseeds = \"x\"\n",
            2,
            "seeds = \"x\" is invalid",
            "--seed",
        ),
        ("capacities = []\n", 1, "is an empty list", "at least one"),
        (
            "capacities = [[1]]\n",
            1,
            "neither text nor a number",
            "in quotes",
        ),
        (
            "capacities = 5\nwarmup = [1, 2]\n",
            2,
            "warmup = [1, 2] is a list",
            "one value",
        ),
        (
            "capacities = 5\nbounds = 1\n",
            2,
            "bounds = 1 is not a boolean",
            "true or false",
        ),
        (
            "capacities = 5\ncsv = \"x\"\n",
            2,
            "not part of a plan",
            "on the command line",
        ),
        (
            "capacities = 5\ncurve = 9\n",
            2,
            "not part of a plan",
            "sizes in capacities",
        ),
        (
            "capacities = 5\nformat = \"csv\"\n",
            2,
            "selects requests",
            "below [read]",
        ),
        (
            "capacities = 5\nbounds = true\ndisk = 9\n",
            2,
            "bounds cannot be combined with disk",
            "remove",
        ),
        (
            "capacities = 5\ndisk_admission = \"always\"\n",
            1,
            "another key needs disk",
            "add disk",
        ),
        (
            "capacities = 5\npolicies = \"belady\"\ndisk = 9\n",
            2,
            "does not support",
            "a plan of its own",
        ),
        (
            "capacities = 5\n[read]\nformat = \"cvs\"\n",
            3,
            "not a trace format",
            "use text",
        ),
        (
            "capacities = 5\n[read]\nmethod = \"GET\"\n",
            3,
            "no key read.method",
            "did you mean methods?",
        ),
        (
            "capacities = 5\ntraces = 5\n#",
            2,
            "traces = 5 is not a table",
            "write [traces]",
        ),
        (
            "capacities = 5\n[traces]\n#",
            2,
            "the plan has no traces",
            "web = \"access.log\"",
        ),
        (
            "capacities = 5\n[traces]\na = \"gone\"\n#",
            3,
            "\"gone\" does not exist",
            "the full path",
        ),
        (
            "capacities = 5\n[traces]\na = []\n#",
            3,
            "an empty list",
            "the path of a file",
        ),
        (
            "capacities = 5\n[traces]\na = {}\n#",
            3,
            "traces.a.file is missing",
            "write file",
        ),
        (
            "capacities = 5\n[traces]\na = { files = 5 }\n#",
            3,
            "no key traces.a.files",
            "did you mean file?",
        ),
        (
            "capacities = 5\n#",
            1,
            "traces is missing",
            "write [traces]",
        ),
    ] {
        // A plan that ends in `#` makes the appended traces a comment.
        let rest = if plan.ends_with('#') {
            traces.replace('\n', "#")
        } else {
            traces.to_owned()
        };
        fs::write(&path, format!("{plan}{rest}")).expect("the plan is written");
        let output = simulate(folder.path(), &["--plan", "p.toml"]);
        assert_eq!(output.status.code(), Some(2), "{plan}");
        let text = String::from_utf8_lossy(&output.stderr);
        let place = format!("in p.toml, line {line}\n");
        for part in [message, &place, hint] {
            assert!(text.contains(part), "{plan}: {part}: {text}");
        }
    }
    let output = simulate(folder.path(), &["--plan", "p.toml", "p.toml"]);
    assert_eq!(output.status.code(), Some(2), "traces beside a plan");
}

#[cfg(not(feature = "parquet"))]
#[test]
fn a_build_without_parquet_reports_the_missing_feature() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    // The error comes before the trace is read.
    let output = simulate(
        folder.path(),
        &["-c=1MiB", "gone.csv", "--parquet=runs.parquet"],
    );
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("--features parquet"), "{message}");
}

/// The rows of the Parquet file, printed as CSV, are those of the CSV file.
#[cfg(feature = "parquet")]
#[test]
fn the_parquet_file_has_the_rows_of_the_csv_file() {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::Field;

    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let folder = folder.path();
    let rows: Vec<String> = (0..500)
        .map(|n| format!("{n},{},{}", n % 70, 100 + n % 7))
        .collect();
    let trace = format!("time,key,size\n{}\n", rows.join("\n"));
    fs::write(folder.join("t.csv"), trace).expect("the trace is written");
    let options = [
        "t.csv",
        "-c=2KiB,4KiB",
        "--bounds",
        "--csv=r.csv",
        "--parquet=r.parquet",
    ];
    let output = simulate(folder, &options);
    assert!(output.status.success(), "{output:?}");
    let csv = fs::read_to_string(folder.join("r.csv")).expect("the rows were written");
    let file = fs::File::open(folder.join("r.parquet")).expect("the file was written");
    let reader = SerializedFileReader::new(file).expect("the file is Parquet");
    let field = |(_, field): (&String, &Field)| match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::Long(count) => count.to_string(),
        Field::Double(number) => number.to_string(),
        other => panic!("a column has the type of {other}"),
    };
    let schema = reader.metadata().file_metadata().schema_descr();
    let names = schema
        .columns()
        .iter()
        .map(|column| column.name().to_owned());
    let mut lines = vec![names.collect::<Vec<_>>().join(",")];
    for row in reader.get_row_iter(None).expect("the rows are readable") {
        let row = row.expect("the row is readable");
        lines.push(
            row.get_column_iter()
                .map(field)
                .collect::<Vec<_>>()
                .join(","),
        );
    }
    assert_eq!(lines, csv.lines().collect::<Vec<_>>());
    assert_eq!(lines.len(), 1 + 2 * 4 + 2);
}

/// Returns the first block of code in this language on the page about plans.
fn block(language: &str) -> String {
    let page = include_str!("../../../docs/how-to/plans.md");
    let start = format!("```{language}\n");
    let (_, rest) = page.split_once(&start).expect("the page has the block");
    rest.split("```").next().unwrap_or_default().to_owned()
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    let output = simulate(folder, arguments);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("the output is JSON")
}

fn simulate(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_edgeward"))
        .args(["simulate", "--quiet"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("edgeward starts")
}
