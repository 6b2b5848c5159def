"""The Rust module. The bytes of a column are unsigned 64-bit numbers in the byte order of the machine."""

from collections.abc import Iterable
from os import PathLike
from typing import Optional, Union, final

__all__ = ["Trace", "hash_keys", "simulate"]

_Path = Union[str, PathLike[str]]
_Bytes = Union[bytes, bytearray]

@final
class Trace:
    """The requests of a trace, in order."""

    def __new__(cls, times: _Bytes, keys: _Bytes, sizes: _Bytes) -> Trace:
        """Makes a trace from columns: times in ms, keys, sizes in bytes."""

    @staticmethod
    def read(
        paths: list[_Path],
        format: Optional[str],
        columns: Optional[str],
        time_unit: str,
        methods: list[str],
        statuses: list[int],
        cut_query: bool,
        skip_malformed: bool,
        requests: Optional[int],
    ) -> tuple[Trace, list[str]]:
        """Reads files as one trace. Also returns a warning for each file with skipped lines."""

    @staticmethod
    def generate(preset: str, requests: Optional[int], seed: int) -> Trace:
        """Generates a trace from a preset and a seed."""

    def columns(self) -> tuple[bytearray, bytearray, bytearray]:
        """Returns the columns: times in ms, keys and sizes."""

    def write(self, path: _Path) -> None:
        """Writes the trace to a file. The name of the file selects format and compression."""

    def facts(self) -> str:
        """Returns the properties of the trace as JSON."""

    def __len__(self) -> int: ...

def hash_keys(keys: Iterable[Union[str, bytes]]) -> bytearray:
    """Returns the keys of texts, which are those of the readers of text and CSV files."""

def simulate(
    trace: Trace,
    policies: list[str],
    capacities: list[str],
    *,
    warmup: str = "0",
    object_overhead: str = "0",
    objective: str = "requests",
    origin_latency: int = 100,
    origin_bandwidth: str = "12MiB",
    seed: int = 0,
    window: Optional[int] = None,
    bounds: bool = False,
    series: bool = False,
    threads: int = 0,
) -> str:
    """Runs each policy at each capacity. Returns the JSON document of ``edgeward simulate --json``."""
