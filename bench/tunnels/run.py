#!/usr/bin/env python3
"""WebSockets, event streams and a long upload through an edge.

    bench/tunnels/run.py EDGEWARD [CONNECTIONS] [ECHOES] [IDLE] [UPLOAD_GIB]

Starts an origin and `edgeward serve` on loopback, and prints one JSON object per line:

- `hits`: hits per second of one client with four connections, without tunnels and beside those of the other lines.
- `echoes`: CONNECTIONS WebSockets send ECHOES messages each. Each echo is compared with its message.
- `idle`: IDLE further WebSockets that send nothing: memory of the edge for each.
- `events`: the time from the write of an event at the origin to its arrival at the client, without and with the edge.
- `upload`: UPLOAD_GIB, with a length and in chunks: the growth of the edge's memory.
"""
import asyncio, base64, hashlib, json, multiprocessing, os, re, signal, subprocess, sys, tempfile, time
import urllib.request

edgeward = sys.argv[1]
connections = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
echoes = int(sys.argv[3]) if len(sys.argv) > 3 else 10
idle = int(sys.argv[4]) if len(sys.argv) > 4 else 3000
upload_gib = float(sys.argv[5]) if len(sys.argv) > 5 else 2
EVENTS = 500
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def accept_of(key):
    return base64.b64encode(hashlib.sha1(key + GUID).digest())


# The origin.

async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            target = head.split(b" ", 2)[1]
            fields = {}
            for line in head.split(b"\r\n")[1:-2]:
                name, _, value = line.partition(b":")
                fields[name.lower()] = value.strip()
            if target == b"/echo":
                writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                             b"Sec-WebSocket-Accept: " + accept_of(fields[b"sec-websocket-key"]) + b"\r\n\r\n")
                return await echo(reader, writer)
            if target == b"/events":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\r\n")
                for n in range(EVENTS):
                    writer.write(b"data: %d\n\n" % time.monotonic_ns())
                    await writer.drain()
                    await asyncio.sleep(0.005)
                writer.close()
                return
            if target == b"/upload":
                length = await count_body(reader, fields)
                body = b"%d" % length
            else:
                body = b"x" * 1024
            head = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Length: %d\r\n\r\n" % len(body)
            writer.write(head + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def count_body(reader, fields):
    total = 0
    if b"content-length" in fields:
        left = int(fields[b"content-length"])
        while left:
            piece = await reader.read(min(left, 1 << 20))
            left -= len(piece)
            total += len(piece)
        return total
    while size := int(await reader.readline(), 16):
        left = size + 2
        while left:
            left -= len(await reader.read(min(left, 1 << 20)))
        total += size
    await reader.readline()
    return total


async def echo(reader, writer):
    """Frames of at most 125 bytes are enough here."""
    while True:
        first, length = await reader.readexactly(2)
        mask = await reader.readexactly(4)
        payload = await reader.readexactly(length & 127)
        writer.write(bytes([first, length & 127]) + bytes(b ^ mask[n % 4] for n, b in enumerate(payload)))
        await writer.drain()
        if first & 15 == 8:
            writer.close()
            return


def origin(ready):
    async def run():
        server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=4096, limit=1 << 20)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()
    asyncio.run(run())


# The clients.

