#!/usr/bin/env python3
"""Measures the goodput of parallel responses over a path with loss and delay, for machines whose kernel has no netem.

Two network namespaces are joined by two TUN devices. For each direction a process of this script reads the packets,
drops some of them at random, paces the others to the bandwidth, and delays them. An edge runs behind one device,
clients of HTTP/3 and HTTP/2 behind the other. Needs root, iproute2, h2load and release builds:

    cargo build --release -p edgeward-cli
    cargo build --release -p edgeward-h3 --example h3_load
    bench/h3/lossy_path.py --edgeward target/release/edgeward --client target/release/examples/h3_load
"""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

BENCH = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(BENCH / "link"))
from long_path import open_tun  # noqa: E402

MTU = 1500
CLIENT, SERVER = "edgeward-a", "edgeward-b"
ADDRESSES = {CLIENT: "10.79.1.1", SERVER: "10.79.1.2"}
QUEUE_SECONDS = 0.15


def relay(source, sink, bits_per_second, delay, loss, seed):
    """Forwards the packets of one direction until the process is killed."""
    waiting, free_at, chance = collections.deque(), 0.0, random.Random(seed)
    poll = select.poll()
    poll.register(source, select.POLLIN)
    while True:
        poll.poll(None if not waiting else max(0.0, waiting[0][0] - time.monotonic()) * 1000)
        while True:
            try:
                packet = os.read(source, 65536)
            except BlockingIOError:
                break
            now = time.monotonic()
            if free_at - now > QUEUE_SECONDS or chance.random() < loss:
                continue
            free_at = max(free_at, now) + len(packet) * 8 / bits_per_second
            waiting.append((free_at + delay, packet))
        while waiting and waiting[0][0] <= time.monotonic():
            try:
                os.write(sink, waiting.popleft()[1])
            except OSError:
                pass


def in_namespace(name, *command):
    return ["ip", "netns", "exec", name, *map(str, command)]


def start_edge(args, folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext",
                    "basicConstraints=critical,CA:FALSE", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
                   check=True, capture_output=True)
    (folder / "edge.toml").write_text(f"""
[[listener]]
address = "{ADDRESSES[SERVER]}:4433"
tls_certificates = "{folder}/cert.pem"
tls_key = "{folder}/key.pem"
http3 = true
[origin]
url = "http://127.0.0.1:8080"
[server]
workers = 1
""")
    log = open(folder / "log", "w")
    origin = subprocess.Popen(in_namespace(SERVER, "python3", BENCH / "origin.py", 8080), stdout=log, stderr=log)
    edge = subprocess.Popen(in_namespace(SERVER, args.edgeward, "serve", "--config", folder / "edge.toml"),
                            stdout=log, stderr=log)
    return [origin, edge]


def fetch(path):
    command = in_namespace(SERVER, "curl", "-skfo", "/dev/null", f"https://{ADDRESSES[SERVER]}:4433{path}")
    end = time.monotonic() + 20
    while subprocess.run(command).returncode != 0:
        if time.monotonic() > end:
            raise SystemExit("the edge does not answer")
        time.sleep(0.1)


def goodput(args, folder, protocol, path):
    """Returns the bytes of bodies in megabits per second. h2load does not wait for responses that are under way at the
    end: its figure also has their bytes."""
    address = f"{ADDRESSES[SERVER]}:4433"
    if protocol == "h3":
        command = [args.client, "requests", address, folder / "cert.pem", path, 1, args.streams, args.seconds]
    else:
        command = ["h2load", "--clients", 1, "--max-concurrent-streams", args.streams, "--duration", args.seconds,
                   "--window-bits", 24, "--connection-window-bits", 24, f"https://{address}{path}"]
    printed = subprocess.run(in_namespace(CLIENT, *command), check=True, stdout=subprocess.PIPE, text=True).stdout
    if protocol == "h3":
        result = json.loads(printed)
        requests, total, seconds = result["requests"], result["client_bytes"], result["seconds"]
    else:
        requests, total = int(re.search(r"(\d+) succeeded", printed)[1]), int(re.search(r"\((\d+)\) data", printed)[1])
        seconds = args.seconds
    return {"requests": requests, "seconds": round(seconds, 1), "mbps": round(total * 8 / seconds / 1e6, 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edgeward", required=True)
    parser.add_argument("--client", required=True)
    parser.add_argument("--mbps", type=float, default=100)
    parser.add_argument("--rtt-ms", type=float, default=150)
    parser.add_argument("--loss", type=float, default=0.02, help="the share of lost packets of each direction")
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--bytes", type=int, default=1 << 20)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tcp", nargs="+", default=["cubic", "bbr"], help="congestion controls of TCP")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    devices, children, servers = {name: open_tun(name) for name in ADDRESSES}, [], []
    try:
        for name, address in ADDRESSES.items():
            peer = ADDRESSES[SERVER if name == CLIENT else CLIENT]
            for command in (f"ip netns add {name}", f"ip link set {name} netns {name}", f"ip -n {name} link set lo up",
                            f"ip -n {name} link set {name} mtu {MTU} txqueuelen 10000 up",
                            f"ip -n {name} addr add {address} peer {peer} dev {name}"):
                subprocess.run(command.split(), check=True)
        for seed, (source, sink) in enumerate(((CLIENT, SERVER), (SERVER, CLIENT))):
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                relay(devices[source], devices[sink], args.mbps * 1e6, args.rtt_ms / 2000, args.loss, seed)
            children.append(child)
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            servers = start_edge(args, folder)
            path = f"/b/{args.bytes}/1"
            fetch(path)
            for number in range(args.rounds):
                for protocol in ["h3", *args.tcp]:
                    if protocol != "h3":
                        subprocess.run(["ip", "-n", SERVER, "route", "replace", ADDRESSES[CLIENT], "dev", SERVER, "src",
                                        ADDRESSES[SERVER], "congctl", protocol], check=True)
                    row = {"round": number, "load": protocol if protocol == "h3" else f"h2 {protocol}"}
                    print(json.dumps(row | goodput(args, folder, protocol, path)), flush=True)
    finally:
        for server in servers:
            server.kill()
            server.wait()
        for child in children:
            os.kill(child, signal.SIGKILL)
        for name in ADDRESSES:
            subprocess.run(["ip", "netns", "del", name], check=False)


if __name__ == "__main__":
    main()
