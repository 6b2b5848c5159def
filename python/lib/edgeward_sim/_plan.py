"""Plans: traces × policies × capacities, in processes of one machine or of a cluster."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Optional, Protocol, Union

from ._frames import FrameKind, Row, frame_of
from ._simulate import Capacities, Policies, bounds_by_capacity, capacity_texts, policy_names, run_rows
from ._trace import Path, Trace

if TYPE_CHECKING:
    from typing import Unpack

    from ._simulate import Settings

Source = Union[Trace, Path]


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
        bounds: bool = False,
        read: Optional[Mapping[str, Any]] = None,
        **settings: Unpack[Settings],
    ) -> None:
        """Checks the arguments, which are those of ``simulate``. Traces are read when the plan runs.

        traces: traces or paths of files, or a dict with a label for each. A task reads its file itself, so each
            machine of a cluster needs the file under this path. A ``Trace`` is sent with each of its tasks, 24 bytes
            per request.
        read: arguments of ``Trace.read`` for the files, such as ``{"cut_query": True}``.
        """
        if isinstance(traces, (Trace, str, os.PathLike)):
            traces = [traces]
        if not isinstance(traces, Mapping):
            traces = _by_label(traces)
        self._traces: dict[str, Source] = dict(traces)
        self._policies = policy_names(policies)
        self._capacities = list(dict.fromkeys(capacity_texts(capacities)))
        self._read = dict(read or {})
        self._bounds = bounds
        self._settings = settings

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
        tasks = len(self._traces) * (len(self._policies) + self._bounds)
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
        """Submits all tasks and returns their rows, in the order of traces, capacities and policies."""
        submitted: list[Future] = []

        def submit(task: Callable[..., Any], source: Source, *arguments: Any) -> Future:
            future: Future = executor.submit(task, source, self._read, self._capacities, self._settings, *arguments)
            submitted.append(future)
            return future

        try:
            pending = []
            for label, source in self._traces.items():
                # The bounds take longer than most runs, so they start first.
                bounds = submit(bounds_task, source) if self._bounds and not series else None
                runs = [submit(run_task, source, policy, series) for policy in self._policies]
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
    series: bool,
) -> list[Row]:
    """Runs one policy over one trace. Returns the rows of its runs."""
    return run_rows(_trace_of(source, read), [policy], capacities, series=series, threads=1, **settings)


def bounds_task(
    source: Source, read: Mapping[str, Any], capacities: list[str], settings: Settings
) -> dict[str, Row]:
    """Returns the upper bounds of one trace by capacity."""
    return bounds_by_capacity(_trace_of(source, read), capacities, **settings)


def _trace_of(source: Source, read: Mapping[str, Any]) -> Trace:
    """Returns the trace, which is read if the source is a path."""
    if isinstance(source, Trace):
        return source
    path = os.fspath(source)
    status = os.stat(path)
    return _read_once(path, status.st_mtime_ns, status.st_size, pickle.dumps(read))


@lru_cache(maxsize=1)
def _read_once(path: str, _mtime_ns: int, _size: int, read: bytes) -> Trace:
    """Reads a file. Keeps the last trace for the next task of this process, which is likely to need it.

    ``_mtime_ns`` and ``_size`` are only part of the key of the cache, so that a changed file is read again.
    """
    return Trace.read(path, **pickle.loads(read))


def _by_label(traces: Iterable[Source]) -> dict[str, Source]:
    """Returns the traces in a dict by their names or paths."""
    labelled: dict[str, Source] = {}
    for trace in traces:
        label = trace.name if isinstance(trace, Trace) else os.fspath(trace)
        if label in labelled:
            raise ValueError(f"two traces have the name `{label}`; give a dict with a label for each")
        labelled[label] = trace
    return labelled

