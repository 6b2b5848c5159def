//! Varnish, with its stock policy: everything is stored, the least recently used goes.

use super::{Place, Recipe, words};

pub(super) fn recipe(place: &Place<'_>) -> Recipe {
    let vcl = place.folder.join("lab.vcl");
    let text = TEMPLATE.replace("@ORIGIN@", &place.origin_port.to_string());
    let folder = place.folder.display();
    let storage = match (place.memory_bytes, place.disk_bytes) {
        (Some(bytes), _) => format!("malloc,{bytes}"),
        (None, bytes) => format!("file,{folder}/varnish.store,{}", bytes.unwrap_or(0)),
    };
    // A thread serves a connection, so there must be enough for all and some to spare. One pool, for few cores.
    // Of nuke_limit the stock value is 50: a large object that would need 51 small ones to go is broken off in
    // the middle of its body, and that is no answer to count.
    let threads = (place.connections + 50).max(100);
    let line = format!(
        "-F -n {folder}/varnish -f {} -a 127.0.0.1:{} -T none -s {storage} -p thread_pools=1 \
         -p thread_pool_min={threads} -p thread_pool_max={} -p thread_pool_timeout=300 \
         -p nuke_limit=1000000",
        vcl.display(),
        place.port,
        threads * 2,
    );
    let mut arguments = words(&line);
    if place.is_root {
        // It would serve as vcache, who may not read here.
        arguments.splice(0..0, words("-j none"));
    }
    Recipe {
        folders: Vec::new(),
        files: vec![(vcl, text)],
        arguments,
        has_status: false,
        files_in_memory: None,
        tended: None,
    }
}

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
