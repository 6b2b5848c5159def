"""Deltas by compression dictionaries, decoded by a library that shares no code with the edge."""

import base64
import hashlib
import http.client
import ssl
import time
import unittest

import zstandard

from edge import Edge, script

# The longest wait for a delta, also on a machine that runs other tests meanwhile.
TIMEOUT_SECONDS = 60


class Dictionaries(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.edge = Edge()

    @classmethod
    def tearDownClass(cls):
        cls.edge.stop()

    def get(self, path, **fields):
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(
            "localhost", self.edge.port, context=context, timeout=TIMEOUT_SECONDS
        )
        self.addCleanup(connection.close)
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in fields.items()})
        response = connection.getresponse()
        return response, response.read()

    def test_a_delta_decodes_to_the_next_version(self):
        response, body = self.get("/js/app.1.js", accept_encoding="identity")
        self.assertEqual((body, response.headers["use-as-dictionary"]), (script(1), 'match="/js/app.*.js"'))
        digest = hashlib.sha256(script(1)).digest()
        offer = f":{base64.b64encode(digest).decode()}:"
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            response, body = self.get("/js/app.2.js", accept_encoding="gzip, dcz", available_dictionary=offer)
            if response.headers["content-encoding"] == "dcz":
                break
            self.assertEqual(response.headers["content-encoding"], "gzip")
            self.assertLess(time.monotonic(), deadline)
        self.assertEqual(body[:40], bytes.fromhex("5e2a4d1820000000") + digest)
        dictionary = zstandard.ZstdCompressionDict(script(1), dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        decoder = zstandard.ZstdDecompressor(dict_data=dictionary)
        self.assertEqual(decoder.decompress(body[40:]), script(2))
        self.assertLess(len(body), len(script(2)) // 20)


if __name__ == "__main__":
    unittest.main()
