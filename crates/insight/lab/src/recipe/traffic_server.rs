//! The recipe for Apache Traffic Server: a disk cache with a RAM cache in front of it.

use std::path::{Path, PathBuf};

use super::{Environment, Recipe};
use crate::plan::Contender;

pub(super) fn recipe(contender: &Contender, environment: &Environment<'_>) -> Recipe {
    let root = environment.folder;
    let etc = root.join("etc");
    // Templates of error pages.
    let templates = etc.join("body_factory");
    let inside = |name: &str| root.join(name).display().to_string();
    let modules = modules(environment.program);
    // All folders except that of the plugins are inside the contender's folder, so that an installed Traffic Server is
    // not affected.
    let mut layout = String::new();
    for (key, value) in [
        ("prefix", root.display().to_string()),
        ("exec_prefix", root.display().to_string()),
        ("bindir", root.display().to_string()),
        ("sbindir", root.display().to_string()),
        ("sysconfdir", inside("etc")),
        ("datadir", inside("share")),
        ("includedir", inside("share")),
        ("libdir", inside("share")),
        ("libexecdir", modules.display().to_string()),
        ("localstatedir", root.display().to_string()),
        ("runtimedir", inside("run")),
        ("logdir", inside("log")),
        ("mandir", inside("share")),
        ("infodir", inside("share")),
        ("cachedir", inside("cache")),
    ] {
        layout.push_str(&format!("{key}: {value}\n"));
    }
    let records = RECORDS
        .replace("@PORT@", &environment.port.to_string())
        .replace(
            "@MEMORY@",
            &environment.memory_bytes.unwrap_or(0).to_string(),
        )
        .replace("@WORKERS@", &contender.workers.to_string())
        .replace("@TEMPLATES@", &templates.display().to_string());
    // The value #-1 keeps the user who started the server.
    let user = if environment.is_root {
        "CONFIG proxy.config.admin.user_id STRING #-1\n"
    } else {
        ""
    };
    let storage = format!(
        "{} {}\n",
        inside("cache"),
        environment.disk_bytes.unwrap_or(0)
    );
    let x_cache_rules = etc.join("x-cache.conf");
    let file = |name: &str, text: String| (etc.join(name), text);
    Recipe {
        folders: [
            "etc",
            "share",
            "run",
            "log",
            "cache",
            "etc/body_factory/default",
        ]
        .map(|name| root.join(name))
        .to_vec(),
        files: vec![
            (root.join("runroot.yaml"), layout),
            file("records.config", records + user),
            file(
                "remap.config",
                format!("map / http://127.0.0.1:{}/\n", environment.origin_port),
            ),
            file("storage.config", storage),
            file("ip_allow.yaml", ALLOW.to_owned()),
            file("body_factory/default/.body_factory_info", String::new()),
            file(
                "plugin.config",
                format!("header_rewrite.so {}\n", x_cache_rules.display()),
            ),
            (x_cache_rules, X_CACHE_RULES.to_owned()),
        ],
        arguments: vec![format!("--run-root={}", inside("runroot.yaml"))],
        has_status: false,
        files_in_memory: None,
        enforced_capacity: None,
    }
}

/// Returns the folder of the plugins. Debian installs them in `lib/trafficserver/modules`, beside `bin`.
fn modules(program: &Path) -> PathBuf {
    let prefix = program.parent().and_then(Path::parent);
    prefix
        .unwrap_or_else(|| Path::new("/usr"))
        .join("lib/trafficserver/modules")
}

/// The main configuration file, `records.config`, with placeholders.
const RECORDS: &str = "\
CONFIG proxy.config.http.server_ports STRING @PORT@:ip-in=127.0.0.1
CONFIG proxy.config.cache.ram_cache.size INT @MEMORY@
CONFIG proxy.config.exec_thread.autoconfig INT 0
CONFIG proxy.config.exec_thread.limit INT @WORKERS@
CONFIG proxy.config.log.logging_enabled INT 0
CONFIG proxy.config.url_remap.pristine_host_hdr INT 1
CONFIG proxy.config.body_factory.template_sets_dir STRING @TEMPLATES@
";

/// The file `ip_allow.yaml`: clients on 127.0.0.1 may use all methods.
const ALLOW: &str = "\
ip_allow:
  - apply: in
    ip_addrs: 127.0.0.1
    action: allow
    methods: ALL
";

/// The rules of the plugin `header_rewrite`. They add `X-Cache`, from which the replay knows if a response is a hit.
const X_CACHE_RULES: &str = "\
cond %{SEND_RESPONSE_HDR_HOOK}
set-header X-Cache %{CACHE}
";