async def open_socket(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    key = base64.b64encode(os.urandom(16))
    writer.write(b"GET /echo HTTP/1.1\r\nHost: bench.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                 b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + b"\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 "), head
    assert accept_of(key) in head
    return reader, writer


async def talk(stream, number, latencies):
    reader, writer = stream
    for n in range(echoes):
        text = b"%d:%d:" % (number, n) + os.urandom(16).hex().encode()
        mask = os.urandom(4)
        began = time.perf_counter()
        writer.write(bytes([0x81, 0x80 | len(text)]) + mask + bytes(b ^ mask[k % 4] for k, b in enumerate(text)))
        frame = await reader.readexactly(2 + len(text))
        latencies.append(time.perf_counter() - began)
        assert frame == bytes([0x81, len(text)]) + text, frame


def count_hits(port, seconds, result):
    """Requests one object by four connections for a time, one request at a time on each."""
    async def client(until):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        count = 0
        while time.monotonic() < until:
            writer.write(b"GET /page HTTP/1.1\r\nHost: bench.example\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(1024)
            assert body == b"x" * 1024 and (b"edgeward; hit" in head or count == 0), head
            count += 1
        writer.close()
        return count

    async def run():
        began = time.monotonic()
        counts = await asyncio.gather(*(client(began + seconds) for _ in range(4)))
        result.send(sum(counts) / (time.monotonic() - began))
    asyncio.run(run())


def begin_hits(port, seconds):
    receive, send = multiprocessing.Pipe(False)
    process = multiprocessing.Process(target=count_hits, args=(port, seconds, send))
    process.start()
    return process, receive


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def show(**values):
    print(json.dumps(values), flush=True)


async def in_parts(calls, size=200):
    """Runs coroutines in groups, so that the backlog of the origin does not overflow."""
    results = []
    for at in range(0, len(calls), size):
        results += await asyncio.gather(*calls[at:at + size])
    return results


def main():
    receive, send = multiprocessing.Pipe(False)
    origin_process = multiprocessing.Process(target=origin, args=(send,), daemon=True)
    origin_process.start()
    origin_port = receive.recv()
    config = tempfile.NamedTemporaryFile("w", suffix=".toml")
    config.write("[forwarding]\nupgrades = \"websocket\"\n\n[limits]\ntunnels_max = 8000\nconnections_max = 9000\n\n"
                 "[origin]\nclient_share_percent = 100\n")
    config.flush()
    edge = subprocess.Popen(
        [edgeward, "serve", "--json", f"--config={config.name}", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0",
         "--hot=64MiB", f"--origin=http://127.0.0.1:{origin_port}"], stdout=subprocess.PIPE, text=True)
    started = json.loads(edge.stdout.readline())
    port = int(re.search(r":(\d+)", started["listening"][0]).group(1))
    admin = "http://" + started["admin"].removeprefix("http://")

    def rss():
        with open(f"/proc/{edge.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) * 1024

    def metric(name):
        text = urllib.request.urlopen(admin + "/metrics").read().decode()
        return float(re.search("^" + re.escape(name) + " (.*)$", text, re.M).group(1))

    async def run():
        loop = asyncio.get_running_loop()
        # Without tunnels.
        process, hits = begin_hits(port, 5)
        alone = await loop.run_in_executor(None, hits.recv)
        show(kind="hits", beside="nothing", per_second=round(alone))
        # Echoes.
        before = rss()
        streams = await in_parts([open_socket(port) for _ in range(connections)])
        assert metric("edgeward_tunnels") == connections
        process, hits = begin_hits(port, 5)
        latencies = []
        began, rounds = time.monotonic(), 0
        while time.monotonic() < began + 5 or rounds == 0:
            await asyncio.gather(*(talk(stream, n, latencies) for n, stream in enumerate(streams)))
            rounds += 1
        elapsed = time.monotonic() - began
        beside = await loop.run_in_executor(None, hits.recv)
        show(kind="echoes", tunnels=connections, correct=len(latencies), wrong=0,
             per_second=round(len(latencies) / elapsed),
             p50_ms=round(percentile(latencies, .5) * 1e3, 2), p99_ms=round(percentile(latencies, .99) * 1e3, 2),
             rss_growth=rss() - before)
        show(kind="hits", beside=f"echoes of {connections} tunnels", per_second=round(beside))
        # Idle tunnels.
        before = rss()
        more = await in_parts([open_socket(port) for _ in range(idle)])
        tunnels = metric("edgeward_tunnels")
        assert tunnels == connections + idle
        growth = rss() - before
        show(kind="idle", tunnels=int(tunnels), rss=rss(), bytes_per_tunnel=round(growth / idle))
        process, hits = begin_hits(port, 5)
        beside = await loop.run_in_executor(None, hits.recv)
        show(kind="hits", beside=f"{int(tunnels)} idle tunnels", per_second=round(beside))
        for _, writer in streams + more:
            writer.close()
        # Events.
        for via, what in [(origin_port, "nothing"), (port, "nothing"), (port, "hits")]:
            if what == "hits":
                process, hits = begin_hits(port, EVENTS * 0.006)
            delays = await events(via)
            if what == "hits":
                hits.recv()
            show(kind="events", through="edge" if via == port else "no edge", beside=what, events=len(delays),
                 p50_ms=round(percentile(delays, .5) / 1e6, 3),
                 p99_ms=round(percentile(delays, .99) / 1e6, 3), max_ms=round(max(delays) / 1e6, 3))
        # Uploads.
        for framing in ["content-length", "chunked"]:
            await upload(framing)

    async def events(via):
        reader, writer = await asyncio.open_connection("127.0.0.1", via)
        writer.write(b"GET /events HTTP/1.1\r\nHost: bench.example\r\nAccept: text/event-stream\r\n"
                     b"Cache-Control: no-cache\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        delays = []
        while len(delays) < EVENTS:
            line = await reader.readline()
            if line.startswith(b"data: "):
                delays.append(time.monotonic_ns() - int(line[6:]))
        writer.close()
        return delays

    async def upload(framing):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        pieces = int(upload_gib * 1024)
        piece = b"u" * (1 << 20)
        before, most = rss(), 0
        if framing == "chunked":
            field, wire = b"Transfer-Encoding: chunked", b"%x\r\n" % len(piece) + piece + b"\r\n"
        else:
            field, wire = b"Content-Length: %d" % (pieces << 20), piece
        writer.write(b"PUT /upload HTTP/1.1\r\nHost: bench.example\r\n" + field + b"\r\n\r\n")
        began = time.monotonic()
        for _ in range(pieces):
            writer.write(wire)
            await writer.drain()
            most = max(most, rss())
        if framing == "chunked":
            writer.write(b"0\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head, re.I).group(1))
        got = int(await reader.readexactly(length))
        assert got == pieces << 20, got
        show(kind="upload", framing=framing, bytes=got, seconds=round(time.monotonic() - began, 1),
             rss_before=before, rss_most=most)
        writer.close()

    try:
        asyncio.run(run())
    finally:
        edge.send_signal(signal.SIGINT)
        edge.send_signal(signal.SIGKILL)
        edge.wait()
        origin_process.kill()


if __name__ == "__main__":
    main()
