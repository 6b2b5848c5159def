"""Floods: clients that make the edge work or keep bytes for as few bytes of their own as possible."""

import os

from aioquic import tls
from aioquic.buffer import Buffer, encode_uint_var
from aioquic.quic.packet import QuicProtocolVersion

from test_errors import AUTHORITY, CONTROL, METHOD, PATH, REQUEST, SCHEME, SECOND, SETTINGS, frame, headers, varints

PACKET_BYTES = 1100


def packets(quic_frame):
    """Returns a flood of packets that repeat a frame of QUIC."""

    def flood(client):
        # The last packet waits if the congestion window is full.
        if not client.quic.frames:
            client.quic.frames.append(quic_frame * (PACKET_BYTES // len(quic_frame)))
        client.send()

    return flood


def acknowledgements(client):
    """Acknowledges a received packet again and again. To acknowledge another number, which the edge may have left out,
    is an error."""
    received = client.quic._spaces[tls.Epoch.ONE_RTT].largest_received_packet
    packets(varints(0x02, received, 0, 0, 0))(client)


def on_control(data):
    """Returns a flood of bytes on the control stream."""

    def flood(client):
        client.quic.send_stream_data(CONTROL, data)
        client.send()

    return flood


def on_second(stream_type, data):
    """Returns a flood of bytes on a further unidirectional stream."""

    def flood(client):
        if not getattr(client, "has_second", False):
            client.has_second = True
            client.quic.send_stream_data(SECOND, stream_type)
        client.quic.send_stream_data(SECOND, data)
        client.send()

    return flood


def requests(data, ends=False, resets=False):
    """Returns a flood of requests, which are reset at once or complete."""

    def flood(client):
        for _ in range(20):
            stream = client.quic.get_next_available_stream_id()
            if stream >= 4 * client.quic._remote_max_streams_bidi:
                break
            client.quic.send_stream_data(stream, data, end_stream=ends)
            if resets:
                client.send()
                client.quic.reset_stream(stream, 0x10C)
                client.quic.stop_stream(stream, 0x10C)
        client.send()

    return flood


# Floods that the edge ends with H3_EXCESSIVE_LOAD. Each function sends a part, and is called again and again.
EXCESSIVE = {
    "PING": packets(b"\x01"),
    "PATH_CHALLENGE": packets(b"\x1a" + bytes(8)),
    "STREAM without bytes": packets(varints(0x0A, CONTROL, 0)),
    "MAX_DATA": packets(varints(0x10, 1 << 30)),
    "STREAMS_BLOCKED": packets(varints(0x16, 1)),
    "ACK": acknowledgements,
    "unknown frames on the control stream": on_control(frame(0x21) * 400),
    "MAX_PUSH_ID": on_control(frame(0x0D, b"\1") * 300),
    "priorities": on_control(frame(0xF0700, b"\0u=1") * 100),
    "a long frame on the control stream": on_control(varints(0x0D, 1 << 20)),
    "unknown frames of a request": requests(REQUEST + frame(0x21) * 101),
    "DATA without content": requests(REQUEST + frame(0x0) * 101),
    "capacities of QPACK": on_second(b"\x02", b"\x20" * 1000),
    "cancellations of QPACK": on_second(b"\x03", b"\x40" * 1000),
    "requests that are reset": requests(REQUEST, resets=True),
    "malformed requests": requests(headers(METHOD, SCHEME, AUTHORITY, PATH, ("connection", "x")), ends=True),
    "uploads longer than stated": requests(
        headers((":method", "POST"), SCHEME, AUTHORITY, PATH, ("content-length", "1")) + frame(0x0, b"two")
    ),
}


def initial(token=b""):
    """Returns a datagram that looks like the first one of a client: its encryption is not valid, but its header is."""
    head = Buffer(capacity=1200)
    head.push_bytes(b"\xc3" + QuicProtocolVersion.VERSION_1.to_bytes(4, "big"))
    for connection_id in (os.urandom(8), os.urandom(8)):
        head.push_bytes(bytes([8]) + connection_id)
    head.push_bytes(encode_uint_var(len(token)) + token)
    rest = 1200 - head.tell() - 2
    head.push_bytes((0x4000 | rest).to_bytes(2, "big") + os.urandom(rest))
    return head.data
