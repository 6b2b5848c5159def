//! Tests of the command `edgeward simulate`.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// The bounds are printed for each capacity, and no simulated policy exceeds them.
#[test]
fn bounds_are_at_least_the_hit_ratios_of_all_policies() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let trace = folder.path().join("web.tr");
    generate(&trace);

    let simulate = ["simulate", "--capacity", "1MiB,1%", "--bounds"];
    let table = edgeward(&simulate, &trace);
    let text = String::from_utf8_lossy(&table.stdout);
    assert_eq!(text.matches("upper bound").count(), 2, "{text}");

    let output = edgeward(&[&simulate[..], &["--json"]].concat(), &trace);
    let json: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
    let bounds = json["bounds"].as_array().expect("bounds are an array");
    let runs = json["runs"].as_array().expect("runs are an array");
    assert_eq!((bounds.len(), runs.len()), (2, 8));
    for run in runs {
        let bound = bounds
            .iter()
            .find(|bound| bound["capacity_bytes"] == run["capacity_bytes"])
            .expect("each capacity has a bound");
        for ratio in ["object_hit_ratio", "byte_hit_ratio"] {
            let (reached, most) = (&run[ratio], &bound[format!("{ratio}_max")]);
            assert!(
                reached.as_f64() <= most.as_f64(),
                "{run}: {ratio} above {most}"
            );
        }
    }
}

/// `density` has the most hits with the objective `requests` and the most bytes with `bytes`. `lru` ignores objectives.
#[test]
fn the_objective_decides_what_density_maximises() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let trace = folder.path().join("web.tr");
    generate(&trace);

    let runs = |objective| {
        let options = ["--policy", "density,lru", "--capacity", "1%", "--objective"];
        let simulate = [&["simulate"], &options[..], &[objective, "--json"]].concat();
        let output = edgeward(&simulate, &trace);
        let json: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
        let runs = json["runs"].as_array().expect("runs are an array").clone();
        assert_eq!(runs[0]["objective"], objective);
        assert_eq!(runs[1]["objective"], Value::Null);
        runs
    };
    let [by_requests, by_bytes, by_cost] = ["requests", "bytes", "origin-cost"].map(runs);
    let ratio = |runs: &[Value], name: &str| runs[0][name].as_f64().expect("a ratio");
    let more = |name, runs: &[Value], others: &[Value]| ratio(runs, name) > ratio(others, name);
    assert!(more("object_hit_ratio", &by_requests, &by_bytes));
    assert!(more("byte_hit_ratio", &by_bytes, &by_requests));
    assert!(more("origin_cost_saved_ratio", &by_cost, &by_bytes));
    assert_eq!(by_bytes[1]["digest"], by_requests[1]["digest"]);

    let simulate = ["simulate", "--policy", "density,lru", "--capacity", "1%"];
    let output = edgeward(&[&simulate[..], &["--objective", "bytes"]].concat(), &trace);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("origin cost saved"), "{text}");
    assert!(text.contains("ignored"), "{text}");
}

