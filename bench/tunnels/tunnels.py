"""WebSockets, event streams and uploads through an edge, with wrk beside them.

    tunnels.py echoes PORT PID TUNNELS SECONDS    each tunnel sends a message after the echo of the one before
    tunnels.py idle PORT PID TUNNELS SECONDS      the tunnels send nothing
    tunnels.py events PORT SECONDS                with wrk beside the events if SECONDS is not 0
    tunnels.py upload PORT PID MEBIBYTES FRAMING  one body, `length` or `chunked`
"""
import asyncio
import json
import re
import sys
import time

from http1 import Connection, quantile, resident_bytes

PIECE = b"u" * (1 << 20)


async def hits(port, seconds):
    """Returns the requests per second of wrk for one object."""
    url = f"http://127.0.0.1:{port}/b/1024/page"
    wrk = await asyncio.create_subprocess_exec("wrk", "-t1", "-c4", f"-d{seconds}", url, stdout=asyncio.subprocess.PIPE)
    output = (await wrk.communicate())[0].decode()
    return {"hits_per_second": float(re.search(r"Requests/sec: +([\d.]+)", output)[1]), "errors": "Non-2xx" in output}


async def tunnels(talks, port, pid, count, seconds):
    port, count, seconds = int(port), int(count), int(seconds)
    before, connections, waits, wrong = resident_bytes(pid), [Connection(port) for _ in range(count)], [], 0
    for at in range(0, count, 200):  # in groups, so that the backlog of the origin does not overflow
        statuses = await asyncio.gather(*(connection.upgrade() for connection in connections[at:at + 200]))
        wrong += sum(status != 101 for status in statuses)
    growth = resident_bytes(pid) - before

    async def talk(connection):
        nonlocal wrong
        while time.monotonic() < end:
            start = time.perf_counter()
            wrong += not await connection.echo()
            waits.append((time.perf_counter() - start) * 1000)
    end = time.monotonic() + seconds
    results, *_ = await asyncio.gather(hits(port, seconds), *(talk(connection) for connection in connections if talks))
    if talks:
        results |= {"echoes": len(waits), "echo_ms_p50": quantile(waits, 0.5), "echo_ms_p99": quantile(waits, 0.99)}
    return results | {"wrong": wrong, "tunnels": count, "growth_bytes": growth}


async def events(port, seconds):
    async def read():
        async with Connection(int(port)) as connection:
            await connection.send(b"/events", b"Accept: text/event-stream\r\nCache-Control: no-cache\r\n")
            await connection.head()
            # Without the edge, the body ends with the connection. The edge sends it in chunks.
            while line := await connection.reader.readline():
                if line.startswith(b"data: "):
                    delays.append((time.monotonic_ns() - int(line[6:])) / 1e6)
                elif line == b"0\r\n":
                    break
    delays = []
    beside = [hits(port, seconds)] if seconds != "0" else []
    _, *results = await asyncio.gather(read(), *beside)
    times = {"event_ms_p50": quantile(delays, 0.5), "event_ms_p99": quantile(delays, 0.99), "event_ms_max": max(delays)}
    return times | {"events": len(delays), "errors": 0} | (results[0] if results else {})


async def upload(port, pid, mebibytes, framing):
    count, before, most = int(mebibytes), resident_bytes(pid), 0
    async with Connection(int(port)) as connection:
        await connection.open()
        field = b"Transfer-Encoding: chunked" if framing == "chunked" else b"Content-Length: %d" % (count << 20)
        connection.writer.write(b"PUT /upload HTTP/1.1\r\nHost: bench.example\r\n" + field + b"\r\n\r\n")
        for _ in range(count):
            connection.writer.write(b"%x\r\n%s\r\n" % (len(PIECE), PIECE) if framing == "chunked" else PIECE)
            await connection.writer.drain()
            most = max(most, resident_bytes(pid))
        if framing == "chunked":
            connection.writer.write(b"0\r\n\r\n")
        status, _, body = await connection.response()
    wrong = status != 200 or int(body) != count << 20
    return {"bytes": count << 20, "wrong": wrong, "growth_bytes": most - before}


kind, *arguments = sys.argv[1:]
if kind in ("echoes", "idle"):
    arguments.insert(0, kind == "echoes")
function = {"events": events, "upload": upload}.get(kind, tunnels)
print(json.dumps(asyncio.run(function(*arguments))))
