"""Makes data frames from rows."""

from __future__ import annotations

from typing import Any, Literal, Optional

FrameKind = Literal["pandas", "polars", "records"]
Row = dict[str, Any]


def frame_of(rows: list[Row], kind: Optional[FrameKind]) -> Any:
    """Returns the rows as a frame. Without a kind, takes the first of pandas and Polars that is installed."""
    if kind is None:
        for candidate in (_pandas_frame, _polars_frame):
            try:
                return candidate(rows)
            except ImportError:
                continue
        return rows
    if kind == "pandas":
        return _pandas_frame(rows)
    if kind == "polars":
        return _polars_frame(rows)
    if kind == "records":
        return rows
    raise ValueError(f"`{kind}` is not a kind of frame; use pandas, polars or records")


def _pandas_frame(rows: list[Row]) -> Any:
    import pandas

    return pandas.DataFrame.from_records(rows)


def _polars_frame(rows: list[Row]) -> Any:
    import polars

    return polars.DataFrame(rows)
