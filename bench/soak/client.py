"""The clients of the soak test: a mix of requests in an open loop, whose responses are all verified."""
import asyncio
import base64
import collections
import os
import random
import re
import socket
import struct
import time
import zlib

from origin import accept_of, body_of

HOSTS = [b"a.example", b"b.example", b"c.example", b"d.example", b"e.example"]
FAILING_HOST = b"failing.example"
HOT_OBJECTS = 600
LARGE_OBJECTS = 6
# Kinds of work, with their shares.
MIX = {"hit": 58, "miss": 12, "range": 8, "gzip": 8, "conditional": 4, "pipelined": 2, "aborted": 3, "failing": 3,
       "websocket": 2}
# A connection is closed after this time, so that a lost response is noticed.
TIMEOUT = 30
# Work that waits longer than this is dropped and counted: the machine is too slow for the rate.
LATE = 2.0


class Wrong(Exception):
    """A response that is not the one that the origin sent."""


class Connection:
    """One HTTP/1.1 connection to the edge, which is opened again when the edge has closed it."""

    def __init__(self, port):
        self.port, self.writer = port, None

    async def open(self):
        if self.writer is None or self.writer.is_closing():
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 17)

    def close(self, reset=False):
        if self.writer is not None:
            if reset:
                linger = struct.pack("ii", 1, 0)
                self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.writer.close()
            self.writer = None

    async def send(self, host, target, fields=b"", method=b"GET"):
        await self.open()
        self.writer.write(b"%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (method, target, host, fields))
        await self.writer.drain()

    async def head(self):
        head = await self.reader.readuntil(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        fields = {}
        for line in lines[1:-2]:
            name, _, value = line.partition(b":")
            fields[name.lower()] = value.strip()
        return int(lines[0].split(b" ")[1]), fields

    async def response(self, method=b"GET"):
        status, fields = await self.head()
        body = b""
        if b"chunked" in fields.get(b"transfer-encoding", b""):
            while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
                body += await self.reader.readexactly(size)
                await self.reader.readexactly(2)
            await self.reader.readuntil(b"\r\n")
        elif method != b"HEAD" and status not in (204, 304):
            body = await self.reader.readexactly(int(fields[b"content-length"]))
        if fields.get(b"connection", b"").lower() == b"close":
            self.close()
        return status, fields, body


class Load:
    """The clients of one process."""

    def __init__(self, port, seed, connections):
        self.port, self.random = port, random.Random(seed)
        self.seed, self.number = seed, 0
        self.counts = collections.Counter()
        self.examples = []
        self.connections = [Connection(port) for _ in range(connections)]
        weights = list(MIX.values())
        self.kinds = lambda: self.random.choices(list(MIX), weights)[0]

    def hot(self):
        """Returns the host and the target of a popular object: the first ones are requested most."""
        n = min(int(self.random.paretovariate(0.7)) - 1, HOT_OBJECTS * 2) % HOT_OBJECTS
        length = [700, 3000, 12000, 40000][n % 4]
        kind = b"t" if n % 3 == 0 else b"b"
        path = b"short-lived" if n % 5 == 0 else b"hot"
        return HOSTS[n % len(HOSTS)], b"/%s/%d/%s/%d" % (kind, length, path, n)

    def check(self, condition, *facts):
        if not condition:
            raise Wrong(*facts)

    def check_body(self, target, status, body):
        if status in (502, 503, 504):
            self.counts["refused"] += 1
            return
        self.check(status == 200 and body == body_of(target), target, status, len(body))
        self.counts["bodies"] += 1

    async def hit(self, connection):
        host, target = self.hot()
        await connection.send(host, target)
        status, _, body = await connection.response()
        self.check_body(target, status, body)

    async def miss(self, connection):
        self.number += 1
        target = b"/b/%d/unique/%d-%d" % (self.random.choice([800, 5000, 20000]), self.seed, self.number)
        await connection.send(self.random.choice(HOSTS), target)
        status, _, body = await connection.response()
        self.check_body(target, status, body)

    def large(self):
        n = self.random.randrange(LARGE_OBJECTS)
        return HOSTS[n % len(HOSTS)], b"/b/%d/large/%d" % ((n % 3 + 1) << 20, n)

    async def range(self, connection):
        host, target = self.large()
        body = body_of(target)
        first = self.random.randrange(len(body))
        last = min(first + self.random.randrange(60_000), len(body) - 1)
        await connection.send(host, target, b"Range: bytes=%d-%d\r\n" % (first, last))
        status, fields, got = await connection.response()
        if status == 206:
            self.check(fields[b"content-range"] == b"bytes %d-%d/%d" % (first, last, len(body))
                       and got == body[first:last + 1], target, first, last, len(got))
            self.counts["bodies"] += 1
        else:
            self.check_body(target, status, got)

    async def gzip(self, connection):
        n = self.random.randrange(60)
        target = b"/t/%d/text/%d" % (4000 + n * 100, n)
        await connection.send(HOSTS[n % len(HOSTS)], target, b"Accept-Encoding: gzip\r\n")
        status, fields, body = await connection.response()
        if fields.get(b"content-encoding") == b"gzip":
            body = zlib.decompress(body, wbits=31)
            self.counts["compressed"] += 1
        self.check_body(target, status, body)

    async def conditional(self, connection):
        host, target = self.hot()
        if self.random.random() < 0.5:
            await connection.send(host, target, method=b"HEAD")
            status, fields, _ = await connection.response(b"HEAD")
            self.check(status in (502, 503, 504) or int(fields[b"content-length"]) == len(body_of(target)), target)
        else:
            await connection.send(host, target, b"Cache-Control: no-cache\r\n")
            status, _, body = await connection.response()
            self.check_body(target, status, body)

    async def pipelined(self, connection):
        asked = [self.hot() for _ in range(4)]
        for host, target in asked:
            await connection.send(host, target)
        for _, target in asked:
            status, _, body = await connection.response()
            self.check_body(target, status, body)
        self.counts["extra requests"] += len(asked) - 1

    async def aborted(self, connection):
        """Leaves before or during the response."""
        connection = Connection(self.port)
        try:
            host, target = self.large() if self.random.random() < 0.7 else self.hot()
            fields = b"Range: bytes=0-\r\n" if self.random.random() < 0.5 else b""
            await connection.send(host, target, fields)
            if self.random.random() < 0.8:
                await connection.head()
                await connection.reader.read(self.random.randrange(1, 200_000))
        finally:
            connection.close(reset=self.random.random() < 0.5)

    async def failing(self, connection):
        kind = self.random.choice([b"fail-500", b"fail-reset", b"fail-short", b"fail-hang"])
        connection = Connection(self.port)
        try:
            self.number += 1
            await connection.send(FAILING_HOST, b"/%s/%d-%d" % (kind, self.seed, self.number))
            status, _, _ = await connection.response()
            self.check(status in (500, 502, 503, 504), kind, status)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.check(kind == b"fail-short", kind, "the connection was closed")
        finally:
            connection.close()

    async def websocket(self, connection):
        connection = Connection(self.port)
        try:
            key = base64.b64encode(os.urandom(16))
            fields = (b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                      b"Sec-WebSocket-Key: " + key + b"\r\n")
            await connection.send(HOSTS[0], b"/echo", fields)
            status, answer = await connection.head()
            if status == 503:
                self.counts["refused"] += 1
                return
            self.check(status == 101 and answer[b"sec-websocket-accept"] == accept_of(key), status)
            for _ in range(self.random.randrange(1, 6)):
                text, mask = os.urandom(self.random.randrange(1, 60)).hex().encode(), os.urandom(4)
                masked = bytes(b ^ mask[k % 4] for k, b in enumerate(text))
                connection.writer.write(bytes([0x81, 0x80 | len(text)]) + mask + masked)
                frame = await connection.reader.readexactly(2 + len(text))
                self.check(frame == bytes([0x81, len(text)]) + text, frame)
                self.counts["echoes"] += 1
        finally:
            connection.close()

    async def one(self, connection, kind):
        self.counts[kind] += 1
        try:
            async with asyncio.timeout(TIMEOUT):
                await getattr(self, kind)(connection)
        except Wrong as wrong:
            self.record("wrong", kind, wrong.args)
            connection.close()
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError, ValueError, KeyError, zlib.error) as error:
            if kind != "aborted":
                self.record("failed", kind, repr(error))
            connection.close()

    def record(self, what, kind, facts):
        self.counts[what] += 1
        if len(self.examples) < 20:
            self.examples.append(f"{what} {kind}: {facts}")

    async def calibrate(self, seconds):
        """Sends requests in a closed loop, and returns the number per second."""
        end, done = time.monotonic() + seconds, 0

        async def loop(connection):
            nonlocal done
            while time.monotonic() < end:
                await self.one(connection, self.kinds())
                done += 1
        await asyncio.gather(*(loop(connection) for connection in self.connections))
        return done / seconds

    async def run(self, rate, seconds):
        """Sends requests at a constant rate, whatever the time of the responses."""
        queue, began = collections.deque(), time.monotonic()
        wake = asyncio.Condition()

        async def loop(connection):
            while True:
                async with wake:
                    await wake.wait_for(lambda: queue)
                    due = queue.popleft()
                if due is None:
                    return
                if time.monotonic() > due + LATE:
                    self.counts["late"] += 1
                    continue
                await self.one(connection, self.kinds())
        loops = [asyncio.create_task(loop(connection)) for connection in self.connections]
        sent = 0
        while (elapsed := time.monotonic() - began) < seconds:
            due = int(elapsed * rate)
            async with wake:
                queue.extend(began + n / rate for n in range(sent, due))
                wake.notify(due - sent)
            sent = due
            await asyncio.sleep(0.01)
        async with wake:
            queue.extend([None] * len(loops))
            wake.notify_all()
        await asyncio.gather(*loops)

    def close(self):
        for connection in self.connections:
            connection.close()


def run(port, seed, connections, pipe):
    """Follows the commands that come by the pipe, until it has sent the counts."""
    load = Load(port, seed, connections)
    with asyncio.Runner() as runner:
        while True:
            command, *arguments = pipe.recv()
            if command == "calibrate":
                pipe.send(runner.run(load.calibrate(*arguments)))
            elif command == "fill":
                pipe.send(runner.run(fill(load, *arguments)))
            elif command == "run":
                runner.run(load.run(*arguments))
                load.close()
                runner.run(asyncio.sleep(0.1))
                pipe.send((dict(load.counts), load.examples))
                return


async def fill(load, count):
    """Requests new objects, so that memory is full and has evicted many objects. Returns their number."""
    each = -(-count // len(load.connections))

    async def loop(connection):
        for _ in range(each):
            await load.one(connection, "miss")
    await asyncio.gather(*(loop(connection) for connection in load.connections))
    return each * len(load.connections)
