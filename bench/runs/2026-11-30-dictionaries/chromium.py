"""Bytes that Chromium gets for the next version of npm packages: `chromium.py PACKAGES EDGEWARD`.

PACKAGES is the folder of `deltas.py`. Starts an origin with the packages, the program EDGEWARD in front of it, and
Chromium by chromedriver. For each pair and coding, Chromium reads the older file, another client makes the edge store the
delta, and Chromium reads the newer file. Prints a line of JSON for each pair, and the medians. Each body that Chromium
has decoded is compared with the file.
"""

import base64
import functools
import hashlib
import http.client
import http.server
import json
import pathlib
import re
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import zlib

PACKAGES, PROGRAM = pathlib.Path(sys.argv[1]), sys.argv[2]
CODINGS = {"dcz": "zstd", "dcb": "br"}
TIMEOUT_SECONDS = 120


class Origin(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    extensions_map = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".txt": "text/html"}

    def end_headers(self):
        self.send_header("cache-control", "max-age=3600")
        super().end_headers()

    def log_message(self, *arguments):
        pass


def identity(folder):
    """Writes a certificate of localhost and its key. Returns the SHA-256 of its public key."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    arguments = [*command.split(), "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate]
    subprocess.run(arguments, check=True, capture_output=True)
    public = subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-outform", "DER"], check=True, capture_output=True)
    return base64.b64encode(hashlib.sha256(public.stdout).digest()).decode()


def start_edge(folder, coding, origin):
    """Returns the process, its port, and the port of its metrics."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        admin = free.getsockname()[1]
    config = folder / f"{coding}.toml"
    config.write_text(
        f"""
        origin.url = "http://127.0.0.1:{origin}"
        compression.codings = "{CODINGS[coding]}"
        admin.address = "127.0.0.1:{admin}"
        [[listener]]
        address = "127.0.0.1:0"
        tls_certificates = "{folder}/certificate.pem"
        tls_key = "{folder}/key.pem"
        [[site]]
        hosts = "*"
        dictionary = true
        """
    )
    edge = subprocess.Popen([PROGRAM, "serve", "--config", config], stdout=subprocess.PIPE, text=True)
    listening = re.search(r"listening on https://127\.0\.0\.1:(\d+)", edge.stdout.readline())
    return edge, int(listening[1]), admin


class Chromium:
    """A browser that is driven by the protocol WebDriver."""

    def __init__(self, key_hash):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        while not (found := re.search(r"started successfully on port (\d+)", self.driver.stdout.readline())):
            pass
        self.base = f"http://127.0.0.1:{found[1]}/session"
        arguments = ["--headless=new", "--no-sandbox", f"--ignore-certificate-errors-spki-list={key_hash}"]
        options = {"goog:chromeOptions": {"args": arguments, "binary": "/usr/bin/chromium"}}
        answer = self.call("", {"capabilities": {"alwaysMatch": options}})
        self.base += "/" + answer["sessionId"]
        self.call("/timeouts", {"script": 1000 * TIMEOUT_SECONDS})

    def call(self, path, content):
        request = urllib.request.Request(self.base + path, json.dumps(content).encode(), {"content-type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["value"]

    def open(self, url):
        self.call("/url", {"url": url})

    def fetch(self, path):
        """Returns the SHA-256 of a decoded body, and its bytes on the line without the head."""
        script = """
            const [path, done] = arguments;
            performance.clearResourceTimings();
            fetch(path, {cache: 'reload'}).then(it => it.arrayBuffer()).then(async body => {
                const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', body));
                await new Promise(ready => setTimeout(ready, 50));
                done([[...hash], performance.getEntriesByType('resource').at(-1).encodedBodySize]);
            });
        """
        hash, length = self.call("/execute/async", {"script": script, "args": [path]})
        return bytes(hash), length

    def stop(self):
        self.driver.kill()


def make_delta(port, path, before, coding):
    """Requests a file until the edge answers with a delta. Returns its length, or None if it saves too little."""
    offer = base64.b64encode(hashlib.sha256(before).digest()).decode()
    fields = {"accept-encoding": f"identity, {coding}", "available-dictionary": f":{offer}:"}
    connection = http.client.HTTPSConnection("localhost", port, context=ssl._create_unverified_context())
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        connection.request("GET", path, headers=fields)
        response = connection.getresponse()
        body = response.read()
        if response.headers["content-encoding"] == coding:
            return len(body)
        time.sleep(0.05)
    return None


def busy_seconds(admin):
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics") as answer:
        found = re.search(r"^edgeward_encoding_seconds_total ([0-9.e-]+)", answer.read().decode(), re.M)
    return float(found[1]) if found else None


folder = pathlib.Path(tempfile.mkdtemp())
key_hash = identity(folder)
handler = functools.partial(Origin, directory=str(PACKAGES))
origin = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
threading.Thread(target=origin.serve_forever, daemon=True).start()
for coding in CODINGS:
    edge, port, admin = start_edge(folder, coding, origin.server_port)
    chromium = Chromium(key_hash)
    chromium.open(f"https://localhost:{port}/list.txt")
    ratios = []
    for line in (PACKAGES / "list.txt").read_text().splitlines():
        name, old, new, file = line.split()
        paths = [f"/{name}-{version}/{file}" for version in (old, new)]
        before, after = ((PACKAGES / path[1:]).read_bytes() for path in paths)
        assert chromium.fetch(paths[0])[0] == hashlib.sha256(before).digest(), paths[0]
        cpu = busy_seconds(admin)
        delta = make_delta(port, paths[1], before, coding)
        cpu = busy_seconds(admin) - cpu if cpu is not None else None
        # Chromium writes a dictionary in the background.
        deadline = time.monotonic() + 20
        while True:
            digest, length = chromium.fetch(paths[1])
            assert digest == hashlib.sha256(after).digest(), paths[1]
            if delta is None or length <= delta or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        gzip = len(zlib.compress(after, 7, wbits=31))
        row = {"coding": coding, "package": name, "from": old, "to": new, "file": file, "plain": len(after)}
        row |= {"gzip": gzip, "chromium": length, "is_delta": length == delta, "cpu_seconds": cpu and round(cpu, 3)}
        ratios.append(length / gzip)
        print(json.dumps(row | {"of_gzip": round(length / gzip, 4)}), flush=True)
    median = round(statistics.median(ratios), 4)
    print(json.dumps({"coding": coding, "pairs": len(ratios), "median_of_gzip": median}), flush=True)
    chromium.stop()
    edge.kill()
