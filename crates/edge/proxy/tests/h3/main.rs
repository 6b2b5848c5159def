//! HTTP/3 between a client and an edge on loopback. The client sends frames as a test states them.

#[path = "../support/accept_key.rs"]
mod accept_key;
#[expect(dead_code, reason = "this binary uses a part of the helpers")]
#[path = "../h2_abuse/frames.rs"]
mod h2_frames;
#[expect(dead_code, reason = "this binary uses a part of the loads")]
#[path = "../../../h3/examples/h3_load/loads/mod.rs"]
mod h3_load;
#[path = "../support/identity.rs"]
mod identity;
#[expect(dead_code, reason = "this binary uses a part of the helpers")]
#[path = "../support/socket_origin.rs"]
mod socket_origin;
#[expect(dead_code, reason = "this binary uses a part of the helpers")]
#[path = "../support/mod.rs"]
mod support;

mod bounds;
mod client;
mod differential;
mod ends;
mod errors;
mod handover;
mod load;
mod priorities;
mod requests;
mod tunnels;

use edgeward_proxy::EdgeConfig;
use edgeward_testkit::ScriptedOrigin;

use crate::client::{H3Client, connect};
use crate::identity::SelfSigned;
use crate::support::TestBed;

/// An edge whose listener has HTTP/3.
struct Http3Bed {
    identity: SelfSigned,
    bed: TestBed,
}

impl Http3Bed {
    fn start() -> Self {
        Self::with_config(|_| {})
    }

    fn with_config(change: impl FnOnce(&mut EdgeConfig)) -> Self {
        let identity = SelfSigned::new();
        let bed = TestBed::with_origin(ScriptedOrigin::start(), |config| {
            config.listeners[0].tls = Some(identity.files());
            config.listeners[0].http3 = true;
            change(config);
        });
        Self { identity, bed }
    }

    async fn connect(&self) -> H3Client {
        connect(self.bed.addr(), &self.identity).await
    }
}
