"""Clients request random ranges of an object and check each byte: ranges.py PORT ADMIN TARGET SEED CLIENTS RANGES [HALF]

When half of the requests are answered, the shell runs the command HALF. A request whose response ends early is sent
again, except those for /changing/…, of which each part that arrives must be of one version.
"""
import asyncio
import collections
import json
import random
import subprocess
import sys

from http1 import Connection, fetch
from origin import body_of, length_of

SLICE = RANGE_MAX = 1 << 20
port, admin, target, seed, clients, ranges = (int(word) if word.isdigit() else word.encode() for word in sys.argv[1:7])
half = sys.argv[7] if len(sys.argv) > 7 else "true"
is_changing = target.startswith(b"/changing/")
counts = collections.Counter({"requests": 0, "hits": 0, "cut": 0, "wrong": 0})


async def settle():
    """Waits until the disk has written its queue."""
    while True:
        status = json.loads(fetch(admin, "/status"))
        queues = [device["queue_messages"] for device in status["disk"]["devices"]]
        if status["fills"]["under_way"] == 0 and not any(queues):
            return
        await asyncio.sleep(0.1)


async def request(first, end):
    """Requests a range until its response is complete."""
    while True:
        status, body, version = 0, b"", 1
        async with Connection(port) as connection:
            try:
                async with asyncio.timeout(120):
                    await connection.send(target, b"Range: bytes=%d-%d\r\n" % (first, end - 1))
                    status, fields = await connection.head()
                    while status == 206 and (piece := await connection.reader.read(end - first - len(body))):
                        body += piece
            except (OSError, asyncio.IncompleteReadError):
                pass
        if status == 206:
            version = int(fields[b"etag"].strip(b'"').split(b"-")[0])
        is_whole = len(body) == end - first
        counts["cut"] += not is_whole
        if is_whole or is_changing:
            is_right = status in (0, 206) and body == body_of(target, first, first + len(body), version)
            counts["requests"] += 1
            counts["wrong"] += not is_right
            counts["hits"] += status == 206 and fields.get(b"cache-status", b"").startswith(b"edgeward; hit")
            return
        # The edge is starting again.
        await asyncio.sleep(0.05)


async def main():
    random.seed(seed)
    sizes = [[random.randint(1, RANGE_MAX) for _ in range(ranges)] for _ in range(clients)]
    length = length_of(target)
    starts = [[(random.randrange(length - size), size) for size in own] for own in sizes]
    slices = {index for own in starts for first, size in own
              for index in range(first // SLICE, (first + size - 1) // SLICE + 1)}
    await settle()

    async def client(own):
        for first, size in own:
            await request(first, first + size)
            if half and counts["requests"] * 2 >= clients * ranges:
                await halfway()

    async def halfway():
        global half
        command, half = half, ""
        await asyncio.create_subprocess_shell(command, stdout=subprocess.DEVNULL)
    await asyncio.gather(*(client(own) for own in starts))
    union = sum(min((index + 1) * SLICE, length) - index * SLICE for index in slices)
    print(json.dumps(counts | {"union_bytes": union}))

asyncio.run(main())
