#!/usr/bin/env python3
"""Measures a bulk transfer without references over a long path, for machines whose kernel has no netem.

Two network namespaces are joined by two TUN devices. For each direction a process of this script reads the packets,
paces them to the bandwidth, delays them, and drops those that do not fit into its queue. A gateway runs behind one
device and `edgeward link forward` behind the other. Needs root, iproute2 and a binary of edgeward.

    cargo build --release -p edgeward-cli
    sudo bench/link/long_path.py --edgeward target/release/edgeward --rows direct 2 3 5
"""

import argparse
import collections
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

MTU = 9000
ADDRESSES = {"a": "10.79.0.1", "b": "10.79.0.2"}
LIBC = ctypes.CDLL(None, use_errno=True)


def open_tun(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    tun_set_iff, iff_tun, iff_no_pi = 0x400454CA, 0x0001, 0x1000
    fcntl.ioctl(fd, tun_set_iff, struct.pack("16sH22x", name.encode(), iff_tun | iff_no_pi))
    return fd


def relay(source, sink, bits_per_second, delay, queue_seconds):
    """Forwards the packets of one direction until the process is killed."""
    waiting, free_at = collections.deque(), 0.0
    poll = select.poll()
    poll.register(source, select.POLLIN)
    while True:
        timeout = None if not waiting else max(0.0, waiting[0][0] - time.monotonic()) * 1000
        poll.poll(timeout)
        while True:
            try:
                packet = os.read(source, 65536)
            except BlockingIOError:
                break
            now = time.monotonic()
            if free_at - now > queue_seconds:
                continue
            free_at = max(free_at, now) + len(packet) * 8 / bits_per_second
            waiting.append((free_at + delay, packet))
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            try:
                os.write(sink, waiting.popleft()[1])
            except OSError:
                pass


def enter(namespace):
    """Moves this thread to a namespace, and returns a function that moves it back."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    fd = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if LIBC.setns(fd, 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    os.close(fd)
    return lambda: (LIBC.setns(before, 0), os.close(before))


def socket_in(namespace):
    back = enter(namespace)
    try:
        return socket.socket()
    finally:
        back()


def serve(listener, total):
    """Sends `total` random bytes to each client."""
    def send(client):
        with client:
            left = total
            try:
                while left > 0:
                    part = os.urandom(min(left, 1 << 20))
                    client.sendall(part)
                    left -= len(part)
            except OSError:
                pass

    while True:
        client, _ = listener.accept()
        threading.Thread(target=send, args=(client,), daemon=True).start()


def receive(namespace, address):
    """Receives all bytes, and returns their number, the seconds, and the megabits per second of each second."""
    with socket_in(namespace) as client:
        client.connect(address)
        start, seconds, total = time.monotonic(), [], 0
        buffer = bytearray(1 << 20)
        while count := client.recv_into(buffer):
            total += count
            second = int(time.monotonic() - start)
            seconds.extend([0] * (second + 1 - len(seconds)))
            seconds[second] += count
        return total, time.monotonic() - start, [round(of * 8 / 1e6) for of in seconds]


def first_line(namespace, log, command):
    process = subprocess.Popen(
        ["ip", "netns", "exec", namespace, *command], stdout=subprocess.PIPE, stderr=log, text=True)
    line = process.stdout.readline()
    return process, json.loads(line)


def row(args, folder, log, name, source):
    if name == "direct":
        return receive("edgeward-a", source)
    store = os.path.join(folder, name)
    options = ["--store-size", "2GiB", "--json", *args.options.split()]
    processes = []
    try:
        gateway, line = first_line("edgeward-b", log, [
            args.edgeward, "gateway", "--listen", f"{ADDRESSES['b']}:0", "--allow", f"{source[0]}:{source[1]}",
            "--keys", f"{folder}/keys/gateway", "--store", f"{store}-gateway", *options])
        processes.append(gateway)
        forward, line = first_line("edgeward-a", log, [
            args.edgeward, "link", "forward", "--listen", "127.0.0.1:0", "--to", f"{source[0]}:{source[1]}",
            "--gateway", line["listening"], "--connections", name,
            "--keys", f"{folder}/keys/edge", "--store", f"{store}-edge", *options])
        processes.append(forward)
        time.sleep(2)
        host, port = line["listening"][0].rsplit(":", 1)
        return receive("edgeward-a", (host, int(port)))
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edgeward", required=True)
    parser.add_argument("--mbps", type=float, default=200)
    parser.add_argument("--rtt-ms", type=float, default=150)
    parser.add_argument("--queue-ms", type=float, default=150, help="the longest queue of the path")
    parser.add_argument("--bytes", type=int, default=500_000_000)
    parser.add_argument("--options", default="", help="further options of both endpoints")
    parser.add_argument("--temp", help="the folder of the stores")
    parser.add_argument("--rows", nargs="+", default=["direct", "2", "3"],
                        help="`direct`, or a number of connections of the link")
    args = parser.parse_args()
    relays = []
    devices = {side: open_tun(f"edgeward-{side}") for side in ADDRESSES}
    try:
        for side, address in ADDRESSES.items():
            device = namespace = f"edgeward-{side}"
            peer = ADDRESSES["b" if side == "a" else "a"]
            for command in (
                    f"ip netns add {namespace}",
                    f"ip link set {device} netns {namespace}",
                    f"ip -n {namespace} link set lo up",
                    f"ip -n {namespace} link set {device} mtu {MTU} txqueuelen 10000 up",
                    f"ip -n {namespace} addr add {address} peer {peer} dev {device}"):
                subprocess.run(command.split(), check=True)
        for source, sink in (("a", "b"), ("b", "a")):
            child = os.fork()
            if child == 0:
                relay(devices[source], devices[sink], args.mbps * 1e6, args.rtt_ms / 2000, args.queue_ms / 1000)
            relays.append(child)
        listener = socket_in("edgeward-b")
        listener.bind((ADDRESSES["b"], 0))
        listener.listen()
        threading.Thread(target=serve, args=(listener, args.bytes), daemon=True).start()
        with tempfile.TemporaryDirectory(dir=args.temp) as folder, open(f"{folder}/log", "w+") as log:
            subprocess.run([args.edgeward, "link", "keygen", "--out", f"{folder}/keys"],
                           check=True, stdout=subprocess.DEVNULL)
            for name in args.rows:
                total, seconds, each = row(args, folder, log, name, listener.getsockname())
                mbps = total * 8 / seconds / 1e6
                print(json.dumps({
                    "row": name, "bytes": total, "complete": total == args.bytes, "seconds": round(seconds, 2),
                    "mbps": round(mbps, 1), "share": round(mbps / args.mbps, 3),
                    "mbps_of_each_second": each}), flush=True)
            log.seek(0)
            sys.stderr.write(log.read()[-4000:])
    finally:
        for child in relays:
            os.kill(child, signal.SIGKILL)
        for side in ADDRESSES:
            subprocess.run(["ip", "netns", "del", f"edgeward-{side}"], check=False)


if __name__ == "__main__":
    main()
