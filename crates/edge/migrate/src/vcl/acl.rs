//! ACLs as conditions on the address of the client.

use core::net::IpAddr;

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

/// Returns true for the clients that an ACL matches.
pub(super) fn decision(translator: &Translator<'_>, acl: &Node) -> Result<Decision<bool>, Reason> {
    let mut entries = entries(translator, acl);
    entries.sort_by_key(|entry| entry.length);
    let clients = |clients: Vec<String>| When {
        clients,
        ..When::default()
    };
    if entries.iter().all(|entry| entry.is_allowed) {
        let networks: Vec<String> = entries.into_iter().map(|entry| entry.network).collect();
        return Ok(match networks.is_empty() {
            true => Decision::always(false),
            false => Decision::when(clients(networks)),
        });
    }
    let mut decision = Decision::always(false);
    for Entry {
        network,
        is_allowed,
        ..
    } in entries
    {
        let one = Decision::when(clients(vec![network]));
        decision = match is_allowed {
            true => one.or(&decision)?,
            false => one.not().and(&decision)?,
        };
    }
    Ok(decision)
}

/// Returns the networks of an ACL that are allowed, or the reason why they cannot be listed.
pub(super) fn networks(translator: &Translator<'_>, acl: &Node) -> Result<Vec<String>, Reason> {
    let entries = entries(translator, acl);
    match entries.iter().all(|entry| entry.is_allowed) {
        true => Ok(entries.into_iter().map(|entry| entry.network).collect()),
        false => Err("the ACL has exceptions, which purge.allow does not have".to_owned()),
    }
}

fn entries(translator: &Translator<'_>, acl: &Node) -> Vec<Entry> {
    let ledger = &translator.ledger;
    let mut entries = Vec::new();
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
                continue;
            }
        };
        for address in addresses {
            let max = if address.is_ipv4() { 32 } else { 128 };
            let network = match length {
                Some(length) if *length <= max => format!("{address}/{length}"),
                Some(_) => {
                    ledger.left_out(node, Effect::Access, "the network has too many bits");
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
    entries
}
