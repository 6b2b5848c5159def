#!/usr/bin/env python3
"""Bytes that a static site costs clients through edgeward and through nginx, by coding and level.

    bench/compression/run.py EDGEWARD SITE [--levels]

An nginx without compression serves the folder SITE as origin. Each file is requested twice from an edgeward in front of
it, as a client that accepts one coding, and once from an nginx that serves the same folder with gzip on. The responses
of the first round are misses, those of the second are hits. All bodies in gzip are decoded and compared with the files.
With --levels, edgeward compresses the site once with each level. Prints one JSON object per line.
"""
import gzip, json, os, re, signal, socket, subprocess, sys, tempfile, time, urllib.request, zlib

edgeward, site = sys.argv[1], os.path.abspath(sys.argv[2])

# The types that edgeward compresses by default, as far as nginx knows them by name; text/html is always on.
GZIP_TYPES = """text/plain text/css text/xml text/javascript application/javascript application/json application/xml
    application/rss+xml application/atom+xml application/xhtml+xml image/svg+xml application/wasm image/x-icon image/bmp
    font/ttf font/otf application/vnd.ms-fontobject"""

NGINX = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{}}
http {{
  include /etc/nginx/mime.types; types {{ font/ttf ttf; font/otf otf; }}
  default_type application/octet-stream; access_log off; root {site};
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{ listen 127.0.0.1:{origin}; gzip off; expires 1h; }}
  server {{ listen 127.0.0.1:{compressing}; gzip on; gzip_comp_level 6; gzip_min_length 256; gzip_vary on; expires 1h;
    gzip_types {types}; }}
}}
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port):
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
    sys.exit(f"nothing listens on port {port}")


def fetch(port, path, accept):
    """Returns the bytes of the head, the body without its framing, and all bytes of the response."""
    request = f"GET {path} HTTP/1.1\r\nHost: site.example\r\nAccept-Encoding: {accept}\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(request.encode())
        data = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    head, _, rest = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        sys.exit(f"{path}: {head.splitlines()[0]}")
    body = rest
    if b"\r\ntransfer-encoding: chunked" in head.lower():
        body = b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            body, rest = body + rest[:int(size, 16)], rest[int(size, 16) + 2:]
    return head.lower(), body, len(data)


def files():
    for folder, _, names in os.walk(site):
        for name in names:
            yield os.path.join(folder, name)


def round_of(port, accept, check):
    total = {"files": 0, "body_bytes": 0, "all_bytes": 0, "encoded": 0, "hits": 0}
    for file in sorted(files()):
        path = "/" + os.path.relpath(file, site)
        head, body, all_bytes = fetch(port, path, accept)
        total["files"] += 1
        total["body_bytes"] += len(body)
        total["all_bytes"] += all_bytes
        total["hits"] += b"; hit" in head
        if b"\r\ncontent-encoding: " in head:
            total["encoded"] += 1
            body = gzip.decompress(body) if b"\r\ncontent-encoding: gzip" in head else None
        if check and body is not None and body != open(file, "rb").read():
            sys.exit(f"{path}: the body differs from the file")
    return total


def start_edge(origin, settings=()):
    args = ["serve", "--json", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--hot=512MiB",
            f"--origin=http://127.0.0.1:{origin}", *settings]
    process = subprocess.Popen([edgeward, *args], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    line = json.loads(process.stdout.readline())
    return process, int(line["listening"][0].rsplit(":", 1)[1].strip("/")), line["admin"]


def metric(admin, name):
    text = urllib.request.urlopen(admin + "/metrics").read().decode()
    return float(re.search("^" + re.escape(name) + " (.*)$", text, re.M).group(1))


def show(**fields):
    print(json.dumps(fields), flush=True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        origin, compressing = free_port(), free_port()
        config = folder + "/nginx.conf"
        open(config, "w").write(NGINX.format(folder=folder, site=site, origin=origin, compressing=compressing,
                                             types=GZIP_TYPES))
        user = ["-g", "user root;"] if os.geteuid() == 0 else []
        nginx = subprocess.Popen(["nginx", "-c", config, "-e", folder + "/error.log", *user])
        try:
            wait_for(origin), wait_for(compressing)
            version = subprocess.run(["nginx", "-v"], capture_output=True, text=True).stderr.strip()
            show(site=os.path.basename(site), nginx=version, zlib=zlib.ZLIB_RUNTIME_VERSION,
                 edgeward=subprocess.run([edgeward, "--version"], capture_output=True, text=True).stdout.strip())
            show(server="nginx", accept="identity", **round_of(origin, "identity", True))
            show(server="nginx", accept="gzip", level=6, **round_of(compressing, "gzip", True))
            for accept in ["gzip", "zstd", "br", "gzip, deflate, br, zstd"]:
                edge, port, admin = start_edge(origin)
                for number in ["first", "second"]:
                    show(server="edgeward", accept=accept, round=number, **round_of(port, accept, True))
                edge.send_signal(signal.SIGTERM)
                edge.wait(60)
            for coding, levels in [("gzip", range(1, 10)), ("br", range(0, 12)), ("zstd", range(1, 20))]:
                for level in levels if "--levels" in sys.argv else []:
                    name = {"br": "brotli"}.get(coding, coding)
                    edge, port, admin = start_edge(origin, [f"--set=compression.{name}_level={level}"])
                    round_of(port, coding, False)
                    sides = {side: metric(admin, f'edgeward_encoding_bytes_total{{side="{side}"}}')
                             for side in ["input", "output"]}
                    show(coding=coding, level=level, **sides, seconds=metric(admin, "edgeward_encoding_seconds_total"))
                    edge.send_signal(signal.SIGTERM)
                    edge.wait(60)
        finally:
            nginx.send_signal(signal.SIGTERM)
            nginx.wait(10)


main()
