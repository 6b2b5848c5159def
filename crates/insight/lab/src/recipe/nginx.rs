//! The recipe for nginx: the cache is a folder on disk or in memory.

use super::{Environment, Recipe, words};
use crate::plan::Contender;

/// Returns the recipe. nginx stores a response at the `min_uses`-th request for it.
pub(super) fn recipe(
    contender: &Contender,
    min_uses: u64,
    environment: &Environment<'_>,
) -> Recipe {
    let in_memory = environment.memory_bytes.is_some();
    let parent = if in_memory {
        environment.memory_folder
    } else {
        environment.folder
    };
    let cache = parent.join("nginx-cache");
    let config = environment.folder.join("nginx.conf");
    let capacity = environment
        .memory_bytes
        .or(environment.disk_bytes)
        .unwrap_or(0);
    let folder = environment.folder.display();
    let text = TEMPLATE
        // When started as root, nginx would switch to the user `nobody`, who cannot write to the lab's folders.
        .replace(
            "@USER@",
            if environment.is_root {
                "user root;"
            } else {
                ""
            },
        )
        .replace("@WORKERS@", &contender.workers.to_string())
        .replace("@PORT@", &environment.port.to_string())
        .replace("@ORIGIN@", &environment.origin_port.to_string())
        .replace("@CACHE@", &cache.display().to_string())
        .replace("@CAPACITY@", &capacity.to_string())
        .replace("@MIN_USES@", &min_uses.to_string())
        .replace("@DIR@", &folder.to_string());
    Recipe {
        folders: vec![cache.clone()],
        files: vec![(config.clone(), text)],
        arguments: words(&format!("-e {folder}/error.log -c {}", config.display())),
        has_status: false,
        files_in_memory: in_memory.then(|| cache.clone()),
        enforced_capacity: Some((cache, capacity)),
    }
}

/// The configuration file, with placeholders.
///
/// While the cache is too large, nginx's cache manager evicts up to 10,000 files every 50 ms. Otherwise it
/// sleeps for up to ten seconds. If the cache becomes too large meanwhile, the module `nginx_capacity` terminates the
/// cache manager, and nginx starts a new one, which evicts before it sleeps. A key zone of 64 MiB has room for half a
/// million objects.
const TEMPLATE: &str = "\
daemon off;
@USER@
worker_processes @WORKERS@;
worker_rlimit_nofile 65536;
pid @DIR@/nginx.pid;
error_log @DIR@/error.log warn;

events {
    worker_connections 16384;
}

http {
    access_log off;
    default_type application/octet-stream;
    client_body_temp_path @DIR@/client;
    proxy_temp_path @DIR@/proxy;
    fastcgi_temp_path @DIR@/fastcgi;
    uwsgi_temp_path @DIR@/uwsgi;
    scgi_temp_path @DIR@/scgi;
    keepalive_timeout 300s;
    keepalive_requests 1000000000;
    sendfile on;
    tcp_nopush on;

    upstream origin {
        server 127.0.0.1:@ORIGIN@;
        keepalive 256;
        keepalive_requests 1000000000;
    }
    proxy_http_version 1.1;
    proxy_set_header Connection \"\";
    proxy_cache_path @CACHE@ levels=1:2 keys_zone=lab:64m max_size=@CAPACITY@
        inactive=1d use_temp_path=off manager_files=10000 manager_sleep=50ms manager_threshold=500ms;
    proxy_cache_key $request_uri;
    proxy_cache_min_uses @MIN_USES@;

    server {
        listen 127.0.0.1:@PORT@ backlog=4096;
        location / {
            proxy_cache lab;
            proxy_pass http://origin;
            add_header X-Cache $upstream_cache_status;
        }
    }
}
";
