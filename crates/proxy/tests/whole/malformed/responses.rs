//! The responses of the table.

use super::ResponseRow;

/// Returns a response to GET, after which the origin closes the connection.
const fn closing(
    name: &'static str,
    source: &'static str,
    bytes: &'static [u8],
    expected: &'static str,
) -> ResponseRow {
    ResponseRow {
        name,
        source,
        method: "GET",
        bytes,
        closes: true,
        expected,
    }
}

/// Returns a response to GET, after which the origin keeps the connection.
const fn kept(
    name: &'static str,
    source: &'static str,
    bytes: &'static [u8],
    expected: &'static str,
) -> ResponseRow {
    ResponseRow {
        closes: false,
        ..closing(name, source, bytes, expected)
    }
}

/// Returns a response to HEAD, after which the origin keeps the connection.
const fn kept_head(
    name: &'static str,
    source: &'static str,
    bytes: &'static [u8],
    expected: &'static str,
) -> ResponseRow {
    ResponseRow {
        method: "HEAD",
        ..kept(name, source, bytes, expected)
    }
}

/// All rows.
pub(super) const ALL: &[ResponseRow] = &[
    kept(
        "a plain response",
        "RFC 9112 §6.2",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "a body that ends with the connection",
        "RFC 9112 §6.3",
        b"HTTP/1.1 200 OK\r\n\r\nhello",
        "200 \"hello\"; 200 \"ok\"",
    ),
    kept(
        "a chunked response",
        "RFC 9112 §7.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "Content-Length before Transfer-Encoding",
        "RFC 9112 §6.3",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "Transfer-Encoding before Content-Length",
        "RFC 9112 §6.3",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "two equal Content-Length lines",
        "RFC 9112 §6.3",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "two different Content-Length lines",
        "RFC 9112 §6.3",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "a list of equal lengths",
        "RFC 9112 §6.3",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "a list of different lengths",
        "RFC 9112 §6.3",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "Content-Length: a plus sign",
        "RFC 9110 §8.6",
        b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "Content-Length: a minus sign",
        "RFC 9110 §8.6",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "Content-Length: hexadecimal",
        "RFC 9110 §8.6",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "Content-Length: a number and letters",
        "RFC 9110 §8.6",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5abc\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "Content-Length: no number",
        "RFC 9110 §8.6",
        b"HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "Content-Length: a number beyond 64 bits",
        "RFC 9110 §8.6",
        b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551621\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "Content-Length: NUL after the number",
        "RFC 9110 §8.6",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\0\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "Content-Length: a vertical tab",
        "RFC 9110 §8.6",
        b"HTTP/1.1 200 OK\r\nContent-Length: \x0b5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "Content-Length: two numbers",
        "RFC 9110 §8.6",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "Transfer-Encoding: a prefix",
        "RFC 9112 §6.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "502; 200 \"ok\"",
    ),
    closing(
        "Transfer-Encoding: gzip before chunked",
        "RFC 9112 §6.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "502; 200 \"ok\"",
    ),
    closing(
        "Transfer-Encoding: identity",
        "RFC 9112 §6.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "502; 200 \"ok\"",
    ),
    closing(
        "Transfer-Encoding: chunked twice",
        "RFC 9112 §6.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "502; 200 \"ok\"",
    ),
    closing(
        "Transfer-Encoding: a vertical tab",
        "RFC 9112 §6.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: \x0bchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "502; 200 \"ok\"",
    ),
    closing(
        "Transfer-Encoding: no name",
        "RFC 9112 §6.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: \r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "502; 200 \"ok\"",
    ),
    closing(
        "Transfer-Encoding: chunked before gzip",
        "RFC 9112 §6.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "502; 200 \"ok\"",
    ),
    closing(
        "Transfer-Encoding: quotes",
        "RFC 9112 §6.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: \"chunked\"\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "502; 200 \"ok\"",
    ),
    closing(
        "Transfer-Encoding in HTTP/1.0",
        "RFC 9112 §6.1",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "502; 200 \"ok\"",
    ),
    closing(
        "a body shorter than Content-Length",
        "RFC 9112 §8",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello",
        "broken; 200 \"ok\"",
    ),
    kept(
        "bytes after the body",
        "RFC 9112 §6.3",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloGARBAGE",
        "200 \"hello\"; 200 \"ok\"",
    ),
    kept(
        "a second response after the body",
        "response queue poisoning",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        "200 \"hello\"; 200 \"ok\"",
    ),
    kept(
        "a second response after a chunked body",
        "response queue poisoning",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        "200 \"hello\"; 200 \"ok\"",
    ),
    kept_head(
        "a body in a response to HEAD",
        "RFC 9112 §6.3",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "200; 200 \"ok\"",
    ),
    kept_head(
        "a response after the body of a response to HEAD",
        "response queue poisoning",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        "200; 200 \"ok\"",
    ),
    kept(
        "204 with a body",
        "RFC 9112 §6.3",
        b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello",
        "204; 200 \"ok\"",
    ),
    kept(
        "204 with Transfer-Encoding",
        "RFC 9112 §6.1",
        b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "204; 200 \"ok\"",
    ),
    kept(
        "304 to a request without conditions",
        "RFC 9110 §15.4.5",
        b"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\nhello",
        "304; 200 \"ok\"",
    ),
    closing(
        "101 to a request without Upgrade",
        "RFC 9110 §15.2.2",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
        "502; 200 \"ok\"",
    ),
    closing(
        "20 interim responses",
        "RFC 9110 §15.2",
        b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "an interim response with a body",
        "RFC 9110 §15.2",
        b"HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "only an interim response",
        "RFC 9110 §15.2",
        b"HTTP/1.1 103 Early Hints\r\n\r\n",
        "502; 200 \"ok\"",
    ),
    closing(
        "status line: no reason",
        "RFC 9112 §4",
        b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "status line: an empty reason",
        "RFC 9112 §4",
        b"HTTP/1.1 200 \r\nContent-Length: 5\r\n\r\nhello",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "status line: two spaces before the status",
        "RFC 9112 §4",
        b"HTTP/1.1  200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "status line: a status of two digits",
        "RFC 9112 §4",
        b"HTTP/1.1 20 OK\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "status line: a status of four digits",
        "RFC 9112 §4",
        b"HTTP/1.1 2000 OK\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "status line: the status 099",
        "RFC 9112 §4",
        b"HTTP/1.1 099 OK\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "status line: the status 000",
        "RFC 9112 §4",
        b"HTTP/1.1 000 OK\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "status line: the status 600",
        "RFC 9112 §4",
        b"HTTP/1.1 600 OK\r\nContent-Length: 5\r\n\r\nhello",
        "600 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "status line: the status 999",
        "RFC 9112 §4",
        b"HTTP/1.1 999 OK\r\nContent-Length: 5\r\n\r\nhello",
        "999 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "status line: a status of letters",
        "RFC 9112 §4",
        b"HTTP/1.1 abc OK\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "status line: a negative status",
        "RFC 9112 §4",
        b"HTTP/1.1 -20 OK\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "status line: HTTP/2",
        "RFC 9112 §4",
        b"HTTP/2 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "status line: HTTP/1.2",
        "RFC 9112 §4",
        b"HTTP/1.2 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "status line: HTTP/1.0",
        "RFC 9112 §4",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "status line: another protocol",
        "RFC 9112 §4",
        b"ICY 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "status line: lower case",
        "RFC 9112 §4",
        b"http/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "status line: a space before it",
        "RFC 9112 §4",
        b" HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "status line: a tab before the status",
        "RFC 9112 §4",
        b"HTTP/1.1\t200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "status line: NUL in the reason",
        "RFC 9112 §4",
        b"HTTP/1.1 200 O\0K\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "status line: CR in the reason",
        "RFC 9112 §4",
        b"HTTP/1.1 200 O\rK\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "status line: a byte above 127 in the reason",
        "RFC 9112 §4",
        b"HTTP/1.1 200 \xe9\r\nContent-Length: 5\r\n\r\nhello",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "an empty line before the response",
        "RFC 9112 §4",
        b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "a body without a head (HTTP/0.9)",
        "RFC 9112 §4",
        b"<html>hello</html>",
        "502; 200 \"ok\"",
    ),
    closing("no bytes", "RFC 9112 §9.4", b"", "502; 200 \"ok\""),
    closing(
        "the connection ends within the head",
        "RFC 9112 §8",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        "502; 200 \"ok\"",
    ),
    closing(
        "LF in place of CRLF",
        "RFC 9112 §2.2",
        b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "field: a space before a colon",
        "RFC 9110 §5.5",
        b"HTTP/1.1 200 OK\r\nX-A : 1\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "field: a space within a name",
        "RFC 9110 §5.5",
        b"HTTP/1.1 200 OK\r\nX A: 1\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "field: no colon",
        "RFC 9110 §5.5",
        b"HTTP/1.1 200 OK\r\nX-A\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "field: an empty name",
        "RFC 9110 §5.5",
        b"HTTP/1.1 200 OK\r\n: 1\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "field: a folded value",
        "RFC 9110 §5.5",
        b"HTTP/1.1 200 OK\r\nX-A: 1\r\n 2\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "field: NUL in a value",
        "RFC 9110 §5.5",
        b"HTTP/1.1 200 OK\r\nX-A: 1\x002\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "field: CR in a value",
        "RFC 9110 §5.5",
        b"HTTP/1.1 200 OK\r\nX-A: 1\r2\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "field: CR before a hidden Content-Length",
        "RFC 9110 §5.5",
        b"HTTP/1.1 200 OK\r\nX-A: 1\rContent-Length: 1\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "field: LF before Transfer-Encoding",
        "RFC 9110 §5.5",
        b"HTTP/1.1 200 OK\r\nX-A: 1\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello",
        "broken; 200 \"ok\"",
    ),
    closing(
        "field: a control character in a value",
        "RFC 9110 §5.5",
        b"HTTP/1.1 200 OK\r\nX-A: 1\x012\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "field: a byte above 127 in a value",
        "RFC 9110 §5.5",
        b"HTTP/1.1 200 OK\r\nX-A: \xe9\r\nContent-Length: 5\r\n\r\nhello",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "field: a byte above 127 in a name",
        "RFC 9110 §5.5",
        b"HTTP/1.1 200 OK\r\nX-\xe9: 1\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "field: a parenthesis in a name",
        "RFC 9110 §5.5",
        b"HTTP/1.1 200 OK\r\nX(A): 1\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "field: white space before Content-Length",
        "RFC 9110 §5.5",
        b"HTTP/1.1 200 OK\r\nX-A: 1\r\n Content-Length: 1\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "field: a colon twice",
        "RFC 9110 §5.5",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding:: chunked\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "300 fields",
        "RFC 9110 §5.4",
        b"HTTP/1.1 200 OK\r\n{300}Content-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "a value of 100,000 bytes",
        "RFC 9110 §5.4",
        b"HTTP/1.1 200 OK\r\nX-A: {100000}\r\nContent-Length: 5\r\n\r\nhello",
        "502; 200 \"ok\"",
    ),
    closing(
        "Connection lists Content-Length",
        "RFC 9110 §7.6.1",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: content-length\r\n\r\nhello",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "Connection lists Cache-Control",
        "RFC 9110 §7.6.1",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: x-a\r\nX-A: 1\r\n\r\nhello",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "Location with an encoded line end",
        "RFC 9110 §10.2.2",
        b"HTTP/1.1 302 Found\r\nLocation: /%0d%0aX-B:1\r\nContent-Length: 5\r\n\r\nhello",
        "302 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "chunk size: a prefix 0x",
        "RFC 9112 §7.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
        "broken; 200 \"ok\"",
    ),
    closing(
        "chunk size: a plus sign",
        "RFC 9112 §7.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
        "broken; 200 \"ok\"",
    ),
    closing(
        "chunk size: white space before it",
        "RFC 9112 §7.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n 5\r\nhello\r\n0\r\n\r\n",
        "broken; 200 \"ok\"",
    ),
    closing(
        "chunk size: white space after it",
        "RFC 9112 §7.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "chunk size: none",
        "RFC 9112 §7.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n",
        "broken; 200 \"ok\"",
    ),
    closing(
        "chunk size: no hexadecimal digit",
        "RFC 9112 §7.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\ng\r\nhello\r\n0\r\n\r\n",
        "broken; 200 \"ok\"",
    ),
    closing(
        "chunk size: a size beyond 64 bits",
        "RFC 9112 §7.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff5\r\nhello\r\n0\r\n\r\n",
        "broken; 200 \"ok\"",
    ),
    closing(
        "chunk size: LF after it",
        "RFC 9112 §7.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
        "broken; 200 \"ok\"",
    ),
    closing(
        "chunk size: NUL after it",
        "RFC 9112 §7.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\0\r\nhello\r\n0\r\n\r\n",
        "broken; 200 \"ok\"",
    ),
    closing(
        "LF after the data of a chunk",
        "RFC 9112 §7.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n",
        "broken; 200 \"ok\"",
    ),
    closing(
        "data longer than the chunk",
        "RFC 9112 §7.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n0\r\n\r\n",
        "broken; 200 \"ok\"",
    ),
    closing(
        "no last chunk",
        "RFC 9112 §8",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "broken; 200 \"ok\"",
    ),
    closing(
        "LF as the end of a chunked body",
        "RFC 9112 §7.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\n",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "an extension of a chunk",
        "RFC 9112 §7.1.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "NUL in an extension",
        "RFC 9112 §7.1.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a\0\r\nhello\r\n0\r\n\r\n",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "trailers",
        "RFC 9112 §7.1.2",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "Content-Length as a trailer",
        "RFC 9110 §6.5.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nContent-Length: 1\r\n\r\n",
        "200 \"hello\"; 200 \"ok\"",
    ),
    closing(
        "a trailer with a space in its name",
        "RFC 9112 §5.1",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX Y: 1\r\n\r\n",
        "broken; 200 \"ok\"",
    ),
];
