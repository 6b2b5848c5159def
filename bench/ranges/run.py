#!/usr/bin/env python3
"""Random ranges of a large cold object, across a kill -9, a second pass, and a change of the object.

    bench/ranges/run.py EDGEWARD [GIB] [CLIENTS] [RANGES] [HOT] [DISK] [RATE]

Starts an origin that computes each byte from its offset and sends at most RATE million bytes a second, and
`edgeward serve` with a disk. Prints one JSON object for
each phase, and exits with 1 if one of these laws is broken:

cold          CLIENTS clients request RANGES random ranges each of an object of GIB GiB. The origin sends at most 1.1 times
              the bytes of the slices that contain the requested ranges.
second        The same ranges again. At least 99 % are hits.
killed        The same again. When half of the requests are answered, the edge is killed with SIGKILL and started again. At
              least 99 % are hits. A request that the kill interrupts is sent again.
cold, killed  As in `cold` with another object and half of the ranges; the edge is killed when half of them are answered.
changed       Another object, whose entity tag and bytes change when half of its ranges are answered. Each response has
              the bytes of the version that its entity tag names, or ends early.

In each phase each byte is right.
The edge's memory stays within 110 % of `hot.capacity`, `limits.fill_bytes_max`, `disk.queue_bytes` and the
base, which is 512 KiB for each thread.
"""
import hashlib, http.client, json, multiprocessing, os, random, signal, socket, socketserver, subprocess, sys, tempfile
import threading, time, urllib.request

edgeward = sys.argv[1]
GIB = float(sys.argv[2]) if len(sys.argv) > 2 else 4
CLIENTS = int(sys.argv[3]) if len(sys.argv) > 3 else 100
RANGES = int(sys.argv[4]) if len(sys.argv) > 4 else 40
HOT = sys.argv[5] if len(sys.argv) > 5 else "512MiB"
DISK = sys.argv[6] if len(sys.argv) > 6 else "8GiB"
RATE = float(sys.argv[7]) * 1e6 if len(sys.argv) > 7 else 100e6  # a link of about 1 Gbit/s
LENGTH = int(GIB * (1 << 30)) + 12_345
SLICE = 1 << 20
RANGE_MAX = 1 << 20
FILL_BYTES_MAX = 256 << 20  # the default of limits.fill_bytes_max
QUEUE = "256MiB"  # of bodies that wait for the disk: more than two seconds of RATE
WORKERS = 2
BASE_BYTES = (33 + WORKERS) * (512 << 10)
MEMORY_RATIO_MAX = 1.1
# A version repeats its block. The length is a prime number, so no two slices have the same bytes.
PERIOD = 1_000_003


def block(version):
    return hashlib.shake_128(b"version %d" % version).digest(PERIOD)


BLOCKS = {version: memoryview(block(version) * 4) for version in (1, 2)}


def content(version, first, end):
    at = first % PERIOD
    if at + (end - first) <= 4 * PERIOD:
        return [BLOCKS[version][at:at + end - first]]
    pieces = []
    while first < end:
        size = min(end - first, PERIOD)
        pieces += content(version, first, first + size)
        first += size
    return pieces


class Origin(socketserver.StreamRequestHandler):
    """Answers GET with ranges and conditions. The version is that of the server at the time of the request."""
    disable_nagle_algorithm = True

    def handle(self):
        while True:
            line = self.rfile.readline()
            if not line.strip():
                return
            fields = {}
            while (field := self.rfile.readline().strip()):
                name, _, value = field.decode("latin-1").partition(":")
                fields[name.lower()] = value.strip()
            path = line.split()[1].decode()
            version = self.server.version.value if path.startswith("/changing") else 1
            tag = '"v%d"' % version
            first, end, status = 0, LENGTH, "200 OK"
            wanted = fields.get("range", "")
            if wanted.startswith("bytes=") and fields.get("if-range", tag) == tag:
                low, _, high = wanted[6:].partition("-")
                first = int(low) if low else LENGTH - int(high)
                end = min(int(high) + 1, LENGTH) if low and high else LENGTH
                status = "206 Partial Content"
            head = (f"HTTP/1.1 {status}\r\nETag: {tag}\r\nCache-Control: max-age=86400\r\nAccept-Ranges: bytes\r\n"
                    f"Content-Length: {end - first}\r\n")
            if status.startswith("206"):
                head += f"Content-Range: bytes {first}-{end - 1}/{LENGTH}\r\n"
            self.wfile.write(head.encode() + b"\r\n")
            for piece in content(version, first, end):
                self.server.wait(len(piece))
                self.wfile.write(piece)
                with self.server.sent.get_lock():
                    self.server.sent.value += len(piece)
            with self.server.requests.get_lock():
                self.server.requests.value += 1


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 256

    next_send, rate_lock = 0.0, threading.Lock()

    def wait(self, size):
        with self.rate_lock:
            now = time.monotonic()
            self.next_send = max(self.next_send, now) + size / RATE
            delay = self.next_send - now - 0.05  # a burst of 50 ms
        if delay > 0:
            time.sleep(delay)

    def handle_error(self, request, client_address):
        pass  # the edge was killed


