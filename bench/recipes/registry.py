#!/usr/bin/env python3
"""A small OCI registry on loopback for bench/recipes/run.py, with one image in two repositories.

- /v2/… demands a token. The registry states where to get it in WWW-Authenticate. A token is for one repository.
- Blobs of `team/app` are redirected to a second port, with a signature in the query that is valid once.
- Blobs of `public/app` are sent by the registry itself.
"""
import gzip
import hashlib
import http.server
import io
import json
import random
import re
import tarfile
import threading
import urllib.parse

LAYER_BYTES = [6 << 20, 3 << 20, 200_000]


def layer(number, length):
    data = random.Random(number).randbytes(length)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo("layer-%d" % number)
        info.size = length
        tar.addfile(info, io.BytesIO(data))
    plain = buffer.getvalue()
    return plain, gzip.compress(plain, 1, mtime=0)


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Image:
    """The manifest of the image, and its blobs by digest."""

    def __init__(self):
        self.blobs = {}
        layers, diffs = [], []
        for number, length in enumerate(LAYER_BYTES):
            plain, packed = layer(number, length)
            diffs.append(digest(plain))
            layers.append(self.add(packed, "application/vnd.oci.image.layer.v1.tar+gzip"))
        config = {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": diffs}}
        config = self.add(json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json")
        self.media_type = "application/vnd.oci.image.manifest.v1+json"
        manifest = {"schemaVersion": 2, "mediaType": self.media_type, "config": config, "layers": layers}
        self.manifest = json.dumps(manifest).encode()

    def add(self, data, media_type):
        self.blobs[digest(data)] = data
        return {"mediaType": media_type, "digest": digest(data), "size": len(data)}


class Registry:
    def __init__(self, address):
        self.image = Image()
        self.tokens = {}
        self.signatures = set()
        self.number = 0
        self.lock = threading.Lock()
        self.registry = self.serve(address, RegistryHandler)
        self.blobs = self.serve(address, BlobHandler)

    def serve(self, address, handler):
        server = http.server.ThreadingHTTPServer((address, 0), type("Handler", (handler,), {"site": self}))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return "http://%s:%d" % server.server_address

    def next(self):
        with self.lock:
            self.number += 1
            return "n%d" % self.number


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b"", **fields):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *arguments):
        pass

    def do_HEAD(self):
        self.do_GET()


class RegistryHandler(Handler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/token":
            token = self.site.next()
            scope = urllib.parse.parse_qs(url.query).get("scope", [""])[0]
            self.site.tokens[token] = scope.split(":")[1] if ":" in scope else ""
            return self.answer(200, json.dumps({"token": token}).encode(), Content_Type="application/json")
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        found = re.fullmatch(r"/v2/(?:(.+)/(manifests|blobs)/([^/]+))?", url.path)
        repository, kind, name = found.groups() if found else (None, None, None)
        if token not in self.site.tokens or repository not in (None, self.site.tokens[token]):
            realm = 'Bearer realm="%s/token",service="stand-in"' % self.site.registry
            if repository:
                realm += ',scope="repository:%s:pull"' % repository
            return self.answer(401, WWW_Authenticate=realm)
        image = self.site.image
        if kind is None:
            return self.answer(200 if found else 404)
        if kind == "manifests" and name in ("1", digest(image.manifest)):
            return self.answer(200, image.manifest, Content_Type=image.media_type,
                               Docker_Content_Digest=digest(image.manifest))
        if kind == "blobs" and name in image.blobs:
            if repository == "public/app":
                return self.answer(200, image.blobs[name], Content_Type="application/octet-stream")
            signature = self.site.next()
            self.site.signatures.add(signature)
            return self.answer(307, Location="%s/store/%s?signature=%s" % (self.site.blobs, name, signature))
        return self.answer(404)


class BlobHandler(Handler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        signature = urllib.parse.parse_qs(url.query).get("signature", [""])[0]
        name = url.path.removeprefix("/store/")
        if signature not in self.site.signatures or "Authorization" in self.headers:
            return self.answer(403)
        self.site.signatures.discard(signature)
        if name not in self.site.image.blobs:
            return self.answer(404)
        return self.answer(200, self.site.image.blobs[name], Content_Type="application/octet-stream")
