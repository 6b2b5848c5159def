"""Forwards requests of HTTP/1.1 to an edge by HTTP/2 or HTTP/3, so that tests for HTTP/1.1 test these, too.

Each request has a connection of its own. The response of a stream that the edge resets ends early.
"""

import asyncio
import contextlib
import socket
import ssl
import threading

import h2.config
import h2.connection
import h2.events
from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamReset

# Fields of HTTP/1.1 that other versions do not have (RFC 9114 §4.2).
HOP_BY_HOP = {b"connection", b"keep-alive", b"proxy-connection", b"te", b"transfer-encoding", b"upgrade", b"host"}


class Events:
    """The events of one response: heads as lists, content as bytes, None at the end, an exception after a reset."""

    def __init__(self):
        self.queue = asyncio.Queue()

    def put(self, event):
        self.queue.put_nowait(event)


class Http3(QuicConnectionProtocol, Events):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        Events.__init__(self)
        self.h3 = H3Connection(self._quic)
        # Responses to HEAD state the length of content that they do not have.
        self.h3._check_content_length = lambda stream: None

    def request(self, head, content):
        stream = self._quic.get_next_available_stream_id()
        self.h3.send_headers(stream, head, end_stream=not content)
        if content:
            self.h3.send_data(stream, content, end_stream=True)
        self.transmit()

    def quic_event_received(self, event):
        if isinstance(event, (ConnectionTerminated, StreamReset)):
            return self.put(ConnectionResetError())
        for event in self.h3.handle_event(event):
            if isinstance(event, HeadersReceived):
                self.put(event.headers)
            elif isinstance(event, DataReceived):
                self.put(event.data)
            if getattr(event, "stream_ended", False):
                self.put(None)


class Http2(asyncio.Protocol, Events):
    def __init__(self):
        super().__init__()
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))

    def connection_made(self, transport):
        self.transport = transport
        self.h2.initiate_connection()
        self.flush()

    def connection_lost(self, error):
        self.put(ConnectionResetError())

    def flush(self):
        self.transport.write(self.h2.data_to_send())

    def request(self, head, content):
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, head, end_stream=not content)
        if content:
            self.h2.send_data(stream, content, end_stream=True)
        self.flush()

    def data_received(self, data):
        for event in self.h2.receive_data(data):
            if isinstance(event, (h2.events.ResponseReceived, h2.events.InformationalResponseReceived)):
                self.put(event.headers)
            elif isinstance(event, h2.events.DataReceived):
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                self.put(event.data)
            elif isinstance(event, h2.events.StreamReset):
                self.put(ConnectionResetError())
            elif isinstance(event, h2.events.StreamEnded):
                self.put(None)
        self.flush()


@contextlib.asynccontextmanager
async def open_http3(port):
    configuration = QuicConfiguration(alpn_protocols=["h3"], server_name="localhost", verify_mode=ssl.CERT_NONE)
    async with connect("127.0.0.1", port, configuration=configuration, create_protocol=Http3) as protocol:
        yield protocol


@contextlib.asynccontextmanager
async def open_http2(port):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_connection(Http2, "127.0.0.1", port, ssl=context)
    try:
        yield protocol
    finally:
        transport.abort()


class Bridge:
    """Listens on `port` of loopback, in a thread. `open_connection` is one of the functions above."""

    def __init__(self, open_connection, edge_port):
        self.open_connection, self.edge_port = open_connection, edge_port
        listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
        self.port = listener.getsockname()[1]
        threading.Thread(target=asyncio.run, args=[self.run(listener)], daemon=True).start()

    async def run(self, listener):
        server = await asyncio.start_server(self.serve, sock=listener)
        await server.serve_forever()

    async def serve(self, reader, writer):
        try:
            head, method, content = await read_request(reader)
            async with self.open_connection(self.edge_port) as connection:
                connection.request(head, content)
                await self.answer(connection.queue, method, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(self, queue, method, writer):
        is_chunked = False
        while (item := await queue.get()) is not None:
            if isinstance(item, Exception):
                raise item
            if isinstance(item, list):
                fields = [(bytes(name), bytes(value)) for name, value in item]
                status = dict(fields)[b":status"]
                is_final = not status.startswith(b"1")
                names = [name for name, _ in fields]
                has_content = is_final and method != b"HEAD" and status not in (b"204", b"304")
                is_chunked = has_content and b"content-length" not in names
                lines = [b"HTTP/1.1 %s edge" % status]
                lines += [b"%s: %s" % field for field in fields if not field[0].startswith(b":")]
                lines += [b"transfer-encoding: chunked"] if is_chunked else []
                lines += [b"connection: close"] if is_final else []
                writer.write(b"\r\n".join([*lines, b"", b""]))
            elif item:
                writer.write(b"%x\r\n%s\r\n" % (len(item), item) if is_chunked else item)
            await writer.drain()
        if is_chunked:
            writer.write(b"0\r\n\r\n")
        await writer.drain()


async def read_request(reader):
    """Reads a request. Returns its head for HTTP/2 and HTTP/3, its method and its content."""
    lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    method, target, _ = lines[0].split(b" ")
    fields = [line.split(b":", 1) for line in lines[1:] if line]
    fields = [(name.lower(), value.strip()) for name, value in fields]
    by_name = dict(fields)
    head = [(b":method", method), (b":scheme", b"https"), (b":authority", by_name[b"host"]), (b":path", target)]
    head += [field for field in fields if field[0] not in HOP_BY_HOP]
    if by_name.get(b"transfer-encoding") == b"chunked":
        content = b""
        while length := int(await reader.readline(), 16):
            content += (await reader.readexactly(length + 2))[:-2]
        await reader.readline()
    else:
        content = await reader.readexactly(int(by_name.get(b"content-length", 0)))
    return head, method, content