def serve_origin(listener, sent, requests, version):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = Server(listener.getsockname(), Origin, bind_and_activate=False)
    server.socket = listener
    server.sent, server.requests, server.version = sent, requests, version
    server.serve_forever()


class Edge:
    """`edgeward serve`, and the largest resident memory of its processes."""

    def __init__(self, folder, origin):
        self.folder, self.origin, self.rss_max = folder, origin, 0
        with socket.socket() as probe:  # the port is part of the cache key, so all processes need the same one
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.start()
        threading.Thread(target=self.watch, daemon=True).start()

    def start(self):
        self.process = subprocess.Popen(
            [edgeward, "serve", "--json", f"--listen=127.0.0.1:{self.port}", "--admin=127.0.0.1:0", f"--hot={HOT}",
             f"--origin={self.origin}", f"--disk={self.folder}", f"--disk-size={DISK}", f"--set=server.workers={WORKERS}",
             "--set=disk.admission=always", f"--set=disk.queue_bytes={QUEUE}"], stdout=subprocess.PIPE, stderr=open(self.folder + ".log", "a"), text=True)
        self.admin = json.loads(self.process.stdout.readline())["admin"]

    def restart(self):
        self.process.kill()
        self.process.wait()
        self.start()

    def watch(self):
        while True:
            try:
                status = open(f"/proc/{self.process.pid}/status").read()
                rss = next(line for line in status.splitlines() if line.startswith("VmRSS"))
                self.rss_max = max(self.rss_max, int(rss.split()[1]) << 10)
            except (OSError, StopIteration):
                pass
            time.sleep(0.02)

    def dropped_writes(self):
        """Returns the number of writes that the current process has dropped because the queue of the disk was full."""
        text = urllib.request.urlopen(self.admin + "/metrics").read().decode()
        lines = [line for line in text.splitlines() if line.startswith("edgeward_disk_dropped_queue_full_total{")]
        return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines)

    def settle(self):
        """Waits until the disk has written its queue."""
        while True:
            status = json.load(urllib.request.urlopen(self.admin + "/status"))
            devices = status["disk"]["devices"]
            if status["fills"]["under_way"] == 0 and all(device["queue_messages"] == 0 for device in devices):
                return
            time.sleep(0.1)


class Tally:
    def __init__(self):
        self.lock = threading.Lock()
        self.requests = self.hits = self.bytes = self.cut = self.wrong = 0

    def add(self, **counts):
        with self.lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)


def request(port, path, first, end, tally):
    """Requests a range until its response is complete, or once for a URL whose responses may be cut. Returns its bytes."""
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        try:
            connection.request("GET", path, headers={"Range": f"bytes={first}-{end - 1}"})
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            tally.add(cut=1)
            body = getattr(error, "partial", b"")
            if path.startswith("/changing"):
                # Every response has the whole head before the body, so a part of the body belongs to some version.
                pieces = [b"".join(content(version, first, first + len(body))) for version in (1, 2)]
                tally.add(requests=1, wrong=body not in pieces)
                return
            time.sleep(0.05)
            continue
        finally:
            connection.close()
        if response.status != 206 and not path.startswith("/changing"):
            # The edge ends while it answers, or the origin's connections are used up for a moment.
            tally.add(cut=1)
            time.sleep(0.05)
            continue
        version = int(response.headers["ETag"].strip('"v')) if response.status == 206 else 0
        right = version and body == b"".join(content(version, first, end))
        status = response.headers["Cache-Status"] or ""
        tally.add(requests=1, bytes=len(body), wrong=not right, hits=status.startswith("edgeward; hit"))
        return


