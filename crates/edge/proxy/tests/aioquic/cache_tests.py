"""Runs cache-tests (github.com/http-tests/cache-tests) by each version of HTTP, and prints tests that differ.

Usage: `make cache-tests CACHE_TESTS=FOLDER`, where FOLDER has cache-tests after `npm install`. A test that differs, or
whose preparation fails, runs up to three times more by each version, with few others at once: some tests depend on the
time. The exit code is 1 if results of HTTP/2 and HTTP/3 differ in all runs.
"""

import json
import os
import socket
import subprocess
import sys

from bridge import Bridge, open_http2, open_http3
from edge import Edge

# Prints rows of id, kind, sign and result, of chosen tests or of all. The program of cache-tests runs all or one.
RUNNER = """
import { runTests, getResults } from './test-engine/client/runner.mjs'
import { determineTestResult } from './test-engine/lib/results.mjs'
import suites from './tests/index.mjs'
const chosen = JSON.parse(process.env.CHOSEN)
const kept = suites.map(suite => ({ ...suite, tests: suite.tests.filter(({ id }) => !chosen || chosen.includes(id)) }))
await runTests(kept, false, process.env.BASE, chosen ? 5 : 25)
const results = getResults()
const all = suites.flatMap(suite => suite.tests).filter(({ id }) => id in results)
const sign = id => determineTestResult(suites, id, results, false)[2]
const rows = all.map(({ id, kind }) => [id, kind ?? 'required', sign(id), results[id]])
console.log(JSON.stringify(rows))
"""


def start_server(folder):
    """Starts the origin of cache-tests. Returns its process and port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"protocol": "http", "port": str(port), "pidfile": os.devnull}
    environment = {f"npm_config_{name}": value for name, value in settings.items()}
    process = subprocess.Popen(
        ["node", "test-engine/server/server.mjs"],
        cwd=folder,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    if not process.stdout.readline().startswith("Listening"):
        raise RuntimeError("the origin of cache-tests does not start")
    return process, port


def run(folder, base, chosen=None):
    """Runs tests. Returns their rows by id."""
    settings = {"BASE": base, "CHOSEN": json.dumps(chosen), "NODE_TLS_REJECT_UNAUTHORIZED": "0"}
    command = ["node", "--no-warnings", "--dns-result-order=ipv4first", "--input-type=module", "-e", RUNNER]
    output = subprocess.run(
        command, cwd=folder, env=os.environ | settings, check=True, stdout=subprocess.PIPE, text=True
    )
    rows = json.loads(output.stdout.splitlines()[-1])
    return {row[0]: row[1:] for row in rows}


def unclear(results):
    """Returns the tests whose signs differ, or whose preparation failed."""
    signs = {test: {rows[test][1] for rows in results.values()} for test in results["h1"]}
    return [test for test, found in signs.items() if len(found) > 1 or not found <= KNOWN_SIGNS]


def count(rows):
    """Counts the passed tests of each kind, without regard to the tests that they depend on."""
    passed = [kind for kind, sign, _ in rows.values() if sign in ("✅", "Y")]
    return ", ".join(f"{kind} {passed.count(kind)}" for kind in ("required", "optimal", "check"))


def main(folder):
    server, origin_port = start_server(folder)
    edge = Edge(origin_port)
    bases = {
        "h1": f"https://localhost:{edge.port}",
        "h2": f"http://localhost:{Bridge(open_http2, edge.port).port}",
        "h3": f"http://localhost:{Bridge(open_http3, edge.port).port}",
    }
    try:
        results = {name: run(folder, base) for name, base in bases.items()}
        for _ in range(3):
            if again := unclear(results):
                for name, base in bases.items():
                    results[name].update(run(folder, base, again))
    finally:
        server.kill()
        edge.stop()
    for name, rows in results.items():
        print(f"{name}: of {len(rows)} tests passed: {count(rows)}")
    for test in unclear(results):
        print(test, *(f"{name}: {rows[test][1:]}" for name, rows in results.items()), sep="\n    ")
    return any(results["h2"][test][1] != results["h3"][test][1] for test in results["h2"])


# Passed, failed, and the results of tests that only show a behaviour.
KNOWN_SIGNS = {"✅", "⛔️", "⚠️", "Y", "N"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
