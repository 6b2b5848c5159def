#!/usr/bin/env python3
"""Changes an edge 200 times while clients use it, and checks that no request and no connection is lost.

    bench/lifecycle/run.py target/release/edgeward [--changes 200] [--sites 1000] [--out FILE]

The changes are reloads, new certificates, rotations of the access log (by renaming and by logrotate) and upgrades of
the program; files with an error are offered in between. The clients are wrk, h2load and WebSockets.

Prints a table of checks, and writes it with all measurements as JSON. Exit code 1: a check has failed.
"""
import argparse
import asyncio
import base64
import collections
import contextlib
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "soak"))
import origin  # noqa: E402

TARGET = "/b/1000/hot"
DRAIN_SECONDS = 5
WEBSOCKETS = 20
# An upgrade of this configuration takes a tenth of a second.
UPGRADE_SECONDS_MAX = 0.5
LINE = re.compile(rb'"time":"[^"]*T(\d\d):(\d\d):(\d\d)\.(\d)[^}]*"target":"[^"]*","protocol":"([^"]*)","status":(\d+)')
# Each tenth change is an upgrade; of the others, most are reloads.
KINDS = ["reload", "certificate", "rename", "reload", "refused", "reload", "logrotate", "reload", "certificate", "upgrade"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("edgeward", help="the program")
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--sites", type=int, default=1000)
    parser.add_argument("--pause", type=float, default=0.3, help="seconds between two changes")
    parser.add_argument("--out", type=pathlib.Path, help="the JSON file (default: bench/scratch/lifecycle/result.json)")
    return parser.parse_args()


class Edge:
    def __init__(self, program, folder, origin_port, sites):
        self.program, self.folder = program, pathlib.Path(folder)
        self.origin_port, self.sites, self.generation = origin_port, sites, 0
        self.config, self.log = self.folder / "edge.toml", self.folder / "access.log"
        (self.folder / "token").write_text("0123456789abcdef0123456789abcdef")
        (self.folder / "logrotate.conf").write_text(logrotate_rules(self.log, self.folder / "pid"))
        self.plain, self.tls, admin = free_ports(3)
        self.admin = f"127.0.0.1:{admin}"
        self.certificate = None
        self.new_certificate()
        self.write_config()
        self.messages = open(self.folder / "messages.log", "wb")
        self.process = subprocess.Popen([program, "serve", "--json", f"--config={self.config}"],
                                        stdout=subprocess.PIPE, stderr=self.messages, text=True)
        self.process.stdout.readline()  # the edge accepts connections

    def write_config(self, error=""):
        folder, generation = self.folder, self.generation
        text = f"""{error}
[[listener]]
address = "127.0.0.1:{self.plain}"

[[listener]]
address = "127.0.0.1:{self.tls}"
tls_certificates = "{folder}/certificate.pem"
tls_key = "{folder}/key.pem"

[origin]
url = "http://127.0.0.1:{self.origin_port}"
client_share_percent = 100

[hot]
capacity = "64MiB"

[forwarding]
upgrades = "websocket"

[admin]
address = "{self.admin}"

[purge]
token_file = "{folder}/token"

[access_log]
path = "{self.log}"
queue_lines_max = 65536

[server]
pid_file = "{folder}/pid"
drain_timeout = "{DRAIN_SECONDS}s"
certificate_interval = "100ms"

[[site]]
hosts = "*"

[[site.rule]]
path = "/b/*"
response.set.X-Generation = "{generation}"
"""
        for n in range(1, self.sites):
            text += f'\n[[site]]\nhosts = ["s{n}.example"]\ndefault_ttl = "{1 + (generation + n) % 50}min"\n'
        replace(self.config, text)

    def new_certificate(self):
        """Replaces the certificate and its key, one file after the other, as tools do."""
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-days", "30", "-subj", "/CN=localhost", "-keyout", self.folder / "new-key",
                        "-out", self.folder / "new-certificate"], check=True, capture_output=True)
        (self.folder / "new-key").rename(self.folder / "key.pem")
        (self.folder / "new-certificate").rename(self.folder / "certificate.pem")
        self.certificate = (self.folder / "certificate.pem").read_text().strip()

    def kill(self):
        """Ends the newest process if it still runs. The processes before it end by their drain timeout."""
        if (self.folder / "pid").exists():
            os.kill(self.pid(), signal.SIGKILL)

    def pid(self):
        return int((self.folder / "pid").read_text())

    def command(self, name):
        return subprocess.run([self.program, name, "--admin", self.admin, "--token-file", self.folder / "token"],
                              capture_output=True, text=True)

    def get(self):
        """Returns the status and the value of X-Generation."""
        answer = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code} %header{x-generation}",
                                 f"http://127.0.0.1:{self.plain}{TARGET}"], capture_output=True, text=True)
        return answer.stdout.split()

    def served_certificate(self):
        return ssl.get_server_certificate(("127.0.0.1", self.tls)).strip()


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def logrotate_rules(log, pid_file):
    """Returns the packaged rules, for this log and without systemd."""
    packaged = pathlib.Path(__file__).parents[2] / "packaging" / "edgeward.logrotate"
    rules = packaged.read_text().replace("/var/log/edgeward/access.log", f'"{log}"')
    # The check of lost lines needs all files.
    rules = rules.replace("rotate 14", "rotate 1000")
    return re.sub(r"systemctl kill --signal=USR1 edgeward", f'kill -USR1 "$(cat {pid_file})"', rules)


