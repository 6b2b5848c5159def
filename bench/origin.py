"""An origin on loopback, for benchmarks that check each byte: origin.py PORT [MEGABYTES_PER_SECOND]

/KIND/LENGTH/…   a body of LENGTH bytes, which follows from the URL and the version: text for the kind `t`
/next-version    changes the entity tags and the bodies of the kind `changing`
/counts          the numbers of responses and of bytes of bodies
/echo            a WebSocket that echoes messages of at most 125 bytes
/events          server-sent events with the time of their sending
/upload          answers with the number of bytes of the request body
/fail-HOW/…      fails: 500, reset, short, hang
"""
import asyncio
import base64
import email.utils
import functools
import hashlib
import re
import socket
import struct
import sys
import time

EVENTS = 500
EPOCH = email.utils.formatdate(1700000000, usegmt=True).encode()
# A prime number below which no two slices of 1 MiB of a body have the same bytes.
PERIOD = 8191
PIECE = 1 << 18


@functools.lru_cache(256)
def block(target, version):
    if target.startswith(b"/t/"):
        return b" ".join(hashlib.shake_128(target).digest(160).hex(" ").encode().split()) + b"\n"
    return hashlib.shake_128(b"%d %s" % (version, target)).digest(PERIOD)


def body_of(target, first=0, end=None, version=1):
    """Returns a part of the body of a URL, by default all of it."""
    period = block(target, version)
    end = length_of(target) if end is None else end
    start = first % len(period)
    return (period * ((start + end - first) // len(period) + 1))[start:start + end - first]


def length_of(target):
    return int(target.split(b"/")[2])


def accept_of(key):
    return base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())


class Origin:
    def __init__(self, bytes_per_second):
        self.version, self.responses, self.bytes = 1, 0, 0
        self.bytes_per_second, self.next_send = bytes_per_second, 0.0

    async def serve(self, reader, writer):
        try:
            while await self.exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def exchange(self, reader, writer):
        """Answers a request. Returns true if the connection stays open."""
        head = await reader.readuntil(b"\r\n\r\n")
        line, *lines = head[:-4].split(b"\r\n")
        method, target, protocol = line.split(b" ", 2)
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        if target == b"/echo":
            return await echo(reader, writer, fields)
        if target == b"/events":
            return await send_events(writer)
        if target.startswith(b"/fail-"):
            return await fail(target, writer)
        if target == b"/upload":
            plain = b"%d" % await count_body(reader, fields)
        elif target == b"/counts":
            plain = b"responses %d bytes %d" % (self.responses, self.bytes)
        elif target == b"/next-version":
            self.version += 1
            plain = b""
        else:
            return await self.answer(method, target, fields, writer)
        writer.write(b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: %d\r\n\r\n%s" % (len(plain), plain))
        await writer.drain()
        return protocol != b"HTTP/1.0"

    async def answer(self, method, target, fields, writer):
        version = self.version if target.startswith(b"/changing/") else 1
        etag = b'"%d-%s"' % (version, hashlib.sha1(target).hexdigest()[:16].encode())
        common = (b"Cache-Control: max-age=%d\r\nETag: %s\r\nLast-Modified: %s\r\nCache-Tag: bench tag-%d\r\n"
                  b"Content-Type: %s\r\nAccept-Ranges: bytes\r\n" %
                  (5 if b"/short-lived/" in target else 3600, etag, EPOCH, len(target) % 7,
                   b"text/plain" if target.startswith(b"/t/") else b"application/octet-stream"))
        if fields.get(b"if-none-match") == etag:
            writer.write(b"HTTP/1.1 304 Not Modified\r\n" + common + b"\r\n")
            await writer.drain()
            return True
        length = length_of(target)
        first, end, start_line = 0, length, b"HTTP/1.1 200 OK\r\n"
        asked = re.fullmatch(rb"bytes=(\d+)-(\d*)", fields.get(b"range", b""))
        if asked and int(asked[1]) < length and fields.get(b"if-range", etag) == etag:
            first, end = int(asked[1]), min(int(asked[2] or length - 1), length - 1) + 1
            start_line = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes %d-%d/%d\r\n" % (first, end - 1, length)
        writer.write(start_line + common + b"Content-Length: %d\r\n\r\n" % (end - first))
        for at in range(first, end if method != b"HEAD" else first, PIECE):
            piece = body_of(target, at, min(at + PIECE, end), version)
            await self.wait(len(piece))
            writer.write(piece)
            await writer.drain()
            self.bytes += len(piece)
        await writer.drain()
        self.responses += 1
        return True

    async def wait(self, size):
        """Limits the bytes per second of all connections together, with bursts of 50 ms."""
        if self.bytes_per_second:
            now = time.monotonic()
            self.next_send = max(self.next_send, now) + size / self.bytes_per_second
            await asyncio.sleep(max(0, self.next_send - now - 0.05))


async def count_body(reader, fields):
    async def read(left):
        while left:
            left -= len(await reader.read(min(left, PIECE)))
    if b"content-length" in fields:
        await read(int(fields[b"content-length"]))
        return int(fields[b"content-length"])
    total = 0
    while size := int(await reader.readline(), 16):
        await read(size + 2)
        total += size
    await reader.readline()
    return total


async def send_events(writer):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\r\n")
    for _ in range(EVENTS):
        writer.write(b"data: %d\n\n" % time.monotonic_ns())
        await writer.drain()
        await asyncio.sleep(0.005)
    return False


async def fail(target, writer):
    how = target.split(b"/")[1]
    if how == b"fail-500":
        writer.write(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 6\r\n\r\nbroken")
    elif how == b"fail-short":
        writer.write(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5000\r\n\r\n" + b"s" * 2000)
    elif how == b"fail-hang":
        await asyncio.sleep(3)
    else:
        linger = struct.pack("ii", 1, 0)  # close() resets the connection
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    await writer.drain()
    return how == b"fail-500"


async def echo(reader, writer, fields):
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                 b"Sec-WebSocket-Accept: " + accept_of(fields[b"sec-websocket-key"]) + b"\r\n\r\n")
    while True:
        first, length = await reader.readexactly(2)
        mask = await reader.readexactly(4)
        payload = await reader.readexactly(length & 127)
        writer.write(bytes([first, length & 127]) + bytes(b ^ mask[n % 4] for n, b in enumerate(payload)))
        await writer.drain()
        if first & 15 == 8:
            return False


async def main():
    rate = float(sys.argv[2]) * 1e6 if len(sys.argv) > 2 else None
    server = await asyncio.start_server(Origin(rate).serve, "127.0.0.1", int(sys.argv[1]), backlog=4096, limit=1 << 17)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
