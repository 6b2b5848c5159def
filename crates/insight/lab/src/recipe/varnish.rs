//! The recipe for Varnish with its default policy: Varnish stores every object and evicts the least recently
//! used one.

use super::{Environment, Recipe, words};

pub(super) fn recipe(environment: &Environment<'_>) -> Recipe {
    let vcl = environment.folder.join("lab.vcl");
    let text = TEMPLATE.replace("@ORIGIN@", &environment.origin_port.to_string());
    let folder = environment.folder.display();
    let storage = match (environment.memory_bytes, environment.disk_bytes) {
        (Some(bytes), _) => format!("malloc,{bytes}"),
        (None, bytes) => format!("file,{folder}/varnish.store,{}", bytes.unwrap_or(0)),
    };
    // Each connection needs a thread, so there is one thread per connection and a reserve of 50. One thread
    // pool suffices for few cores. The default nuke_limit is 50: Varnish truncates the body of a large object
    // that needs more than 50 evictions, and the lab counts a truncated response as a failure.
    let threads = (environment.connections + 50).max(100);
    let line = format!(
        "-F -n {folder}/varnish -f {} -a 127.0.0.1:{} -T none -s {storage} -p thread_pools=1 \
         -p thread_pool_min={threads} -p thread_pool_max={} -p thread_pool_timeout=300 \
         -p nuke_limit=1000000",
        vcl.display(),
        environment.port,
        threads * 2,
    );
    let mut arguments = words(&line);
    if environment.is_root {
        // `-j none` keeps the user. By default, Varnish switches from root to `vcache`, which cannot read this folder.
        arguments.splice(0..0, words("-j none"));
    }
    Recipe {
        folders: Vec::new(),
        files: vec![(vcl, text)],
        arguments,
        // Only edgeward serves `/status`.
        has_status: false,
        files_in_memory: None,
        enforced_capacity: None,
    }
}

/// The VCL program, with a placeholder. It adds `X-Cache`, from which the replay knows if a response is a hit.
const TEMPLATE: &str = "\
vcl 4.1;

backend origin {
    .host = \"127.0.0.1\";
    .port = \"@ORIGIN@\";
    .first_byte_timeout = 60s;
}

sub vcl_deliver {
    if (obj.hits > 0) {
        set resp.http.X-Cache = \"hit\";
    } else {
        set resp.http.X-Cache = \"miss\";
    }
}
";
