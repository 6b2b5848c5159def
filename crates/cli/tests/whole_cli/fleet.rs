//! Three nodes of a fleet as processes, one of which is killed.

use std::path::Path;

use edgeward_testkit::client::Client;
use edgeward_testkit::programs::ReservedPort;
use edgeward_testkit::{Answer, ScriptedOrigin};
use rustix::process::Signal;

use super::run::{Server, output, text, until};

fn start(folder: &Path, at: usize, origin: &ScriptedOrigin, ports: &[ReservedPort]) -> Server {
    let members = ports.iter().enumerate();
    let members: String = members
        .map(|(at, port)| {
            format!(
                "[[fleet.member]]\nname = \"n{at}\"\nurl = \"http://{}\"\n",
                port.addr()
            )
        })
        .collect();
    let config = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[origin]\nurl = \"http://{}\"\n\
         [hot]\ncapacity = \"16MiB\"\npolicy = \"lru\"\n[admin]\naddress = \"127.0.0.1:0\"\n\
         [overload]\nlag_max = \"0s\"\n\
         [fleet]\nname = \"n{at}\"\naddress = \"{}\"\nkey_file = \"key\"\nwait = \"30s\"\n{members}",
        origin.addr(),
        ports[at].addr(),
    );
    let path = folder.join(format!("{at}.toml"));
    std::fs::write(&path, config).expect("written");
    Server::start(&["serve", "--json", "--config", &path.display().to_string()])
}

/// Returns the exit code and the output of `fleet status`.
fn fleet_status(node: &Server) -> (Option<i32>, String) {
    let admin = node.addr("/admin").to_string();
    let out = output(&["fleet", "status", "--admin", &admin]);
    (out.status.code(), text(&out.stdout))
}

#[test]
fn a_killed_node_costs_no_request_and_is_shown_as_down() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(
        folder.path().join("key"),
        "0123456789abcdef0123456789abcdef",
    )
    .expect("written");
    let origin = ScriptedOrigin::start();
    origin.otherwise(|_| Answer::ok("body").header("cache-control", "max-age=600"));
    let ports: Vec<_> = (0..3).map(|_| ReservedPort::any()).collect();
    let nodes: Vec<_> = (0..3)
        .map(|at| start(folder.path(), at, &origin, &ports))
        .collect();
    let [first, second, third] = &nodes[..] else {
        unreachable!()
    };
    let get_all = |nodes: &[&Server]| {
        for n in 0..60 {
            let path = format!("/{n}");
            for node in nodes {
                let got = Client::connect(node.addr("/listening/0")).get(&path, &[]);
                assert_eq!((got.status, got.text()), (200, "body"), "{path}: {got:?}");
            }
        }
    };
    get_all(&[first, second, third]);
    assert_eq!(origin.requests_total(), 60, "each object is fetched once");
    let (code, shown) = fleet_status(first);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("n0*") && !shown.contains("down"), "{shown}");
    third.signal(Signal::KILL);
    until("the other nodes have found the failure", || {
        get_all(&[first, second]);
        let (code, shown) = fleet_status(first);
        (code == Some(1) && shown.contains("down")).then_some(())
    });
}
