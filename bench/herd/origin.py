#!/usr/bin/env python3
"""The origin of the bursts: origin.py PORT LATENCY_SECONDS

/KIND/NAME/BYTES has a body of BYTES; the kind `uncacheable` has `no-store`. While the gate is closed, responses wait
until OPENS_AT requests wait or the gate is opened, so that laws do not depend on the speed of the machine:
/control/close?PASSING&OPENS_AT, /control/open. Both return the counts since the last call as JSON.
"""
import asyncio
import json
import sys
import time

PERIOD = bytes(range(251)) * 1044
# Below the edge's timeout for the first byte of the origin.
GATE_SECONDS = 40
counts = {}
connections = 0
gate = asyncio.Event()
passing = opens_at = waiting = 0


def take_counts():
    global counts
    taken, counts = counts, {"requests": 0, "connections_max": connections, "timed_out": 0, "first_byte": 0}
    return taken


async def pass_gate():
    global passing, waiting
    if gate.is_set():
        return
    if passing > 0:
        passing -= 1
        return
    waiting += 1
    if waiting >= opens_at:
        gate.set()
    try:
        await asyncio.wait_for(gate.wait(), GATE_SECONDS)
    except asyncio.TimeoutError:
        counts["timed_out"] += 1
        gate.set()


def control(path):
    global passing, opens_at, waiting
    action, _, values = path.removeprefix("/control/").partition("?")
    if action == "close":
        passing, opens_at = map(int, values.split("&"))
        waiting = 0
        gate.clear()
    else:
        gate.set()
    return json.dumps(take_counts()).encode()


async def serve(reader, writer):
    global connections
    connections += 1
    counts["connections_max"] = max(counts["connections_max"], connections)
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split(" ")[1]
            if path.startswith("/control/"):
                body = control(path)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                continue
            counts["requests"] += 1
            await asyncio.sleep(latency)
            await pass_gate()
            size = int(path.rsplit("/", 1)[1])
            uncacheable = path.startswith("/uncacheable/")
            caching = "no-store" if uncacheable else "max-age=2, stale-while-revalidate=3600"
            counts["first_byte"] = counts["first_byte"] or time.monotonic()
            fields = f'Cache-Control: {caching}\r\nETag: "1"\r\n'
            if "\r\nif-none-match:" in head.lower():
                writer.write(f"HTTP/1.1 304 Not Modified\r\n{fields}\r\n".encode())
                continue
            writer.write(f"HTTP/1.1 200 OK\r\n{fields}Content-Length: {size}\r\n\r\n".encode())
            for at in range(0, size, len(PERIOD)):
                writer.write(PERIOD[:size - at])
                await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        connections -= 1
        writer.close()


async def main():
    gate.set()
    take_counts()
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), backlog=4096)
    await server.serve_forever()


latency = float(sys.argv[2])
asyncio.run(main())
