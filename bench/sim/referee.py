#!/usr/bin/env python3
"""Runs one policy of libCacheSim over an uncompressed oracleGeneral file: referee.py POLICY CAPACITY_BYTES TRACE

POLICY is a policy of edgeward; the one of libCacheSim that corresponds to it runs. Prints hit ratio, CPU time and peak
memory as one JSON object, without those of Python and of loading the library.
"""
import json
import resource
import sys
import time

import libcachesim

POLICIES = {
    "lru": "LRU", "fifo": "FIFO", "sieve": "Sieve", "s3-fifo": "S3FIFO", "slru": "SLRU", "gdsf": "GDSF",
    "density": "GDSF", "lhd": "LHD",
}

policy, capacity_bytes, trace = sys.argv[1:]
before = time.process_time()
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
reader = libcachesim.TraceReader(trace=trace, trace_type=libcachesim.TraceType.ORACLE_GENERAL_TRACE)
cache = getattr(libcachesim, POLICIES[policy])(int(capacity_bytes))
object_misses, byte_misses = cache.process_trace(reader)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({
    "object_hit_ratio": 1 - object_misses, "byte_hit_ratio": 1 - byte_misses,
    "cpu_seconds": time.process_time() - before, "memory_bytes_max": (peak - memory) * 1024,
}))
