"""A client of QUIC on aioquic, without asyncio, which can violate the rules of QUIC and TLS."""

import socket
import ssl
import time

from aioquic import tls
from aioquic.buffer import Buffer, encode_uint_var
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, HandshakeCompleted, StreamReset
from aioquic.quic.packet import QuicPacketType

# The longest wait for an event, also on a machine that runs other tests meanwhile.
TIMEOUT_SECONDS = 30


class FaultyConnection(QuicConnection):
    """A connection with faults. Each attribute below is a fault that a test may set before the handshake."""

    def __init__(self, configuration):
        # Changes of transport parameters: id -> value; None removes one.
        self.parameters = {}
        self.has_parameters = True
        # Frames that replace those of the first Handshake packet.
        self.handshake_frames = None
        # Frames of the next packet after the handshake.
        self.frames = []
        # Changes the header and the payload of packets before they are encrypted: epoch -> function.
        self.rewrites = {}
        super().__init__(configuration=configuration)

    def _serialize_transport_parameters(self):
        parameters = {}
        buffer = Buffer(data=super()._serialize_transport_parameters())
        while not buffer.eof():
            number = buffer.pull_uint_var()
            parameters[number] = buffer.pull_bytes(buffer.pull_uint_var())
        parameters.update(self.parameters)
        return b"".join(
            encode_uint_var(number) + encode_uint_var(len(value)) + value
            for number, value in parameters.items()
            if value is not None
        )

    def _initialize(self, peer_cid):
        super()._initialize(peer_cid)
        if not self.has_parameters:
            self.tls.handshake_extensions = []
        for epoch, rewrite in self.rewrites.items():
            crypto = self._cryptos[epoch]
            rewrite_packets(crypto, rewrite)

    def _write_handshake(self, builder, epoch, now):
        crypto = self._cryptos[epoch]
        if epoch != tls.Epoch.HANDSHAKE or self.handshake_frames is None or not crypto.send.is_valid():
            return super()._write_handshake(builder, epoch, now)
        if self.handshake_frames:
            write_packet(builder, QuicPacketType.HANDSHAKE, crypto, self.handshake_frames)
            self.handshake_frames = []

    def _write_application(self, builder, network_path, now):
        if self.handshake_frames is not None:
            return
        if self.frames and self._handshake_confirmed:
            crypto = self._cryptos[tls.Epoch.ONE_RTT]
            write_packet(builder, QuicPacketType.ONE_RTT, crypto, self.frames)
            self.frames = []
        super()._write_application(builder, network_path, now)


def write_packet(builder, packet_type, crypto, frames):
    builder.start_packet(packet_type, crypto)
    builder.start_frame(0x01)  # PING, so that the packet counts as in flight
    builder._buffer.push_bytes(b"".join(frames))


def rewrite_packets(crypto, rewrite):
    encrypt = crypto.encrypt_packet

    def rewritten(header, payload, number):
        header, payload = rewrite(header, payload)
        return encrypt(header, payload, number)

    crypto.encrypt_packet = rewritten


class Client:
    """A connection to the edge on loopback."""

    def __init__(self, port, alpn="h3", prepare=None):
        configuration = QuicConfiguration(
            alpn_protocols=[alpn], is_client=True, server_name="localhost", verify_mode=ssl.CERT_NONE
        )
        self.quic = FaultyConnection(configuration)
        if prepare is not None:
            prepare(self.quic)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect(("127.0.0.1", port))
        self.address = ("127.0.0.1", port)
        self.events = []
        self.quic.connect(self.address, now=time.monotonic())

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.quic.close()
        self.send()
        self.socket.close()

    def send(self):
        for datagram, _ in self.quic.datagrams_to_send(now=time.monotonic()):
            try:
                self.socket.send(datagram)
            except ConnectionRefusedError:
                pass  # an answer to an earlier datagram

    def wait(self, wanted):
        """Sends and receives until `wanted` returns a value for an event. Returns the value."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            while (event := self.quic.next_event()) is not None:
                deadline = time.monotonic() + TIMEOUT_SECONDS
                self.events.append(type(event).__name__)
                if (value := wanted(event)) is not None:
                    return value
                if isinstance(event, ConnectionTerminated):
                    raise AssertionError(f"the connection has ended: {event}")
            self.exchange(deadline)

    def exchange(self, deadline):
        """Sends what is due, and receives a datagram or handles a timer."""
        self.send()
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"waited too long, after {self.events[-20:]}")
        timer = self.quic.get_timer()
        self.socket.settimeout(max(0.001, min(timer or deadline, deadline) - now))
        try:
            self.quic.receive_datagram(self.socket.recv(65536), self.address, now=time.monotonic())
        except (TimeoutError, ConnectionRefusedError):
            if timer is not None and time.monotonic() >= timer:
                self.quic.handle_timer(now=time.monotonic())

    def connect(self):
        """Waits for the end of the handshake, which HANDSHAKE_DONE confirms."""
        self.wait(lambda event: isinstance(event, HandshakeCompleted) or None)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not self.quic._handshake_confirmed:
            self.exchange(deadline)
        return self

    def close_code(self):
        """Waits until the edge closes the connection. Returns the code."""
        return self.wait(lambda event: event.error_code if isinstance(event, ConnectionTerminated) else None)

    def flood_until_closed(self, flood):
        """Calls `flood` until the edge closes the connection. Returns the code."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            flood(self)
            self.exchange(deadline)
            while (event := self.quic.next_event()) is not None:
                if isinstance(event, ConnectionTerminated):
                    return event.error_code

    def reset_code(self, stream):
        """Waits until the edge resets a stream. Returns the code."""

        def code(event):
            return event.error_code if isinstance(event, StreamReset) and event.stream_id == stream else None

        return self.wait(code)
