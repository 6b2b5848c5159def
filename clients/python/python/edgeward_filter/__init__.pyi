import os
from datetime import timedelta
from typing import Literal, Optional, Union
from uuid import UUID

Id = Union[str, bytes, int, UUID]
Answer = Literal["absent", "maybe", "ask"]
Form = Literal["text", "uuid", "integer"]
Seconds = Union[float, timedelta]
Now = tuple[int, int]

class FilterError(ValueError):
    """The bytes are not a valid filter."""

class Refused(Exception):
    """Received data was not used; ``reason`` is a code for the cause. The previous data stays in use."""

    reason: str

class ManifestError(Refused):
    """A manifest or proof is not trusted or is invalid."""

class Facts:
    """The fields of a filter's header, and values derived from them."""

    construction: Literal["static", "updatable"]
    form: Form
    epoch: int
    built: Optional[float]
    ids: int
    capacity_ids: int
    seed: int
    asked_rate: float
    expected_rate: float
    bytes: int

class Filter:
    """A filter in memory, made from the bytes of a file."""

    def __init__(self, data: bytes) -> None: ...
    @staticmethod
    def open(path: Union[str, os.PathLike[str]]) -> Filter: ...
    def may_contain(self, id: Id) -> bool:
        """Returns false only if the id is certainly not in the filter."""

    def __contains__(self, id: Id) -> bool: ...
    @property
    def facts(self) -> Facts: ...

class ManualClock:
    """A monotonic clock and a wall clock that only a test advances. Both arguments are in seconds."""

    def __init__(self, wall: float = ...) -> None: ...
    def advance(self, seconds: float, wall: Optional[float] = None) -> None: ...

class Status:
    """The state of a client."""

    fresh: bool
    fresh_for: float
    overlay_ids: int
    serial: int
    last_error: Optional[str]
    @property
    def facts(self) -> Optional[Facts]: ...
    @property
    def counts(self) -> dict[str, int]: ...

class FilterClient:
    """Follows a published set on a background thread. Lookups return at once."""

    def __init__(
        self,
        url: str,
        keys: Optional[list[str]] = None,
        *,
        max_staleness: Seconds,
        trust_transport: bool = False,
        form: Optional[Form] = None,
        clock_error: Optional[Seconds] = None,
        keep: Optional[Union[str, os.PathLike[str]]] = None,
        roots: Optional[Union[str, os.PathLike[str]]] = None,
        snapshot_bytes_max: int = ...,
        overlay_ids_max: int = ...,
        clock: Optional[ManualClock] = None,
    ) -> None: ...
    def answer(self, id: Id) -> Answer: ...
    def may_exist(self, id: Id) -> bool:
        """Returns false only if a request for the id can be skipped."""

    def status(self) -> Optional[Status]: ...
    def wait_fresh(self, timeout: Seconds) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> FilterClient: ...
    def __exit__(self, *error: object) -> None: ...

class State:
    """The client without its transport.

    ``now`` is a pair of times in ms: that of a monotonic clock, and the wall-clock time since 1970.
    """

    def __init__(
        self,
        set: str,
        keys: Optional[list[str]],
        *,
        max_staleness: Seconds,
        clock_error: Optional[Seconds] = None,
        serial_min: int = 0,
        snapshot_bytes_max: int = ...,
        overlay_ids_max: int = ...,
    ) -> None: ...
    def answer(self, now: Now, id: Id) -> Answer: ...
    def fresh_for(self, now: Now) -> float: ...
    @property
    def facts(self) -> Optional[Facts]: ...
    @property
    def serial(self) -> int: ...
    @property
    def position(self) -> Optional[tuple[int, int, int]]: ...
    @property
    def wants(self) -> tuple[Optional[tuple[str, int]], list[tuple[str, int]]]: ...
    def observe(self, now: Now) -> None: ...
    def challenge(self, now: Now, echo: str) -> None: ...
    def manifest(self, now: Now, line: str) -> None: ...
    def proof(self, now: Now, line: str) -> None: ...
    def snapshot(self, now: Now, data: bytes) -> None: ...
    def delta(self, now: Now, data: bytes) -> None: ...

def hash_id(id: Id, form: Form = "text", seed: int = 0) -> int:
    """Returns the hash of an id that filters and deltas use."""