def replace(path, text):
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def wait_until(law, condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"not within {seconds} s: {law}")
        time.sleep(0.02)


class Changes:
    """Makes the changes, and remembers when each one began and ended."""

    def __init__(self, edge):
        self.edge, self.counts, self.times, self.failed = edge, collections.Counter(), [], []
        self.upgraded = []  # times on the monotonic clock

    def make(self, kind, number):
        begun = time.time()
        try:
            getattr(self, kind)(number)
        except (RuntimeError, OSError, subprocess.SubprocessError, ValueError) as error:
            self.failed.append(f"{kind} {number}: {error}")
        self.counts[kind] += 1
        self.times.append((kind, begun, time.time()))

    def reload(self, number):
        self.edge.generation = number
        self.edge.write_config()
        done = self.edge.command("reload")
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        if self.edge.get() != ["200", str(number)]:
            raise RuntimeError(f"the edge serves {self.edge.get()}")

    def refused(self, number):
        self.edge.write_config(error="[no-such-table]")
        done = self.edge.command("reload")
        self.edge.write_config()
        if done.returncode != 2 or "no-such-table" not in done.stderr:
            raise RuntimeError(f"exit code {done.returncode}: {done.stderr}")
        if self.edge.get() != ["200", str(self.edge.generation)]:
            raise RuntimeError("a refused file has changed a setting")

    def certificate(self, _):
        self.edge.new_certificate()
        wait_until("new connections get the new certificate",
                   lambda: self.edge.served_certificate() == self.edge.certificate)

    def rename(self, number):
        self.edge.log.rename(self.edge.log.with_name(f"renamed-{number}.log"))
        os.kill(self.edge.pid(), signal.SIGUSR1)
        wait_until("the edge opens a new log", self.edge.log.exists)

    def logrotate(self, _):
        state = self.edge.folder / "logrotate.state"
        subprocess.run(["logrotate", "--force", "--state", state, self.edge.folder / "logrotate.conf"],
                       check=True, capture_output=True)

    def upgrade(self, _):
        before = self.edge.pid()
        self.upgraded.append(time.monotonic())
        done = self.edge.command("upgrade")
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        wait_until("the file has another process id", lambda: self.edge.pid() != before)


