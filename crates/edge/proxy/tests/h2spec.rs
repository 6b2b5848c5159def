//! The HTTP/2 conformance suite `h2spec` (RFC 9113, RFC 7541), run by `make h2spec`.
//!
//! The origin answers after 30 ms, so that the edge receives frames of a request before, while and after it sends the
//! response.

#[path = "support/identity.rs"]
mod identity;
#[expect(dead_code, reason = "this binary uses a part of the helpers")]
mod support;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use edgeward_proxy::Edge;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use identity::SelfSigned;
use support::{TIMEOUT, config_for};
use tokio::net::TcpListener;

const ORIGIN_DELAY: Duration = Duration::from_millis(30);

#[test]
#[ignore = "needs the program h2spec: run `make h2spec`"]
fn h2spec_passes_in_strict_mode_over_tls() {
    let identity = SelfSigned::new();
    // `-t` uses TLS, and `-k` does not verify the certificate.
    let report = report_of(&["-t", "-k"], Some(&identity));
    assert!(report.failed == 0, "{}", report.text);
}

#[test]
#[ignore = "needs the program h2spec: run `make h2spec`"]
fn h2spec_passes_in_strict_mode_in_cleartext() {
    let report = report_of(&[], None);
    assert!(report.failed == 0, "{}", report.text);
}

struct Report {
    /// The number of failed test cases.
    failed: usize,
    text: String,
}

#[expect(
    clippy::print_stdout,
    reason = "the number of passed cases is the result of the command"
)]
fn report_of(options: &[&str], identity: Option<&SelfSigned>) -> Report {
    let mut config = config_for(slow_origin());
    config.listeners[0].tls = identity.map(SelfSigned::files);
    let edge = Edge::start(config).expect("the edge starts on a free port");
    let port = edge.addrs()[0].port().to_string();
    let program = std::env::var("H2SPEC").unwrap_or_else(|_| "h2spec".to_owned());
    // `-o 5` sets the timeout of a test case to five seconds.
    let output = Command::new(&program)
        .args(["-h", "127.0.0.1", "-p", &port, "--strict", "-o", "5"])
        .args(options)
        .output();
    let output = output.unwrap_or_else(|error| {
        panic!(
            "{program} cannot be run: {error}\n  hint: install it with `go install \
             github.com/summerwind/h2spec/cmd/h2spec@latest`, or name it in H2SPEC"
        )
    });
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // The last line: "147 tests, 147 passed, 0 skipped, 0 failed".
    let failed = text.lines().rev().find_map(|line| {
        line.strip_suffix(" failed")?
            .rsplit(' ')
            .next()?
            .parse()
            .ok()
    });
    let failed = failed.unwrap_or_else(|| panic!("no summary in the output of {program}:\n{text}"));
    println!("{}", text.lines().last().unwrap_or_default());
    edge.shutdown(TIMEOUT);
    Report { failed, text }
}

/// Starts an origin on its own thread. The origin reads the complete request and answers after
/// [`ORIGIN_DELAY`].
fn slow_origin() -> SocketAddr {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("the runtime can be built");
        runtime.block_on(async move {
            let listener = TcpListener::bind(("127.0.0.1", 0))
                .await
                .expect("a port is free");
            let addr = listener.local_addr().expect("the address is valid");
            sender.send(addr).expect("the test waits");
            while let Ok((stream, _)) = listener.accept().await {
                let service = service_fn(answer);
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
    });
    receiver.recv().expect("the origin starts")
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    _ = request.into_body().collect().await;
    tokio::time::sleep(ORIGIN_DELAY).await;
    let response = Response::builder().header("cache-control", "no-store");
    let body = Full::new(Bytes::from_static(&[b'x'; 256]));
    Ok(response.body(body).expect("the response is valid"))
}
