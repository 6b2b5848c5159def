"""Violations of QUIC, TLS, HTTP/3 and QPACK, each with the code of the error that the edge must answer with.

The cases are those of h3spec, a tool for servers of HTTP/3, without CRYPTO in 0-RTT, which the edge refuses, and with
further ones.
"""

import unittest

from aioquic import tls
from aioquic.buffer import encode_uint_var

from client import Client, rewrite_packets
from edge import Edge

FLOW_CONTROL_ERROR = 0x3
STREAM_LIMIT_ERROR = 0x4
STREAM_STATE_ERROR = 0x5
FRAME_ENCODING_ERROR = 0x7
TRANSPORT_PARAMETER_ERROR = 0x8
PROTOCOL_VIOLATION = 0xA
UNEXPECTED_MESSAGE = 0x100 + 10
MISSING_EXTENSION = 0x100 + 109
NO_APPLICATION_PROTOCOL = 0x100 + 120
H3_STREAM_CREATION_ERROR = 0x103
H3_CLOSED_CRITICAL_STREAM = 0x104
H3_FRAME_UNEXPECTED = 0x105
H3_FRAME_ERROR = 0x106
H3_ID_ERROR = 0x108
H3_SETTINGS_ERROR = 0x109
H3_MISSING_SETTINGS = 0x10A
H3_REQUEST_INCOMPLETE = 0x10D
H3_MESSAGE_ERROR = 0x10E
QPACK_DECOMPRESSION_FAILED = 0x200
QPACK_ENCODER_STREAM_ERROR = 0x201
QPACK_DECODER_STREAM_ERROR = 0x202

# The messages of TLS: type, and a length of 24 bits.
KEY_UPDATE = b"\x18\0\0\1\0"
END_OF_EARLY_DATA = b"\x05\0\0\0"


def varints(*numbers):
    return b"".join(map(encode_uint_var, numbers))


def crypto(message):
    return varints(0x06, 0, len(message)) + message


def frame(frame_type, payload=b""):
    """A frame of HTTP/3."""
    return varints(frame_type, len(payload)) + payload


def headers(*fields):
    """A HEADERS frame whose field lines are literals."""
    lines = b"".join(literal(name.encode(), value.encode()) for name, value in fields)
    return frame(0x1, b"\0\0" + lines)


def literal(name, value):
    length = bytes([0x20 | len(name)]) if len(name) < 7 else bytes([0x27, len(name) - 7])
    return length + name + bytes([len(value)]) + value


SETTINGS = frame(0x4)
METHOD, SCHEME, AUTHORITY, PATH = (
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "localhost"),
    (":path", "/"),
)
REQUEST = headers(METHOD, SCHEME, AUTHORITY, PATH)

# Streams: the first request, the first streams of the client in one direction, and streams of the edge.
REQUEST_STREAM, CONTROL, SECOND = 0, 2, 6
EDGE_BIDI, EDGE_UNI = 5, 15

# Violations by frames of QUIC after the handshake (RFC 9000).
FRAMES = {
    "STREAM with a large offset": (varints(0x0E, 0, 1 << 40, 0), FLOW_CONTROL_ERROR),
    "a frame of an unknown type": (varints(0xFFFF), FRAME_ENCODING_ERROR),
    "RESET_STREAM for a stream that the edge sends": (varints(0x04, EDGE_UNI, 0, 0), STREAM_STATE_ERROR),
    "STOP_SENDING for a stream that the edge has not opened": (varints(0x05, EDGE_BIDI, 0), STREAM_STATE_ERROR),
    "NEW_TOKEN": (varints(0x07, 1) + b"a", PROTOCOL_VIOLATION),
    "STREAM for a stream that the edge has not opened": (varints(0x0A, EDGE_BIDI, 1) + b"a", STREAM_STATE_ERROR),
    "STREAM for a stream that the edge sends": (varints(0x0A, EDGE_UNI, 1) + b"a", STREAM_STATE_ERROR),
    "MAX_STREAM_DATA for a stream that the edge has not opened": (varints(0x11, EDGE_BIDI, 9), STREAM_STATE_ERROR),
    "MAX_STREAM_DATA for a stream that the edge receives": (varints(0x11, CONTROL, 9), STREAM_STATE_ERROR),
    "MAX_STREAMS above 2^60": (varints(0x12, (1 << 60) + 1), FRAME_ENCODING_ERROR),
    "STREAMS_BLOCKED above 2^60": (varints(0x16, (1 << 60) + 1), {STREAM_LIMIT_ERROR, FRAME_ENCODING_ERROR}),
    "NEW_CONNECTION_ID that retires a later id": (
        varints(0x18, 1, 2, 8) + bytes(8 + 16),
        FRAME_ENCODING_ERROR,
    ),
    "NEW_CONNECTION_ID without an id": (varints(0x18, 1, 0, 0) + bytes(16), FRAME_ENCODING_ERROR),
    "HANDSHAKE_DONE": (varints(0x1E), PROTOCOL_VIOLATION),
    "KeyUpdate of TLS": (crypto(KEY_UPDATE), UNEXPECTED_MESSAGE),
}

