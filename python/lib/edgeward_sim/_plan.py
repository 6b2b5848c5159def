"""Plans: traces × policies × capacities, in processes of one machine or of a cluster."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tomllib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Optional, Protocol, Union

from ._frames import FrameKind, Row, frame_of
from ._simulate import (
    DEFAULT_POLICIES,
    Capacities,
    Policies,
    bounds_by_capacity,
    capacity_texts,
    policy_names,
    run_rows,
)
from ._trace import Path, Trace

if TYPE_CHECKING:
    from typing import Unpack

    from ._simulate import Settings

# A trace, a file, or files that are read as one trace.
Source = Union[Trace, Path, list[str]]


class Future(Protocol):
    """The pending result of a task."""

    def result(self) -> Any:
        """Waits for the result and returns it, or raises the exception of the task."""


class Executor(Protocol):
    """Runs tasks: an executor of ``concurrent.futures``, a ``dask.distributed.Client``, or ``RayExecutor``."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Any:
        """Starts a call and returns its ``Future``."""


class Plan:
    """Runs each policy at each capacity over each trace.

    A task runs one policy over one trace, at all capacities, in one thread. The bounds of a trace are another task.
    """

    def __init__(
        self,
        traces: Union[Source, Iterable[Source], Mapping[str, Source]],
        policies: Policies,
        capacities: Capacities,
        *,
        seeds: Optional[Iterable[int]] = None,
        bounds: bool = False,
        read: Optional[Mapping[str, Any]] = None,
        **settings: Unpack[Settings],
    ) -> None:
        """Checks the arguments, which are those of ``simulate``. Traces are read when the plan runs.

        traces: traces or paths of files, or a dict with a label for each. In a dict, a list of paths is one trace.
            A task reads its file itself, so each machine of a cluster needs the file under this path. A ``Trace`` is
            sent with each of its tasks, 24 bytes per request.
        seeds: seeds of random numbers; each is a run of its own. They replace ``seed``.
        read: arguments of ``Trace.read`` for the files, such as ``{"cut_query": True}``.
        """
        if isinstance(traces, (Trace, str, os.PathLike)):
            traces = [traces]
        if not isinstance(traces, Mapping):
            traces = _by_label(traces)
        self._traces: dict[str, Source] = dict(traces)
        self._policies = policy_names(policies)
        self._capacities = list(dict.fromkeys(capacity_texts(capacities)))
        read = dict(read or {})
        self._reads = dict.fromkeys(self._traces, read)
        self._seeds = [settings.pop("seed", 0)] if seeds is None else list(seeds)
        if not self._seeds:
            raise ValueError("the list of seeds is empty")
        self._bounds = bounds
        self._settings = settings

    @classmethod
    def from_file(cls, path: Path) -> Plan:
        """Reads a plan of ``edgeward simulate --plan``, a TOML file (docs/how-to/plans.md).

        The paths of traces start at the folder of the file.
        """
        with open(path, "rb") as file:
            document = tomllib.load(file)
        tables = {name: document.pop(name, {}) for name in ("traces", "read")}
        unknown = [key for key in document if key not in FILE_KEYS]
        if unknown:
            known = ", ".join(FILE_KEYS)
            raise ValueError(f"{os.fspath(path)}: the key `{unknown[0]}` is not supported here; the keys are {known}")
        for key, is_present in (("traces", tables["traces"]), ("capacities", "capacities" in document)):
            if not is_present:
                raise ValueError(f"{os.fspath(path)}: the key `{key}` is missing")
        folder = FilePath(path).parent
        traces, reads = {}, {}
        for name, entry in tables["traces"].items():
            reads[name] = dict(tables["read"])
            if isinstance(entry, dict):
                reads[name] |= {key: value for key, value in entry.items() if key != "file"}
                if "file" not in entry:
                    raise ValueError(f"{os.fspath(path)}: the key `traces.{name}.file` is missing")
                entry = entry["file"]
            columns = reads[name].get("columns")
            if isinstance(columns, str):
                reads[name]["columns"] = dict(pair.split("=", 1) for pair in columns.split(","))
            files = [entry] if isinstance(entry, str) else entry
            traces[name] = [str(folder / file) for file in files]
        plan = cls(traces, document.pop("policies", DEFAULT_POLICIES), document.pop("capacities"), **_lists(document))
        plan._reads = reads
        return plan

    def run(
        self,
        executor: Optional[Executor] = None,
        *,
        series: bool = False,
        frame: Optional[FrameKind] = None,
    ) -> Any:
        """Runs the plan. Returns the frame of ``simulate`` with the column ``trace`` before the others.

        executor: by default a ``ProcessPoolExecutor`` with at most one new process per core. A script that uses the
            default must start its work below ``if __name__ == "__main__":``, because each process imports the script.
        series, frame: as in ``simulate``.
        """
        if executor is not None:
            return frame_of(self._collect(executor, series), frame)
        tasks = len(self._traces) * (len(self._policies) * len(self._seeds) + self._bounds)
        # A forked child of a process with threads may deadlock, and this package has threads.
        pool = ProcessPoolExecutor(min(tasks, os.cpu_count() or 1), multiprocessing.get_context("spawn"))
        try:
            rows = self._collect(pool, series)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        pool.shutdown()
        return frame_of(rows, frame)

    def _collect(self, executor: Executor, series: bool) -> list[Row]:
        """Submits all tasks and returns their rows, in the order of traces, capacities, policies and seeds."""
        submitted: list[Future] = []

        def submit(task: Callable[..., Any], label: str, *arguments: Any) -> Future:
            source, read = self._traces[label], self._reads[label]
            future: Future = executor.submit(task, source, read, self._capacities, self._settings, *arguments)
            submitted.append(future)
            return future

        try:
            pending = []
            for label in self._traces:
                # The bounds take longer than most runs, so they start first.
                bounds = submit(bounds_task, label) if self._bounds else None
                cells = [(policy, seed) for policy in self._policies for seed in self._seeds]
                runs = [submit(run_task, label, policy, seed, series) for policy, seed in cells]
                pending.append((label, runs, bounds))
            rows: list[Row] = []
            for label, runs, bounds in pending:
                limits = bounds.result() if bounds is not None else {}
                results = [row for run in runs for row in run.result()]
                for capacity in self._capacities:
                    limit = limits.get(capacity, {})
                    rows += [{"trace": label} | row | limit for row in results if row["capacity"] == capacity]
            return rows
        except BaseException:
            for future in submitted:
                cancel = getattr(future, "cancel", None)
                if cancel is not None:
                    cancel()
            raise


