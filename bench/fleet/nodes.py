"""The processes of a fleet on loopback: nodes, a server of NATS and an origin.

Addresses and ports are fixed, so they need a network namespace of their own. Each node has an address for its clients,
another one for its fleet, and a third one by which it reaches NATS: a rule of nftables can cut it off.
"""
import asyncio
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from http1 import Connection
from origin import Origin

HOST = b"bench.example"
CLIENT_PORT, PEER_PORT, ADMIN_PORT, NATS_PORT, ORIGIN_PORT = 8080, 7443, 9900, 4222, 9000
# The time within which an event happens on a busy machine. A law that limits a time measures it.
WAIT_SECONDS = 120


async def wait_until(law, condition, seconds=WAIT_SECONDS, pause=0.02):
    end = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > end:
            raise RuntimeError(f"not within {seconds} s: {law}")
        await asyncio.sleep(pause)


async def is_open(address, port):
    try:
        _, writer = await asyncio.open_connection(address, port)
    except OSError:
        return False
    writer.close()
    return True


class Process:
    def __init__(self, folder, name):
        self.folder, self.name, self.process = folder, name, None

    def spawn(self, *command):
        with open(self.folder / f"{self.name}.log", "ab") as log:
            self.process = subprocess.Popen([str(word) for word in command], cwd=self.folder, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)

    def send(self, number):
        os.kill(self.process.pid, number)

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def stop(self, number=signal.SIGKILL):
        """Sends a signal and waits for the end of the process."""
        if self.is_running():
            self.send(number)
            if number != signal.SIGKILL:
                self.process.wait(WAIT_SECONDS)
            self.process.wait()


class Nats(Process):
    def __init__(self, folder):
        super().__init__(folder, "nats")

    async def start(self):
        self.spawn("nats-server", "--addr", "0.0.0.0", "--port", NATS_PORT, "--jetstream",
                   "--store_dir", self.folder / "nats")
        await wait_until("nats-server accepts connections", lambda: is_open("127.0.0.1", NATS_PORT))


class SyntheticOrigin(Process):
    """`edgeward origin`, for loads that need no versions."""

    def __init__(self, folder, edgeward):
        super().__init__(folder, "origin")
        self.edgeward = edgeward

    async def start(self):
        self.spawn(self.edgeward, "origin", "--json", "--listen", f"127.0.0.1:{ORIGIN_PORT}")
        await wait_until("the origin accepts connections", lambda: is_open("127.0.0.1", ORIGIN_PORT))

    async def counts(self):
        async with Connection(ORIGIN_PORT) as connection:
            return json.loads((await connection.get(b"/status"))[2])


