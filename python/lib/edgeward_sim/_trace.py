"""Traces: requests with time, key and size."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Optional, TypedDict, Union, cast

from . import _columns, _native

if TYPE_CHECKING:
    import numpy
    import numpy.typing
    import pandas
    import polars

Path = Union[str, "os.PathLike[str]"]
Format = Literal["text", "csv", "oracle-general", "lcs", "lrb", "ncsa", "json"]
TimeUnit = Literal["s", "ms", "us", "ns"]
Preset = Literal["web", "video", "mixed", "switch", "small", "chunks", "scan", "recurring"]


class TraceFacts(TypedDict):
    """The properties of a trace."""

    requests: int
    """The number of requests."""
    objects: int
    """The number of distinct objects."""
    bytes: int
    """Bytes of all requests."""
    footprint_bytes: int
    """Bytes of all distinct objects. A capacity such as "1%" is a share of this number."""
    one_hit_share: float
    """The share of objects with exactly one request."""
    resized_requests: int
    """Requests whose size differs from their object's first size. The simulator gives them the first size."""
    unsized_requests: int
    """Requests that the simulator leaves out, because no request before them shows the size of their object."""


class Columns(NamedTuple):
    """The columns of a trace as arrays, one item per request."""

    time: numpy.typing.NDArray[numpy.float64]
    """Times in seconds."""
    key: numpy.typing.NDArray[numpy.uint64]
    """Keys of objects."""
    size: numpy.typing.NDArray[numpy.uint64]
    """Sizes in bytes."""


class Trace:
    """The requests of a trace, in memory: 24 bytes per request. A trace does not change.

    ``name`` is the label of the trace in the frame of a plan. Traces can be pickled.
    """

    __slots__ = ("_native", "name")

    name: str

    def __init__(self, requests: _native.Trace, name: str = "trace") -> None:
        """Wraps the native trace. Use ``read``, ``from_arrays``, ``from_dataframe`` or ``generate`` instead."""
        self._native = requests
        self.name = name

    @classmethod
    def from_arrays(cls, keys: Any, sizes: Any, times: Any = None, *, name: str = "arrays") -> Trace:
        """Makes a trace from arrays, series or lists of the same length, one item per request.

        keys: whole numbers or texts. A text that is a number without leading zeros is this number, as in the formats
            text and CSV. Any other text is hashed to 64 bits.
        sizes: bytes of the object.
        times: seconds, or dates (``datetime``, ``datetime64``); dates without a time zone are in UTC. Times are stored
            in milliseconds. Without times, every request is at time 0.
        """
        columns = _columns.keys(keys), _columns.sizes(sizes)
        times = _columns.times(times, len(columns[0]) // 8)
        return cls(_native.Trace(times, *columns), name)

    @classmethod
    def from_dataframe(
        cls,
        frame: Any,
        key: str = "key",
        size: str = "size",
        time: Optional[str] = None,
        *,
        name: str = "frame",
    ) -> Trace:
        """Makes a trace from the named columns of a pandas or Polars frame, one row per request.

        If ``time`` is None, the times are read from a column named "time", if the frame has one. ``from_arrays``
        describes the values.
        """
        present = list(frame.columns)
        if time is None and "time" in present:
            time = "time"
        for column in (key, size, time):
            if column is not None and column not in present:
                raise ValueError(f"the frame has no column `{column}`; it has {', '.join(map(str, present))}")
        times = None if time is None else frame[time]
        return cls.from_arrays(frame[key], frame[size], times, name=name)

    @classmethod
    def read(
        cls,
        path: Union[Path, Iterable[Path]],
        *,
        format: Optional[Format] = None,
        columns: Optional[Mapping[Literal["time", "key", "size"], Union[str, int]]] = None,
        time_unit: TimeUnit = "s",
        methods: Iterable[str] = ("GET",),
        statuses: Iterable[int] = (200,),
        cut_query: bool = False,
        skip_malformed: bool = False,
        requests: Optional[int] = None,
        name: Optional[str] = None,
    ) -> Trace:
        """Reads a file, or several files as one trace. Format and compression are recognised by content.

        The parameters have the names and defaults of the flags of ``edgeward simulate``, which error messages mention.

        format: the format, for files whose format is not recognised.
        columns: the columns of a CSV file, such as ``{"key": "url", "size": 3}``.
        time_unit: the unit of numeric times.
        methods, statuses: the lines of an access log that count as requests.
        cut_query: removes the query from the keys of an access log.
        skip_malformed: skips malformed lines with a warning, instead of raising ``ValueError`` at the first.
        requests: reads at most this number of requests of all files together.
        """
        paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
        named = ",".join(f"{field}={column}" for field, column in columns.items()) if columns else None
        native, skipped = _native.Trace.read(
            paths, format, named, time_unit, list(methods), list(statuses), cut_query, skip_malformed, requests
        )
        for message in skipped:
            warnings.warn(message, stacklevel=2)
        return cls(native, name if name is not None else " ".join(os.fspath(path) for path in paths))

    @classmethod
    def generate(cls, preset: Preset = "mixed", requests: Optional[int] = None, seed: int = 1) -> Trace:
        """Generates CDN-like traffic: the trace of ``edgeward trace generate`` with these options."""
        return cls(_native.Trace.generate(preset, requests, seed), preset)

    def facts(self) -> TraceFacts:
        """Returns the number of requests and objects, their bytes, and other properties."""
        return cast(TraceFacts, json.loads(self._native.facts()))

    def to_numpy(self) -> Columns:
        """Returns copies of the columns as arrays: times in seconds, keys, sizes in bytes."""
        import numpy

        times, keys, sizes = (numpy.frombuffer(column, dtype=numpy.uint64) for column in self._native.columns())
        return Columns(times / 1000, keys, sizes)

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a pandas frame with the columns time (seconds), key and size (bytes)."""
        import pandas

        return pandas.DataFrame(self.to_numpy()._asdict())

    def to_polars(self) -> polars.DataFrame:
        """Returns a Polars frame with the columns time (seconds), key and size (bytes)."""
        import polars

        return polars.DataFrame(self.to_numpy()._asdict())

    def write(self, path: Path) -> None:
        """Writes the trace to a file.

        The file name selects the format (``.csv``, ``.oracleGeneral``, ``.lrb``, ``.log``, otherwise text) and the
        compression (``.zst``, ``.gz``, ``.bz2``, otherwise none).
        """
        self._native.write(path)

    def __len__(self) -> int:
        """Returns the number of requests."""
        return len(self._native)

    def __repr__(self) -> str:
        return f"Trace({self.name!r}, {len(self)} requests)"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.name, *self._native.columns())


def _restored(name: str, *columns: bytes) -> Trace:
    return Trace(_native.Trace(*columns), name)
