//! A browser opens WebSockets through the edge: over HTTP/1.1, and over HTTP/2 by extended CONNECT.

use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use edgeward_proxy::Edge;
use edgeward_proxy::config::{LOOPBACK_ANY_PORT, ListenerConfig};
use edgeward_testkit::programs::find_or_skip;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::accept_key::accept_of;
use crate::identity::SelfSigned;
use crate::support::{TestBed, config_for};

/// Opens a WebSocket on the host of the page, sends texts of several lengths, and requests `/done` with the result.
const PAGE: &str = "<!doctype html><title>echo</title><script>
const socket = new WebSocket(location.href.replace(/^http/, 'ws') + 'echo');
const texts = ['', 'hello', 'x'.repeat(200), 'y'.repeat(70000)];
let at = 0;
socket.onopen = () => socket.send(texts[0]);
socket.onmessage = event => {
  if (event.data !== texts[at]) { socket.close(4000 + at); return; }
  at += 1;
  if (at < texts.length) socket.send(texts[at]); else socket.close(1000);
};
socket.onclose = event => {
  fetch('/done?' + at + '-echoes-code-' + event.code + '-clean-' + event.wasClean);
};
</script>";

#[test]
fn chromium_talks_to_a_websocket_over_http1_and_http2() {
    if find_or_skip("chromium").is_none() {
        return;
    }
    let (addr, done) = start_origin();
    let identity = SelfSigned::new();
    let mut config = config_for(addr);
    let mut listener = ListenerConfig::plain(LOOPBACK_ANY_PORT);
    listener.tls = Some(identity.files());
    config.listeners.push(listener);
    let edge = Edge::start(config).expect("the edge starts on a free port");
    let bed = TestBed {
        edge,
        origin: edgeward_testkit::ScriptedOrigin::start(),
    };
    let accepted = |protocol: &str| {
        bed.metric(&format!(
            "edgeward_client_connections_total{{protocol=\"{protocol}\"}}"
        ))
    };
    let mut accepted_http1 = Vec::new();
    for (nth, scheme) in ["http", "https"].into_iter().enumerate() {
        let url = format!("{scheme}://127.0.0.1:{}/", bed.edge.addrs()[nth].port());
        let browser = Browser::open(&url);
        let result = done.recv_timeout(BROWSER_TIMEOUT);
        drop(browser);
        let expected = "/done?4-echoes-code-1000-clean-true".to_owned();
        assert_eq!(result, Ok(expected), "{url}");
        let tunnels = (nth + 1) as f64;
        bed.wait_for_metric("edgeward_tunnels_ended_total{cause=\"closed\"}", tunnels);
        accepted_http1.push(accepted("http/1.1"));
    }
    // With TLS, the WebSocket had no connection of its own: it was a stream of the page's HTTP/2 connection.
    assert_eq!(accepted_http1[0], accepted_http1[1]);
    assert!(accepted("h2") >= 1.0);
    assert_eq!(
        bed.metric("edgeward_upgrades_total{result=\"switched\"}"),
        2.0
    );
}

/// Chromium, until dropped.
struct Browser {
    process: Child,
    _profile: tempfile::TempDir,
}

impl Browser {
    fn open(url: &str) -> Self {
        let profile = tempfile::tempdir().expect("the folder is created");
        let process = Command::new("chromium")
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--no-first-run",
                "--ignore-certificate-errors",
                "--remote-debugging-port=0",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(url)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the test checked that the program is installed");
        Self {
            process,
            _profile: profile,
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// The longest time that the browser may take to start and to run the page.
const BROWSER_TIMEOUT: Duration = Duration::from_secs(60);

/// Starts an origin that serves the page and echoes the messages of WebSockets. Also returns the targets of requests
/// for `/done`.
fn start_origin() -> (std::net::SocketAddr, Receiver<String>) {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    listener.set_nonblocking(true).expect("the socket is open");
    let addr = listener.local_addr().expect("the socket is bound");
    let (sender, done) = channel();
    // The thread ends with the test's process.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("the runtime can be built").block_on(async {
            let listener = TcpListener::from_std(listener).expect("the socket is valid");
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, sender.clone()));
            }
        });
    });
    (addr, done)
}

/// Serves one connection until it ends.
async fn serve(mut stream: TcpStream, done: Sender<String>) -> Option<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let key = head
            .lines()
            .find_map(|line| line.strip_prefix("sec-websocket-key: "));
        if let Some(key) = key {
            let accept = accept_of(key);
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Accept: {accept}\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).await.ok()?;
            return echo(stream).await;
        }
        let target = head.split(' ').nth(1).unwrap_or_default();
        if target.starts_with("/done") {
            _ = done.send(target.to_owned());
        }
        let (status, body) = match head.starts_with("GET / ") {
            true => ("200 OK", PAGE),
            false => ("404 Not Found", ""),
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).await.ok()?;
    }
}

/// Echoes frames (RFC 6455 §5.2) until a close frame.
async fn echo(mut stream: TcpStream) -> Option<()> {
    loop {
        let first = stream.read_u8().await.ok()?;
        let length = stream.read_u8().await.ok()?;
        assert!(length & 0x80 != 0, "frames of clients are masked");
        let length = match length & 0x7f {
            126 => usize::from(stream.read_u16().await.ok()?),
            127 => usize::try_from(stream.read_u64().await.ok()?).ok()?,
            short => usize::from(short),
        };
        let mut mask = [0; 4];
        stream.read_exact(&mut mask).await.ok()?;
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await.ok()?;
        for (byte, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
            *byte ^= mask;
        }
        let mut frame = vec![first];
        match u16::try_from(length) {
            Ok(short @ 0..126) => frame.push(short as u8),
            Ok(medium) => {
                frame.push(126);
                frame.extend(medium.to_be_bytes());
            }
            Err(_) => {
                frame.push(127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend(payload);
        stream.write_all(&frame).await.ok()?;
        // A close frame ends the connection (§7.1.1).
        if first & 0x0f == 8 {
            return Some(());
        }
    }
}
