//! The status of all peers of a gateway, asked for at once.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::oneshot::error::TryRecvError;

use crate::peer::Peer;
use crate::status::PeerStatus;

/// A peer, with its name and the name in its certificate.
pub(super) struct NamedPeer {
    pub(super) name: String,
    pub(super) edge: Option<String>,
    pub(super) peer: Arc<Peer>,
}

/// Returns the status of each of these peers, in their order, and the names of those that did not answer before
/// `timeout` ended. A peer that the gateway has removed meanwhile is in neither list.
pub(super) async fn peer_statuses(
    peers: Vec<NamedPeer>,
    encrypted: bool,
    timeout: impl Future<Output = ()>,
) -> (Vec<PeerStatus>, Vec<String>) {
    let ask = |NamedPeer { name, edge, peer }| {
        let of_peer = name.clone();
        let answer = peer.ask(move |core| PeerStatus {
            edge,
            ..PeerStatus::of(core, of_peer, encrypted)
        });
        (name, peer, answer)
    };
    let asked: Vec<_> = peers.into_iter().map(ask).collect();
    let mut timeout = pin!(timeout);
    let mut is_over = false;
    let (mut statuses, mut busy) = (Vec::with_capacity(asked.len()), Vec::new());
    for (name, peer, answer) in asked {
        let Some(mut answer) = answer else {
            busy.push(name);
            continue;
        };
        if !is_over {
            tokio::select! {
                biased;
                status = &mut answer => {
                    statuses.extend(status.map(|status| with_pipes(status, &peer)));
                    continue;
                }
                () = &mut timeout => is_over = true,
            }
        }
        match answer.try_recv() {
            Ok(status) => statuses.push(with_pipes(status, &peer)),
            Err(TryRecvError::Empty) => busy.push(name),
            Err(TryRecvError::Closed) => {}
        }
    }
    (statuses, busy)
}

fn with_pipes(status: PeerStatus, peer: &Peer) -> PeerStatus {
    PeerStatus {
        pipe_bytes: peer.pipe_memory().bytes(),
        ..status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::connection::tests::endpoint;

    /// Peers whose tasks do not run do not delay the others: all peers have the same time.
    ///
    /// Method: run the task of every second peer. The time ends when these tasks had a hundred turns.
    #[tokio::test]
    async fn peers_that_do_not_answer_are_busy() {
        let mut stopped = Vec::new();
        let mut peers = Vec::new();
        for nth in 0..6 {
            let (peer, driver, _) = Peer::new(endpoint(nth).0);
            if nth % 2 == 0 {
                stopped.push(driver);
            } else {
                tokio::spawn(driver.run());
            }
            peers.push(NamedPeer {
                name: format!("peer {nth}"),
                edge: Some(format!("edge {nth}")),
                peer,
            });
        }
        let turns = async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        };
        let (statuses, busy) = peer_statuses(peers, false, turns).await;
        let names = statuses.iter();
        let names: Vec<_> = names
            .map(|status| (status.name.as_str(), status.edge.as_deref()))
            .collect();
        let answered = [
            ("peer 1", Some("edge 1")),
            ("peer 3", Some("edge 3")),
            ("peer 5", Some("edge 5")),
        ];
        assert_eq!(names, answered);
        assert_eq!(busy, ["peer 0", "peer 2", "peer 4"]);
    }
}
