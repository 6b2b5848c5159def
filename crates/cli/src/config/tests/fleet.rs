//! Tests of `[fleet]` and its members.

use std::fs;

use edgeward_proxy::config::{EdgeConfig, NodeGroup};

use super::{MINIMAL_FILE, load, load_checked};

/// Returns the errors of a file with this text, or an empty text if it is valid.
fn errors(text: &str) -> String {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    for (name, content) in [
        ("key", "0123456789abcdef0123456789abcdef\n"),
        ("short", "0123456789abcdef\n"),
        ("pem", "no certificate"),
    ] {
        fs::write(folder.path().join(name), content).expect("the file is written");
    }
    let path = folder.path().join("edge.toml");
    fs::write(&path, format!("{MINIMAL_FILE}{text}")).expect("the file is written");
    match load(Some(&path), &[]) {
        Ok(_) => String::new(),
        Err(error) => crate::diagnostic::render(&error.into()),
    }
}

const FLEET: &str = "[fleet]\nname = \"a\"\naddress = \"127.0.0.1:7001\"\nkey_file = \"key\"\n";

const MEMBERS: &str = "[[fleet.member]]\nname = \"a\"\nurl = \"http://127.0.0.1:7001\"\n\
     [[fleet.member]]\nname = \"b\"\nurl = \"http://127.0.0.1:7002\"\ngroup = \"shield\"\n";

#[test]
fn a_fleet_needs_its_name_address_key_and_members() {
    assert_eq!(errors(&format!("{FLEET}{MEMBERS}")), "");
    let without = |line: &str| FLEET.replace(line, "");
    let tls = "tls_certificates = \"pem\"\n";
    for (text, reason) in [
        (without("name = \"a\"\n") + MEMBERS, "fleet.name is missing"),
        (
            without("address = \"127.0.0.1:7001\"\n") + MEMBERS,
            "fleet.address is missing",
        ),
        (
            without("key_file = \"key\"\n") + MEMBERS,
            "fleet.key_file is missing",
        ),
        (
            FLEET.replace("\"key\"", "\"short\"") + MEMBERS,
            "fewer than 32 characters",
        ),
        (FLEET.to_owned(), "has no members"),
        (MEMBERS.to_owned(), "fleet.name is missing"),
        (
            format!("{FLEET}{MEMBERS}[[fleet.member]]\nname = \"c\"\n"),
            "has no fleet.member.url",
        ),
        (
            format!("{FLEET}{MEMBERS}").replace("name = \"b\"", "name = \"a\""),
            "have the name `a`",
        ),
        (
            FLEET.replace("\"a\"", "\"c\"") + MEMBERS,
            "has no member `c`",
        ),
        (
            format!("{FLEET}{MEMBERS}").replace("http:", "https:"),
            "does not begin with http://",
        ),
        (
            FLEET.replace("127.0.0.1", "10.0.0.1") + MEMBERS,
            "is not on loopback",
        ),
        (format!("{FLEET}{tls}{MEMBERS}"), "only a part is set"),
        (
            format!("{FLEET}{MEMBERS}").replace("shield", "middle"),
            "group",
        ),
        (format!("{FLEET}wait = \"0s\"\n{MEMBERS}"), "fleet.wait"),
    ] {
        let shown = errors(&text);
        assert!(shown.contains(reason), "{text}: {shown}");
    }
}

#[test]
fn without_members_a_node_with_nats_announces_itself() {
    let nats = "[fleet.nats]\nservers = [\"nats://127.0.0.1:4222\"]\n";
    for (text, reason) in [
        (format!("{FLEET}{nats}"), ""),
        (
            format!("{FLEET}weight = 50\ngroup = \"shield\"\n{nats}"),
            "",
        ),
        (
            format!("{FLEET}weight = 50\n{MEMBERS}{nats}"),
            "fleet.weight counts only for a node that announces itself",
        ),
        (
            FLEET.replace("127.0.0.1", "0.0.0.0") + nats,
            "other nodes cannot reach this one at fleet.address = 0.0.0.0:7001",
        ),
        (
            format!("{FLEET}url = \"https://edge.example:7001\"\n{nats}"),
            "does not begin with http://",
        ),
    ] {
        let shown = errors(&text);
        assert!(shown.contains(reason), "{text}: {shown}");
        assert_eq!(shown.is_empty(), reason.is_empty(), "{text}: {shown}");
    }
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let key = folder.path().join("key");
    fs::write(&key, "0123456789abcdef0123456789abcdef").expect("the file is written");
    let fleet = FLEET.replace("\"key\"", &format!("{:?}", key.display().to_string()));
    let own = |more: &str| {
        let checked = load_checked(&format!("{MINIMAL_FILE}{fleet}{more}"));
        let fleet = checked.edge.fleet.expect("a fleet");
        let own = fleet.own().cloned().expect("an entry of its own");
        (checked.announces, fleet.members.len(), own)
    };
    let (announces, members, member) = own(&format!("draining = true\n{nats}"));
    assert!(announces && members == 1 && member.is_draining);
    assert_eq!(
        member.url.to_string().trim_end_matches('/'),
        "http://127.0.0.1:7001"
    );
    let (announces, members, member) = own(&format!("{MEMBERS}{nats}"));
    assert!(!announces && members == 2 && !member.is_draining);
}

/// The members become origins, and their listener follows those of clients.
#[test]
fn a_fleet_adds_a_listener_and_the_peers() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let key = folder.path().join("key");
    fs::write(&key, "0123456789abcdef0123456789abcdef").expect("the file is written");
    let fleet = FLEET.replace("\"key\"", &format!("{:?}", key.display().to_string()));
    let EdgeConfig {
        listeners,
        origins,
        fleet,
        ..
    } = load_checked(&format!("{MINIMAL_FILE}{fleet}{MEMBERS}")).edge;
    assert_eq!(listeners.len(), 2);
    assert!(!listeners[0].is_for_nodes && listeners[1].is_for_nodes);
    let names: Vec<_> = origins.iter().map(|origin| &*origin.name).collect();
    assert_eq!(names, ["default", "fleet:b"]);
    let fleet = fleet.expect("a fleet");
    assert_eq!(fleet.own().map(|own| own.group), Some(NodeGroup::Edge));
    assert!(
        !format!("{fleet:?}").contains("89abcdef0123"),
        "the key is secret"
    );
}