/// A fleet fetches nearly the bytes of one node with the sum of the memory, and separate caches fetch more. The table,
/// the JSON and the page have each way, and the failure of a node. Keys of a plan are those of the command line.
#[test]
fn a_fleet_is_compared_with_separate_caches_and_with_one_node() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let trace = folder.path().join("web.tr");
    generate(&trace);
    let page = folder.path().join("fleet.html");
    let page_option = format!("--report={}", page.display());
    let options = ["-p=density", "-c=1%", "--nodes=3", "--lose=50%"];
    let simulate = [&["simulate"], &options[..]].concat();
    let table = edgeward(&[&simulate[..], &[&page_option]].concat(), &trace);
    let text = String::from_utf8_lossy(&table.stdout);
    for way in [
        "one node ",
        "separate caches",
        "fleet, one node lost",
        "keys moved",
    ] {
        assert!(text.contains(way), "{way}: {text}");
    }
    let html = std::fs::read_to_string(&page).expect("the page was written");
    assert!(
        html.contains("A fleet of 3 nodes with"),
        "the page has the finding"
    );

    let json = |options: &[&str]| -> Value {
        let output = edgeward(&[options, &["--json"]].concat(), &trace);
        serde_json::from_slice(&output.stdout).expect("the output is JSON")
    };
    let document = json(&simulate);
    let fleets = document["fleets"].as_array().expect("fleets are an array");
    let kinds: Vec<&str> = fleets
        .iter()
        .filter_map(|fleet| fleet["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["one-node", "separate", "fleet", "fleet"]);
    let bytes = |at: usize| fleets[at]["origin_bytes"].as_f64().expect("a number");
    assert!(
        bytes(2) < bytes(0) * 1.05,
        "the fleet has the hits of one node"
    );
    assert!(bytes(1) > bytes(2) * 1.1, "separate caches have fewer");
    let moved = fleets[3]["loss"]["moved_keys_ratio"].as_f64();
    let moved = moved.expect("the last fleet lost a node");
    assert!((moved - 1.0 / 3.0).abs() < 0.02, "{moved}");
    assert_eq!(document["runs"], Value::Array(Vec::new()));

    let shields = json(&[&simulate[..], &["--shield=2", "--shield-capacity=1%"]].concat());
    let shielded = &shields["fleets"][2];
    assert_eq!(shielded["shield_nodes"], 2);
    assert!(
        shielded["origin_bytes"].as_f64() < Some(bytes(2)),
        "{shielded}"
    );
    assert!(shielded["shield_bytes"].as_f64() > shielded["origin_bytes"].as_f64());

    let plan = folder.path().join("plan.toml");
    let keys = "policies = \"density\"\ncapacities = \"1%\"\nnodes = 3\nlose = \"50%\"\n";
    std::fs::write(&plan, format!("{keys}[traces]\nweb = \"web.tr\"\n")).expect("written");
    let planned = Command::new(env!("CARGO_BIN_EXE_edgeward"))
        .args(["simulate", "--quiet", "--json", "--plan"])
        .arg(&plan)
        .output()
        .expect("edgeward starts");
    let planned: Value = serde_json::from_slice(&planned.stdout).expect("the output is JSON");
    assert_eq!(planned["traces"][0]["fleets"], document["fleets"]);

    let with_disk = edgeward(&[&simulate[..], &["--disk=10%"]].concat(), &trace);
    assert_eq!(with_disk.status.code(), Some(2));
    let belady = edgeward(&["simulate", "-p=belady", "-c=1%", "--nodes=2"], &trace);
    assert_eq!(belady.status.code(), Some(2));
    let message = String::from_utf8_lossy(&belady.stderr);
    assert!(message.contains("does not support --nodes"), "{message}");
    for at in ["0%", "100%"] {
        let options = ["simulate", "-p=lru", "-c=1%", "--nodes=2", "--lose", at];
        let outside = edgeward(&options, &trace);
        assert_eq!(outside.status.code(), Some(2), "{at}");
        let message = String::from_utf8_lossy(&outside.stderr);
        assert!(message.contains("--lose"), "{message}");
    }
}

#[test]
fn bounds_are_refused_for_two_tiers() {
    let output = edgeward(
        &[
            "simulate",
            "--capacity",
            "1MiB",
            "--disk",
            "1GiB",
            "--bounds",
        ],
        Path::new("no.tr"),
    );
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.contains("--bounds") && message.contains("--disk"),
        "{message}"
    );
}

/// The results do not depend on the number of threads. The trace has four batches for the three jobs.
#[test]
fn the_results_are_equal_for_any_number_of_threads() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let trace = folder.path().join("mixed.tr");
    let generate = ["trace", "generate", "--requests=80000", "--output"];
    assert!(edgeward(&generate, &trace).status.success());
    let results = |threads: &str| {
        let arguments = [
            "simulate",
            "--policy=density",
            "--capacity=4MiB,1%",
            "--bounds",
            "--json",
            "--threads",
            threads,
        ];
        let output = edgeward(&arguments, &trace);
        let mut json: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
        for run in json["runs"].as_array_mut().expect("runs are an array") {
            run["requests_per_second"] = Value::Null;
        }
        json
    };
    let one = results("1");
    assert_eq!(one["runs"].as_array().map(Vec::len), Some(2));
    for threads in ["2", "16"] {
        assert!(one == results(threads), "{threads} threads");
    }
}

