"""Runs one policy of libCacheSim over a trace and prints its hit ratios as one JSON object.

usage: referee.py POLICY CAPACITY_BYTES TRACE
       referee.py import

POLICY is a class of the Python package `libcachesim`; TRACE is an uncompressed oracleGeneral file. `import` loads the
library and nothing else. Its CPU time and memory are those of Python and not of the simulator.
"""

import json
import sys

import libcachesim

# Learned policies maximise the byte hit ratio unless they are told otherwise.
ARGUMENTS = {
    "ThreeLCache": {"objective": "object-miss-ratio"},
    "LRB": {"objective": "object-miss-ratio"},
}

if sys.argv[1:] != ["import"]:
    policy, capacity_bytes, trace = sys.argv[1:]
    reader = libcachesim.TraceReader(trace=trace, trace_type=libcachesim.TraceType.ORACLE_GENERAL_TRACE)
    cache = getattr(libcachesim, policy)(int(capacity_bytes), **ARGUMENTS.get(policy, {}))
    object_misses, byte_misses = cache.process_trace(reader)
    print(json.dumps({"object_hit_ratio": 1.0 - object_misses, "byte_hit_ratio": 1.0 - byte_misses}))