def phase(name, edge, path, ranges, sent, half=lambda: None, hits_min=0.0, union=None):
    """All clients request their ranges. `half` is called when half of the requests are answered."""
    tally, began, sent_before = Tally(), time.monotonic(), sent.value
    edge.rss_max = 0

    def client(own):
        for first, end in own:
            request(edge.port, path, first, end, tally)

    threads = [threading.Thread(target=client, args=(own,)) for own in ranges]
    for thread in threads:
        thread.start()
    total = sum(len(own) for own in ranges)
    while tally.requests < total // 2:
        time.sleep(0.01)
    half()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - began
    memory_max = int(MEMORY_RATIO_MAX * (parse_size(HOT) + FILL_BYTES_MAX + parse_size(QUEUE) + BASE_BYTES))
    origin_bytes = sent.value - sent_before
    result = {
        "phase": name, "requests": tally.requests, "bytes": tally.bytes, "wrong": tally.wrong, "cut": tally.cut,
        "hit_ratio": round(tally.hits / tally.requests, 4), "origin_bytes": origin_bytes,
        "rss_max": edge.rss_max, "rss_limit": memory_max, "seconds": round(seconds, 1),
        "dropped_writes": edge.dropped_writes(),
    }
    laws = {"bytes": tally.wrong == 0, "hits": result["hit_ratio"] >= hits_min, "memory": edge.rss_max <= memory_max}
    if union is not None:
        result["union_bytes"] = union
        result["origin_ratio"] = round(origin_bytes / union, 4)
        laws["origin"] = origin_bytes <= 1.1 * union
    result["broken"] = [law for law, holds in laws.items() if not holds]
    print(json.dumps(result), flush=True)
    return not result["broken"]


def parse_size(text):
    units = {"KiB": 10, "MiB": 20, "GiB": 30}
    return int(text[:-3]) << units[text[-3:]]


def random_ranges(seed):
    generator = random.Random(seed)
    def one():
        size = generator.randint(1, RANGE_MAX)
        first = generator.randrange(LENGTH - size)
        return first, first + size
    return [[one() for _ in range(RANGES)] for _ in range(CLIENTS)]


def union_of(ranges):
    """Returns the bytes of the slices that contain the ranges."""
    slices = {index for own in ranges for first, end in own for index in range(first // SLICE, (end - 1) // SLICE + 1)}
    return sum(min((index + 1) * SLICE, LENGTH) - index * SLICE for index in slices)


def main():
    sent, requests, version = (multiprocessing.Value("q", start) for start in (0, 0, 1))
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    origin = multiprocessing.Process(target=serve_origin, args=(listener, sent, requests, version), daemon=True)
    origin.start()
    scratch = os.environ.get("BENCH_SCRATCH")
    with tempfile.TemporaryDirectory(dir=scratch, ignore_cleanup_errors=True) as folder:
        disk = folder + "/cache"
        os.mkdir(disk)
        edge = Edge(disk, f"http://127.0.0.1:{listener.getsockname()[1]}")
        ranges = random_ranges(1)
        holds = [phase("cold", edge, "/film", ranges, sent, union=union_of(ranges))]
        edge.settle()
        holds.append(phase("second", edge, "/film", ranges, sent, hits_min=0.99))
        edge.settle()
        holds.append(phase("killed", edge, "/film", ranges, sent, half=edge.restart, hits_min=0.99))
        others = [own[:RANGES // 2] for own in random_ranges(2)]
        holds.append(phase("cold, killed", edge, "/other", others, sent, half=edge.restart, union=union_of(others)))
        change = lambda: setattr(version, "value", 2)
        others = [own[:RANGES // 2] for own in random_ranges(3)]
        holds.append(phase("changed", edge, "/changing", others, sent, half=change))
        edge.process.kill()
        edge.process.wait()
    origin.terminate()
    sys.exit(0 if all(holds) else 1)


if __name__ == "__main__":
    main()