/// Offline policies have rows like other policies, in the order of `--policy`. The page's headline names a policy that
/// can serve.
#[test]
fn offline_policies_have_rows_beside_the_policies_that_serve() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let trace = folder.path().join("web.tr");
    generate(&trace);
    let page = folder.path().join("page.html");
    let report = format!("--report={}", page.display());
    let output = edgeward(
        &[
            "simulate",
            "--capacity=1MiB,8MiB",
            "--policy=belady,lru,belady-size,size-opt:4000,infinite",
            "--warmup=10%",
            "--json",
            &report,
        ],
        &trace,
    );
    let json: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
    let runs = json["runs"].as_array().expect("runs are an array");
    let names: Vec<&str> = runs
        .iter()
        .filter_map(|run| run["policy"].as_str())
        .collect();
    let expected = ["belady", "lru", "belady-size", "size-opt:4000", "infinite"];
    assert_eq!(names, [expected, expected].concat());
    for run in runs {
        assert_eq!(run["requests"], 18_000, "{run}");
        assert_eq!(run["series"].as_array().map(Vec::len), Some(200), "{run}");
    }
    let hits = |row: usize| runs[row]["hits"].as_u64();
    assert!(
        hits(1) <= hits(3) && hits(3) <= hits(2) && hits(2) <= hits(4),
        "{runs:?}"
    );

    let page = std::fs::read_to_string(page).expect("the page was written");
    assert!(
        page.contains("With 1 MiB, lru answers"),
        "the headline names lru"
    );
    let setting = "[hot]\ncapacity = &quot;1MiB&quot;\npolicy = &quot;lru&quot;";
    assert!(page.contains(setting), "the setting names lru");
    // The bars of a size begin with the highest hit ratio, and the sizes with the smallest.
    let bar = |name: &str| page.find(&format!("\"category\">{name}<")).expect(name);
    assert!(bar("infinite 1 MiB") < bar("belady 1 MiB"));
    assert!(bar("belady 1 MiB") < bar("lru 1 MiB"));
    assert!(bar("lru 1 MiB") < bar("infinite 8 MiB"));
}

#[test]
fn offline_policies_are_refused_for_two_tiers_and_for_a_server() {
    let simulate = [
        "simulate",
        "--capacity=1MiB",
        "--disk=1GiB",
        "--policy=belady",
    ];
    let demo = ["demo", "--policy=belady"];
    for (arguments, reason) in [
        (&simulate[..], "does not support --disk"),
        (&demo[..], "runs only in `edgeward simulate`"),
    ] {
        let output = edgeward(arguments, Path::new("no.tr"));
        assert_eq!(output.status.code(), Some(2));
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains(reason), "{message}");
    }
}

/// The curves have nearly the miss ratios of simulated caches, also that of LRU from stack distances, if the caches are
/// larger than every object. The curves of a sample are close to them. The CSV file has a row for each point.
#[test]
fn a_curve_has_the_miss_ratios_of_simulated_caches() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let (trace, csv) = (
        folder.path().join("web.tr"),
        folder.path().join("curve.csv"),
    );
    generate(&trace);
    let json = |arguments: &[&str]| -> Value {
        let output = edgeward(&[&["simulate", "--json"], arguments].concat(), &trace);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("the output is JSON")
    };
    let csv_flag = format!("--csv={}", csv.display());
    let curves = json(&["-c=64MiB,1GiB", "--curve=5", "-p=lru,gdsf", &csv_flag]);
    let sampled = json(&["-c=64MiB,1GiB", "--curve=5", "-p=lru,gdsf", "--sample=50%"]);
    let sizes = "-c=64MiB,128MiB,256MiB,512MiB,1GiB";
    let runs = json(&[sizes, "-p=lru,gdsf", "--no-series"]);
    let methods = ["stack-distances", "simulation"];
    for (policy, method) in methods.into_iter().enumerate() {
        let curve = &curves["curves"][policy];
        assert_eq!(curve["method"], method);
        for point in 0..5 {
            let run = &runs["runs"][2 * point + policy];
            let at = |curves: &Value| {
                let point = &curves["curves"][policy]["points"][point];
                assert_eq!(point["capacity_bytes"], run["capacity_bytes"]);
                point["object_miss_ratio"].as_f64().expect("a ratio")
            };
            let missed = 1.0 - run["object_hit_ratio"].as_f64().expect("a ratio");
            assert!(
                (at(&curves) - missed).abs() < 0.01,
                "{run}: {}",
                at(&curves)
            );
            assert!(
                (at(&sampled) - missed).abs() < 0.15,
                "{run}: {}",
                at(&sampled)
            );
        }
    }
    let rows = std::fs::read_to_string(csv).expect("the file was written");
    assert_eq!(rows.lines().count(), 1 + 2 * 5, "{rows}");
    assert!(rows.starts_with("trace,policy,method,"), "{rows}");
}

