"""The clients of the soak test: a mix of requests in an open loop, whose responses are all verified."""
import asyncio
import collections
import random
import time
import zlib

from http1 import Connection
from origin import body_of, length_of

HOSTS = [b"a.example", b"b.example", b"c.example"]
FAILING_HOST = b"failing.example"
HOT_OBJECTS = 600
LARGE_OBJECTS = 6
# Kinds of work, with their shares.
MIX = {"hit": 58, "miss": 12, "range": 8, "gzip": 8, "conditional": 4, "pipelined": 2, "aborted": 3, "failing": 3,
       "websocket": 2}
CONNECTIONS = 16
# A connection is closed after this time, so that a lost response is noticed.
TIMEOUT = 30
# Work that waits longer than this is dropped and counted: the machine is too slow for the rate.
LATE = 2.0


class Wrong(Exception):
    """A response that is not the one that the origin sent."""


class Load:
    def __init__(self, port):
        self.port, self.random, self.number = port, random.Random(1), 0
        self.counts = collections.Counter()
        self.examples = []
        self.connections = [Connection(port) for _ in range(CONNECTIONS)]

    def hot(self):
        """Returns the host and the target of a popular object: the first ones are requested most."""
        n = min(int(self.random.paretovariate(0.7)) - 1, HOT_OBJECTS * 2) % HOT_OBJECTS
        length = [700, 3000, 12000, 40000][n % 4]
        kind = b"t" if n % 3 == 0 else b"b"
        path = b"short-lived" if n % 5 == 0 else b"hot"
        return HOSTS[n % len(HOSTS)], b"/%s/%d/%s/%d" % (kind, length, path, n)

    def large(self):
        n = self.random.randrange(LARGE_OBJECTS)
        return HOSTS[n % len(HOSTS)], b"/b/%d/large/%d" % ((n % 3 + 1) << 20, n)

    def check(self, condition, *facts):
        if not condition:
            raise Wrong(*facts)

    def check_body(self, target, status, body):
        if status in (502, 503, 504):
            self.counts["refused"] += 1
            return
        self.check(status == 200 and body == body_of(target), target, status, len(body))
        self.counts["bodies"] += 1

    async def get(self, connection, host, target, fields=b""):
        status, fields, body = await connection.get(target, fields, host)
        if fields.get(b"content-encoding") == b"gzip":
            body = zlib.decompress(body, wbits=31)
            self.counts["compressed"] += 1
        self.check_body(target, status, body)

    async def hit(self, connection):
        await self.get(connection, *self.hot())

    async def miss(self, connection):
        self.number += 1
        target = b"/b/%d/unique/%d" % (self.random.choice([800, 5000, 20000]), self.number)
        await self.get(connection, self.random.choice(HOSTS), target)

    async def range(self, connection):
        host, target = self.large()
        length = length_of(target)
        first = self.random.randrange(length)
        last = min(first + self.random.randrange(60_000), length - 1)
        status, fields, body = await connection.get(target, b"Range: bytes=%d-%d\r\n" % (first, last), host)
        if status == 206:
            self.check(fields[b"content-range"] == b"bytes %d-%d/%d" % (first, last, length)
                       and body == body_of(target, first, last + 1), target, first, last, len(body))
            self.counts["bodies"] += 1
        else:
            self.check_body(target, status, body)

    async def gzip(self, connection):
        n = self.random.randrange(60)
        target = b"/t/%d/text/%d" % (4000 + n * 100, n)
        await self.get(connection, HOSTS[n % len(HOSTS)], target, b"Accept-Encoding: gzip\r\n")

    async def conditional(self, connection):
        host, target = self.hot()
        if self.random.random() < 0.5:
            await connection.send(target, method=b"HEAD", host=host)
            status, fields, _ = await connection.response(b"HEAD")
            self.check(status in (502, 503, 504) or int(fields[b"content-length"]) == length_of(target), target)
        else:
            await self.get(connection, host, target, b"Cache-Control: no-cache\r\n")

    async def pipelined(self, connection):
        asked = [self.hot() for _ in range(4)]
        for host, target in asked:
            await connection.send(target, host=host)
        for _, target in asked:
            status, _, body = await connection.response()
            self.check_body(target, status, body)

    async def aborted(self, _):
        """Leaves before or during the response."""
        connection = Connection(self.port)
        try:
            host, target = self.large() if self.random.random() < 0.7 else self.hot()
            await connection.send(target, b"Range: bytes=0-\r\n" if self.random.random() < 0.5 else b"", host=host)
            if self.random.random() < 0.8:
                await connection.head()
                await connection.reader.read(self.random.randrange(1, 200_000))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            connection.close(reset=self.random.random() < 0.5)

    async def failing(self, _):
        how = self.random.choice([b"500", b"reset", b"short", b"hang"])
        self.number += 1
        async with Connection(self.port) as connection:
            try:
                status, _, _ = await connection.get(b"/fail-%s/%d" % (how, self.number), host=FAILING_HOST)
                self.check(status in (500, 502, 503, 504), how, status)
            except (asyncio.IncompleteReadError, ConnectionError):
                self.check(how == b"short", how, "the connection was closed")

    async def websocket(self, _):
        async with Connection(self.port) as connection:
            status = await connection.upgrade(HOSTS[0])
            if status == 503:
                self.counts["refused"] += 1
                return
            self.check(status == 101, status)
            for _ in range(self.random.randrange(1, 6)):
                self.check(await connection.echo(), "echo")
                self.counts["echoes"] += 1

    async def one(self, connection, kind=None):
        kind = kind or self.random.choices(list(MIX), list(MIX.values()))[0]
        self.counts[kind] += 1
        try:
            async with asyncio.timeout(TIMEOUT):
                await getattr(self, kind)(connection)
        except Wrong as wrong:
            self.record("wrong", kind, wrong.args)
            connection.close()
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError, ValueError, KeyError, zlib.error) as error:
            self.record("failed", kind, repr(error))
            connection.close()

    def record(self, what, kind, facts):
        self.counts[what] += 1
        if len(self.examples) < 20:
            self.examples.append(f"{what} {kind}: {facts}")

    async def closed_loop(self, seconds, count=None, kind=None):
        """Sends one request after the other on each connection. Returns the number per second."""
        began, done = time.monotonic(), 0

        async def loop(connection):
            nonlocal done
            while time.monotonic() < began + seconds and (count is None or done < count):
                done += 1
                await self.one(connection, kind)
        await asyncio.gather(*(loop(connection) for connection in self.connections))
        return done / (time.monotonic() - began)

    async def open_loop(self, rate, seconds):
        """Sends requests at a constant rate, whatever the time of the responses."""
        queue, began, sent = asyncio.Queue(), time.monotonic(), 0

        async def loop(connection):
            while (due := await queue.get()) is not None:
                if time.monotonic() > due + LATE:
                    self.counts["late"] += 1
                else:
                    await self.one(connection)
        loops = [asyncio.create_task(loop(connection)) for connection in self.connections]
        while (elapsed := time.monotonic() - began) < seconds:
            for n in range(sent, int(elapsed * rate)):
                queue.put_nowait(began + n / rate)
            sent = int(elapsed * rate)
            await asyncio.sleep(0.01)
        for _ in loops:
            queue.put_nowait(None)
        await asyncio.gather(*loops)
        for connection in self.connections:
            connection.close()
        await asyncio.sleep(0.1)
