"""Requests of aioquic, a client of HTTP/3 that shares no code with the edge."""

import unittest

from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.events import StreamReset

from client import Client
from edge import PAGE, Edge


class Http3(H3Connection):
    """A connection that knows HEAD, whose responses state the length of content that they do not have."""

    def __init__(self, quic):
        super().__init__(quic)
        self.heads = set()

    def _check_content_length(self, stream):
        if stream.stream_id not in self.heads:
            super()._check_content_length(stream)


class Response:
    def __init__(self):
        self.heads = []
        self.content = bytearray()

    @property
    def fields(self):
        return self.heads[0]

    @property
    def status(self):
        return self.fields[":status"]


class Requests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.edge = Edge()

    @classmethod
    def tearDownClass(cls):
        cls.edge.stop()

    def setUp(self):
        client = Client(self.edge.port)
        self.client = self.enterContext(client).connect()
        self.h3 = Http3(client.quic)

    def send(self, method, path, fields=(), content=None, trailers=()):
        """Sends a request. Returns its stream."""
        stream = self.client.quic.get_next_available_stream_id()
        if method == "HEAD":
            self.h3.heads.add(stream)
        head = {":method": method, ":scheme": "https", ":authority": "localhost", ":path": path, **dict(fields)}
        self.h3.send_headers(stream, encoded(head), end_stream=content is None)
        if content is not None:
            self.h3.send_data(stream, content, end_stream=not trailers)
        if trailers:
            self.h3.send_headers(stream, encoded(dict(trailers)), end_stream=True)
        return stream

    def receive(self, *streams):
        """Waits until the responses of streams are complete. Returns them."""
        responses = {stream: Response() for stream in streams}
        ended = set()

        def collect(event):
            self.assertNotIsInstance(event, StreamReset)
            for event in self.h3.handle_event(event):
                response = responses.get(getattr(event, "stream_id", None))
                if isinstance(event, HeadersReceived):
                    response.heads.append({name.decode(): value.decode() for name, value in event.headers})
                elif isinstance(event, DataReceived):
                    response.content += event.data
                if getattr(event, "stream_ended", False):
                    ended.add(event.stream_id)
            return ended == set(streams) or None

        self.client.wait(collect)
        return list(responses.values())

    def request(self, *arguments, **options):
        [response] = self.receive(self.send(*arguments, **options))
        return response

    def test_a_miss_and_then_hits(self):
        first = self.request("GET", "/page")
        self.assertEqual((first.status, first.content), ("200", PAGE))
        second = self.request("GET", "/page")
        self.assertEqual((second.status, second.content), ("200", PAGE))
        self.assertIn("; hit", second.fields["cache-status"])
        head = self.request("HEAD", "/page")
        self.assertEqual((head.status, head.content), ("200", b""))
        self.assertEqual(head.fields["content-length"], str(len(PAGE)))

    def test_parts_and_validators(self):
        self.request("GET", "/part")
        part = self.request("GET", "/part", {"range": "bytes=1000-1999"})
        self.assertEqual((part.status, part.content), ("206", PAGE[1000:2000]))
        last = self.request("GET", "/part", {"range": "bytes=-5"})
        self.assertEqual((last.status, last.content), ("206", PAGE[-5:]))
        self.assertEqual(self.request("GET", "/part", {"range": "bytes=9999999-"}).status, "416")
        unchanged = self.request("GET", "/part", {"if-none-match": '"1"'})
        self.assertEqual((unchanged.status, unchanged.content), ("304", b""))

    def test_content(self):
        content = PAGE * 10
        for fields in [{"content-length": str(len(content))}, {}]:
            response = self.request("POST", "/form", fields, content)
            self.assertEqual((response.status, response.fields["x-length"]), ("200", str(len(content))))
            self.assertTrue(response.content == content)

    def test_trailers(self):
        response = self.request("GET", "/trailers", {"te": "trailers"})
        self.assertEqual((response.status, response.content), ("200", PAGE))
        self.assertEqual(response.heads[1:], [{"x-sum": "7"}])
        response = self.request("POST", "/form", content=b"content", trailers={"x-sum": "8"})
        self.assertEqual((response.status, response.content), ("200", b"content"))

    def test_a_websocket(self):
        fields = {":protocol": "websocket", "sec-websocket-version": "13"}
        response = self.request("CONNECT", "/chat", fields, PAGE)
        self.assertEqual((response.status, len(response.heads)), ("200", 1))
        self.assertTrue(response.content == PAGE)

    def test_requests_at_once(self):
        streams = [self.send("GET", f"/{number % 7}") for number in range(60)]
        for response in self.receive(*streams):
            self.assertEqual(response.status, "200")
            self.assertTrue(response.content == PAGE)

    def test_a_malformed_request_does_not_end_others(self):
        stream = self.send("GET", "/", {"transfer-encoding": "chunked"})
        self.assertEqual(self.client.reset_code(stream), 0x10E)
        self.assertEqual(self.request("GET", "/page").content, PAGE)


def encoded(fields):
    return [(name.encode(), value.encode()) for name, value in fields.items()]


if __name__ == "__main__":
    unittest.main()