/// A fetch latency turns some hits into delayed hits, which are listed separately. Metadata takes capacity, so it
/// reduces the hits. A curve with a single size is refused.
#[test]
fn fetch_latency_and_metadata_reduce_the_hits() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let (trace, csv) = (folder.path().join("web.tr"), folder.path().join("runs.csv"));
    generate(&trace);
    let run = |flags: &[&str]| -> Value {
        let simulate = ["simulate", "-p=lru", "-c=16MiB", "--json", "--no-series"];
        let output = edgeward(&[&simulate[..], flags].concat(), &trace);
        let json: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
        json["runs"][0].clone()
    };
    let hits = |run: &Value| run["hits"].as_u64().expect("hits are a number");
    let plain = run(&[]);
    let csv_flag = format!("--csv={}", csv.display());
    let slow = run(&["--fetch-latency=60000", &csv_flag]);
    let delayed = slow["fetches"]["delayed_hits"].as_u64();
    assert!(hits(&slow) < hits(&plain) && delayed > Some(0), "{slow}");
    assert_eq!(plain["fetches"], Value::Null);
    assert!(hits(&run(&["--count-metadata=20000"])) < hits(&plain));
    let rows = std::fs::read_to_string(csv).expect("the file was written");
    assert_eq!(rows.lines().count(), 2, "{rows}");

    let table = edgeward(&["simulate", "-c=1MiB", "--fetch-latency=100"], &trace);
    assert!(String::from_utf8_lossy(&table.stdout).contains("delayed hits"));
    let one_size = edgeward(&["simulate", "-c=1MiB", "--curve=9"], &trace);
    assert_eq!(one_size.status.code(), Some(2));
    let message = String::from_utf8_lossy(&one_size.stderr).into_owned();
    assert!(message.contains("two different sizes"), "{message}");
}

/// The page and the files have the plots of all figures. The comparison by `c` has a point for each value.
#[test]
fn the_page_and_the_files_have_all_plots() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let trace = folder.path().join("web.tr");
    generate(&trace);
    let (page, plots) = (
        folder.path().join("page.html"),
        folder.path().join("a/plots"),
    );
    let run = |options: &[&str]| -> Value {
        let (report, plots) = (
            format!("--report={}", page.display()),
            format!("--plots={}", plots.display()),
        );
        let simulate = ["simulate", "--json", &report, &plots];
        let output = edgeward(&[&simulate[..], options].concat(), &trace);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("the output is JSON")
    };
    let files = || {
        let entries = std::fs::read_dir(&plots).expect("the folder exists");
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            let entry = entry.expect("the folder is readable");
            let svg = std::fs::read_to_string(entry.path()).expect("the file is text");
            assert!(
                svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"),
                "{svg}"
            );
            entry.file_name().into_string().expect("the name is text")
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        std::fs::remove_dir_all(&plots).expect("the folder is removed");
        names.join(" ")
    };
    let json = run(&[
        "-c=1MiB,2MiB",
        "-p=lru,adaptsize",
        "--window=2000",
        "--bounds",
        "--by-c",
        "--warmup=50%",
    ]);
    let text = std::fs::read_to_string(&page).expect("the page was written");
    for title in [
        "Object hit ratio by cache size",
        "Object hit ratio over time",
        "Sizes of requests",
        "c at 2 MiB",
    ] {
        assert!(text.contains(title), "{title}");
    }
    assert_eq!(
        files(),
        "by-c-1_MiB.svg by-c-2_MiB.svg by-size.svg c-over-time-1_MiB.svg c-over-time-2_MiB.svg hit-ratios.svg \
         missed-sizes-1_MiB.svg missed-sizes-2_MiB.svg over-time-1_MiB.svg over-time-2_MiB.svg"
    );
    let run_of_lru = &json["runs"][0];
    let missed = run_of_lru["missed_sizes"]
        .as_array()
        .expect("sizes are an array");
    let missed: u64 = missed
        .iter()
        .filter_map(|bucket| bucket["requests"].as_u64())
        .sum();
    assert_eq!(Some(10_000 - missed), run_of_lru["hits"].as_u64());
    // 4 KiB, 16 KiB, .. 1 MiB and infinity. Ten windows of 2,000 requests; the first has no predecessor.
    let by_c = &json["by_c"][0];
    assert_eq!(by_c["points"].as_array().map(Vec::len), Some(6), "{by_c}");
    assert_eq!(
        (&by_c["window_requests"], &by_c["windows"]),
        (&Value::from(2000), &Value::from(9))
    );
    let infinite = &by_c["points"][5];
    assert_eq!(infinite["c_bytes"], Value::Null);
    assert!(infinite["simulated_ohr"].as_f64() > Some(0.0), "{by_c}");

    run(&["-c=1MiB", "-p=lru,gdsf", "--disk=64MiB", "--warmup=10%"]);
    assert_eq!(
        files(),
        "missed-sizes.svg over-time-hits.svg over-time-origin.svg over-time-read.svg over-time-written.svg \
         tier-bytes.svg tier-hits.svg"
    );
    run(&["-c=1MiB,4MiB", "-p=lru,gdsf", "--curve=2"]);
    assert_eq!(files(), "byte-miss-ratio.svg object-miss-ratio.svg");
}

