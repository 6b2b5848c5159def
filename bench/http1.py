"""An HTTP/1.1 client for benchmarks that check each byte."""
import asyncio
import base64
import os
import re
import socket
import struct
import urllib.request

from origin import accept_of


class Connection:
    """One connection to a server, which is opened again when the server has closed it."""

    def __init__(self, port, address="127.0.0.1"):
        self.port, self.address, self.writer = port, address, None

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.close()

    async def open(self):
        if self.writer is None or self.writer.is_closing():
            self.reader, self.writer = await asyncio.open_connection(self.address, self.port, limit=1 << 17)

    def close(self, reset=False):
        if self.writer is not None:
            if reset:
                linger = struct.pack("ii", 1, 0)
                self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.writer.close()
            self.writer = None

    async def send(self, target, fields=b"", method=b"GET", host=b"bench.example", body=b""):
        """Sends a request. `fields` are lines that end with CR LF; with a body, one of them is its length."""
        await self.open()
        self.writer.write(b"%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n%s" % (method, target, host, fields, body))
        await self.writer.drain()

    async def head(self):
        """Returns the status and the fields. Values of fields with the same name are joined by commas."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        line, *lines = head[:-4].split(b"\r\n")
        fields = {}
        for name, _, value in (line.partition(b":") for line in lines):
            name, value = name.lower(), value.strip()
            fields[name] = b"%s, %s" % (fields[name], value) if name in fields else value
        return int(line.split(b" ")[1]), fields

    async def response(self, method=b"GET"):
        status, fields = await self.head()
        body = b""
        if b"chunked" in fields.get(b"transfer-encoding", b""):
            while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
                body += await self.reader.readexactly(size)
                await self.reader.readexactly(2)
            await self.reader.readuntil(b"\r\n")
        elif method != b"HEAD" and status not in (204, 304):
            body = await self.reader.readexactly(int(fields[b"content-length"]))
        if fields.get(b"connection", b"").lower() == b"close":
            self.close()
        return status, fields, body

    async def get(self, target, fields=b"", host=b"bench.example"):
        await self.send(target, fields, host=host)
        return await self.response()

    async def upgrade(self, host=b"bench.example"):
        """Makes the connection a WebSocket. Returns the status; 101 without the right accept field is an error."""
        key = base64.b64encode(os.urandom(16))
        await self.send(b"/echo", b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                        b"Sec-WebSocket-Key: " + key + b"\r\n", host=host)
        status, fields = await self.head()
        if status == 101 and fields[b"sec-websocket-accept"] != accept_of(key):
            raise ValueError("wrong Sec-WebSocket-Accept")
        return status

    async def echo(self):
        """Sends a random WebSocket message. Returns true if the echo is right."""
        text, mask = os.urandom(20).hex().encode(), os.urandom(4)
        self.writer.write(bytes([0x81, 0x80 | len(text)]) + mask + bytes(b ^ mask[n % 4] for n, b in enumerate(text)))
        return await self.reader.readexactly(2 + len(text)) == bytes([0x81, len(text)]) + text


def fetch(port, path):
    """Returns the text of an admin page."""
    return urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30).read().decode()


def metrics(port):
    """Returns all values of the metrics by series."""
    lines = (line for line in fetch(port, "/metrics").splitlines() if not line.startswith("#"))
    return {series: float(value) for series, _, value in (line.rpartition(" ") for line in lines)}


def resident_bytes(pid):
    with open(f"/proc/{pid}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) * 1024


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
