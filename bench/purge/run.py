#!/usr/bin/env python3
"""Measures purges of many tagged objects. Prints one JSON object per line.

    bench/purge/run.py target/release/edgeward [OBJECTS] [FOLDER]

Phase 1 fills memory and disk with OBJECTS (default 1 million) objects that all have the tags `all` and
`shop`. It times purges over the admin API. After a purge of `all`, it requests all objects again: a hit is an error.
Phase 2 purges `shop`, kills the edge with SIGKILL, starts it again, and requests all objects: a hit is an error.
Phase 3 requests 1000 objects without pause while a soft purge of all of them arrives every 100 ms, and the origin
takes 500 ms to answer: no request may take that long.
"""

import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

TOKEN = "0123456789abcdef0123456789abcdef"


class Server:
    def __init__(self, args):
        self.process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.first = json.loads(self.process.stdout.readline())

    def stop(self, sig=signal.SIGTERM):
        self.process.send_signal(sig)
        self.process.wait()


def show(**figures):
    print(json.dumps(figures), flush=True)


def addr(text):
    return text.split("://")[-1].split("/")[0]


def rss_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


class Bench:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, pathlib.Path(folder)
        (self.folder / "token").write_text(TOKEN)

    def origin(self, listen, *args):
        return Server([self.binary, "origin", f"--listen={listen}", "--json", "--header=Surrogate-Key: all shop", *args])

    def edge(self, origin, hot, disk):
        config = f"""[[listener]]
address = "127.0.0.1:0"
[admin]
address = "127.0.0.1:0"
[origin]
url = "http://{origin}"
[hot]
capacity = "{hot}"
policy = "lru"
[purge]
token_file = "{self.folder}/token"
"""
        if disk:
            config += f"""[[disk_device]]
path = "{self.folder}/disk"
capacity = "{disk}"
[disk]
admission = "always"
"""
        (self.folder / "edge.toml").write_text(config)
        return Server([self.binary, "serve", "--json", "--config", str(self.folder / "edge.toml")])

    def replay(self, edge, trace, *args):
        command = [self.binary, "replay", str(trace), "--target", f"http://{addr(edge.first['listening'][0])}", "--json"]
        result = subprocess.run([*command, *args], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        return json.loads(result.stdout)

    def trace(self, objects):
        path = self.folder / "trace.txt"
        with open(path, "w", encoding="ascii") as out:
            out.writelines(f"{n / 1000:.3f} {n} 100\n" for n in range(objects))
        return path


def purge(edge, body):
    connection = http.client.HTTPConnection(addr(edge.first["admin"]), timeout=60)
    start = time.perf_counter()
    connection.request("POST", "/purge", json.dumps(body), {"Authorization": f"Bearer {TOKEN}"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    seconds = time.perf_counter() - start
    if response.status != 200:
        raise SystemExit(f"the purge failed: {answer}")
    return seconds * 1000, answer


def metric(edge, name):
    connection = http.client.HTTPConnection(addr(edge.first["admin"]), timeout=60)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def hits(edge):
    return metric(edge, 'edgeward_requests_total{outcome="hit')


def many(bench, objects):
    origin = bench.origin("127.0.0.1:0")
    disk = "6GiB"
    edge = bench.edge(addr(origin.first["listen"]), "4GiB", disk)
    trace = bench.trace(objects)
    bench.replay(edge, trace)
    before = rss_bytes(edge.process.pid)
    in_memory = metric(edge, "edgeward_hot_objects ")
    on_disk = metric(edge, "edgeward_disk_objects")
    counted, answer = purge(edge, {"tags": ["all"], "dry_run": True})
    show(phase="dry run", objects=objects, in_memory=in_memory, on_disk=on_disk, rss_bytes=before, ms=counted, **answer)
    for kind, body in [
        ("tag", {"tags": ["none-{}"]}),
        ("prefix", {"prefixes": ["none.example/{}"]}),
        ("pattern", {"patterns": ["*.example/{}"]}),
        ("url", {"urls": ["http://none.example/{}"]}),
    ]:
        times = []
        for n in range(200):
            times.append(purge(edge, json.loads(json.dumps(body).replace("{}", str(n))))[0])
        times.sort()
        show(phase="purges that cover no object", kind=kind, p50_ms=times[100], p99_ms=times[197], max_ms=times[-1])
    hits_before = hits(edge)
    bench.replay(edge, trace, "--requests=20000")
    show(phase="before the purge", requests=20000, hits=hits(edge) - hits_before)
    ms, _ = purge(edge, {"tags": ["all"]})
    show(phase="purge of all objects", objects=objects, ms=ms, rss_growth_bytes=rss_bytes(edge.process.pid) - before)
    hits_before = hits(edge)
    bench.replay(edge, trace)
    show(phase="after the purge", requests=objects, hits=hits(edge) - hits_before)
    time.sleep(2)
    ms, _ = purge(edge, {"tags": ["shop"]})
    edge.stop(signal.SIGKILL)
    edge = bench.edge(addr(origin.first["listen"]), "4GiB", disk)
    found = metric(edge, "edgeward_disk_objects")
    bench.replay(edge, trace)
    show(phase="after SIGKILL and restart", ms=ms, on_disk=found, requests=objects, hits=hits(edge))
    hits_before = hits(edge)
    bench.replay(edge, trace, "--requests=20000")
    show(phase="second pass", requests=20000, hits=hits(edge) - hits_before)
    edge.stop()
    origin.stop()


def soft(bench):
    origin = bench.origin("127.0.0.1:0")
    listen = addr(origin.first["listen"])
    edge = bench.edge(listen, "1GiB", None)
    trace = bench.trace(1000)
    bench.replay(edge, trace)
    origin.stop()
    origin = bench.origin(listen, "--latency=500ms")
    path = bench.folder / "loop.txt"
    with open(path, "w", encoding="ascii") as out:
        out.writelines(f"{n / 1000:.3f} {n % 1000} 100\n" for n in range(500_000))
    done = threading.Event()
    times = []

    def purge_often():
        while not done.wait(0.1):
            times.append(purge(edge, {"tags": ["all"], "soft": True})[0])

    purger = threading.Thread(target=purge_often)
    purger.start()
    report = bench.replay(edge, path)
    done.set()
    purger.join()
    refreshes = metric(edge, "edgeward_background_revalidations_total")
    show(phase="soft purges under load", purges=len(times), refreshes=refreshes, report=report)
    edge.stop()
    origin.stop()


def main():
    binary = os.path.abspath(sys.argv[1])
    objects = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    with tempfile.TemporaryDirectory(dir=sys.argv[3] if len(sys.argv) > 3 else None) as folder:
        many(Bench(binary, folder), objects)
    with tempfile.TemporaryDirectory() as folder:
        soft(Bench(binary, folder))


if __name__ == "__main__":
    main()