class Versions(Origin):
    """An origin in this process, whose bodies are the numbers of versions. Responses have a lifetime of an hour."""

    def __init__(self):
        super().__init__(None)
        self.versions, self.fetches = {}, 0

    async def start(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", ORIGIN_PORT, backlog=4096, limit=1 << 17)

    def stop(self):
        self.server.close()

    async def answer(self, method, target, fields, writer):
        body = b"%d" % self.versions.get(target, 1)
        self.fetches += 1
        writer.write(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nETag: \"%s\"\r\nContent-Length: %d\r\n\r\n%s"
                     % (body, len(body), body))
        await writer.drain()
        return True


class Node(Process):
    def __init__(self, fleet, number):
        super().__init__(fleet.folder, f"node-{number}")
        self.fleet, self.number = fleet, number
        self.address, self.peer_address = f"127.0.1.{number}", f"127.0.3.{number}"
        self.nats_address = f"127.0.2.{number}"
        # The members that the node knows by its configuration. Without any, the nodes announce themselves.
        self.members, self.origin = [], f"127.0.0.1:{ORIGIN_PORT}"
        self.hot, self.accepts = fleet.hot, False

    def write_config(self):
        fleet, text = self.fleet, []
        text.append(f'''
[[listener]]
address = "{self.address}:{CLIENT_PORT}"
[origin]
url = "http://{self.origin}"
[hot]
capacity = "{self.hot}"
[server]
name = "{self.name}"
workers = {fleet.workers}
# A machine that does other work must not count as an overloaded node.
[overload]
lag_max = "0s"
[admin]
address = "{self.address}:{ADMIN_PORT}"
[purge]
token_file = "token"
log = "{self.name}.purges"
''')
        if fleet.disk:
            text.append(f'[disk]\nadmission = "always"\n'
                        f'[[disk_device]]\npath = "{self.name}.disk"\ncapacity = "{fleet.disk}"\n')
        if fleet.asks:
            text.append(f'[fleet]\nname = "{self.name}"\naddress = "{self.peer_address}:{PEER_PORT}"\n'
                        f'key_file = "key"\nwait = "{fleet.wait}"\nreplicate = {fleet.replicate}\n')
        for member in self.members:
            text.append(f'[[fleet.member]]\nname = "{member.name}"\n'
                        f'url = "http://{member.peer_address}:{PEER_PORT}"\n')
        if fleet.nats:
            text.append(f'[fleet.nats]\nservers = ["nats://{self.nats_address}:{NATS_PORT}"]\n'
                        f'member_ttl = "{fleet.member_ttl}"\nslow_start = "{fleet.slow_start}"\n')
        new = self.folder / f"{self.name}.new"
        new.write_text("".join(text))
        new.rename(self.folder / f"{self.name}.toml")

    async def start(self):
        self.write_config()
        self.spawn(self.fleet.edgeward, "serve", "--quiet", "--config", f"{self.name}.toml")

        async def is_ready():
            if not self.is_running():
                raise RuntimeError(f"{self.name} has ended: see its log in {self.folder}")
            return await is_open(self.address, CLIENT_PORT) and await is_open(self.address, ADMIN_PORT)
        await wait_until(f"{self.name} accepts connections", is_ready)
        self.accepts = True

    def stop(self, number=signal.SIGKILL):
        self.accepts = False
        super().stop(number)

    async def admin(self, target, body=b""):
        """Returns the status and the text of an admin page."""
        async with Connection(ADMIN_PORT, self.address) as connection:
            fields = b"Authorization: Bearer %s\r\n" % self.fleet.token
            if body:
                fields += b"Content-Length: %d\r\n" % len(body)
            host = f"{self.address}:{ADMIN_PORT}".encode()
            await connection.send(target, fields, b"POST" if body else b"GET", host, body)
            status, _, text = await connection.response()
            return status, text.decode()

    async def metrics(self):
        """Returns all values of the metrics by series."""
        lines = (line for line in (await self.admin(b"/metrics"))[1].splitlines() if not line.startswith("#"))
        return {series: float(value) for series, _, value in (line.rpartition(" ") for line in lines)}

    async def status(self):
        return json.loads((await self.admin(b"/status"))[1])

    async def purge(self, *targets):
        """Purges URLs. Returns the status and the text of the response; 0 if the node cannot be reached."""
        urls = [f"http://{HOST.decode()}{target.decode()}" for target in targets]
        try:
            return await self.admin(b"/purge", json.dumps({"urls": urls}).encode())
        except (OSError, asyncio.IncompleteReadError) as error:
            return 0, str(error)

    async def reload(self):
        self.write_config()
        status, text = await self.admin(b"/reload", b"{}")
        if status != 200 or "error" in text:
            raise RuntimeError(f"{self.name} refuses its configuration: {text}")

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Fleet:
    """Nodes 1 to `nodes`, their origin and NATS, in a new folder. `asks`: nodes ask each other."""

    def __init__(self, edgeward, nodes, origin=None, hot="64MiB", disk=None, nats=True, asks=True, wait="50ms",
                 member_ttl="4s", slow_start="0s", workers=1, folder="/dev/shm", replicate=0.01):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fleet-", dir=folder))
        self.edgeward, self.hot, self.disk, self.asks = edgeward, hot, disk, asks
        self.wait, self.member_ttl, self.slow_start = wait, member_ttl, slow_start
        self.workers, self.replicate = workers, replicate
        self.token = b"0123456789abcdef0123456789abcdef"
        for name, text in (("token", self.token), ("key", b"fedcba9876543210fedcba9876543210")):
            (self.folder / name).write_bytes(text)
            (self.folder / name).chmod(0o600)
        self.origin = origin or SyntheticOrigin(self.folder, edgeward)
        self.nats = Nats(self.folder) if nats else None
        self.nodes = [Node(self, number) for number in range(1, nodes + 1)]

    async def __aenter__(self):
        try:
            await self.origin.start()
            if self.nats:
                await self.nats.start()
            for node in self.nodes:
                await node.start()
            await self.settled()
        except BaseException as error:
            await self.__aexit__(type(error))
            raise
        return self

    async def __aexit__(self, kind, *_):
        for process in [*self.nodes, self.nats, self.origin]:
            if process:
                process.stop()
        if kind is None:
            shutil.rmtree(self.folder)

    async def settled(self, nodes=None, seconds=WAIT_SECONDS):
        """Waits until each of these nodes, or all that run, has all purges and knows the others as members."""
        nodes = nodes or [node for node in self.nodes if node.is_running()]

        async def is_settled():
            for node in nodes:
                try:
                    status = await node.status()
                except (OSError, asyncio.IncompleteReadError):
                    return False
                if self.nats and status["fleet_purges"]["cut_off"]:
                    return False
                if self.asks and sum(member["state"] == "up" for member in status["fleet"]["members"]) != len(nodes):
                    return False
            return True
        await wait_until("all nodes know each other", is_settled, seconds)

    async def sums(self, *names):
        """Returns the sums of metrics over the running nodes."""
        all_metrics = [await node.metrics() for node in self.nodes if node.is_running()]
        return {name: sum(metrics.get(name, 0) for metrics in all_metrics) for name in names}
