//! A shield that confirms an invalidation late.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use edgeward_testkit::client::until;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use super::{Plan, origin};

/// A shield whose objects all have the same content. It confirms invalidations when the content is `new`.
struct SlowShield {
    addr: SocketAddr,
    content: watch::Sender<&'static str>,
    /// The number of invalidations that it was asked for.
    invalidations: Arc<AtomicU64>,
    _runtime: Runtime,
}

impl SlowShield {
    fn start() -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("the runtime can be built");
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)));
        let listener = listener.expect("a free port");
        let addr = listener.local_addr().expect("an address");
        let content = watch::Sender::new("old");
        let invalidations = Arc::new(AtomicU64::new(0));
        let (objects, asked) = (content.clone(), Arc::clone(&invalidations));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (objects, asked) = (objects.clone(), Arc::clone(&asked));
                let service = service_fn(move |request| {
                    let (objects, asked) = (objects.subscribe(), Arc::clone(&asked));
                    async move { Ok::<_, Infallible>(answer(&request, objects, &asked).await) }
                });
                let server = http2::Builder::new(TokioExecutor::new());
                tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self {
            addr,
            content,
            invalidations,
            _runtime: runtime,
        }
    }
}

async fn answer(
    request: &Request<Incoming>,
    mut content: watch::Receiver<&'static str>,
    invalidations: &AtomicU64,
) -> Response<Full<Bytes>> {
    if request.method() == "PURGE" {
        invalidations.fetch_add(1, Ordering::Relaxed);
        _ = content.wait_for(|content| *content == "new").await;
        return Response::new(Full::default());
    }
    // The shield has the same rules as the node that asks.
    let hop = request.headers()["edgeward-hop"].to_str().expect("text");
    let digest = hop.split(' ').nth(5).expect("a digest");
    let text = *content.borrow();
    Response::builder()
        .header("cache-control", "max-age=600")
        .header(
            "edgeward-object",
            format!("1 hit fresh {:016x} {digest}", 0),
        )
        .body(Full::new(Bytes::from_static(text.as_bytes())))
        .expect("a valid response")
}

/// Method: the node gets a GET between the removal of its own object and that of the shield. On a busy machine, the
/// node may not wait until the shield confirms the removal; the next object is tried then.
#[test]
fn a_post_whose_client_has_left_invalidates_an_object_that_a_shield_sent_meanwhile() {
    let origin = origin();
    let shield = SlowShield::start();
    let mut plan = Plan::new(&["a"], &["s"]);
    plan.member("s").url = format!("http://{}", shield.addr).parse().expect("a URL");
    let node = plan.start("a", &origin, |config, _| {
        config.limits.abandoned_wait = Duration::from_millis(10);
    });
    for n in 1..=100 {
        let path = format!("/left/{n}");
        shield.content.send_replace("old");
        assert_eq!(node.get(&path).text(), "old");
        node.post_and_leave(&path, &origin);
        until("the shield is asked", || {
            (shield.invalidations.load(Ordering::Relaxed) == n).then_some(())
        });
        assert_eq!(node.get(&path).text(), "old");
        shield.content.send_replace("new");
        until(
            "the node has an answer of the shield or waits no more",
            || (node.invalidations().iter().sum::<f64>() == n as f64).then_some(()),
        );
        if node.invalidations()[0] == 0.0 {
            continue;
        }
        until("the node has removed the object of the shield", || {
            (node.get(&path).text() == "new").then_some(())
        });
        return;
    }
    panic!("the shield is too slow");
}
