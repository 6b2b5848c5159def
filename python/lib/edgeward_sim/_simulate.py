"""Simulates policies over one trace."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, Optional, SupportsIndex, TypedDict, Union, overload

from . import _native
from ._frames import FrameKind, Row, frame_of
from ._trace import Path, Trace

if TYPE_CHECKING:
    import pandas
    import polars
    from typing import Unpack

# Bytes, or a text such as "64MiB" or "1%".
Amount = Union[SupportsIndex, str]
Policies = Union[str, Iterable[str]]
Capacities = Union[Amount, Iterable[Amount]]
Objective = Literal["requests", "bytes", "origin-cost"]

DEFAULT_POLICIES = ("lru", "adaptsize", "gdsf", "density")


class Settings(TypedDict, total=False):
    """The settings that ``simulate`` and ``Plan`` share."""

    warmup: Amount
    object_overhead: Amount
    objective: Objective
    origin_latency: int
    origin_bandwidth: Amount
    seed: int
    window: Optional[int]


class AllSettings(Settings, total=False):
    """All settings of ``simulate``."""

    bounds: bool
    series: bool
    threads: Optional[int]


@overload
def simulate(
    trace: Union[Trace, Path],
    policies: Policies = ...,
    capacities: Capacities = ...,
    *,
    frame: Optional[Literal["pandas"]] = ...,
    **settings: Unpack[AllSettings],
) -> pandas.DataFrame: ...
@overload
def simulate(
    trace: Union[Trace, Path],
    policies: Policies = ...,
    capacities: Capacities = ...,
    *,
    frame: Literal["polars"],
    **settings: Unpack[AllSettings],
) -> polars.DataFrame: ...
@overload
def simulate(
    trace: Union[Trace, Path],
    policies: Policies = ...,
    capacities: Capacities = ...,
    *,
    frame: Literal["records"],
    **settings: Unpack[AllSettings],
) -> list[Row]: ...
def simulate(
    trace: Union[Trace, Path],
    policies: Policies = DEFAULT_POLICIES,
    capacities: Capacities = "1%",
    *,
    warmup: Amount = 0,
    object_overhead: Amount = 0,
    objective: Objective = "requests",
    origin_latency: int = 100,
    origin_bandwidth: Amount = "12MiB",
    seed: int = 0,
    window: Optional[int] = None,
    bounds: bool = False,
    series: bool = False,
    threads: Optional[int] = None,
    frame: Optional[FrameKind] = None,
) -> Any:
    """Runs each policy at each capacity over the trace. Returns a frame with one row per run.

    The columns are those of the runs in the JSON document of ``edgeward simulate``, which has the same results:
    ``policy``, ``capacity`` (as given), ``capacity_bytes``, ``seed``, ``requests``, ``hits``, ``object_hit_ratio``,
    ``byte_hit_ratio`` and others. Ctrl-C ends the call.

    trace: a trace, or the path of a file.
    policies: names such as "lru", "gdsf" or "adaptsize+gdsf"; ``edgeward simulate --help`` lists them.
    capacities: bytes, or texts such as "64MiB" or "1%" (a share of the bytes of all distinct objects).
    warmup: requests that fill the cache and are not counted: a number, or a text such as "20%".
    object_overhead: bytes that an object takes in addition to its body.
    objective: what the policies maximise: "requests" (hits), "bytes" (bytes of the hits) or "origin-cost" (the time that
        hits save). Only "density", "gds" and the forms of "gdsf" follow it.
    origin_latency, origin_bandwidth: the cost of a fetch is this latency in ms, and the time of the body at this number
        of bytes per second.
    seed: the seed of the policies' random numbers.
    window: requests between two steps of the tuner of AdaptSize or ``hill-climbing``. None means 250,000 for AdaptSize,
        as in the paper, and 50,000 for ``hill-climbing``.
    bounds: adds ``object_hit_ratio_max`` and ``byte_hit_ratio_max``, which no policy can exceed at this capacity over
        the whole trace without its warm-up.
    series: returns the hit ratios over time instead, one row per run and interval. ``requests_end`` is the number of
        the interval's last request.
    threads: the number of threads; None means one per core.
    frame: "pandas", "polars", or "records" for a list of dicts. None means the first of them that is installed.
    """
    rows = run_rows(
        trace,
        policies,
        capacities,
        series=series,
        threads=threads,
        warmup=warmup,
        object_overhead=object_overhead,
        objective=objective,
        origin_latency=origin_latency,
        origin_bandwidth=origin_bandwidth,
        seed=seed,
        window=window,
        bounds=bounds,
    )
    return frame_of(rows, frame)


def run_rows(
    trace: Union[Trace, Path],
    policies: Policies,
    capacities: Capacities,
    *,
    bounds: bool = False,
    series: bool,
    threads: Optional[int],
    **settings: Unpack[Settings],
) -> list[Row]:
    """Runs the simulation and returns the rows of the frame."""
    names, texts = policy_names(policies), capacity_texts(capacities)
    document = _document(trace, names, texts, bounds=bounds, series=series, threads=threads or 0, **settings)
    # The runs are in the order of the capacities, and for each capacity in the order of the policies.
    cells = [(text, index) for index, text in enumerate(texts) for _ in names]
    rows: list[Row] = []
    for run, (capacity, index) in zip(document["runs"], cells, strict=True):
        cell = {
            "policy": run.pop("policy"),
            "capacity": capacity,
            "capacity_bytes": run.pop("capacity_bytes"),
            "seed": run.pop("seed"),
        }
        limits = _limits(document["bounds"][index]) if bounds else {}
        if series:
            rows.extend(cell | interval | limits for interval in run["series"])
            continue
        figures = {name: value for name, value in run.items() if not isinstance(value, (list, dict))}
        rows.append(cell | figures | limits)
    return rows


def bounds_by_capacity(trace: Trace, capacities: list[str], **settings: Unpack[Settings]) -> dict[str, Row]:
    """Returns the upper bounds of the hit ratios for each capacity."""
    document = _document(trace, [], capacities, bounds=True, **settings)
    return {text: _limits(bound) for text, bound in zip(capacities, document["bounds"], strict=True)}


def _document(
    trace: Union[Trace, Path],
    policies: list[str],
    capacities: list[str],
    *,
    warmup: Amount = 0,
    object_overhead: Amount = 0,
    origin_bandwidth: Amount = "12MiB",
    **settings: Any,
) -> dict[str, Any]:
    """Returns the document of ``edgeward simulate --json``."""
    if not isinstance(trace, Trace):
        trace = Trace.read(trace)
    text = _native.simulate(
        trace._native,
        policies,
        capacities,
        warmup=_text(warmup),
        object_overhead=_text(object_overhead),
        origin_bandwidth=_text(origin_bandwidth),
        **settings,
    )
    document: dict[str, Any] = json.loads(text)
    return document


def policy_names(policies: Policies) -> list[str]:
    """Returns the policies as a list of names."""
    names = policies.split(",") if isinstance(policies, str) else list(policies)
    if not names:
        raise ValueError("the list of policies is empty")
    return names


def capacity_texts(capacities: Capacities) -> list[str]:
    """Returns the capacities as texts of the command line."""
    if isinstance(capacities, str):
        texts = capacities.split(",")
    elif isinstance(capacities, Iterable):
        texts = [_text(capacity) for capacity in capacities]
    else:
        texts = [_text(capacities)]
    if not texts:
        raise ValueError("the list of capacities is empty")
    return texts


def _text(amount: Amount) -> str:
    """Returns an amount as a text of the command line."""
    return amount if isinstance(amount, str) else str(operator.index(amount))


def _limits(bound: Row) -> Row:
    """Returns the upper bounds of the hit ratios, without their capacity."""
    return {name: value for name, value in bound.items() if name != "capacity_bytes"}
