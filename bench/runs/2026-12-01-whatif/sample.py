#!/usr/bin/env python3
"""Samples the objects of a trace by a hash of their numbers, and divides their sizes.

usage: zstd -dc TRACE | sample.py ONE_IN DIVISOR SIZE_MAX | zstd > SAMPLE
"""
import sys

one_in, divisor, size_max = map(int, sys.argv[1:4])
for line in sys.stdin:
    at, key, size = line.split()
    # The multiplier of Fibonacci hashing.
    if (int(key) * 0x9E3779B97F4A7C15 & (1 << 64) - 1) >> 32 < (1 << 32) // one_in:
        print(at, key, min(size_max, max(100, int(size) // divisor)))
