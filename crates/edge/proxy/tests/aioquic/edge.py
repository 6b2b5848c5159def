"""An edge with HTTP/3 in front of an origin, for the tests of this folder. EDGEWARD names the program."""

import datetime
import http.server
import os
import re
import select
import subprocess
import tempfile
import threading
import urllib.request
from base64 import b64encode
from hashlib import sha1
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PAGE = bytes(range(256)) * 400

# The longest start, also on a machine that runs other tests meanwhile.
START_SECONDS = 60


def script(version):
    """Returns a script. Versions differ in one of 50 lines."""
    lines = (f"var value{n} = 'text {n * 7919 % 6151} {version if n % 50 == 7 else 0}';\n" for n in range(600))
    return "".join(lines).encode()


class Origin(http.server.BaseHTTPRequestHandler):
    """Answers GET and HEAD with PAGE or a script, POST with its content, WebSockets with the bytes that they send."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.headers.get("upgrade") == "websocket":
            return self.echo()
        if version := re.fullmatch(r"/js/app\.(\d+)\.js", self.path):
            fields = {"content-type": "text/javascript", "cache-control": "max-age=600"}
            return self.answer(script(int(version[1])), fields)
        # Trailers are not stored.
        cache_control = "no-store" if self.path == "/trailers" else "max-age=600"
        self.answer(PAGE, {"cache-control": cache_control, "etag": '"1"'})

    do_HEAD = do_GET

    def do_POST(self):
        content = b""
        if "content-length" in self.headers:
            content = self.rfile.read(int(self.headers["content-length"]))
        else:
            while length := int(self.rfile.readline(), 16):
                content += self.rfile.read(length)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        self.answer(content, {"x-length": str(len(content))})

    def echo(self):
        """Opens a WebSocket, and sends each byte back."""
        accept = self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("connection", "upgrade")
        self.send_header("upgrade", "websocket")
        self.send_header("sec-websocket-accept", b64encode(sha1(accept.encode()).digest()).decode())
        self.end_headers()
        while received := self.rfile.read1(65536):
            self.wfile.write(received)
        self.close_connection = True

    def answer(self, body, fields):
        self.send_response(200)
        for name, value in fields.items():
            self.send_header(name, value)
        if self.path == "/trailers":
            self.send_header("transfer-encoding", "chunked")
            self.send_header("trailer", "x-sum")
            body = b"%x\r\n%s\r\n0\r\nx-sum: 7\r\n\r\n" % (len(body), body)
        else:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class Edge:
    """A running edge. `port` is the port of its listener. Its origin is that of these tests by default."""

    def __init__(self, origin_port=None):
        self.folder = tempfile.TemporaryDirectory()
        self.origin = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
        self.origin.daemon_threads = True
        threading.Thread(target=self.origin.serve_forever, daemon=True).start()
        folder = Path(self.folder.name)
        write_identity(folder)
        config = folder / "edge.toml"
        config.write_text(
            f"""
            origin.url = "http://127.0.0.1:{origin_port or self.origin.server_port}"
            hot.capacity = "64MiB"
            admin.address = "127.0.0.1:0"
            [[listener]]
            address = "127.0.0.1:0"
            tls_certificates = "{folder}/certificate.pem"
            tls_key = "{folder}/key.pem"
            http3 = true
            [[site]]
            hosts = "*"
            dictionary = true
            """
        )
        log = folder / "log"
        with log.open("w") as stderr:
            self.process = subprocess.Popen(
                [os.environ["EDGEWARD"], "serve", "--config", config],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        ready, _, _ = select.select([self.process.stdout], [], [], START_SECONDS)
        line = self.process.stdout.readline() if ready else ""
        listening = re.match(r"listening on https://127\.0\.0\.1:(\d+)", line)
        if listening is None:
            self.process.kill()
            self.origin.shutdown()
            raise RuntimeError(f"the edge does not start: {log.read_text()}")
        self.port = int(listening[1])
        self.admin = re.search(r"admin on (http://\S+)", line)[1]

    def metric(self, series):
        """Returns the value of a series, 0 if the edge has none."""
        with urllib.request.urlopen(f"{self.admin}/metrics", timeout=START_SECONDS) as page:
            found = re.search(f"^{re.escape(series)} (\\S+)$", page.read().decode(), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.origin.shutdown()
        self.origin.server_close()
        self.process.stdout.close()
        self.folder.cleanup()


def write_identity(folder):
    """Writes a certificate of localhost and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(pem))
    form = serialization.PrivateFormat.PKCS8
    (folder / "key.pem").write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
