"""Sends mixed traffic to an edge for a long time, and measures if it loses something or grows.

    soak.py prepare                                  writes the first configuration, to this folder
    soak.py run PORT ADMIN DIR MINUTES FILL RATE
"""
import asyncio
import collections
import json
import os
import pathlib
import re
import signal
import statistics
import sys
import time
import urllib.request

from clients import HOSTS, MIX, Load
from http1 import metrics, resident_bytes

LINE = re.compile(rb'"status":(\d+),"bytes":(\d+),"duration_us":\d+,"cache":"([a-z-]+)"')
ALARM = re.compile(r'panic|stuck|watchdog|"level":"ERROR"', re.I)
LOAD_SHARE = 2 / 3


def write_config(folder, generation):
    """Writes the configuration. Each generation has another rule, and every other one a further site."""
    text = (folder / "base.toml").read_text()
    text += f'\n[[site.rule]]\npath = "/b/*"\nresponse.set.X-Generation = "{generation}"\n'
    if generation % 2:
        text += f'\n[[site]]\nhosts = ["generation-{generation}.example"]\norigin = "good"\n'
    # A reload must never read a part of the file.
    new = folder / "edge.toml.new"
    new.write_text(text)
    new.rename(folder / "edge.toml")


class Edge:
    def __init__(self, admin, folder):
        self.admin, self.folder, self.log = admin, folder, folder / "access.log"
        self.pid = int((folder / "pid").read_text())
        self.generation = self.purges = 0
        self.errors = []
        self.lines, self.logged_bytes = collections.Counter(), 0
        self.outcomes, self.statuses = collections.Counter(), collections.Counter()

    def purge(self, body):
        token = (self.folder / "token").read_text().strip()
        request = urllib.request.Request(f"http://127.0.0.1:{self.admin}/purge", json.dumps(body).encode(),
                                         {"Authorization": "Bearer " + token})
        self.purges += json.load(urllib.request.urlopen(request, timeout=30))["accepted"]

    def reload(self):
        self.generation += 1
        write_config(self.folder, self.generation)
        os.kill(self.pid, signal.SIGHUP)

    def rotate(self):
        """Renames the log and reopens it, as logrotate does, and counts the old file when the edge has left it."""
        old = self.log.with_suffix(".old")
        self.log.rename(old)
        os.kill(self.pid, signal.SIGUSR1)
        deadline = time.monotonic() + 30
        while not self.log.exists():
            if time.monotonic() > deadline:
                raise RuntimeError("the edge has not reopened its log")
            time.sleep(0.05)
        time.sleep(0.5)
        self.count_lines(old)

    def count_lines(self, path):
        with open(path, "rb") as log:
            for line in log:
                found = LINE.search(line)
                is_whole = found is not None and line.endswith(b"}\n")
                self.lines["whole" if is_whole else "malformed"] += 1
                if is_whole:
                    self.logged_bytes += int(found[2])
                    self.statuses[found[1][:1].decode()] += 1
                    self.outcomes[found[3].decode()] += 1
        path.unlink()

    async def disturb(self, period):
        """Purges, reloads and rotates the log again and again. One period has one reload."""
        step = 0
        while True:
            await asyncio.sleep(period / 4)
            bodies = [{"tags": [f"tag-{step % 7}"]}, {"prefixes": ["b.example/b/"], "soft": True},
                      {"urls": ["http://a.example/b/1048576/large/0"]}, {"patterns": ["*.example/t/*"]}]
            change = [self.reload, lambda: self.purge(bodies[step // 4 % 4]), self.rotate,
                      lambda: self.purge({"hosts": ["c.example"], "soft": True})][step % 4]
            try:
                await asyncio.shield(asyncio.to_thread(change))
            except Exception as error:
                self.errors.append(f"step {step}: {error!r}")
            step += 1

    def at_rest(self, seconds=60):
        """Waits until all clients' connections have ended, and returns the metrics."""
        deadline = time.monotonic() + seconds
        while True:
            values = metrics(self.admin)
            busy = [values["edgeward_client_connections"], values["edgeward_tunnels"], values["edgeward_fills"]]
            if not any(busy) or time.monotonic() > deadline:
                return values
            time.sleep(0.2)

    def descriptors(self, seconds=10):
        """Returns the number of open descriptors when it has been the same for a second: threads start one by one."""
        deadline, last, since = time.monotonic() + seconds, None, 0
        while last is None or time.monotonic() < min(deadline, since + 1):
            if (now := len(os.listdir(f"/proc/{self.pid}/fd"))) != last:
                last, since = now, time.monotonic()
            time.sleep(0.1)
        return last


def sums(values, name, label):
    """Returns the values of a metric by one label."""
    counts = collections.Counter()
    for series, value in values.items():
        if series.startswith(name + "{"):
            counts[re.search(rf'[{{,]{label}="([^"]*)"', series)[1]] += int(value)
    return +counts


def differences(ours, theirs):
    return sum(abs(ours[key] - theirs[key]) for key in ours.keys() | theirs.keys())


async def send(edge, load, seconds, fill, rate):
    """Sends all requests. Returns the rate and the resident memory at regular intervals."""
    # The same traffic before the measurement: threads, tables and freed memory of each size reach their final extent.
    warm_up = min(300, max(20, seconds / 4))
    await load.closed_loop(max(120, seconds / 4), fill, "miss")
    rate = rate or LOAD_SHARE * await load.closed_loop(min(10, max(3, seconds / 20)))
    disturbance = asyncio.create_task(edge.disturb(min(40, seconds / 6)))
    sending = asyncio.create_task(load.open_loop(rate, warm_up + seconds))
    await asyncio.sleep(warm_up)
    memory = []
    while not sending.done():
        memory.append(resident_bytes(edge.pid))
        await asyncio.sleep(min(2.0, seconds / 100))
    await sending
    disturbance.cancel()
    return rate, memory


def main(port, admin, folder, minutes, fill, rate):
    edge, load = Edge(int(admin), pathlib.Path(folder)), Load(int(port))
    metrics(admin)
    descriptors = edge.descriptors()
    rate, memory = asyncio.run(send(edge, load, float(minutes) * 60, int(fill), float(rate)))
    edge.at_rest()
    descriptors = edge.descriptors() - descriptors
    values, counts = metrics(admin), load.counts
    os.kill(edge.pid, signal.SIGTERM)
    while not (edge.folder / "exit").exists():
        time.sleep(0.1)
    edge.count_lines(edge.log)

    outcomes = sums(values, "edgeward_requests_total", "outcome")
    responses = collections.Counter()
    for status, count in sums(values, "edgeward_responses_total", "status").items():
        responses[status[0]] += count
    requests = sum(outcomes.values())
    durations = sum(sums(values, "edgeward_request_duration_seconds_count", "site").values())
    ended_bytes = sum(sums(values, "edgeward_response_body_bytes_total", "site").values())
    log_losses = values["edgeward_access_log_dropped_total"] + values["edgeward_access_log_lost_total"]
    log_bytes = [abs(edge.logged_bytes - sent) for sent in (values["edgeward_response_bytes_total"], ended_bytes)]
    reloads = [values[f'edgeward_reloads_total{{result="{result}"}}'] for result in ("applied", "refused")]
    part = len(memory) // 5
    before, after = (statistics.median(memory[n * part:(n + 1) * part]) for n in (1, 4))
    alarms = [line for line in (edge.folder / "lab-output.log").read_text(errors="replace").splitlines()
              if ALARM.search(line)]
    print("\n".join(edge.errors[:3] + alarms[:3] + load.examples[:3]), file=sys.stderr)
    print(json.dumps(dict.fromkeys(["wrong", "failed", "refused", "late"], 0) | counts | {
        "rate": rate, "requests": requests, "purges": edge.purges, "reloads": edge.generation,
        "memory_change_percent": (after - before) / before * 100,
        "descriptors_left": descriptors - values["edgeward_origin_connections"] + values["edgeward_client_connections"],
        "rarest": min(counts[kind] for kind in [*MIX, "compressed", "echoes", "bodies"]),
        "metrics_differ": abs(requests - responses.total()) + abs(requests - durations),
        "log_differs": differences(edge.outcomes, outcomes) + differences(edge.statuses, responses) + sum(log_bytes)
        + edge.lines["malformed"] + log_losses,
        "changes_failed": len(edge.errors) + abs(reloads[0] - edge.generation) + reloads[1],
        # The site of failing.example, and that of this generation.
        "labels_left": values['edgeward_metric_labels{label="site"}'] - (len(HOSTS) + 1 + edge.generation % 2),
        "alarms": len(alarms) + sum(sums(values, "edgeward_panics_total", "task").values())
        + values["edgeward_workers_stuck_total"],
        "exit_code": int((edge.folder / "exit").read_text()),
    }))
    return 1 if counts["wrong"] or counts["failed"] or edge.errors else 0


if sys.argv[1] == "prepare":
    write_config(pathlib.Path.cwd(), 0)
else:
    sys.exit(main(*sys.argv[2:]))
