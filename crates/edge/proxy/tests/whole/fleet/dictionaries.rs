//! Dictionaries of objects that another node owns.

use edgeward_proxy::EdgeConfig;
use edgeward_sites::{DictionaryScope, Settings, Stated};
use edgeward_testkit::{Answer, ScriptedOrigin};

use super::Plan;
use crate::one_site::set_site;
use crate::support::Client;

/// Makes the scripts of the origin dictionaries. A client states by a field that it uses TLS.
fn with_dictionaries(config: &mut EdgeConfig) {
    config.forwarding.trusted_proxies = "127.0.0.0/8".parse().expect("a network");
    let settings = Settings {
        dictionary: Stated::On(DictionaryScope::Versions),
        ..Settings::default()
    };
    set_site(config, settings, Vec::new());
}

/// Method: a script is requested at both nodes, so that its owner fetches it for the other node's client, or for its
/// own, and answers the second one from its cache.
#[test]
fn an_object_that_its_owner_fetched_for_another_node_is_marked_as_a_dictionary() {
    let origin = ScriptedOrigin::start();
    let script = Answer::pattern(20_000)
        .header("content-type", "text/javascript")
        .header("cache-control", "max-age=600");
    origin.otherwise(move |_| script.clone());
    let plan = Plan::new(&["a", "b"], &[]);
    let nodes =
        ["a", "b"].map(|name| plan.start(name, &origin, |config, _| with_dictionaries(config)));
    for version in 0..10 {
        let path = format!("/app.{version}.js");
        for node in &nodes {
            let terms = |scheme| {
                let mut client = Client::connect(node.0.addrs()[0]);
                let answer = client.get(&path, &[("x-forwarded-proto", scheme)]);
                answer.header("use-as-dictionary").is_some()
            };
            assert!(terms("https"), "{path}");
            assert!(!terms("http"), "{path}");
        }
        assert_eq!(origin.requests(&path), 2, "one fetch for each scheme");
    }
}