# Violations by frames in Handshake packets.
HANDSHAKE_FRAMES = {
    "PATH_CHALLENGE": (varints(0x1A) + bytes(8), PROTOCOL_VIOLATION),
    "KeyUpdate of TLS": (crypto(KEY_UPDATE), UNEXPECTED_MESSAGE),
    "EndOfEarlyData of TLS": (crypto(END_OF_EARLY_DATA), UNEXPECTED_MESSAGE),
}

# Transport parameters with a value that a client must not send (RFC 9000 §7.4, §18.2). None removes the parameter.
PARAMETERS = {
    "no initial_source_connection_id": (0x0F, None),
    "original_destination_connection_id": (0x00, bytes(8)),
    "preferred_address": (0x0D, bytes(24) + b"\x08" + bytes(8 + 16)),
    "retry_source_connection_id": (0x10, bytes(8)),
    "stateless_reset_token": (0x02, bytes(16)),
    "max_udp_payload_size below 1200": (0x03, varints(1199)),
    "ack_delay_exponent above 20": (0x0A, varints(21)),
    "max_ack_delay of 2^14": (0x0B, varints(1 << 14)),
}

# Bytes of a request stream, after which the edge closes the connection (RFC 9114, RFC 9204).
REQUEST_STREAMS = {
    "DATA before HEADERS": (frame(0x0, b"a"), H3_FRAME_UNEXPECTED),
    "CANCEL_PUSH": (frame(0x3, b"\0"), H3_FRAME_UNEXPECTED),
    "SETTINGS": (SETTINGS, H3_FRAME_UNEXPECTED),
    "PUSH_PROMISE": (frame(0x5, b"\0\0\0"), H3_FRAME_UNEXPECTED),
    "GOAWAY": (frame(0x7, b"\0"), H3_FRAME_UNEXPECTED),
    "MAX_PUSH_ID": (frame(0xD, b"\0"), H3_FRAME_UNEXPECTED),
    "a type of HTTP/2": (frame(0x6, bytes(8)), H3_FRAME_UNEXPECTED),
    "a static index above the table": (frame(0x1, b"\0\0\xff\x24"), QPACK_DECOMPRESSION_FAILED),
    "an entry of the dynamic table": (frame(0x1, b"\x02\0\x80"), QPACK_DECOMPRESSION_FAILED),
}

# Requests that are malformed: the edge resets their stream.
MALFORMED = {
    "a pseudo-header field that is repeated": headers(METHOD, METHOD, SCHEME, AUTHORITY, PATH),
    "no :method": headers(SCHEME, AUTHORITY, PATH),
    "no :path": headers(METHOD, SCHEME, AUTHORITY),
    "a pseudo-header field of responses": headers(METHOD, SCHEME, AUTHORITY, PATH, (":status", "200")),
    "an unknown pseudo-header field": headers(METHOD, SCHEME, AUTHORITY, PATH, (":a", "b")),
    "a pseudo-header field after others": headers(METHOD, SCHEME, AUTHORITY, ("a", "b"), PATH),
    "an upper case name": headers(METHOD, SCHEME, AUTHORITY, PATH, ("A", "b")),
    "Connection": headers(METHOD, SCHEME, AUTHORITY, PATH, ("connection", "close")),
    "more content than Content-Length": headers(METHOD, SCHEME, AUTHORITY, PATH, ("content-length", "1"))
    + frame(0x0, b"ab"),
}

# Frames of the control stream after its type.
CONTROL_STREAMS = {
    "no SETTINGS": (frame(0x7, b"\0"), H3_MISSING_SETTINGS),
    "DATA": (SETTINGS + frame(0x0, b"a"), H3_FRAME_UNEXPECTED),
    "HEADERS": (SETTINGS + REQUEST, H3_FRAME_UNEXPECTED),
    "a second SETTINGS": (SETTINGS + SETTINGS, H3_FRAME_UNEXPECTED),
    "PUSH_PROMISE": (SETTINGS + frame(0x5, b"\0\0\0"), H3_FRAME_UNEXPECTED),
    "a setting of HTTP/2": (frame(0x4, varints(0x4, 1)), H3_SETTINGS_ERROR),
    "a setting that is repeated": (frame(0x4, varints(0x6, 9, 0x6, 9)), H3_SETTINGS_ERROR),
    "CANCEL_PUSH of an unknown push": (SETTINGS + frame(0x3, b"\0"), H3_ID_ERROR),
    "GOAWAY with bytes after its id": (SETTINGS + frame(0x7, b"\0\0"), H3_FRAME_ERROR),
}

