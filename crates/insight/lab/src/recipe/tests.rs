//! Tests that the recipe of each cache server has the values of the plan. A recipe is the folders, files and arguments
//! with which a server is started.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::Path;

use super::*;
use crate::plan::{SettingValue, Size};

fn environment(memory: Option<u64>, disk: Option<u64>) -> Environment<'static> {
    Environment {
        folder: Path::new("/lab/1"),
        memory_folder: Path::new("/shm/1"),
        port: 8001,
        admin_port: 8002,
        origin_port: 8003,
        connections: 200,
        memory_bytes: memory,
        disk_bytes: disk,
        is_root: false,
        program: Path::new("/usr/bin/traffic_server"),
    }
}

fn contender(server: Server) -> Contender {
    Contender {
        name: "one".to_owned(),
        group: None,
        server,
        memory: Some(Size::Bytes(1 << 20)),
        disk: None,
        workers: NonZeroUsize::new(2).expect("the number is not zero"),
        line: 1,
    }
}

fn file<'a>(recipe: &'a Recipe, name: &str) -> &'a str {
    let found = recipe.files.iter().find(|(path, _)| path.ends_with(name));
    &found.expect(name).1
}

/// The configuration file is valid TOML and has the given values, also if a value has special characters.
#[test]
fn the_configuration_of_an_edge_has_the_settings_of_the_plan_and_of_the_lab() {
    let nasty = "a \"quoted\" \\ back\tslash";
    let setting = |table: &str, key: &str, value| Setting {
        table: table.to_owned(),
        key: key.to_owned(),
        value,
        line: 3,
    };
    let settings = [
        setting("hot", "policy", SettingValue::Text(nasty.to_owned())),
        setting("hot", "window_requests", SettingValue::Number(5000)),
        setting("origin", "retries_max", SettingValue::Number(0)),
        setting("caching", "x y", SettingValue::Boolean(true)),
    ];
    let server = Server::Edgeward {
        settings: Vec::new(),
        settings_switch: None,
    };
    let recipe = recipe(
        &contender(server),
        &settings,
        &environment(Some(1 << 24), Some(1 << 30)),
    );
    let text = file(&recipe, "edgeward.toml");
    let (document, errors) = toml::de::DeTable::parse_recoverable(text);
    assert!(errors.is_empty(), "{errors:?}\n{text}");
    let table = |name: &str| {
        document.get_ref()[name]
            .get_ref()
            .as_table()
            .expect("the value is a table")
    };
    assert_eq!(table("hot")["policy"].get_ref().as_str(), Some(nasty));
    let number = |name: &str, key: &str| {
        let value = table(name)[key]
            .get_ref()
            .as_integer()
            .expect("the value is a number");
        value.as_str().to_owned()
    };
    assert_eq!(number("hot", "capacity"), "16777216");
    assert_eq!(number("hot", "window_requests"), "5000");
    assert_eq!(number("server", "workers"), "2");
    assert_eq!(
        table("origin")["url"].get_ref().as_str(),
        Some("http://127.0.0.1:8003")
    );
    assert_eq!(table("caching")["x y"].get_ref().as_bool(), Some(true));
    assert!(text.contains("[[disk_device]]\npath = \"/lab/1/store\"\ncapacity = 1073741824\n"));
    assert!(recipe.has_status);
}

#[test]
fn nginx_has_its_cache_in_memory_or_on_disk_as_in_the_plan() {
    let server = Server::Nginx {
        min_uses: NonZeroU64::new(3).expect("the number is not zero"),
    };
    let in_memory = recipe(
        &contender(server.clone()),
        &[],
        &environment(Some(5 << 20), None),
    );
    let text = file(&in_memory, "nginx.conf");
    assert!(text.contains("/shm/1/nginx-cache levels") && text.contains("max_size=5242880"));
    assert!(text.contains("proxy_cache_min_uses 3;") && text.contains("worker_processes 2;"));
    // The names of values in the template begin with `@`. Each of them was replaced.
    assert!(!text.contains('@'), "{text}");
    assert_eq!(
        in_memory.files_in_memory.as_deref(),
        Some(Path::new("/shm/1/nginx-cache"))
    );
    let on_disk = recipe(&contender(server), &[], &environment(None, Some(7 << 20)));
    let text = file(&on_disk, "nginx.conf");
    assert!(text.contains("/lab/1/nginx-cache levels") && text.contains("max_size=7340032"));
    assert_eq!(on_disk.files_in_memory, None);
}

/// The environment has 200 connections.
#[test]
fn varnish_has_more_threads_than_connections() {
    let recipe_of =
        |memory, disk| recipe(&contender(Server::Varnish), &[], &environment(memory, disk));
    let arguments = recipe_of(Some(9 << 20), None).arguments.join(" ");
    assert!(arguments.contains("-s malloc,9437184"), "{arguments}");
    assert!(arguments.contains("thread_pool_min=250"), "{arguments}");
    let arguments = recipe_of(None, Some(9 << 20)).arguments.join(" ");
    assert!(
        arguments.contains("-s file,/lab/1/varnish.store,9437184"),
        "{arguments}"
    );
}

#[test]
fn traffic_server_uses_only_files_in_its_folder() {
    let server = Server::TrafficServer;
    let recipe = recipe(
        &contender(server),
        &[],
        &environment(Some(8 << 20), Some(256 << 20)),
    );
    for (path, text) in &recipe.files {
        assert!(path.starts_with("/lab/1"), "{path:?}");
        assert!(!text.contains('@'), "{text}");
    }
    let layout = file(&recipe, "runroot.yaml");
    let outside = layout.lines().filter(|line| !line.contains(": /lab/1"));
    assert_eq!(
        outside.collect::<Vec<_>>(),
        ["libexecdir: /usr/lib/trafficserver/modules"]
    );
    assert_eq!(file(&recipe, "storage.config"), "/lab/1/cache 268435456\n");
}