class WebSockets:
    """Connections that echo one message every 0.1 s, in a thread."""

    def __init__(self, port):
        self.port, self.counts, self.dropped, self.over = port, collections.Counter(), [], False
        self.thread = threading.Thread(target=lambda: asyncio.run(self.run()))
        self.thread.start()

    async def run(self):
        await asyncio.gather(*(self.keep_one() for _ in range(WEBSOCKETS)))

    async def keep_one(self):
        while not self.over:
            writer, opened = None, time.monotonic()
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                await self.use(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                self.dropped.append((opened, time.monotonic(), repr(error)))
            finally:
                if writer is not None:
                    writer.close()

    async def use(self, reader, writer):
        key = base64.b64encode(os.urandom(16))
        writer.write(b"GET /echo HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                     b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + b"\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101") or origin.accept_of(key) not in head:
            self.counts["refused"] += 1
            return
        self.counts["connections"] += 1
        while not self.over:
            text, mask = os.urandom(20).hex().encode(), os.urandom(4)
            masked = bytes(b ^ mask[k % 4] for k, b in enumerate(text))
            writer.write(bytes([0x81, 0x80 | len(text)]) + mask + masked)
            echo = await reader.readexactly(2 + len(text))
            self.counts["echoes" if echo[2:] == text else "wrong"] += 1
            await asyncio.sleep(0.1)

    def end(self, upgraded):
        """Ends the connections. Returns those that ended before the drain timeout of the process that served them."""
        self.over = True
        self.thread.join()

        def is_drained(opened, ended):
            # The first upgrade after the start of a connection is that of its process. The old process accepts until the
            # new one runs, so the upgrade may have begun before.
            begun = [upgrade for upgrade in upgraded if opened - UPGRADE_SECONDS_MAX < upgrade < ended]
            return bool(begun) and ended - begun[0] >= DRAIN_SECONDS - 0.5
        return [(ended - opened, reason) for opened, ended, reason in self.dropped if not is_drained(opened, ended)]


class H2load:
    """Runs of h2load, one after the other: h2load does not connect again after GOAWAY.

    It counts the rest of a run as failed, although it does not send it. So the log shows if a request was lost: each
    request that the edge got must have succeeded."""

    def __init__(self, url):
        self.url, self.over, self.counts = url, False, collections.Counter()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.over:
            done = subprocess.run(["h2load", "-c2", "-m8", "-n100000", self.url], capture_output=True, text=True).stdout
            self.counts["succeeded"] += int(re.search(r"(\d+) succeeded", done)[1])
            self.counts["runs"] += 1

    def end(self):
        self.over = True
        self.thread.join()


def read_logs(edge):
    """Counts the lines by protocol, by status, and by the tenth of a second of the request."""
    protocols, statuses, tenths = (collections.Counter() for _ in range(3))
    for path in [*edge.folder.glob("access.log*"), *edge.folder.glob("renamed-*.log")]:
        opened = subprocess.Popen(["zcat", "-f", path], stdout=subprocess.PIPE)
        for line in opened.stdout:
            found = LINE.search(line)
            if found is None:
                statuses["unreadable"] += 1
                continue
            hour, minute, second, tenth, protocol, status = found.groups()
            protocols[protocol.decode()] += 1
            statuses[status.decode()] += 1
            tenths[((int(hour) * 60 + int(minute)) * 60 + int(second)) * 10 + int(tenth)] += 1
        opened.wait()
    return protocols, statuses, tenths


def dips(tenths, times, first, last):
    """Returns the median of the requests per 0.1 s without a change, and for each kind of change the median and the
    smallest count while it is made."""
    def tenth(moment):
        return int(moment % 86400 * 10)
    during = {}
    for kind, begun, ended in times:
        for one in range(tenth(begun), tenth(ended) + 1):
            during[one] = kind
    counts = collections.defaultdict(list)
    for one in range(tenth(first), tenth(last)):
        counts[during.get(one, "nothing")].append(tenths[one])
    return {kind: {"median": statistics.median(some), "smallest": min(some), "tenths": len(some)}
            for kind, some in sorted(counts.items())}


def main():
    args = arguments()
    out = args.out or pathlib.Path("bench/scratch/lifecycle/result.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    for program in ["wrk", "h2load", "logrotate", "openssl", "curl"]:
        if shutil.which(program) is None:
            sys.exit(f"{program} is not installed\n  hint: apt-get install wrk nghttp2-client logrotate openssl curl")
    receive, send = multiprocessing.Pipe(False)
    origins = multiprocessing.Process(target=origin.run, args=(send,), daemon=True)
    origins.start()
    with contextlib.ExitStack() as cleanup:
        folder = cleanup.enter_context(tempfile.TemporaryDirectory())
        os.chmod(folder, 0o755)
        edge = Edge(os.path.abspath(args.edgeward), folder, receive.recv()[0], args.sites)
        cleanup.callback(edge.kill)
        edge.get()
        wrk = subprocess.Popen(["wrk", "-t1", "-c16", "-d3600", f"http://127.0.0.1:{edge.plain}{TARGET}"],
                               stdout=subprocess.PIPE, text=True)
        cleanup.callback(wrk.kill)
        h2load = H2load(f"https://127.0.0.1:{edge.tls}{TARGET}")
        websockets = WebSockets(edge.plain)
        changes = Changes(edge)
        time.sleep(2)
        first = time.time()
        for number in range(1, args.changes + 1):
            changes.make(KINDS[(number - 1) % len(KINDS)], number)
            if sys.stderr.isatty() or number % 50 == 0:
                print(f"{number} of {args.changes} changes", file=sys.stderr)
            time.sleep(args.pause)
        last = time.time()
        h2load.end()
        dropped = websockets.end(changes.upgraded)
        wrk.send_signal(signal.SIGINT)
        printed = wrk.communicate()[0]
        os.kill(edge.pid(), signal.SIGTERM)
        wait_until("the edge ends", lambda: not (edge.folder / "pid").exists(), 60)
        time.sleep(DRAIN_SECONDS)  # earlier processes may still drain
        protocols, statuses, tenths = read_logs(edge)
        messages = (edge.folder / "messages.log").read_text(errors="replace")
    requests = int(re.search(r"(\d+) requests in", printed)[1])
    socket_errors = re.search(r"Socket errors: (.*)", printed)
    not_2xx = re.search(r"Non-2xx or 3xx responses: (\d+)", printed)
    rows = []

    def check(name, passed, measured):
        rows.append({"check": name, "passed": bool(passed), "measured": measured})
    check("every change is made", not changes.failed, f"{sum(changes.counts.values())}: {dict(changes.counts)}")
    check("wrk: no socket error, only 2xx", socket_errors is None and not_2xx is None,
          f"{requests} requests, {socket_errors[1] if socket_errors else 'no error'}")
    check("h2load: no request of the log failed", protocols["HTTP/2.0"] == h2load.counts["succeeded"],
          f"{dict(h2load.counts)}, {protocols['HTTP/2.0']} lines")
    check("WebSocket: no echo lost", websockets.counts["wrong"] == websockets.counts["refused"] == 0,
          dict(websockets.counts))
    check("WebSocket: no connection ends before the drain timeout", not dropped,
          f"{len(websockets.dropped)} ended by drains, {len(dropped)} others {dropped[:3]}")
    # A client that is stopped does not count its last requests.
    check("the log has each request of wrk", requests <= protocols["HTTP/1.1"] <= requests + 1000,
          f"{requests} answered, {protocols['HTTP/1.1']} lines")
    check("the log has no error", set(statuses) <= {"101", "200"}, dict(statuses))
    check("no panic", "panic" not in messages, f"{messages.count(chr(10))} messages")
    width = max(len(row["check"]) for row in rows)
    for row in rows:
        print(f"{'ok  ' if row['passed'] else 'FAIL'}  {row['check']:<{width}}  {row['measured']}")
    for failure in changes.failed[:10]:
        print("      " + failure.strip())
    served = dips(tenths, changes.times, first, last)
    print("\nrequests per 0.1 s, while      median  smallest  of tenths")
    for kind, some in served.items():
        print(f"{kind:<28} {some['median']:>8.0f} {some['smallest']:>9} {some['tenths']:>10}")
    took = collections.defaultdict(list)
    for kind, begun, ended in changes.times:
        took[kind].append(ended - begun)
    result = {
        "passed": all(row["passed"] for row in rows), "checks": rows, "requests_per_tenth": served,
        "median_seconds": {kind: statistics.median(some) for kind, some in took.items()},
        "failed": changes.failed, "argv": sys.argv[1:], "cpus": os.cpu_count(),
    }
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written: {out}")
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
