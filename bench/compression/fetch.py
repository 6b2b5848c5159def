"""Requests each file of a folder twice and compares the bodies: fetch.py PORT ACCEPT-ENCODING FOLDER

Bodies in gzip are decoded. Those in zstd and Brotli are only counted, because Python cannot decode them.
"""
import gzip
import http.client
import json
import pathlib
import sys

port, accept, folder = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
files = sorted(file for file in folder.rglob("*") if file.is_file())
connection = http.client.HTTPConnection("127.0.0.1", port)
counts = dict.fromkeys(["requests", "hits", "encoded", "body_bytes", "errors"], 0)
for _ in range(2):
    for file in files:
        connection.request("GET", f"/{file.relative_to(folder)}", headers={"Host": "bench", "Accept-Encoding": accept})
        response = connection.getresponse()
        body, coding = response.read(), response.headers.get("Content-Encoding")
        counts["requests"] += 1
        counts["hits"] += "; hit" in response.headers.get("Cache-Status", "")
        counts["encoded"] += coding is not None
        counts["body_bytes"] += len(body)
        if coding == "gzip":
            body = gzip.decompress(body)
        counts["errors"] += response.status != 200 or coding in (None, "gzip") and body != file.read_bytes()
print(json.dumps(counts | {"file_bytes": 2 * sum(file.stat().st_size for file in files)}))
