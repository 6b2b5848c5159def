"""Tests of the client with a publisher in this process and clocks that only the test advances. If EDGEWARD names
the edgeward program, the client is also tested with a real publisher."""

import hashlib
import json
import os
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from common import line, vector, vectors
from edgeward_filter import FilterClient, ManualClock

TIMEOUT_SECONDS = 180
PROGRAM = os.environ.get("EDGEWARD")


class Publisher(BaseHTTPRequestHandler):
    """Serves golden files and injects the fault `trouble`: no response ("dead"), a manifest with a wrong
    signature ("forged"), or filters and deltas with a wrong bit ("flipped")."""

    trouble = None
    files = {
        hashlib.sha256(vector(name)).hexdigest(): vector(name)
        for name in ("static-integer.ewf", "delta.ewd")
    }

    def do_GET(self):
        _, _, name, *rest = self.path.split("/")
        body = self.files.get(rest[-1]) if rest else vector("manifest.txt")
        if self.trouble == "dead":
            self.close_connection = True
            return
        if self.trouble == "forged" and not rest:
            # A manifest whose signature has one changed digit.
            body = next(
                one["line"] for one in vectors("refused-lines.json") if "digit" in one["why"]
            ).encode()
        if self.trouble == "flipped" and rest:
            body = body[:80] + bytes([body[80] ^ 1]) + body[81:]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def wait_until(holds):
    """Waits until the function `holds` returns true."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while not holds():
        if time.monotonic() > end:
            raise AssertionError("timeout")
        time.sleep(0.005)


class Client(unittest.TestCase):
    def setUp(self):
        handler = type("PublisherOfThisTest", (Publisher,), {})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.publisher = handler
        self.url = f"http://127.0.0.1:{server.server_port}/sets/resource"
        self.clock = ManualClock(1_700_000_000)

    def follow(self, **more):
        options = {"max_staleness": 3, "clock_error": 0.2, "clock": self.clock, **more}
        client = FilterClient(self.url, [line("key.txt")], **options)
        self.addCleanup(client.close)
        return client

    def test_a_client_asks_until_its_filter_is_loaded_and_then_skips_absent_ids(self):
        self.publisher.trouble = "dead"
        client = self.follow()
        wait_until(lambda: client.status().counts["failed"] > 0)
        self.assertEqual(client.answer(7), "ask")
        self.publisher.trouble = None
        self.assertTrue(client.wait_fresh(TIMEOUT_SECONDS), client.status())
        wait_until(lambda: client.status().overlay_ids == 3)
        self.assertEqual([client.answer(id) for id in (7, "1001")], ["maybe", "maybe"])
        skipped = sum(not client.may_exist(id) for id in range(5000, 5200))
        self.assertGreater(skipped, 180, "with 3 % false positives")
        self.assertEqual(client.status().facts.ids, 1000)

    def test_a_client_without_a_newer_manifest_asks_after_max_staleness(self):
        client = self.follow(max_staleness=timedelta(seconds=3))
        self.assertTrue(client.wait_fresh(TIMEOUT_SECONDS))
        absent = next(id for id in range(5000, 5100) if client.answer(id) == "absent")
        # The clock shows the date of the manifest, so `max_staleness` minus `clock_error` is left: 2.8 s.
        left = client.status().fresh_for
        self.assertTrue(0 < left <= 2.9, left)
        self.clock.advance(left)
        self.assertEqual(client.answer(absent), "absent", "at the deadline")
        self.clock.advance(0.001)
        self.assertEqual(client.answer(absent), "ask", "after the deadline")

    def test_a_wall_clock_that_is_stepped_back_does_not_extend_the_deadline(self):
        client = self.follow()
        self.assertTrue(client.wait_fresh(TIMEOUT_SECONDS))
        self.clock.advance(3.001, wall=-3600)
        self.assertFalse(client.status().fresh)

    def test_forged_data_is_refused_and_the_last_valid_filter_stays(self):
        client = self.follow()
        self.assertTrue(client.wait_fresh(TIMEOUT_SECONDS))
        self.publisher.trouble = "forged"
        wait_until(lambda: client.status().counts["manifests_refused"] > 0)
        self.assertEqual((client.status().serial, client.answer(7)), (100, "maybe"))
        self.assertIn("signature", client.status().last_error)

    def test_a_snapshot_with_a_flipped_bit_is_refused_and_a_later_valid_one_is_used(self):
        self.publisher.trouble = "flipped"
        client = self.follow()
        wait_until(lambda: client.status().counts["snapshots_refused"] > 0)
        self.assertIsNone(client.status().facts)
        self.publisher.trouble = None
        self.assertTrue(client.wait_fresh(TIMEOUT_SECONDS))

    def test_a_closed_client_asks(self):
        with self.follow() as client:
            self.assertTrue(client.wait_fresh(TIMEOUT_SECONDS))
        self.assertEqual((client.answer(5001), client.status()), ("ask", None))
        self.assertFalse(client.wait_fresh(0))

    def test_a_forked_child_asks_and_ends(self):
        client = self.follow()
        self.assertTrue(client.wait_fresh(TIMEOUT_SECONDS))
        child = os.fork()
        if child == 0:
            asked = client.answer(5001) == "ask"
            client.close()
            del client
            os._exit(0 if asked else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(client.answer(7), "maybe")

    def test_wrong_arguments_are_refused_with_a_hint(self):
        good = {"url": self.url, "keys": ["00" * 32], "max_staleness": 1}
        for wrong, hint in (
            ({"keys": None}, "trust_transport"),
            ({"keys": ["00"]}, "64 hex digits"),
            ({"url": "http://a"}, "sets/NAME"),
            ({"max_staleness": -1}, "-1"),
            ({"form": "guid"}, "text, uuid or integer"),
        ):
            with self.assertRaisesRegex(ValueError, hint):
                FilterClient(**{**good, **wrong})


@unittest.skipUnless(PROGRAM, "EDGEWARD names no program")
class RealPublisher(unittest.TestCase):
    def test_a_client_follows_edgeward_filter_serve(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        ids, key, token = folder / "ids.txt", folder / "key", folder / "token"
        ids.write_text("".join(f"{n}\n" for n in range(5000)))
        token.write_text("a-token-that-is-long-enough")
        subprocess.run([PROGRAM, "filter", "keygen", "-o", key], check=True, stdout=subprocess.DEVNULL)
        publisher = subprocess.Popen(
            [PROGRAM, "filter", "serve", "--set", "resource", "--source", ids, "--ids", "integer"]
            + ["--key", key, "--token", token, "--covered-by", "posts", "--state", folder / "state"]
            + ["--listen", "127.0.0.1:0", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(publisher.stdout.close)
        self.addCleanup(publisher.wait)
        self.addCleanup(publisher.kill)
        started = json.loads(publisher.stdout.readline())
        client = FilterClient(started["listening"], [started["public_key"]], max_staleness=20)
        self.addCleanup(client.close)
        self.assertTrue(client.wait_fresh(TIMEOUT_SECONDS), client.status())
        self.assertTrue(all(client.may_exist(n) for n in range(5000)), "no present id is reported as absent")
        absent = [n for n in range(1_000_000, 1_001_000) if not client.may_exist(n)]
        self.assertGreater(len(absent), 950, "with 1 % false positives")

        request = urllib.request.Request(
            started["listening"] + "/ids",
            data=str(absent[0]).encode(),
            headers={"Authorization": f"Bearer {token.read_text()}"},
        )
        urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS).close()
        wait_until(lambda: client.may_exist(absent[0]))
        self.assertGreater(client.status().counts["deltas"], 0, "the id is in a delta")

        publisher.kill()
        wait_until(lambda: not client.status().fresh)
        self.assertEqual(client.answer(absent[1]), "ask")


if __name__ == "__main__":
    unittest.main()
