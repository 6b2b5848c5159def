#!/usr/bin/env python3
"""Lets objects enter and leave an edge's cache, and compares its memory with the limit that docs/explanation/memory.md
states: churn.py EDGEWARD PORT ADMIN_PORT KIND HOT_BYTES WORKERS SECONDS TRACE

`edgeward replay` requests objects over 16 connections as fast as it can. One request in sixteen is for a popular
object, one in four for the object that was new ten objects ago, and the others are for new objects. The first half of
the time is a warm-up. In the second half /status is read every 20 ms: memory / ((hot + fills + base) x 1.1).
"""
import json
import random
import statistics
import subprocess
import sys
import time
import urllib.request

SIZES = {"small": (200, 10_240), "mixed": (200, 8 << 20), "large": (1 << 20, 8 << 20)}
program, port, admin, kind = sys.argv[1:5]
hot, workers, seconds = map(int, sys.argv[5:8])
least, most = SIZES[kind]
base = (33 + workers) * (512 << 10)

# More requests than an edge answers in the time. The logarithms of the sizes are uniformly distributed.
random.seed(1)
sizes = []
requests = int(seconds * min(20_000, 4e9 / most + 300))
with open(sys.argv[8], "w") as trace:
    for number in range(requests):
        if number % 16 == 0:
            key = random.randrange(min(16, len(sizes) + 1))
        elif number % 4 == 3 and len(sizes) > 10:
            key = len(sizes) - 10
        else:
            key = len(sizes)
        if key == len(sizes):
            sizes.append(int(least * (most / least) ** random.random()))
        trace.write(f"{number} {key} {sizes[key]}\n")

replay = subprocess.Popen(
    [program, "--quiet", "replay", sys.argv[8], "--target", f"http://127.0.0.1:{port}", "--connections", "16",
     "--json"], stdout=subprocess.DEVNULL)
start, shares, peak, samples = time.monotonic(), [], 0, []
while replay.poll() is None and time.monotonic() < start + seconds:
    if time.monotonic() > start + seconds / 2:
        status = json.load(urllib.request.urlopen(f"http://127.0.0.1:{admin}/status", timeout=10))
        memory = status["memory_bytes"]
        limit = (hot + status["fills"]["bytes"] + base) * 1.1
        samples.append(memory)
        shares.append(memory / limit)
    time.sleep(0.02)
replay.terminate()
replay.wait()
print(json.dumps({
    "share_of_limit": max(shares), "samples": len(shares), "memory_bytes_median": statistics.median(samples),
    "memory_bytes_peak": max(samples)}))
