//! ACLs as conditions on the address of the client.

use core::net::IpAddr;

use super::requests::Requests;
use super::translator::Translator;
use super::tree::{Kind, Node};
use crate::decision::Decision;
use crate::hosts::Reason;
use crate::report::Effect;
use crate::rule::When;

/// An entry of an ACL.
struct Entry {
    network: String,
    /// The bits of the network, for an order in which the most specific one comes last.
    length: u8,
    is_allowed: bool,
}

/// The entries of an ACL.
struct Entries {
    all: Vec<Entry>,
    /// False if an entry is lost.
    is_complete: bool,
}

/// Returns the requests of clients that an ACL matches.
pub(super) fn requests(translator: &Translator<'_>, acl: &Node) -> Result<Requests, Reason> {
    let Entries {
        all: mut entries,
        is_complete,
    } = entries(translator, acl);
    let decision = match entries.iter().all(|entry| entry.is_allowed) {
        true => with_clients(entries.into_iter().map(|entry| entry.network).collect()),
        false => {
            entries.sort_by_key(|entry| entry.length);
            let mut decision = Decision::always(false);
            for entry in entries {
                let one = with_clients(vec![entry.network]);
                decision = match entry.is_allowed {
                    true => one.or(&decision)?,
                    false => one.not().and(&decision)?,
                };
            }
            decision
        }
    };
    Ok(match is_complete {
        true => decision.into(),
        false => Requests::between(Decision::always(false), decision, Decision::always(true)),
    })
}

fn with_clients(clients: Vec<String>) -> Decision<bool> {
    match clients.is_empty() {
        true => Decision::always(false),
        false => Decision::when(When {
            clients,
            ..When::default()
        }),
    }
}

/// Returns the networks of an ACL that are allowed, or the reason why they cannot be listed.
pub(super) fn networks(translator: &Translator<'_>, acl: &Node) -> Result<Vec<String>, Reason> {
    let Entries { all: entries, .. } = entries(translator, acl);
    match entries.iter().all(|entry| entry.is_allowed) {
        true => Ok(entries.into_iter().map(|entry| entry.network).collect()),
        false => Err("the ACL has exceptions, which purge.allow does not have".to_owned()),
    }
}

fn entries(translator: &Translator<'_>, acl: &Node) -> Entries {
    let ledger = &translator.ledger;
    let mut entries = Vec::new();
    let mut is_complete = true;
    for node in &acl.children {
        let Kind::AclEntry(is_negated, address, length) = &node.kind else {
            continue;
        };
        let addresses: Vec<IpAddr> = match (address.as_str(), address.parse()) {
            (_, Ok(address)) => vec![address],
            ("localhost", _) => vec![[127, 0, 0, 1].into(), [0, 0, 0, 0, 0, 0, 0, 1].into()],
            _ => {
                let text = "conditions on clients have addresses and networks, and no names; write its addresses";
                ledger.left_out(node, Effect::Access, text);
                is_complete = false;
                continue;
            }
        };
        for address in addresses {
            let max = if address.is_ipv4() { 32 } else { 128 };
            let network = match length {
                Some(length) if *length <= max => format!("{address}/{length}"),
                Some(_) => {
                    ledger.left_out(node, Effect::Access, "the network has too many bits");
                    is_complete = false;
                    continue;
                }
                None => address.to_string(),
            };
            ledger.translated(node, "client, purge.allow");
            if entries.iter().any(|entry: &Entry| entry.network == network) {
                continue;
            }
            entries.push(Entry {
                network,
                length: length.unwrap_or(max),
                is_allowed: !is_negated,
            });
        }
    }
    ledger.translated(acl, "client, purge.allow");
    Entries {
        all: entries,
        is_complete,
    }
}
