#!/usr/bin/env python3
"""Replays traces over HTTP against edges really set so, and compares their hit ratios with the predictions of one edge.

usage: replay.py EDGEWARD TRACES TRACE...   (one table row per setting on stdout)
"""
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request

EDGEWARD, TRACES = sys.argv[1:3]
FOLDER = os.environ.get("SCRATCH", "/tmp/what-if-replay")
MIB = 1 << 20
# trace: memory, disk, the number of requests (None: all)
PLANS = {
    "nasa-jul95-10k": (8 * MIB, 32 * MIB, None),
    "semicomplete-2015-10k": (16 * MIB, 64 * MIB, None),
    "bu98-proxy": (16 * MIB, 64 * MIB, None),
    "akamai-w-web": (512 * MIB, 2048 * MIB, 20_000),
}
MEMORY = [("density", m) for m in (1, 0.5, 2, 4, 8)] + [("lru", 1), ("lru", 4), ("gdsf", 1)]
DISK = [("second-hit", 1), ("always", 1), ("always", 2), ("second-hit", 4)]


def wait_for(url):
    for _ in range(600):
        try:
            return urllib.request.urlopen(url).read()
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"{url} does not answer")


def run(trace, hot, policy, requests, disk=None, admission=None, port=23100):
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(f"{FOLDER}/disk")
    config = f"""
[[listener]]
address = "127.0.0.1:{port}"
[admin]
address = "127.0.0.1:{port + 2}"
[origin]
url = "http://127.0.0.1:{port + 1}"
[hot]
capacity = "{hot // 1024}KiB"
policy = "{policy}"
"""
    if disk:
        config += f"""
[[disk_device]]
path = "{FOLDER}/disk"
capacity = "{disk // 1024}KiB"
[disk]
admission = "{admission}"
"""
    open(f"{FOLDER}/edge.toml", "w").write(config)
    log = open(f"{FOLDER}/log", "w")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": log}
    origin = subprocess.Popen([EDGEWARD, "origin", "--listen", f"127.0.0.1:{port + 1}", "--etag"], **quiet)
    edge = subprocess.Popen([EDGEWARD, "serve", "--config", f"{FOLDER}/edge.toml"], **quiet)
    try:
        wait_for(f"http://127.0.0.1:{port + 1}/o/1?size=1")
        status = f"http://127.0.0.1:{port + 2}/status"
        wait_for(status)
        command = [EDGEWARD, "replay", "-t", f"http://127.0.0.1:{port}", "-c", "4", "--json"]
        command += [f"{TRACES}/{trace}.tr.zst"] + (["--requests", str(requests)] if requests else [])
        replay = subprocess.run(command, capture_output=True, text=True)
        if replay.returncode != 0:
            raise SystemExit(replay.stderr[-2000:] or replay.stdout[-2000:])
        before = -1
        while True:  # until the analysis has followed all requests
            report = json.loads(wait_for(status))
            total = sum(report["requests"].values())
            if report["what_if"]["requests"] == total == before:
                break
            before = total
            time.sleep(0.5)
    finally:
        edge.terminate(), origin.terminate(), edge.wait(), origin.wait()
    counts = report["requests"]
    hits = counts.get("hit", 0) + counts.get("hit-stale", 0)
    return hits / total, report["what_if"], total


def main():
    print("trace\ttier\trule\tsize\tbytes\trequests\tpredicted\tmeasured\tdifference_points\tstandard_error_points\tsampled_share")
    for trace in sys.argv[3:]:
        hot, disk, requests = PLANS[trace]
        of_memory = run(trace, hot, "density", requests)
        of_disk = run(trace, hot // 2, "density", requests, disk, "second-hit")
        for tier, rows, present in (("memory", MEMORY, of_memory), ("disk", DISK, of_disk)):
            what_if = present[1] if tier == "memory" else present[1]["disk"]
            key = "policy" if tier == "memory" else "admission"
            points = {(point[key], float(point["size"])): point for point in what_if["points"]}
            for rule, size in rows:
                if (rule, size) == rows[0]:
                    measured, _, total = present
                elif tier == "memory":
                    measured, _, total = run(trace, int(hot * size), rule, requests)
                else:
                    measured, _, total = run(trace, hot // 2, "density", requests, int(disk * size), rule)
                point = points[rule, float(size)]
                predicted, error = point["hit_ratio"], point["hit_ratio_error"]
                print(
                    f"{trace}\t{tier}\t{rule}\t{size}\t{point['capacity_bytes']}\t{total}\t{predicted:.4f}\t{measured:.4f}"
                    f"\t{100 * (predicted - measured):+.2f}\t{100 * error:.2f}\t{what_if['sampled_share']}",
                    flush=True,
                )


main()
