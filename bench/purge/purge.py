"""Sends purges to the admin server of an edge and measures their time: purge.py ADMIN PID BODY COUNT [PAUSE]

BODY is JSON; `N` in it is replaced by the number of the purge. The token is in the file `token` of the edge's folder.
"""
import http.client
import json
import os
import sys
import time

from http1 import quantile, resident_bytes

admin, pid, body, count = sys.argv[1:5]
pause = float(sys.argv[5]) if len(sys.argv) > 5 else 0
with open(f"/proc/{pid}/cwd/token") as file:
    fields = {"Authorization": "Bearer " + file.read().strip()}
before, times, refused, answer = resident_bytes(pid), [], 0, {}
for n in range(int(count)):
    connection = http.client.HTTPConnection("127.0.0.1", int(admin), timeout=60)
    start = time.perf_counter()
    connection.request("POST", "/purge", body.replace("N", str(n)), fields)
    response = connection.getresponse()
    answer = json.load(response)
    times.append((time.perf_counter() - start) * 1000)
    refused += response.status != 200
    time.sleep(pause)
print(json.dumps(answer | {
    "purges": len(times), "refused": refused, "purge_ms_p50": quantile(times, 0.5), "purge_ms_p99": quantile(times, 0.99),
    "purge_ms_max": max(times), "memory_growth_bytes": resident_bytes(pid) - before,
}))
