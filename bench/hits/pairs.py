#!/usr/bin/env python3
"""Compares what hits cost an edge: plain, compressed, and with a configuration of many sites.

    bench/hits/pairs.py EDGEWARD [--pairs 9] [--seconds 2] [--sites 1000] [--out FILE]

Starts an nginx as origin and two edges with one worker each: one has a single site, the other one SITES sites with the
rules of site.toml twice, so 20 each. wrk sends hits to the edges in turns:

    plain       one site, a body of 2 KiB
    gzip        one site, a body whose gzip variant has about 2 KiB, with `Accept-Encoding: gzip`
    many sites  the last of SITES sites, the body of `plain`

Prints requests per CPU-second of each, and the median ratio of the pairs to `plain`. Servers run on core 0, wrk on
core 1. A run whose requests reached the origin is an error.
"""
import argparse
import gzip
import json
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

FOLDER = pathlib.Path(__file__).parent
NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{}}
http {{
  types {{ text/plain txt; application/octet-stream bin; }}
  access_log off; root {folder}/www; gzip off; expires 1d;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{ listen 127.0.0.1:{port}; }}
}}
"""
HOST = "site-{n}.example"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("edgeward", help="the program, of a release build")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=2, help="seconds of a run")
    parser.add_argument("--sites", type=int, default=1000)
    parser.add_argument("--out", type=pathlib.Path, help="a file that gets one JSON object for each run")
    return parser.parse_args()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def pinned(core, *command, **options):
    return subprocess.Popen(["taskset", "--cpu-list", str(core), *map(str, command)], **options)


def write_bodies(www):
    """Writes a text whose gzip has about 2 KiB, and a body of 2 KiB."""
    random.seed(1)
    text = random.randbytes(1900).hex().encode()
    www.mkdir()
    (www / "a.txt").write_bytes(text)
    (www / "a.bin").write_bytes(os.urandom(len(gzip.compress(text, 7))))


def sites_config(folder, sites):
    template = (FOLDER / "site.toml").read_text().split("[[site]]", 1)[1]
    head, rules = template.split("[[site.rule]]", 1)
    text = "[[site]]" + head + 2 * ("[[site.rule]]" + rules.rstrip() + "\n\n")
    path = folder / "sites.toml"
    path.write_text("".join(
        text.replace("@HOSTS@", f'"{HOST.format(n=n)}"').replace("@N@", str(n % 250)) for n in range(1, sites + 1)))
    return path


class Edge:
    def __init__(self, program, origin, config=None):
        extra = ["--config", config] if config else []
        self.process = pinned(0, program, "serve", "--json", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0",
                              "--hot=64MiB", "--workers=1", "--policy=lru", f"--origin=http://127.0.0.1:{origin}",
                              *extra, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        started = json.loads(self.process.stdout.readline())
        self.url, self.admin = started["listening"][0], started["admin"]
        if not self.url.startswith("http"):
            self.url = "http://" + self.url

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def origin_requests(self):
        text = urllib.request.urlopen(self.admin.rstrip("/") + "/metrics").read().decode()
        return float(re.search(r"^edgeward_origin_requests_total (.*)$", text, re.M).group(1))


def run(edge, seconds, host, path, fields):
    """Returns requests per CPU-second of the edge."""
    headers = [f"--header=Host: {host}", *[f"--header={field}" for field in fields]]
    command = ["taskset", "--cpu-list", "1", "wrk", "--threads=1", "--connections=32", f"--duration={seconds}s",
               *headers, edge.url.rstrip("/") + path]
    asked, cpu = edge.origin_requests(), edge.cpu_seconds()
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    cpu = edge.cpu_seconds() - cpu
    if edge.origin_requests() != asked or "Non-2xx" in output or "Socket errors" in output:
        sys.exit(f"{path}: not all requests were hits\n{output}")
    return int(re.search(r"(\d+) requests in", output).group(1)) / cpu


def fill(edge, host, path, fields, encoded):
    """Requests a body until it is a hit, in the coding that `encoded` demands."""
    headers = {"Host": host, **dict(field.split(": ", 1) for field in fields)}
    for _ in range(200):
        response = urllib.request.urlopen(urllib.request.Request(edge.url.rstrip("/") + path, headers=headers))
        body = response.read()
        is_encoded = response.headers.get("Content-Encoding") == "gzip"
        if "; hit" in response.headers["Cache-Status"] and is_encoded == encoded:
            return len(body)
        time.sleep(0.02)
    sys.exit(f"{path} does not become a hit")


def main():
    options = arguments()
    with tempfile.TemporaryDirectory() as name:
        folder, port = pathlib.Path(name), free_port()
        folder.chmod(0o755)
        write_bodies(folder / "www")
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port))
        user = ["-g", "user root;"] if os.geteuid() == 0 else []
        nginx = pinned(1, "nginx", "-c", folder / "nginx.conf", "-e", folder / "error.log", *user)
        time.sleep(0.5)
        one = Edge(options.edgeward, port)
        many = Edge(options.edgeward, port, sites_config(folder, options.sites))
        gzip_field = ["Accept-Encoding: gzip"]
        cells = {
            "plain": (one, "bench", "/a.bin", [], False),
            "gzip": (one, "bench", "/a.txt", gzip_field, True),
            "many sites": (many, HOST.format(n=options.sites), "/a.bin", [], False),
        }
        try:
            for name, (edge, host, path, fields, encoded) in cells.items():
                print(f"{name}: {fill(edge, host, path, fields, encoded)} bytes", flush=True)
            rates = {name: [] for name in cells}
            for pair in range(options.pairs):
                order = list(cells)[pair % len(cells):] + list(cells)[: pair % len(cells)]
                for name in order:
                    edge, host, path, fields, _ = cells[name]
                    rates[name].append(run(edge, options.seconds, host, path, fields))
                    if options.out:
                        with options.out.open("a") as out:
                            out.write(json.dumps({"pair": pair, "cell": name, "per_cpu_s": rates[name][-1]}) + "\n")
        finally:
            for process in [one.process, many.process, nginx]:
                process.send_signal(signal.SIGTERM)
                process.wait(30)
    for name, values in rates.items():
        ratios = [value / plain for value, plain in zip(values, rates["plain"])]
        print(f"{name:10}  {statistics.median(values) / 1000:6.1f} thousand requests per CPU-second, "
              f"{statistics.median(ratios):.3f} of plain ({min(ratios):.3f} to {max(ratios):.3f})")


main()
