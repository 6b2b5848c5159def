#!/usr/bin/env python3
"""Requests one object over many connections at once: burst.py PORT ORIGIN_PORT PID BURST CLIENTS PATH

The connections are opened before the burst. Every 200th client compares its bytes; the others let the kernel drop them.
Prints one JSON object.
"""
import json
import os
import re
import resource
import select
import socket
import sys
import time
import urllib.request

PERIOD = bytes(range(251))
port, origin, pid, burst, clients, path = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), sys.argv[6]


def control(action):
    return json.load(urllib.request.urlopen(f"http://127.0.0.1:{origin}/control/{action}", timeout=60))


def connect(number):
    client = socket.socket()
    # Some addresses, because one has 28,000 ports.
    client.bind((f"127.0.0.{2 + number % 200}", 0))
    client.connect(("127.0.0.1", port))
    client.setblocking(False)
    return client


class Response:
    def __init__(self, number):
        self.compares = number % 200 == 0
        self.head = b""
        self.status = self.length = self.first_byte = None
        self.arrived = 0

    def read(self, client):
        """Reads once. Returns true at the end of the response."""
        if self.length is None or self.compares:
            data = client.recv(1 << 18)
            read = len(data)
        else:
            data, read = None, client.recv_into(buffer, 1 << 18, socket.MSG_TRUNC)
        if read == 0:
            sys.exit(f"the edge closed a connection after {self.arrived} bytes of a body")
        self.first_byte = self.first_byte or time.monotonic()
        if self.length is None:
            self.head += data
            head, end, data = self.head.partition(b"\r\n\r\n")
            if not end:
                return False
            self.status = int(head.split(b" ")[1])
            self.length = int(re.search(rb"\r\ncontent-length: *(\d+)", head, re.I)[1])
            read = len(data)
        if self.compares and self.status == 200:
            at = self.arrived % 251
            if data != (PERIOD * (len(data) // 251 + 2))[at:at + len(data)]:
                sys.exit(f"a wrong byte after byte {self.arrived}")
        self.arrived += read
        return self.arrived >= self.length


buffer = bytearray(1 << 18)
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
if burst == "stale":
    urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": "bench"})).read()
    # The object is fresh for two seconds.
    time.sleep(2.5)
gates = {"stale": (0, 1 << 30), "uncacheable": (1, clients - 1), "again": (0, clients)}
# Resets the peak of the resident set, `VmHWM` (proc(5)).
with open(f"/proc/{pid}/clear_refs", "w") as file:
    file.write("5")
connections = [connect(number) for number in range(clients)]
control("close?%d&%d" % gates[burst] if burst in gates else "open")
poll = select.epoll()
waiting = {}
for number, client in enumerate(connections):
    poll.register(client, select.EPOLLIN)
    waiting[client.fileno()] = (client, Response(number))
responses = [response for _, response in waiting.values()]
start = time.monotonic()
for client in connections:
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
while waiting:
    events = poll.poll(60)
    if not events:
        sys.exit(f"{len(waiting)} clients got no byte for a minute")
    for number, _ in events:
        client, response = waiting[number]
        if response.read(client):
            poll.unregister(client)
            client.close()
            del waiting[number]
whole = time.monotonic() - start
counts = control("open")
refused = sum(response.status == 503 for response in responses)
expected = 1 if burst in ("cold", "stale") else clients - refused
deadline = time.monotonic() + 20
while counts["requests"] < expected and time.monotonic() < deadline:
    # A validation in the background ends after its burst.
    time.sleep(0.05)
    counts["requests"] += control("open")["requests"]
first_bytes = sorted(response.first_byte for response in responses)
begin = counts["first_byte"] if burst == "cold" else start
peak = int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{pid}/status").read())[1]) << 10
print(json.dumps({
    "clients": clients, "errors": sum(response.status not in (200, 503) for response in responses), "refused": refused,
    "origin_requests": counts["requests"], "origin_requests_unexpected": abs(counts["requests"] - expected),
    "origin_connections": counts["connections_max"], "held_too_long": counts["timed_out"], "burst_seconds": whole,
    "first_byte_p99_seconds": first_bytes[len(first_bytes) * 99 // 100] - begin,
    "first_byte_last_seconds": first_bytes[-1] - begin, "peak_bytes": peak,
    "peak_bytes_above_connections": peak - clients * (16 << 10)}))
