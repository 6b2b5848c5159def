"""Simulates the cache policies of edgeward over request traces.

    from edgeward_sim import Trace, simulate

    trace = Trace.read("access.log.gz")
    results = simulate(trace, ["lru", "gdsf", "density"], ["64MiB", "1%"], bounds=True)
    print(results[["policy", "capacity", "object_hit_ratio"]])

The simulator is the Rust code of ``edgeward simulate``, so both have the same results. It runs on all cores, without
the interpreter's lock. Invalid arguments raise ``ValueError``.
"""

from ._plan import Executor, Future, Plan, RayExecutor
from ._simulate import simulate
from ._trace import Columns, Trace, TraceFacts

__all__ = [
    "Columns",
    "Executor",
    "Future",
    "Plan",
    "RayExecutor",
    "Trace",
    "TraceFacts",
    "simulate",
]
