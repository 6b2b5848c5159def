#!/usr/bin/env python3
"""Hit ratios before and after a restart of an edge with a disk.

    bench/restart/run.py EDGEWARD [REQUESTS] [OBJECTS] [HOT] [DISK]

For each policy and kind of restart, and without a restart: starts `edgeward origin` and `edgeward serve`, replays the
first half of a generated trace with web traffic, counts the hits of its last 1,000 requests, restarts the edge, and
counts the hits of the next 1,000 requests, which are sent at once. Prints one JSON object per line.
"""
import itertools, json, os, re, signal, socket, subprocess, sys, tempfile, time, urllib.request

edgeward = sys.argv[1]
requests = int(sys.argv[2]) if len(sys.argv) > 2 else 60_000
objects = sys.argv[3] if len(sys.argv) > 3 else "20000"
hot = sys.argv[4] if len(sys.argv) > 4 else "64MiB"
disk = sys.argv[5] if len(sys.argv) > 5 else "4GiB"
COUNTED = 1000


def start(args, stderr=None):
    process = subprocess.Popen([edgeward, *args], stdout=subprocess.PIPE, stderr=stderr, text=True)
    return process, json.loads(process.stdout.readline())


def end(process, kind):
    process.send_signal(kind)
    began = time.monotonic()
    process.wait(120)
    return time.monotonic() - began


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_edge(folder, port, origin, policy, log, settings):
    # The port is part of the cache key, so both processes need the same one.
    args = ["serve", "--json", f"--listen=127.0.0.1:{port}", "--admin=127.0.0.1:0", f"--policy={policy}",
            f"--hot={hot}", f"--origin={origin}", f"--disk={folder}", f"--disk-size={disk}", *settings]
    began = time.monotonic()
    process, line = start(args, stderr=log)
    return process, line, time.monotonic() - began


def hits(trace, url):
    report = subprocess.run([edgeward, "replay", "--json", "--connections=8", f"--target={url}", trace],
                            check=True, capture_output=True, text=True)
    return json.loads(report.stdout)


def metric(admin, name):
    text = urllib.request.urlopen(admin + "/metrics").read().decode()
    return float(re.search("^" + re.escape(name) + " (.*)$", text, re.M).group(1))


def hit_count(admin):
    return metric(admin, 'edgeward_requests_total{outcome="hit"}')


def run(policy, kind, settings):
    with tempfile.TemporaryDirectory() as folder:
        trace = folder + "/trace.csv"
        subprocess.run([edgeward, "trace", "generate", "--preset=web", f"--requests={requests}", f"--objects={objects}",
                        "-o", trace, "--quiet"], check=True)
        header, *lines = open(trace).readlines()
        # The end of a generated trace has fewer repeated requests, so the counted requests are in the middle.
        middle = len(lines) // 2
        parts = {"warm": lines[:middle - COUNTED], "before": lines[middle - COUNTED:middle],
                 "after": lines[middle:middle + COUNTED]}
        for name, part in parts.items():
            open(f"{folder}/{name}.csv", "w").writelines([header, *part])
        os.mkdir(folder + "/cache")
        log = open(folder + "/log", "w+")
        port = free_port()
        origin, origin_line = start(["origin", "--json", "--listen=127.0.0.1:0"])
        origin_url = "http://" + origin_line["listen"].removeprefix("http://").rstrip("/")
        edge, line, _ = start_edge(folder + "/cache", port, origin_url, policy, log, settings)
        hits(folder + "/warm.csv", line["listening"][0])
        start_hits = hit_count(line["admin"])
        hits(folder + "/before.csv", line["listening"][0])
        before = hit_count(line["admin"]) - start_hits
        in_memory = metric(line["admin"], "edgeward_hot_objects")
        stop_seconds = start_seconds = start_hits = 0
        if kind is None:
            start_hits = hit_count(line["admin"])
        else:
            stop_seconds = end(edge, kind)
            edge, line, start_seconds = start_edge(folder + "/cache", port, origin_url, policy, log, settings)
        hits(folder + "/after.csv", line["listening"][0])
        after = hit_count(line["admin"]) - start_hits
        while metric(line["admin"], "edgeward_warm_start_pending_objects") > 0:
            time.sleep(0.01)
        loaded = metric(line["admin"], 'edgeward_warm_start_objects_total{result="loaded"}')
        end(edge, signal.SIGKILL)
        end(origin, signal.SIGTERM)
        log.seek(0)
        shown = [re.sub(r"\x1b\[[0-9;]*m", "", text).split("INFO ")[-1].strip() for text in log
                 if "on disk for the next start" in text or "memory was filled" in text]
        print(json.dumps({
            "policy": policy, "restart": kind and signal.Signals(kind).name, "settings": settings,
            "hits_before": before, "hits_after": after, "of": COUNTED, "memory_objects": in_memory, "loaded_objects": loaded,
            "stop_seconds": round(stop_seconds, 2), "start_seconds": round(start_seconds, 2), "log": shown,
        }), flush=True)


if __name__ == "__main__":
    for policy, (kind, settings) in itertools.product(
            ["density", "gdsf", "lru"],
            [(None, []), (signal.SIGTERM, []), (signal.SIGTERM, ["--set=disk.warm_restart=false"]),
             (signal.SIGKILL, ["--set=disk.hot_list_interval=5s"])]):
        run(policy, kind, settings)
