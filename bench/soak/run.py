#!/usr/bin/env python3
"""Sends mixed traffic to an edge for a long time, and checks that it loses nothing and grows nothing.

    bench/soak/run.py target/release/edgeward [--minutes 30] [--out FILE] [--rate REQUESTS_PER_SECOND] …

Starts two origins on loopback, one of which fails, and `edgeward serve` with memory, a disk, compression, several sites
and an access log. Fills memory and disk, measures how many requests the machine serves, and then sends two thirds of
them in an open loop: hits, misses, ranges, compressed variants, conditional and pipelined requests, clients that leave,
origins that fail, and WebSockets, with purges and reloads beside them. The body of each response is verified.

Prints a table of checks, and writes it with all measurements as JSON. Exit code 1: a check has failed.
"""
import argparse
import collections
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import client  # noqa: E402
import origin  # noqa: E402

TOKEN = "0123456789abcdef0123456789abcdef"
LINE = re.compile(rb'"status":(\d+),"bytes":(\d+),"duration_us":\d+,"cache":"([a-z-]+)"')
LOAD_SHARE = 2 / 3


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("edgeward", help="the program")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--out", type=pathlib.Path, help="the JSON file (default: bench/scratch/soak/result.json)")
    parser.add_argument("--folder", help="a folder for the disk cache and the log, instead of a temporary one")
    parser.add_argument("--rate", type=float, help="requests per second, instead of two thirds of the measured ones")
    parser.add_argument("--processes", type=int, default=max(1, min(4, (os.cpu_count() or 2) // 2)),
                        help="processes that send requests")
    parser.add_argument("--connections", type=int, default=16, help="connections of each process")
    parser.add_argument("--hot", type=int, default=32, help="MiB of the memory tier")
    parser.add_argument("--disk", type=int, default=128, help="MiB of the disk")
    parser.add_argument("--fill", type=int, help="objects that fill memory before the measurement (2500 per MiB)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--growth-max", type=float, default=2.0, help="per cent by which memory may grow or shrink")
    return parser.parse_args()


class Edge:
    """The edge, with what its process and its admin server show."""

    def __init__(self, program, folder, ports, hot_mib, disk_mib):
        self.folder, self.ports = pathlib.Path(folder), ports
        self.sizes, self.generation = (hot_mib, disk_mib), 0
        self.log, self.messages = self.folder / "access.log", self.folder / "messages.log"
        (self.folder / "token").write_text(TOKEN)
        self.config = self.folder / "edge.toml"
        self.write_config()
        self.process = subprocess.Popen(
            [program, "serve", "--json", "--log-format=json", f"--config={self.config}"],
            stdout=subprocess.PIPE, stderr=open(self.messages, "wb"), text=True)
        started = json.loads(self.process.stdout.readline())
        self.port = int(re.search(r":(\d+)", started["listening"][0])[1])
        self.admin = "http://" + started["admin"].removeprefix("http://")

    def write_config(self):
        """Writes the configuration. Each generation has another rule, and every other one a further site."""
        good, failing = self.ports
        hot, disk = self.sizes
        text = f"""
[[listener]]
address = "127.0.0.1:0"

[[origin]]
name = "good"
url = "http://127.0.0.1:{good}"
client_share_percent = 100
unfinished_uploads_percent = 100

[[origin]]
name = "failing"
url = "http://127.0.0.1:{failing}"
client_share_percent = 100
first_byte_timeout = "1s"

[hot]
capacity = "{hot}MiB"

[[disk_device]]
path = "{self.folder}/store"
capacity = "{disk}MiB"

[compression]
enabled = true

[forwarding]
upgrades = "websocket"

[server]
share_ports = true

[admin]
address = "127.0.0.1:0"

[purge]
token_file = "{self.folder}/token"

[access_log]
path = "{self.log}"
format = "json"
queue_lines_max = 16384

[[site]]
hosts = ["failing.example"]
origin = "failing"
"""
        for host in client.HOSTS:
            text += f'\n[[site]]\nhosts = ["{host.decode()}"]\norigin = "good"\n'
            if host == client.HOSTS[0]:
                text += f'\n[[site.rule]]\npath = "/b/*"\nresponse.set.X-Generation = "{self.generation}"\n'
        if self.generation % 2:
            text += f'\n[[site]]\nhosts = ["generation-{self.generation}.example"]\norigin = "good"\n'
        # A reload must never read a part of the file.
        new = self.config.with_suffix(".new")
        new.write_text(text)
        new.rename(self.config)

    def metrics(self):
        text = urllib.request.urlopen(self.admin + "/metrics", timeout=30).read().decode()
        values = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                series, _, value = line.rpartition(" ")
                values[series] = float(value)
        return values

    def purge(self, body):
        request = urllib.request.Request(self.admin + "/purge", json.dumps(body).encode(),
                                         {"Authorization": "Bearer " + TOKEN})
        return json.load(urllib.request.urlopen(request, timeout=30))["accepted"]

    def reload(self):
        self.generation += 1
        self.write_config()
        self.process.send_signal(signal.SIGHUP)

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) * 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


class LogCounts:
    """Counts the lines of the access log, of which each part is deleted when it is counted."""

    def __init__(self):
        self.lines = self.bytes = self.malformed = 0
        self.outcomes, self.statuses = collections.Counter(), collections.Counter()

    def add(self, path):
        with open(path, "rb") as log:
            for line in log:
                found = LINE.search(line)
                if not found or not line.endswith(b"}\n"):
                    self.malformed += 1
                    continue
                self.lines += 1
                self.bytes += int(found[2])
                self.statuses[int(found[1]) // 100] += 1
                self.outcomes[found[3].decode()] += 1
        path.unlink()

    def rotate(self, edge):
        """Renames the log and reopens it, as logrotate does, and counts the old file when the edge has left it."""
        old = edge.log.with_suffix(".old")
        edge.log.rename(old)
        edge.process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + 30
        while not edge.log.exists():
            if time.monotonic() > deadline:
                raise RuntimeError("the edge has not reopened its log")
            time.sleep(0.05)
        time.sleep(0.5)
        self.add(old)


class Disturbances(threading.Thread):
    """Purges, reloads and rotations of the log, while clients send requests. One period has one reload."""

    def __init__(self, edge, log, period):
        super().__init__(daemon=True)
        self.edge, self.log, self.period = edge, log, period
        self.ending = threading.Event()
        self.purges = self.reloads = 0
        self.errors = []

    def run(self):
        step = 0
        while not self.ending.wait(self.period / 4):
            try:
                self.step(step)
            except Exception as error:
                self.errors.append(f"step {step}: {error!r}")
            step += 1

    def step(self, step):
        kind = step % 4
        if kind == 0:
            self.edge.reload()
            self.reloads += 1
        elif kind == 1:
            bodies = [{"tags": [f"tag-{step % 7}"]}, {"prefixes": ["b.example/b/"], "soft": True},
                      {"urls": ["http://a.example/b/1048576/large/0"]}, {"patterns": ["*.example/t/*"]}]
            self.purges += self.edge.purge(bodies[step // 4 % len(bodies)])
        elif kind == 2:
            self.log.rotate(self.edge)
        else:
            self.purges += self.edge.purge({"hosts": ["c.example"], "soft": True})

    def end(self):
        self.ending.set()
        self.join()


def sums(metrics, name, label):
    """Returns the values of a metric by one label."""
    counts = collections.Counter()
    for series, value in metrics.items():
        if series.startswith(name + "{"):
            counts[re.search(rf'[{{,]{label}="([^"]*)"', series)[1]] += value
    return {key: int(value) for key, value in counts.items() if value}


class Checks:
    def __init__(self):
        self.rows = []

    def add(self, name, passed, measured):
        self.rows.append({"check": name, "passed": bool(passed), "measured": measured})

    def show(self):
        width = max(len(row["check"]) for row in self.rows)
        for row in self.rows:
            print(f"{'PASS' if row['passed'] else 'FAIL'}  {row['check']:<{width}}  {row['measured']}")
        return all(row["passed"] for row in self.rows)


def at_rest(edge, seconds=60):
    """Waits until all clients' connections have ended, and returns the metrics."""
    deadline = time.monotonic() + seconds
    while True:
        metrics = edge.metrics()
        busy = [metrics["edgeward_client_connections"], metrics["edgeward_tunnels"], metrics["edgeward_fills"]]
        if not any(busy) or time.monotonic() > deadline:
            return metrics
        time.sleep(0.2)


def steady(count, seconds=10):
    """Returns a count when it has been the same for a second: the threads of the edge start one after the other."""
    deadline, last, since = time.monotonic() + seconds, count(), time.monotonic()
    while time.monotonic() < min(deadline, since + 1):
        time.sleep(0.1)
        if (now := count()) != last:
            last, since = now, time.monotonic()
    return last


def sample_memory(edge, seconds):
    """Returns the resident memory at regular intervals, at least 100 values."""
    samples, began = [], time.monotonic()
    interval = min(2.0, seconds / 100)
    while time.monotonic() - began < seconds:
        samples.append(edge.resident_bytes())
        time.sleep(interval)
    return samples


def fifth(samples, number):
    part = len(samples) // 5
    return statistics.median(samples[number * part:(number + 1) * part])


def check_all(checks, edge, args, measured):
    metrics, log, counts = measured["metrics"], measured["log"], measured["counts"]
    before, after = fifth(measured["memory"], 1), fifth(measured["memory"], 4)
    growth = (after - before) / before * 100
    checks.add(f"memory changes by at most {args.growth_max:g} %", abs(growth) <= args.growth_max,
               f"{before / 2**20:.1f} MiB, then {after / 2**20:.1f} MiB ({growth:+.2f} %)")
    pool = int(metrics["edgeward_origin_connections"])
    left = measured["descriptors_end"] - measured["descriptors_start"]
    checks.add("no descriptor is left open", left <= pool and metrics["edgeward_client_connections"] == 0,
               f"{measured['descriptors_start']} at the start, {left:+d} at the end, {pool} idle connections to origins")
    outcomes = sums(metrics, "edgeward_requests_total", "outcome")
    responses = sums(metrics, "edgeward_responses_total", "status")
    classes = collections.Counter()
    for status, count in responses.items():
        classes[int(status[0])] += count
    requests, durations = sum(outcomes.values()), sums(metrics, "edgeward_request_duration_seconds_count", "site")
    checks.add("requests = responses = durations", requests == sum(classes.values()) == sum(durations.values()),
               f"{requests} = {sum(classes.values())} = {sum(durations.values())}")
    dropped = int(metrics["edgeward_access_log_dropped_total"] + metrics["edgeward_access_log_lost_total"])
    checks.add("the access log has a line for each request", (log.lines, log.malformed, dropped) == (requests, 0, 0),
               f"{log.lines} lines, {log.malformed} malformed, {dropped} dropped")
    checks.add("log and metrics have the same outcomes", dict(log.outcomes) == outcomes,
               " ".join(f"{key}={value}" for key, value in sorted(outcomes.items()))
               if dict(log.outcomes) == outcomes else f"log {dict(log.outcomes)}, metrics {outcomes}")
    checks.add("log and metrics have the same statuses", dict(log.statuses) == dict(classes),
               " ".join(f"{key}xx={value}" for key, value in sorted(classes.items())))
    counted = int(metrics["edgeward_response_bytes_total"])
    ended = sum(sums(metrics, "edgeward_response_body_bytes_total", "site").values())
    checks.add("log and metrics have the same bytes", log.bytes == counted == ended,
               f"log {log.bytes}, sent {counted}, of ended responses {ended}")
    asked = sum(counts[kind] for kind in client.MIX) + counts["extra requests"]
    checks.add("every body is verified", counts["wrong"] == 0 and counts["bodies"] > 0,
               f"{counts['bodies']} bodies and {counts['echoes']} echoes of {asked} requests, {counts['wrong']} wrong")
    checks.add("no response is lost", counts["failed"] == 0, f"{counts['failed']} failed")
    checks.add("the edge refuses less than 1 % of requests", counts["refused"] < asked / 100, counts["refused"])
    kinds = [*client.MIX, "compressed", "echoes"]
    checks.add("all kinds of traffic occurred", all(counts[kind] for kind in kinds),
               " ".join(f"{kind}={counts[kind]}" for kind in kinds))
    checks.add("all purges and log rotations succeeded", measured["purges"] and not measured["errors"],
               f"{measured['purges']} purges " + " ".join(measured["errors"][:3]))
    applied = int(metrics['edgeward_reloads_total{result="applied"}'])
    refused = int(metrics['edgeward_reloads_total{result="refused"}'])
    checks.add("all reloads were applied", (applied, refused) == (measured["reloads"], 0),
               f"{applied} of {measured['reloads']}, {refused} refused")
    labels = int(metrics['edgeward_metric_labels{label="site"}'])
    sites = len(client.HOSTS) + 1 + edge.generation % 2
    checks.add("removed sites leave no label", labels == sites, f"{labels} labels of {sites} sites")
    panics = sum(sums(metrics, "edgeward_panics_total", "task").values())
    stuck = int(metrics["edgeward_workers_stuck_total"])
    lines = [line for line in edge.messages.read_text(errors="replace").splitlines()
             if re.search(r"panic|stuck|watchdog|\"level\":\"ERROR\"", line, re.I)]
    checks.add("no panic, no stuck worker, no error", not panics and not stuck and not lines,
               f"{panics} panics, {stuck} stuck, {len(lines)} messages" + "".join(f"\n      {line}" for line in lines[:5]))
    checks.add("the edge ends with 0", measured["exit"] == 0, measured["exit"])


def main():
    args = arguments()
    out = args.out or pathlib.Path(__file__).parents[1] / "scratch" / "soak" / "result.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = args.folder or tempfile.mkdtemp(prefix="edgeward-soak-")
    receive, send = multiprocessing.Pipe(False)
    origins = multiprocessing.Process(target=origin.run, args=(send,), daemon=True)
    origins.start()
    edge = Edge(args.edgeward, folder, receive.recv(), args.hot, args.disk)
    try:
        passed = soak(args, edge, out)
    finally:
        edge.process.kill()
        edge.process.wait()
        origins.kill()
        if not args.folder:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if passed else 1


def soak(args, edge, out):
    seconds = args.minutes * 60
    # The same traffic before the measurement: threads, tables and freed memory of each size reach their final extent.
    warm_up = min(300, max(20, seconds / 4))
    edge.metrics()
    measured = {"descriptors_start": steady(edge.descriptors)}
    clients = []
    for n in range(args.processes):
        ours, theirs = multiprocessing.Pipe()
        parameters = (edge.port, args.seed * 1000 + n, args.connections, theirs)
        process = multiprocessing.Process(target=client.run, args=parameters, daemon=True)
        process.start()
        clients.append((process, ours))

    def ask(command):
        for _, pipe in clients:
            pipe.send(command)
        return [pipe.recv() for _, pipe in clients]

    began = time.monotonic()
    # Objects of about 9 KiB. Memory is full after 120 objects per MiB. Its tables, and the allocator's pages of each size,
    # reach their final extent after 2000 objects per MiB.
    fill = args.fill or args.hot * 2500
    done, chunk = 0, 2000
    while done < fill and time.monotonic() - began < max(120, seconds / 4):
        done += sum(ask(("fill", chunk // args.processes)))
    metrics = edge.metrics()
    used = metrics["edgeward_hot_used_bytes"] / metrics["edgeward_hot_capacity_bytes"]
    print(f"filled: {done} new objects in {time.monotonic() - began:.0f} s, memory {used:.0%} full", flush=True)
    capacity = sum(ask(("calibrate", min(10, max(3, seconds / 20)))))
    rate = args.rate or capacity * LOAD_SHARE
    print(f"capacity: {capacity:.0f} requests/s; sending {rate:.0f} requests/s for {warm_up:.0f} + {seconds:.0f} s", flush=True)

    log = LogCounts()
    disturbances = Disturbances(edge, log, period=min(40, seconds / 6))
    disturbances.start()
    for _, pipe in clients:
        pipe.send(("run", rate / args.processes, warm_up + seconds))
    time.sleep(warm_up)
    memory = sample_memory(edge, seconds)
    results = [pipe.recv() for _, pipe in clients]
    disturbances.end()
    for process, _ in clients:
        process.join()

    counts, examples = collections.Counter(), []
    for result, some in results:
        counts.update(result)
        examples += some
    at_rest(edge)
    measured["descriptors_end"] = steady(edge.descriptors)
    metrics = edge.metrics()
    measured.update(
        metrics=metrics, counts=counts, memory=memory, log=log,
        reloads=disturbances.reloads, purges=disturbances.purges, errors=disturbances.errors)
    edge.process.send_signal(signal.SIGTERM)
    measured["exit"] = edge.process.wait(timeout=60)
    log.add(edge.log)
    checks = Checks()
    check_all(checks, edge, args, measured)
    passed = checks.show()
    for example in examples[:10]:
        print("      " + example)
    if counts["late"]:
        print(f"      {counts['late']} requests were not sent in time: the machine was slower than in the calibration")
    result = {
        "passed": passed, "minutes": args.minutes, "rate": rate, "capacity": capacity, "checks": checks.rows,
        "counts": counts, "examples": examples, "memory": memory,
        "log": {"lines": log.lines, "bytes": log.bytes, "outcomes": log.outcomes},
        "metrics": metrics, "argv": sys.argv[1:], "cpus": os.cpu_count(),
    }
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written: {out}")
    return passed


if __name__ == "__main__":
    sys.exit(main())
