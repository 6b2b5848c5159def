"""Changes an edge while clients use it, and counts what they lose.

    lifecycle.py prepare SITES                                                 writes the first files, to this folder
    lifecycle.py change SITES DIR EDGEWARD PORT HTTPS ADMIN CHANGES PAUSE
"""
import asyncio
import collections
import json
import os
import pathlib
import re
import signal
import ssl
import statistics
import subprocess
import sys
import time

from http1 import Connection

TARGET = "/b/1000/hot"
DRAIN_SECONDS = 5
WEBSOCKETS = 20
# An upgrade of this configuration takes a tenth of a second.
UPGRADE_SECONDS_MAX = 0.5
LINE = re.compile(rb'"time":"[^"]*T(\d\d):(\d\d):(\d\d)\.(\d)[^}]*"target":"[^"]*","protocol":"([^"]*)","status":(\d+)')
# Each tenth change is an upgrade; of the others, most are reloads.
KINDS = ["reload", "certificate", "rename", "reload", "refused", "reload", "logrotate", "reload", "certificate", "upgrade"]


def replace(path, text):
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


class Files:
    def __init__(self, folder, sites):
        self.folder, self.sites, self.log = folder, sites, folder / "access.log"

    def write_config(self, generation, error=""):
        sites = (f'\n[[site]]\nhosts = ["s{n}.example"]\ndefault_ttl = "{1 + (generation + n) % 50}min"\n'
                 for n in range(1, self.sites))
        base = (self.folder / "base.toml").read_text().replace("GENERATION", str(generation))
        replace(self.folder / "edge.toml", f"{error}\n{base}{''.join(sites)}")

    def new_certificate(self):
        """Replaces the certificate and its key, one file after the other, as tools do. Returns the certificate."""
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-days", "30", "-subj", "/CN=localhost", "-keyout", self.folder / "new-key",
                        "-out", self.folder / "new-certificate"], check=True, capture_output=True)
        (self.folder / "new-key").rename(self.folder / "key.pem")
        (self.folder / "new-certificate").rename(self.folder / "certificate.pem")
        return (self.folder / "certificate.pem").read_text().strip()

    def write_logrotate_rules(self):
        """Writes the packaged rules, for this log and without systemd."""
        packaged = pathlib.Path(__file__).parents[2] / "packaging" / "edgeward.logrotate"
        rules = packaged.read_text().replace("/var/log/edgeward/access.log", f'"{self.log}"')
        # The check of lost lines needs all files.
        rules = rules.replace("rotate 14", "rotate 1000")
        rules = re.sub("systemctl kill --signal=USR1 edgeward", f'kill -USR1 "$(cat {self.folder}/pid)"', rules)
        (self.folder / "logrotate.conf").write_text(rules)

    def pid(self):
        return int((self.folder / "pid").read_text())


def wait_until(law, condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"not within {seconds} s: {law}")
        time.sleep(0.02)


class Changes:
    """Makes the changes, and remembers when each one began and ended."""

    def __init__(self, files, edgeward, port, https, admin):
        self.files, self.edgeward, self.port, self.https, self.admin = files, edgeward, port, https, admin
        self.generation, self.times, self.failed = 0, [], []
        self.upgraded = []  # times on the monotonic clock

    def make(self, kind, number):
        begun = time.time()
        try:
            getattr(self, kind)(number)
        except (RuntimeError, OSError, subprocess.SubprocessError, ValueError) as error:
            self.failed.append(f"{kind} {number}: {error}")
        self.times.append((kind, begun, time.time()))

    def command(self, name, code=0, message=""):
        token = self.files.folder / "token"
        done = subprocess.run([self.edgeward, name, "--admin", f"127.0.0.1:{self.admin}", "--token-file", token],
                              capture_output=True, text=True)
        if done.returncode != code or message not in done.stderr:
            raise RuntimeError(f"exit code {done.returncode}: {done.stderr}")

    def check_generation(self):
        url = f"http://127.0.0.1:{self.port}{TARGET}"
        answer = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code} %header{x-generation}", url],
                                capture_output=True, text=True).stdout
        if answer.split() != ["200", str(self.generation)]:
            raise RuntimeError(f"the edge serves {answer}, not generation {self.generation}")

    def reload(self, number):
        self.generation = number
        self.files.write_config(number)
        self.command("reload")
        self.check_generation()

    def refused(self, number):
        self.files.write_config(number, error="[no-such-table]")
        self.command("reload", code=2, message="no-such-table")
        self.files.write_config(self.generation)
        self.check_generation()

    def certificate(self, _):
        new = self.files.new_certificate()
        wait_until("new connections get the new certificate",
                   lambda: ssl.get_server_certificate(("127.0.0.1", self.https)).strip() == new)

    def rename(self, number):
        self.files.log.rename(self.files.folder / f"renamed-{number}.log")
        os.kill(self.files.pid(), signal.SIGUSR1)
        wait_until("the edge opens a new log", self.files.log.exists)

    def logrotate(self, _):
        folder = self.files.folder
        subprocess.run(["logrotate", "--force", "--state", folder / "logrotate.state", folder / "logrotate.conf"],
                       check=True, capture_output=True)

    def upgrade(self, _):
        before = self.files.pid()
        self.upgraded.append(time.monotonic())
        self.command("upgrade")
        wait_until("the file has another process id", lambda: self.files.pid() != before)


