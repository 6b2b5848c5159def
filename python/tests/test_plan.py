"""Plans: with every executor, a plan has the results of `simulate`."""

import json
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from conftest import optional
from edgeward_sim import Plan, RayExecutor, Trace, simulate

POLICIES, CAPACITIES = ["lru", "gdsf"], ["1%", "4%"]


@pytest.fixture(scope="module")
def plan(trace, files) -> Plan:
    return Plan({"memory": trace, "file": files / "t.csv"}, POLICIES, CAPACITIES, warmup="10%", bounds=True)


def rows_of(frame_rows: list[dict]) -> list[dict]:
    return [{name: value for name, value in row.items() if name != "requests_per_second"} for row in frame_rows]


@pytest.fixture(scope="module")
def expected(trace) -> list[dict]:
    rows = rows_of(simulate(trace, POLICIES, CAPACITIES, warmup="10%", bounds=True, frame="records"))
    return [{"trace": label} | row for label in ("memory", "file") for row in rows]


def test_a_plan_in_processes_has_the_results_of_simulate(plan, expected):
    assert rows_of(plan.run(frame="records")) == expected


def test_a_plan_in_an_executor_of_the_caller_has_the_results_of_simulate(plan, expected):
    with ThreadPoolExecutor(3) as executor:
        assert rows_of(plan.run(executor, frame="records")) == expected


def test_a_plan_on_a_dask_cluster_has_the_results_of_simulate(plan, expected):
    distributed = optional("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        assert rows_of(plan.run(client, frame="records")) == expected


def test_a_plan_on_a_ray_cluster_has_the_results_of_simulate(plan, expected):
    ray = optional("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        assert rows_of(plan.run(RayExecutor(num_cpus=1), frame="records")) == expected
    finally:
        ray.shutdown()


def test_a_series_has_the_rows_of_each_trace(trace):
    pandas = optional("pandas")
    with ThreadPoolExecutor(1) as executor:
        found = Plan(trace, POLICIES, CAPACITIES, bounds=True).run(executor, series=True)
    rows = simulate(trace, POLICIES, CAPACITIES, bounds=True, series=True)
    rows.insert(0, "trace", "web")
    pandas.testing.assert_frame_equal(found, rows)


class Waiting:
    """An executor that runs the first task at once, and leaves all later tasks pending."""

    def __init__(self) -> None:
        self.futures: list[Future] = []

    def submit(self, function, /, *arguments):
        self.futures.append(Future())
        if len(self.futures) == 1:
            try:
                self.futures[0].set_result(function(*arguments))
            except ValueError as error:
                self.futures[0].set_exception(error)
        return self.futures[-1]


def test_after_an_error_the_pending_tasks_are_cancelled(trace):
    executor = Waiting()
    with pytest.raises(ValueError, match="unknown policy `nonsense`"):
        Plan(trace, ["nonsense", "lru", "fifo"], "1%").run(executor)
    assert [future.cancelled() for future in executor.futures] == [False, True, True]


def test_the_arguments_of_read_apply_to_files(trace, files):
    executor = ThreadPoolExecutor(1)
    rows = Plan(files / "t.csv", "lru", "1%", read={"requests": 100}).run(executor, frame="records")
    assert [(row["trace"], row["requests"]) for row in rows] == [(str(files / "t.csv"), 100)]


def test_two_traces_of_one_name_need_labels(trace):
    with pytest.raises(ValueError, match="two traces have the name `web`"):
        Plan([trace, Trace.generate("web", 1000)], "lru", "1%")


SWEEP = """
policies = ["lru", "density"]
capacities = ["1%", "4MiB"]
seeds = [1, 2]
warmup = "10%"
bounds = true

[traces]
whole = ["t.csv"]
cut = { file = "t.oracleGeneral", requests = 5000 }

[read]
requests = 10000
"""


def test_a_plan_from_a_file_has_the_results_of_the_command(edgeward, files):
    (files / "sweep.toml").write_text(SWEEP)
    with ThreadPoolExecutor(2) as executor:
        rows = Plan.from_file(files / "sweep.toml").run(executor, frame="records")
    document = json.loads(edgeward("simulate", "--plan", files / "sweep.toml", "--json", "--quiet"))
    columns = ("policy", "capacity_bytes", "seed", "requests", "hits", "digest")
    expected = [
        [trace["name"], *(run[column] for column in columns)] for trace in document["traces"] for run in trace["runs"]
    ]
    assert [[row["trace"], *(row[column] for column in columns)] for row in rows] == expected
    assert {row["trace"]: row["requests"] for row in rows} == {"whole": 9000, "cut": 4500}
    bounds = [bound["object_hit_ratio_max"] for trace in document["traces"] for bound in trace["bounds"]]
    assert [row["object_hit_ratio_max"] for row in rows[::4]] == bounds


def test_a_file_with_an_unsupported_key_is_refused(tmp_path):
    for text, message in (
        ('capacities = "1%"\ndisk = "1GiB"\n[traces]\na = "t"', "the key `disk` is not supported here"),
        ('[traces]\na = "t"', "the key `capacities` is missing"),
        ('capacities = "1%"', "the key `traces` is missing"),
        ('capacities = "1%"\n[traces]\na = {}', "the key `traces.a.file` is missing"),
    ):
        (tmp_path / "p.toml").write_text(text)
        with pytest.raises(ValueError, match=message):
            Plan.from_file(tmp_path / "p.toml")
