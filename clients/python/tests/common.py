"""Helpers of several tests: read the golden files, and spell the ids in them."""

import json
import os
import random
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "vectors" / "filter"
U64 = 2**64 - 1


def vector(name):
    """Returns the bytes of a golden file."""
    return (FOLDER / name).read_bytes()


def vectors(name):
    """Returns the content of a golden file in JSON."""
    return json.loads(vector(name))


def line(name):
    """Returns the line of a golden file that has a single line."""
    return vector(name).decode().strip()


def spelling(form, n):
    """Returns the n-th id of a form (text, integer or uuid) in an unusual spelling.

    crates/filter/filter/tests/vectors has the same spellings.
    """
    if form == "text":
        return f"résumé/{n}"
    if form == "integer":
        return f"+00{n}"
    high = n * 0x9E3779B97F4A7C15 & U64
    low = (high << 32 | high >> 32) & U64
    digits = f"{high:016X}{low:016x}"
    cut = digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]
    return "{" + "-".join(cut) + "}"


def seeded_random():
    """Returns a stream of random numbers and prints its seed. SEED=… repeats a stream."""
    seed = int(os.environ.get("SEED", time.time_ns()))
    print(f"SEED={seed}")
    return random.Random(seed)