# The keys of a file beside ``[traces]`` and ``[read]``.
FILE_KEYS = (
    *("policies", "capacities", "seeds", "warmup", "object_overhead"),
    *("objective", "origin_latency", "origin_bandwidth", "window", "bounds"),
)


def _lists(document: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings of a file. A single seed becomes a list."""
    seeds = document.get("seeds")
    return document | {"seeds": [seeds]} if isinstance(seeds, int) else document


class RayExecutor:
    """Runs the tasks of a plan on a Ray cluster: ``Plan(...).run(RayExecutor(num_cpus=1))``.

    Uses the cluster to which ``ray.init`` is connected, or that of the environment. Without a cluster, starts Ray on
    this machine. The options are those of ``ray.remote``.
    """

    def __init__(self, **options: Any) -> None:
        import ray

        if not ray.is_initialized():
            ray.init()
        self._remote = ray.remote(**options) if options else ray.remote

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Any:
        """Starts a call on the cluster and returns its ``Future``."""
        return self._remote(function).remote(*arguments).future()


def run_task(
    source: Source,
    read: Mapping[str, Any],
    capacities: list[str],
    settings: Settings,
    policy: str,
    seed: int,
    series: bool,
) -> list[Row]:
    """Runs one policy with one seed over one trace. Returns the rows of its runs."""
    seeded: Settings = {**settings, "seed": seed}
    return run_rows(_trace_of(source, read), [policy], capacities, series=series, threads=1, **seeded)


def bounds_task(
    source: Source, read: Mapping[str, Any], capacities: list[str], settings: Settings
) -> dict[str, Row]:
    """Returns the upper bounds of one trace by capacity."""
    return bounds_by_capacity(_trace_of(source, read), capacities, **settings)


def _trace_of(source: Source, read: Mapping[str, Any]) -> Trace:
    """Returns the trace, which is read if the source is a path."""
    if isinstance(source, Trace):
        return source
    paths = source if isinstance(source, list) else [os.fspath(source)]
    states = [os.stat(path) for path in paths]
    versions = tuple((state.st_mtime_ns, state.st_size) for state in states)
    return _read_once(tuple(paths), versions, pickle.dumps(read))


@lru_cache(maxsize=1)
def _read_once(paths: tuple[str, ...], _versions: tuple[tuple[int, int], ...], read: bytes) -> Trace:
    """Reads files as one trace. Keeps the last trace for the next task of this process, which is likely to need it.

    ``_versions`` is only part of the key of the cache, so that a changed file is read again.
    """
    return Trace.read(list(paths), **pickle.loads(read))


def _by_label(traces: Iterable[Source]) -> dict[str, Source]:
    """Returns the traces in a dict by their names or paths."""
    labelled: dict[str, Source] = {}
    for trace in traces:
        if isinstance(trace, Trace):
            label = trace.name
        else:
            label = ", ".join(trace) if isinstance(trace, list) else os.fspath(trace)
        if label in labelled:
            raise ValueError(f"two traces have the name `{label}`; give a dict with a label for each")
        labelled[label] = trace
    return labelled

