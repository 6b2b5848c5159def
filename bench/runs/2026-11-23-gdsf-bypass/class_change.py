"""Writes a trace whose requests move from small to large objects and back. Columns: time, key, size in bytes."""

import random

rng = random.Random(1)
sizes = {}


def log_uniform(n):
    return int(n ** rng.random())


def emit(time, key, size):
    print(time, key, sizes.setdefault(key, size))


time = 0
for first_key, objects, smallest, range_of_sizes, requests in [
    (0, 20_000, 1_000, 2_000, 200_000),
    (100_000, 500, 100_000, 100_000, 100_000),
    (200_000, 20_000, 1_000, 2_000, 200_000),
]:
    for _ in range(requests):
        time += 1
        key = first_key + log_uniform(objects)
        emit(time, key, smallest + rng.randrange(range_of_sizes))