# The first bytes of a stream in one direction, beside a valid control stream.
STREAMS = {
    "a second control stream": (b"\0", H3_STREAM_CREATION_ERROR),
    "a push stream": (b"\x01\0", H3_STREAM_CREATION_ERROR),
    "a capacity of the dynamic table above the setting": (b"\x02\x3f\x01", QPACK_ENCODER_STREAM_ERROR),
    "an increment of zero": (b"\x03\0", QPACK_DECODER_STREAM_ERROR),
}


class Errors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.edge = Edge()

    @classmethod
    def tearDownClass(cls):
        cls.edge.stop()

    def check(self, name, expected, prepare=None, act=None, **options):
        """Connects, and compares the code with which the edge closes the connection."""
        with self.subTest(name), Client(self.edge.port, prepare=prepare, **options) as client:
            if act is not None:
                act(client.connect())
            code = client.close_code()
            expected = expected if isinstance(expected, set) else {expected}
            self.assertIn(code, expected, f"{name}: {code:#x}")

    def test_frames_of_quic(self):
        for name, (frames, code) in FRAMES.items():
            self.check(name, code, act=lambda client, frames=frames: client.quic.frames.append(frames))

    def test_frames_in_the_handshake(self):
        for name, (frames, code) in HANDSHAKE_FRAMES.items():
            self.check(name, code, lambda quic, frames=frames: setattr(quic, "handshake_frames", [frames]))

    def test_transport_parameters(self):
        for name, (number, value) in PARAMETERS.items():
            change = {number: value}
            prepare = lambda quic, change=change: quic.parameters.update(change)
            self.check(name, TRANSPORT_PARAMETER_ERROR, prepare)

    def test_extensions_of_tls(self):
        self.check("no protocol of ALPN", NO_APPLICATION_PROTOCOL, alpn="h9")
        no_parameters = lambda quic: setattr(quic, "has_parameters", False)
        self.check("no transport parameters", MISSING_EXTENSION, no_parameters)

    def test_packets(self):
        epoch = tls.Epoch.HANDSHAKE
        reserved = lambda header, payload: (bytes([header[0] | 0x0C]) + header[1:], payload)
        prepare = lambda quic: quic.rewrites.update({epoch: reserved})
        self.check("reserved bits of a long header", PROTOCOL_VIOLATION, prepare)
        for name, rewrite in {
            "reserved bits of a short header": lambda header, payload: (
                bytes([header[0] | 0x18]) + header[1:],
                payload,
            ),
            # A number of four bytes, so that the packet is long enough for the protection of its header.
            "a packet without frames": lambda header, payload: (
                bytes([header[0] | 0x03]) + header[1:-2] + bytes(2) + header[-2:],
                b"",
            ),
        }.items():

            def act(client, rewrite=rewrite):
                rewrite_packets(client.quic._cryptos[tls.Epoch.ONE_RTT], rewrite)
                client.quic.send_ping(1)

            self.check(name, PROTOCOL_VIOLATION, act=act)

    def test_request_streams(self):
        for name, (data, code) in REQUEST_STREAMS.items():
            self.check(name, code, act=lambda client, data=data: client.quic.send_stream_data(REQUEST_STREAM, data))

    def test_malformed_requests(self):
        with Client(self.edge.port) as client:
            client.connect()
            client.quic.send_stream_data(CONTROL, b"\0" + SETTINGS)
            for number, (name, data) in enumerate(MALFORMED.items()):
                with self.subTest(name):
                    client.quic.send_stream_data(4 * number, data, end_stream=True)
                    self.assertEqual(client.reset_code(4 * number), H3_MESSAGE_ERROR)
            with self.subTest("no HEADERS"):
                stream = 4 * len(MALFORMED)
                client.quic.send_stream_data(stream, b"", end_stream=True)
                self.assertEqual(client.reset_code(stream), H3_REQUEST_INCOMPLETE)

    def test_control_streams(self):
        for name, (data, code) in CONTROL_STREAMS.items():
            data = b"\0" + data
            self.check(name, code, act=lambda client, data=data: client.quic.send_stream_data(CONTROL, data))

        def end(client):
            client.quic.send_stream_data(CONTROL, b"\0" + SETTINGS, end_stream=True)

        self.check("the end of the control stream", H3_CLOSED_CRITICAL_STREAM, act=end)

    def test_streams_in_one_direction(self):
        for name, (data, code) in STREAMS.items():

            def act(client, data=data):
                client.quic.send_stream_data(CONTROL, b"\0" + SETTINGS)
                client.quic.send_stream_data(SECOND, data)

            self.check(name, code, act=act)


if __name__ == "__main__":
    unittest.main()