class Clients:
    """h2load and WebSockets, until `is_over`."""

    def __init__(self, port, https):
        self.port, self.https, self.is_over = port, https, False
        self.counts, self.dropped = collections.Counter(echoes=0, echoes_wrong=0), []

    async def h2load(self):
        """Runs h2load again and again, because it does not connect again after GOAWAY."""
        while not self.is_over:
            url = f"https://127.0.0.1:{self.https}{TARGET}"
            run = await asyncio.create_subprocess_exec("h2load", "-c2", "-m8", "-n100000", url,
                                                       stdout=asyncio.subprocess.PIPE)
            output = (await run.communicate())[0].decode()
            self.counts["h2load_requests"] += int(re.search(r"(\d+) succeeded", output)[1])

    async def websocket(self):
        """Echoes a message every 0.1 s, on a new connection if the edge has ended the one before."""
        while not self.is_over:
            opened = time.monotonic()
            try:
                async with Connection(self.port) as connection:
                    self.counts["echoes_wrong"] += await connection.upgrade() != 101
                    while not self.is_over:
                        self.counts["echoes" if await connection.echo() else "echoes_wrong"] += 1
                        await asyncio.sleep(0.1)
            except (ConnectionError, asyncio.IncompleteReadError):
                self.dropped.append((opened, time.monotonic()))

    def dropped_early(self, upgraded):
        """Returns the number of connections that ended before the drain timeout of the process that served them."""
        def is_drained(opened, ended):
            # The first upgrade after the start of a connection is that of its process. The old process accepts until the
            # new one runs, so the upgrade may have begun before.
            begun = [upgrade for upgrade in upgraded if opened - UPGRADE_SECONDS_MAX < upgrade < ended]
            return bool(begun) and ended - begun[0] >= DRAIN_SECONDS - 0.5
        return sum(not is_drained(opened, ended) for opened, ended in self.dropped)


def read_logs(files):
    """Counts the lines by protocol and by the tenth of a second of the request, and those without success."""
    protocols, tenths, errors = collections.Counter(), collections.Counter(), 0
    for path in [*files.folder.glob("access.log*"), *files.folder.glob("renamed-*.log")]:
        with subprocess.Popen(["zcat", "-f", path], stdout=subprocess.PIPE) as opened:
            for line in opened.stdout:
                found = LINE.search(line)
                errors += found is None or found[6] not in (b"101", b"200")
                if found:
                    hour, minute, second, tenth = (int(text) for text in found.groups()[:4])
                    tenths[((hour * 60 + minute) * 60 + second) * 10 + tenth] += 1
                    protocols[found[5]] += 1
    return protocols, tenths, errors


def during(tenths, times, first, last):
    """Returns the median and the least of the requests per 0.1 s, without a change and for each kind of change."""
    def tenth(moment):
        return int(moment % 86400 * 10)
    kinds = {one: kind for kind, begun, ended in times for one in range(tenth(begun), tenth(ended) + 1)}
    counts = collections.defaultdict(list)
    for one in range(tenth(first), tenth(last)):
        counts[kinds.get(one, "nothing")].append(tenths[one])
    return {kind: {"median": statistics.median(some), "least": min(some)} for kind, some in counts.items()}


async def change(files, edgeward, port, https, admin, count, pause):
    wrk = await asyncio.create_subprocess_exec("wrk", "-t1", "-c16", "-d3600", f"http://127.0.0.1:{port}{TARGET}",
                                               stdout=asyncio.subprocess.PIPE)
    clients, changes = Clients(port, https), Changes(files, edgeward, port, https, admin)
    running = [clients.h2load(), *(clients.websocket() for _ in range(WEBSOCKETS))]
    running = asyncio.gather(*running)
    await asyncio.sleep(2)
    first = time.time()
    for number in range(1, count + 1):
        await asyncio.to_thread(changes.make, KINDS[(number - 1) % len(KINDS)], number)
        await asyncio.sleep(pause)
    last = time.time()
    clients.is_over = True
    await running
    wrk.send_signal(signal.SIGINT)
    printed = (await wrk.communicate())[0].decode()
    os.kill(files.pid(), signal.SIGTERM)
    wait_until("the edge ends", lambda: not (files.folder / "pid").exists(), 60)
    time.sleep(DRAIN_SECONDS)  # earlier processes may still drain
    protocols, tenths, errors = read_logs(files)
    requests = int(re.search(r"(\d+) requests in", printed)[1])
    print("\n".join(changes.failed), file=sys.stderr)
    print(json.dumps(clients.counts | {
        "changes": len(changes.times), "changes_failed": len(changes.failed), "wrk_requests": requests,
        "wrk_errors": len(re.findall("Socket errors:|Non-2xx", printed)),
        "h2load_lost": abs(protocols[b"HTTP/2.0"] - clients.counts["h2load_requests"]),
        "websockets_dropped": clients.dropped_early(changes.upgraded),
        "log_lines_beyond_wrk": protocols[b"HTTP/1.1"] - requests, "log_errors": errors,
        "panics": (files.folder / "lab-output.log").read_text(errors="replace").count("panic"),
        "during": during(tenths, changes.times, first, last),
    }))
    return 1 if changes.failed else 0


if sys.argv[1] == "prepare":
    own = Files(pathlib.Path.cwd(), int(sys.argv[2]))
    own.write_config(0)
    own.new_certificate()
    own.write_logrotate_rules()
else:
    sites, folder, program, *ports, number, wait = sys.argv[2:]
    own = Files(pathlib.Path(folder), int(sites))
    sys.exit(asyncio.run(change(own, program, *map(int, ports), int(number), float(wait))))
