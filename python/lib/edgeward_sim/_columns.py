"""Converts columns of Python, NumPy, pandas and Polars to the bytes of unsigned 64-bit numbers.

NumPy is optional: without it, columns are sequences of Python objects.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any, Union

from . import _native

# A Series of pandas or Polars, an array of NumPy, or an iterable of Python objects.
Column = Any
Bytes = Union[bytes, bytearray]

_MASK = (1 << 64) - 1


def keys(column: Column) -> Bytes:
    """Returns the keys of objects. A negative number is taken as the unsigned number with the same 64 bits.

    A text is hashed, unless it is an unsigned 64-bit number without leading zeros.
    """
    values = _values(column)
    kind = _kind(values)
    if kind == "u":
        return _bytes_of(values, "uint64")
    if kind == "i":
        return _bytes_of(values, "int64")
    values = _list(values)
    if values and all(_is_integer(value) for value in values):
        for index, value in enumerate(values):
            if not -(1 << 63) <= value <= _MASK:
                raise ValueError(f"key {index} is {value}, which has more than 64 bits")
        return array("Q", [value & _MASK for value in values]).tobytes()
    for index, value in enumerate(values):
        if not isinstance(value, (str, bytes)):
            raise ValueError(f"key {index} is {value!r}; keys are whole numbers, or all of them are texts")
    return _native.hash_keys(values)


def sizes(column: Column) -> Bytes:
    """Returns sizes in bytes."""
    values = _values(column)
    if _kind(values) == "u":
        return _bytes_of(values, "uint64")
    if _kind(values) == "i" and not (values < 0).any():
        return _bytes_of(values, "uint64")
    return array("Q", [_size(index, value) for index, value in enumerate(_list(values))]).tobytes()


def times(column: Column, requests: int) -> Bytes:
    """Returns times in ms. Without a column, every request is at time 0."""
    if column is None:
        return bytes(8 * requests)
    values = _values(column)
    kind = _kind(values)
    if kind == "M":
        millis = values.astype("datetime64[ms]").astype("int64")
    elif kind in ("u", "i"):
        invalid = (values < 0) | (values >= _SECONDS_MAX)
        if invalid.any():
            index = int(invalid.argmax())
            raise _bad_time(index, values[index])
        millis = values.astype("int64") * 1000
    elif kind == "f":
        return _bytes_of(_checked_seconds(values), "uint64")
    else:
        return array("Q", [_millis(index, value) for index, value in enumerate(_list(values))]).tobytes()
    if (millis < 0).any():
        index = int((millis < 0).argmax())
        raise _bad_time(index, values[index])
    return _bytes_of(millis, "uint64")


def _values(column: Column) -> Any:
    """Returns the values as an array of NumPy if the column can be converted to one, otherwise as a sequence."""
    if getattr(getattr(column, "dtype", None), "tz", None) is not None:
        # An array of NumPy has no time zone; pandas converts the times to UTC.
        return column.to_numpy(dtype="datetime64[ms]")
    if hasattr(column, "to_numpy"):
        try:
            return column.to_numpy()
        except ImportError:
            return column.to_list()
    if hasattr(column, "__array__"):
        return column.__array__()
    return column if isinstance(column, Sequence) else list(column)


def _kind(values: Any) -> str:
    """Returns the kind of a NumPy array, such as u, i, f, M (dates) or O (objects); an empty text for a sequence."""
    return str(getattr(getattr(values, "dtype", None), "kind", ""))


def _bytes_of(values: Any, dtype: str) -> bytes:
    """Returns the bytes of a NumPy array, converted to this type, in the byte order of the machine."""
    data: bytes = values.astype(dtype).tobytes()
    return data


def _list(values: Any) -> list[Any]:
    items: Iterable[Any] = values.tolist() if hasattr(values, "tolist") else values
    return list(items)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _size(index: int, value: Any) -> int:
    whole = _is_integer(value) or (isinstance(value, float) and value.is_integer())
    if not whole or not 0 <= value <= _MASK:
        raise ValueError(f"size {index} is {value!r}; a size is a whole number of bytes, at least 0")
    return int(value)


def _checked_seconds(seconds: Any) -> Any:
    """Converts an array of seconds to ms. Raises an error if a time is negative, too large or not a number."""
    valid = (seconds >= 0) & (seconds < _SECONDS_MAX)
    if not valid.all():
        index = int((~valid).argmax())
        raise _bad_time(index, float(seconds[index]))
    return (seconds.astype("float64") * 1000).round()


def _millis(index: int, value: Any) -> int:
    """Converts one time to ms: a date, or a number of seconds."""
    if isinstance(value, datetime):
        zoned = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        seconds = zoned.timestamp()
    elif _is_integer(value) or isinstance(value, float):
        seconds = value
    else:
        raise _bad_time(index, value)
    if not math.isfinite(seconds) or not 0 <= seconds < _SECONDS_MAX:
        raise _bad_time(index, value)
    return round(seconds * 1000)


def _bad_time(index: int, value: object) -> ValueError:
    return ValueError(f"time {index} is {value}; a time is a number of seconds, at least 0, or a date from 1970 on")


# The limit of a time in seconds: in ms, it must have at most 63 bits.
_SECONDS_MAX = (1 << 63) // 1000
