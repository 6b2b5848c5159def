#!/usr/bin/env python3
"""Measures the hits of another client while a client floods the edge by HTTP/3, one flood after another.

The floods are those of the tests by aioquic. A client that the edge closes connects again at once. wrk asks for a hit
by HTTPS in a process of its own. The figure is hits per CPU-second of the edge, in the flood and before it, so that
other load of the machine does not change it. Needs wrk and the Python environment of `make h3-venv`:

    EDGEWARD=target/release/edgeward target/h3-venv/bin/python bench/h3/floods.py --seconds 5
"""
import argparse
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parents[2] / "crates/edge/proxy/tests/aioquic"
sys.path.insert(0, str(TESTS))  # before this folder, whose script has the same name
from client import Client  # noqa: E402
from edge import Edge  # noqa: E402
from floods import EXCESSIVE, initial  # noqa: E402
from test_errors import CONTROL, SETTINGS  # noqa: E402
from test_floods import resident_bytes  # noqa: E402

CLOSED = 'edgeward_client_connections_closed_total{cause="h3-flood"}'


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def connection_flood(edge, flood, until):
    """Floods by one connection after another. Returns the number of connections."""
    connections = 0
    while time.monotonic() < until:
        connections += 1
        with Client(edge.port) as client:
            try:
                client.connect()
                client.quic.send_stream_data(CONTROL, b"\0" + SETTINGS)
                while time.monotonic() < until:
                    flood(client)
                    client.exchange(until)
                    if client.quic._close_event is not None:
                        break
            except AssertionError:
                pass  # the end of the time
    return connections


def datagram_flood(edge, datagram, until):
    """Sends datagrams, ten from each port. Returns their number."""
    sent = 0
    while time.monotonic() < until:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.connect(("127.0.0.1", edge.port))
            for _ in range(10):
                client.send(datagram())
                sent += 1
    return sent


def hits(edge, seconds, attack=None):
    """Returns the hits per CPU-second of the edge, the seconds of CPU, and the result of the attack."""
    before = cpu_seconds(edge.process)
    url = f"https://127.0.0.1:{edge.port}/page"
    wrk = subprocess.Popen(["wrk", "-t1", "-c4", f"-d{seconds}s", url], stdout=subprocess.PIPE, text=True)
    result = attack(time.monotonic() + seconds) if attack else None
    output, _ = wrk.communicate()
    cpu = cpu_seconds(edge.process) - before
    requests = int(re.search(r"(\d+) requests in", output)[1])
    return requests / cpu, cpu, result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5)
    arguments = parser.parse_args()
    floods = {name: (connection_flood, flood) for name, flood in EXCESSIVE.items()}
    floods["first datagrams"] = (datagram_flood, initial)
    floods["first datagrams with a token"] = (datagram_flood, lambda: initial(b"\0" * 60))
    floods["datagrams without bytes"] = (datagram_flood, lambda: b"")
    for name, (run, flood) in floods.items():
        edge = Edge()
        try:
            hits(edge, 1)
            resident, closed = resident_bytes(edge), edge.metric(CLOSED)
            calm, _, _ = hits(edge, arguments.seconds)
            during, cpu, sent = hits(edge, arguments.seconds, lambda until: run(edge, flood, until))
            row = {
                "flood": name,
                "calm_hits_per_cpu_second": round(calm),
                "hits_per_cpu_second": round(during),
                "ratio": round(during / calm, 2),
                "cpu_seconds": round(cpu, 2),
                "sent": sent,
                "closed": edge.metric(CLOSED) - closed,
                "growth_mib": round((resident_bytes(edge) - resident) / (1 << 20), 1),
            }
            print(json.dumps(row), flush=True)
        finally:
            edge.stop()


if __name__ == "__main__":
    main()
