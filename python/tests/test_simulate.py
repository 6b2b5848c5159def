"""Simulations: the results are those of the command, in every kind of frame."""

import builtins
import json
import subprocess
import sys
import threading

import pytest
from conftest import optional
from edgeward_sim import Trace, simulate

POLICIES = ["lru", "gdsf", "exp:64KiB", "belady-size", "density", "adaptsize+gdsf"]


def without_speed(run: dict) -> dict:
    return {name: value for name, value in run.items() if name not in ("requests_per_second", "capacity")}


def test_the_results_are_those_of_the_command(edgeward, trace, files):
    document = json.loads(
        edgeward(
            *("simulate", files / "t.csv", "--policy", ",".join(POLICIES), "--capacity", "1%,4MiB", "--warmup", "20%"),
            *("--object-overhead", 600, "--seed", 3, "--window", 4000, "--bounds", "--json"),
            *("--objective", "origin-cost", "--origin-latency", 20, "--origin-bandwidth", "4MiB"),
        )
    )
    settings = {"warmup": "20%", "object_overhead": 600, "seed": 3, "window": 4000}
    settings |= {"objective": "origin-cost", "origin_latency": 20, "origin_bandwidth": "4MiB"}
    runs = simulate(trace, POLICIES, ["1%", "4MiB"], **settings, bounds=True, frame="records")
    series = simulate(trace, POLICIES, ["1%", "4MiB"], **settings, series=True, frame="records")
    for index, expected in enumerate(document["runs"]):
        points = expected.pop("series")
        expected.pop("tuned", None)
        expected.pop("missed_sizes")
        bound = document["bounds"][index // len(POLICIES)]
        assert without_speed(runs[index]) == without_speed(expected) | bound
        cell = {name: expected[name] for name in ("policy", "capacity_bytes", "seed")}
        found = [row for row in series if cell.items() <= row.items()]
        assert [without_speed(row) for row in found] == [cell | point for point in points]
    assert len(runs) == len(document["runs"]) == 2 * len(POLICIES)
    assert trace.facts() == document["trace"]
    assert {run["hits"] for run in runs} != {0}


def test_an_object_keeps_its_first_size_as_in_the_command(edgeward, tmp_path):
    trace = Trace.from_arrays([1, 2, 1, 2, 1], [10, 20, 99, 20, 10])
    trace.write(tmp_path / "t.csv")
    document = json.loads(edgeward("simulate", tmp_path / "t.csv", "-p", "lru", "-c", "30", "--json"))
    [run] = simulate(trace, "lru", 30, frame="records")
    assert (run["hits"], run["digest"]) == (3, document["runs"][0]["digest"])
    assert trace.facts()["resized_requests"] == 1
    assert trace.to_numpy().size.tolist() == [10, 20, 99, 20, 10]


def test_the_number_of_threads_does_not_change_the_results(trace):
    def run(threads):
        rows = simulate(trace, POLICIES, "0.5%,2%", bounds=True, threads=threads, frame="records")
        return [without_speed(row) for row in rows]

    assert run(1) == run(2) == run(64)


def test_frames_of_all_kinds_have_the_same_rows(trace, files):
    pandas, polars = optional("pandas"), optional("polars")
    rows = simulate(files / "t.csv", ["lru", "gdsf"], [1 << 20, "1%"], frame="records")
    from_pandas = simulate(trace, ["lru", "gdsf"], [1 << 20, "1%"])
    from_polars = simulate(trace, "lru,gdsf", "1048576,1%", frame="polars")
    assert isinstance(from_pandas, pandas.DataFrame) and isinstance(from_polars, polars.DataFrame)
    plain = [without_speed(row) for row in rows]
    # pandas has NaN for a missing objective.
    with_none = from_pandas.astype(object).where(from_pandas.notna(), None)
    assert [without_speed(row) for row in with_none.to_dict("records")] == plain
    assert [without_speed(row) for row in from_polars.to_dicts()] == plain
    assert from_pandas["capacity"].tolist() == ["1048576", "1048576", "1%", "1%"]


def test_without_pandas_and_polars_the_rows_are_dicts(trace, monkeypatch):
    def without(*names):
        real = builtins.__import__

        def find(name, *arguments, **more):
            if name.split(".")[0] in names:
                raise ImportError(name)
            return real(name, *arguments, **more)

        monkeypatch.setattr(builtins, "__import__", find)

    without("pandas")
    assert type(simulate(trace, "lru", "1%")).__module__.startswith("polars")
    without("polars")
    assert isinstance(simulate(trace, "lru", "1%"), list)
    with pytest.raises(ImportError):
        simulate(trace, "lru", "1%", frame="pandas")


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        ({"policies": "lrux"}, ["-p", "lrux", "-c", "1%"]),
        ({"policies": ["lru", "exp"]}, ["-p", "lru,exp", "-c", "1%"]),
        ({"capacities": "0%"}, ["-c", "0%"]),
        ({"capacities": ["64 parsecs"]}, ["-c", "64 parsecs"]),
        ({"warmup": "200%"}, ["-c", "1%", "--warmup", "200%"]),
        ({"object_overhead": "x"}, ["-c", "1%", "--object-overhead", "x"]),
    ],
)
def test_invalid_arguments_have_the_message_of_the_command(edgeward, trace, files, arguments, flags):
    with pytest.raises(ValueError) as error:
        simulate(trace, **arguments)
    assert str(error.value) in edgeward("simulate", files / "t.csv", *flags)


@pytest.mark.parametrize(
    "arguments", [{"policies": []}, {"capacities": []}, {"frame": "table"}, {"window": 0}, {"capacities": -1}]
)
def test_invalid_arguments_that_only_python_has_are_refused(trace, arguments):
    with pytest.raises(ValueError):
        simulate(trace, **arguments)
    with pytest.raises(ValueError, match="no requests"):
        simulate(Trace.from_arrays([], []))


def test_ctrl_c_ends_a_simulation_within_a_second(tmp_path):
    """Method: a process starts a simulation that would take minutes, and its second thread sends SIGINT."""
    script = tmp_path / "long.py"
    script.write_text(
        "import os, signal, threading, time\n"
        "from edgeward_sim import Trace, simulate\n"
        "trace = Trace.generate('web', 200_000)\n"
        "sent = []\n"
        "def interrupt():\n"
        "    sent.append(time.monotonic())\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Timer(0.2, interrupt).start()\n"
        "try:\n"
        "    simulate(trace, ['lru'] * 1000, '1%')\n"
        "except KeyboardInterrupt:\n"
        "    print(time.monotonic() - sent[0])\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=60)
    assert float(done.stdout) < 20, done.stderr


def test_other_threads_run_during_a_simulation(trace):
    """Method: this thread counts while another one simulates without the lock of the interpreter."""
    running = threading.Thread(target=lambda: simulate(trace, ["lru"] * 20, "1%", threads=1))
    counted = 0
    running.start()
    while running.is_alive():
        counted += 1
    assert counted > 1000
