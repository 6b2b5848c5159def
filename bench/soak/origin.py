"""The origins of the soak test. The body of each response follows from its URL, so that clients can verify it."""
import asyncio
import email.utils
import hashlib
import re
import socket
import struct

WEBSOCKET_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
EPOCH = email.utils.formatdate(1700000000, usegmt=True).encode()


def body_of(target):
    """Returns the body of `/KIND/LENGTH/…`: text for the kind `t`, which can be compressed, otherwise bytes."""
    kind, length = target.split(b"/")[1:3]
    length = int(length)
    seed = hashlib.shake_128(target).digest(509)  # a prime, so that a body at a wrong offset is noticed
    if kind == b"t":
        seed = b" ".join(seed.hex(" ").encode().split()[:160]) + b"\n"
    return (seed * (length // len(seed) + 1))[:length]


def accept_of(key):
    import base64
    return base64.b64encode(hashlib.sha1(key + WEBSOCKET_GUID).digest())


async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            method, target, _ = head.split(b"\r\n", 1)[0].split(b" ", 2)
            fields = {}
            for line in head.split(b"\r\n")[1:-2]:
                name, _, value = line.partition(b":")
                fields[name.lower()] = value.strip()
            if target == b"/echo":
                return await echo(reader, writer, fields)
            if target.startswith(b"/fail-"):
                if not await fail(target, writer):
                    return
                continue
            await answer(method, target, fields, writer)
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError):
        pass
    finally:
        writer.close()


async def answer(method, target, fields, writer):
    body = body_of(target)
    etag = b'"' + hashlib.sha1(target).hexdigest()[:16].encode() + b'"'
    lifetime = 5 if b"/short-lived/" in target else 600
    common = (b"Cache-Control: max-age=%d\r\nETag: %s\r\nLast-Modified: %s\r\nCache-Tag: soak tag-%d\r\n"
              b"Content-Type: %s\r\nAccept-Ranges: bytes\r\n" %
              (lifetime, etag, EPOCH, len(target) % 7,
               b"text/plain" if target.startswith(b"/t/") else b"application/octet-stream"))
    if fields.get(b"if-none-match") == etag:
        writer.write(b"HTTP/1.1 304 Not Modified\r\n" + common + b"\r\n")
        return await writer.drain()
    start_line, part = b"HTTP/1.1 200 OK\r\n", body
    asked = re.fullmatch(rb"bytes=(\d+)-(\d*)", fields.get(b"range", b""))
    if asked and int(asked[1]) < len(body):
        first, last = int(asked[1]), min(int(asked[2] or len(body) - 1), len(body) - 1)
        part = body[first:last + 1]
        start_line = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes %d-%d/%d\r\n" % (first, last, len(body))
    writer.write(start_line + common + b"Content-Length: %d\r\n\r\n" % len(part))
    if method != b"HEAD":
        writer.write(part)
    await writer.drain()


async def fail(target, writer):
    """Fails as the path says. Returns true if the connection stays open."""
    kind = target.split(b"/")[1]
    if kind == b"fail-500":
        writer.write(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 6\r\n\r\nbroken")
        await writer.drain()
        return True
    if kind == b"fail-short":
        writer.write(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5000\r\n\r\n" + b"s" * 2000)
        await writer.drain()
    elif kind == b"fail-hang":
        await asyncio.sleep(3)
    else:
        linger = struct.pack("ii", 1, 0)  # close() resets the connection
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    return False


async def echo(reader, writer, fields):
    """Echoes WebSocket messages of at most 125 bytes."""
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                 b"Sec-WebSocket-Accept: " + accept_of(fields[b"sec-websocket-key"]) + b"\r\n\r\n")
    while True:
        first, length = await reader.readexactly(2)
        mask = await reader.readexactly(4)
        payload = await reader.readexactly(length & 127)
        writer.write(bytes([first, length & 127]) + bytes(b ^ mask[n % 4] for n, b in enumerate(payload)))
        await writer.drain()
        if first & 15 == 8:
            return


def run(ports):
    """Serves two origins, and sends their ports by the pipe."""
    async def main():
        servers = [await asyncio.start_server(serve, "127.0.0.1", 0, backlog=4096, limit=1 << 17) for _ in range(2)]
        ports.send([server.sockets[0].getsockname()[1] for server in servers])
        await asyncio.gather(*(server.serve_forever() for server in servers))
    asyncio.run(main())
