//! Lifetimes of nginx: `proxy_cache_valid` and `proxy_ignore_headers`.

use edgeward_migrate::Entry;

use crate::nginx::translate;

/// nginx stores a response without a lifetime only if a line of `proxy_cache_valid` has its status. The edge would use
/// the lifetime of the origin that nginx ignores, and a stale response while the origin is down.
#[test]
fn a_status_without_a_line_of_proxy_cache_valid_is_not_stored() {
    for (directives, expected) in [
        (
            "proxy_ignore_headers Cache-Control Expires; proxy_cache_valid 404 0;",
            "ttl = { 200 = \"1h\", 2xx = \"no-store\", 3xx = \"no-store\", 404 = \"no-store\", \
                  4xx = \"no-store\", 5xx = \"no-store\" }",
        ),
        (
            "proxy_cache_use_stale error;",
            "default_ttl = { 200 = \"1h\", 2xx = \"no-store\", 3xx = \"no-store\", 4xx = \"no-store\", \
                  5xx = \"no-store\" }",
        ),
        ("", "default_ttl = { 200 = \"1h\" }"),
    ] {
        let text = format!(
            "proxy_cache_path /c keys_zone=z:1m;\nserver {{ listen 80; location / {{ proxy_pass http://10.0.0.1; \
             proxy_cache z; proxy_cache_valid 200 1h; {directives} }} }}\n"
        );
        let toml = translate("t", &text).expect("translated").toml;
        assert!(toml.contains(expected), "{directives}: {toml}");
    }
}

/// For nginx, `X-Accel-Expires` has precedence over `proxy_cache_valid`. `ttl` replaces it, and `default_ttl` does not.
#[test]
fn a_lifetime_that_replaces_x_accel_expires_is_a_difference() {
    for (ignored, expected) in [
        ("Cache-Control Expires", true),
        ("Cache-Control Expires X-Accel-Expires", false),
        ("Cache-Control", false),
    ] {
        let text = format!(
            "proxy_cache_path /c keys_zone=z:1m;\nserver {{ listen 80; location / {{ proxy_pass http://10.0.0.1; \
             proxy_cache z; proxy_cache_valid 200 1h; proxy_ignore_headers {ignored}; }} }}\n"
        );
        let report = translate("t", &text).expect("translated").report;
        let states_it = |entry: &Entry| entry.text.contains("with X-Accel-Expires");
        assert_eq!(report.entries.iter().any(states_it), expected, "{ignored}");
        assert_eq!(report.losses().count(), 0, "{ignored}: {report:?}");
    }
}
