"""Floods: the edge ends them, its memory stays within its budgets, and other clients are served."""

import re
import socket
import unittest
from pathlib import Path

from client import Client
from edge import Edge
from floods import EXCESSIVE, initial
from test_errors import CONTROL, REQUEST, SETTINGS

H3_EXCESSIVE_LOAD = 0x107

# The growth of the process over all floods: less than limits.connections_bytes_max.
GROWTH_BYTES_MAX = 64 << 20


class Floods(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.edge = Edge()
        cls.resident_before = resident_bytes(cls.edge)

    @classmethod
    def tearDownClass(cls):
        cls.edge.stop()

    def check_edge(self):
        """Checks that another client is served, and that the memory of the edge is bounded."""
        with Client(self.edge.port) as client:
            client.connect()
            client.quic.send_stream_data(0, REQUEST, end_stream=True)
            client.wait(lambda event: getattr(event, "end_stream", False) or None)
        self.assertLess(resident_bytes(self.edge) - self.resident_before, GROWTH_BYTES_MAX)

    def test_floods_of_a_connection_end_it(self):
        closed = 'edgeward_client_connections_closed_total{cause="h3-flood"}'
        for name, flood in EXCESSIVE.items():
            with self.subTest(name), Client(self.edge.port) as client:
                before = self.edge.metric(closed)
                client.connect()
                client.quic.send_stream_data(CONTROL, b"\0" + SETTINGS)
                self.assertEqual(client.flood_until_closed(flood), H3_EXCESSIVE_LOAD)
                self.assertEqual(self.edge.metric(closed), before + 1)
                self.check_edge()

    def test_datagrams_without_a_connection_leave_nothing(self):
        datagrams = {
            "first datagrams": initial,
            "first datagrams with a token": lambda: initial(b"\0" * 60),
            "datagrams without bytes": lambda: b"",
            "short datagrams": lambda: b"\x40",
            "long datagrams": lambda: b"\x40" + bytes(1400),
        }
        for name, datagram in datagrams.items():
            with self.subTest(name):
                for _ in range(200):
                    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                        client.connect(("127.0.0.1", self.edge.port))
                        for _ in range(5):
                            client.send(datagram())
                self.check_edge()
                self.assertEqual(self.edge.metric("edgeward_quic_handshakes"), 0)


def resident_bytes(edge):
    status = Path(f"/proc/{edge.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10


if __name__ == "__main__":
    unittest.main()