/// With lifetimes, a request for a stale object is a miss, in the curves too. Other commands and policies that know the
/// future refuse the column.
#[test]
fn a_stale_object_is_a_miss() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let trace = folder.path().join("t.csv");
    // Four requests per object, at 0 s, 10 s, 20 s and 30 s. A lifetime of 15 s makes the third one a miss.
    let line = |n: u32| {
        format!(
            "{},{},100,{}\n",
            n / 100 * 10,
            n % 100,
            if n.is_multiple_of(2) { "15" } else { "" }
        )
    };
    let text: String = (0..400).map(line).collect();
    std::fs::write(&trace, format!("time,key,size,ttl\n{text}")).expect("the trace is written");
    let json = |options: &[&str]| -> Value {
        let simulate = ["simulate", "--json", "-p=lru,density"];
        let output = edgeward(&[&simulate[..], options].concat(), &trace);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("the output is JSON")
    };
    let hits = |json: &Value| [0, 1].map(|run| json["runs"][run]["hits"].as_u64());
    assert_eq!(hits(&json(&["-c=1MiB"])), [Some(300); 2]);
    assert_eq!(
        hits(&json(&["-c=1MiB", "--columns=ttl=ttl"])),
        [Some(250); 2]
    );
    assert_eq!(
        hits(&json(&[
            "-c=1KiB",
            "--disk=1GiB",
            "--disk-admission=always",
            "--columns=ttl=4"
        ]))[0],
        Some(250)
    );
    let curve = json(&["-c=1MiB,2MiB", "--curve=2", "--columns=ttl=ttl"]);
    for policy in 0..2 {
        let ratio = curve["curves"][policy]["points"][0]["object_miss_ratio"].as_f64();
        assert_eq!(ratio, Some(150.0 / 400.0), "{curve}");
    }
    for (arguments, reason) in [
        (
            &["simulate", "-c=1MiB", "-p=belady", "--columns=ttl=ttl"][..],
            "does not support the lifetimes",
        ),
        (
            &["simulate", "-c=1MiB", "--by-c", "--columns=ttl=ttl"][..],
            "--by-c does not support",
        ),
        (
            &["trace", "info", "--columns=ttl=ttl"][..],
            "only `simulate` reads",
        ),
    ] {
        let output = edgeward(arguments, &trace);
        assert_eq!(output.status.code(), Some(2));
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains(reason), "{message}");
    }
}

fn generate(trace: &Path) {
    let generate = [
        "trace",
        "generate",
        "--preset=web",
        "--requests=20000",
        "--output",
    ];
    let generated = edgeward(&generate, trace);
    assert!(generated.status.success(), "{generated:?}");
}

fn edgeward(arguments: &[&str], trace: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_edgeward"))
        .args(arguments)
        .arg(trace)
        .output()
        .expect("edgeward starts")
}
