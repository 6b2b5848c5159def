#!/usr/bin/env python3
"""Hit ratios of URLs with tracking parameters, with and without `No-Vary-Search`.

    bench/no-vary-search/run.py EDGEWARD [REQUESTS] [HOT]

Generates a trace with web traffic and sends its requests over one connection to `edgeward serve` in front of
`edgeward origin`, in four forms:

- `clean`: the URLs of the trace;
- `clean, with rule`: the same, and the origin sends `No-Vary-Search`;
- `tracking`: each URL has one to four tracking parameters with random values, in random order with its own parameter;
- `tracking, with rule`: the same, and the origin sends `No-Vary-Search`.

Each form runs without and with a disk. Prints one JSON object per run.
"""
import csv, json, random, re, signal, socket, subprocess, sys, tempfile, urllib.request

edgeward = sys.argv[1]
requests = sys.argv[2] if len(sys.argv) > 2 else "100000"
hot = sys.argv[3] if len(sys.argv) > 3 else "64MiB"
TRACKING = ["utm_source", "utm_medium", "utm_campaign", "fbclid", "gclid"]
RULE = "No-Vary-Search: key-order, params=(" + " ".join(f'"{name}"' for name in TRACKING) + ")"


def start(args):
    process = subprocess.Popen([edgeward, *args], stdout=subprocess.PIPE, text=True)
    return process, json.loads(process.stdout.readline())


def end(process):
    process.send_signal(signal.SIGTERM)
    process.wait(60)


def send(address, targets):
    """Sends the requests one after another and returns the bytes of their bodies."""
    host, port = address.removeprefix("http://").rstrip("/").rsplit(":", 1)
    body_bytes = 0
    with socket.create_connection((host, int(port)), 30) as connection, connection.makefile("rb") as answers:
        for target in targets:
            connection.sendall(f"GET {target} HTTP/1.1\r\nHost: bench.example\r\n\r\n".encode())
            status = answers.readline().split()[1]
            assert status == b"200", (target, status)
            while (line := answers.readline()) != b"\r\n":
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            answers.read(length)
            body_bytes += length
    return body_bytes


def with_tracking(path, own, rng):
    names = rng.sample(TRACKING, rng.randint(1, 4))
    parameters = [own, *(f"{name}={rng.getrandbits(32):x}" for name in names)]
    rng.shuffle(parameters)
    return path + "?" + "&".join(parameters)


def run(records, is_tracked, has_rule, has_disk, folder):
    rng = random.Random(1)
    targets = [
        with_tracking(f"/o/{key}", f"size={size}", rng) if is_tracked else f"/o/{key}?size={size}"
        for key, size in records
    ]
    origin, line = start(["origin", "--json", "--quiet", "--listen=127.0.0.1:0", *(["--header", RULE] * has_rule)])
    disk = [f"--disk={folder}", "--disk-size=4GiB"] if has_disk else []
    args = ["serve", "--json", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--workers=1", f"--hot={hot}"]
    edge, edge_line = start([*args, f"--origin={'http://' + line['listen']}", *disk])
    send(edge_line["listening"][0], targets)
    metrics = urllib.request.urlopen(edge_line["admin"] + "/metrics").read().decode()
    hits = re.findall(r'^edgeward_requests_total\{[^}]*outcome="([a-z-]*hit|stale)"[^}]*\} (\d+)', metrics, re.M)
    end(edge)
    end(origin)
    hits = sum(int(count) for _, count in hits)
    form = ("tracking" if is_tracked else "clean") + (", with rule" if has_rule else "")
    result = {"form": form, "disk": has_disk, "requests": len(targets), "hits": hits, "hit_ratio": round(hits / len(targets), 5)}
    print(json.dumps(result), flush=True)


with tempfile.TemporaryDirectory() as folder:
    trace = f"{folder}/web.csv"
    subprocess.run([edgeward, "trace", "generate", "--quiet", "--preset=web", f"--requests={requests}", f"--output={trace}"],
                   check=True)
    with open(trace) as lines:
        rows = list(csv.reader(lines))
    records = [(row[1], row[2]) for row in rows if row[2].isdigit()]
    for has_disk in (False, True):
        for is_tracked, has_rule in ((False, False), (False, True), (True, False), (True, True)):
            run(records, is_tracked, has_rule, has_disk, f"{folder}/disk-{has_disk}-{is_tracked}-{has_rule}")
