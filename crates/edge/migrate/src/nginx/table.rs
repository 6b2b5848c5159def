//! The directives that the translation knows. The table of the documentation is made from this one.

use crate::counterpart::{self, Counterpart, Row, markdown};
use crate::report::{Effect, Outcome};

use Counterpart::{Implied, Missing, Settings};
use Effect::{Access, Caching, Operation, Response};

const ROWS: &[Row] = &[
    (
        &["http", "server", "include"],
        Settings(Response),
        "`[[site]]`; included files are read",
    ),
    (
        &["server_name"],
        Settings(Response),
        "`hosts` of a `[[site]]`: names and `*.DOMAIN`; expressions as such names if possible, else as `host_regex` of rules",
    ),
    (
        &["listen"],
        Settings(Response),
        "`[[listener]]`: `address`, TLS, `proxy_protocol_from`; HTTP/2 is always on",
    ),
    (
        &["location"],
        Settings(Response),
        "`[[site.rule]]` with `path` or `path_regex`, in the order of nginx's precedence; named locations as the end of `try_files`",
    ),
    (
        &["proxy_pass", "grpc_pass"],
        Settings(Response),
        "`[[origin]]` and `origin`; a path behind the host becomes `rewrite`; variables with one value",
    ),
    (
        &["upstream"],
        Settings(Response),
        "`origin.servers`, `origin.backup_servers`, `origin.failures_max`, `origin.ejection_time`; equal weights",
    ),
    (
        &["least_conn", "random", "least_time", "hash"],
        Settings(Operation),
        "`origin.balance`",
    ),
    (
        &["ip_hash", "sticky"],
        Missing(Response),
        "the edge does not keep a client at one server",
    ),
    (
        &["keepalive", "keepalive_requests", "keepalive_time"],
        Settings(Operation),
        "`origin.idle_per_worker_max`, `origin.idle_timeout`",
    ),
    (
        &["proxy_connect_timeout", "proxy_read_timeout"],
        Settings(Operation),
        "`origin.connect_timeout`, `origin.first_byte_timeout`, `origin.read_idle_timeout`",
    ),
    (
        &["proxy_next_upstream", "proxy_next_upstream_tries"],
        Settings(Operation),
        "`origin.retries_max`; an error status is an answer",
    ),
    (
        &[
            "proxy_ssl_verify",
            "proxy_ssl_trusted_certificate",
            "proxy_ssl_name",
            "proxy_ssl_certificate",
            "proxy_ssl_certificate_key",
        ],
        Settings(Access),
        "`origin.tls_verify` (nginx's default is `false`), `origin.tls_roots`, `origin.tls_server_name`, `origin.tls_certificate`, `origin.tls_key`",
    ),
    (
        &["proxy_redirect"],
        Settings(Response),
        "`origin.rewrite_location`: `default` and `off`",
    ),
    (
        &["proxy_cache", "proxy_buffering"],
        Settings(Caching),
        "`pass = false`; without a cache or with `proxy_buffering off`, `pass = true`",
    ),
    (
        &["proxy_cache_path"],
        Settings(Caching),
        "`[[disk_device]]` for all zones; `inactive` is the least time of stale use",
    ),
    (
        &["proxy_cache_valid"],
        Settings(Caching),
        "`default_ttl`, or `ttl` if `Cache-Control` and `Expires` are ignored; `\"no-store\"` for statuses without a line",
    ),
    (
        &["proxy_ignore_headers"],
        Settings(Caching),
        "`ttl`, `origin_response.remove`",
    ),
    (
        &["proxy_cache_key"],
        Settings(Caching),
        "`key` for cookies and fields; URL, host and scheme are always in the key",
    ),
    (
        &["proxy_cache_bypass", "proxy_no_cache"],
        Settings(Caching),
        "`pass = true` in rules with `cookie`, `header`, `parameter`, `method`, `path_regex`, `client`; no conditions on responses",
    ),
    (
        &["proxy_cache_use_stale", "proxy_cache_background_update"],
        Settings(Caching),
        "`stale_if_disconnected`, `stale_if_error`, `stale_while_revalidate`, for a day or the time of `inactive`",
    ),
    (
        &["proxy_cache_min_uses"],
        Settings(Caching),
        "`disk.admission`",
    ),
    (
        &[
            "proxy_cache_lock",
            "proxy_cache_lock_timeout",
            "proxy_cache_lock_age",
        ],
        Settings(Caching),
        "always on; `caching.collapse_wait_max`",
    ),
    (
        &[
            "proxy_cache_methods",
            "proxy_cache_revalidate",
            "proxy_cache_convert_head",
        ],
        Settings(Caching),
        "always on, for GET and HEAD",
    ),
    (
        &["proxy_cache_purge"],
        Missing(Caching),
        "`purge.allow` and the method PURGE",
    ),
    (
        &["proxy_store"],
        Missing(Caching),
        "the edge stores responses in its own files only",
    ),
    (&["slice"], Settings(Caching), "`ranges.slice_bytes`"),
    (
        &["proxy_set_header", "grpc_set_header"],
        Settings(Operation),
        "`origin.host`, `request.set`, `request.remove`; `X-Forwarded-*` by `forwarding.x_forwarded`",
    ),
    (
        &["proxy_hide_header"],
        Settings(Operation),
        "`response.remove`",
    ),
    (
        &["add_header"],
        Settings(Operation),
        "`response.add`; `$upstream_cache_status` is the field `Cache-Status`",
    ),
    (
        &["expires"],
        Settings(Caching),
        "`response.set.Cache-Control`",
    ),
    (
        &["return"],
        Settings(Response),
        "`redirect`, `deny`, `answer` and `error_page` with the text; texts without variables",
    ),
    (
        &["rewrite"],
        Settings(Response),
        "`redirect` and `rewrite`; other locations of a new path do not apply",
    ),
    (
        &["if", "set", "map", "geo", "default", "break"],
        Settings(Access),
        "conditions of rules: host, scheme, method, path, query, cookies, fields, addresses",
    ),
    (
        &["allow", "deny", "limit_except"],
        Settings(Access),
        "`deny` in rules with `client` or `method`",
    ),
    (&["internal"], Settings(Access), "`deny = 404`"),
    (&["satisfy"], Settings(Access), "`all`"),
    (
        &[
            "auth_basic",
            "auth_basic_user_file",
            "auth_request",
            "auth_request_set",
            "auth_jwt",
            "auth_jwt_key_file",
        ],
        Missing(Access),
        "no authentication: these requests are denied until you decide",
    ),
    (
        &[
            "ssl_client_certificate",
            "ssl_verify_client",
            "ssl_trusted_certificate",
            "ssl_crl",
            "ssl_verify_depth",
        ],
        Missing(Access),
        "clients do not authenticate by certificates",
    ),
    (
        &["limit_req", "limit_req_zone", "limit_req_status"],
        Settings(Access),
        "`rate_limit`, `rate_limit_burst`, `rate_limit_by`, with status 429",
    ),
    (
        &["limit_conn"],
        Missing(Access),
        "no limit of the connections of a client",
    ),
    (
        &[
            "limit_conn_zone",
            "limit_conn_status",
            "limit_conn_log_level",
            "limit_req_log_level",
            "limit_req_dry_run",
        ],
        Implied,
        "belong to their limits",
    ),
    (
        &["limit_rate", "limit_rate_after"],
        Missing(Operation),
        "no limit of the rate of bytes",
    ),
    (
        &["client_max_body_size"],
        Settings(Access),
        "`limits.request_body_bytes_max` (1 MiB as for nginx), `request_body_max`",
    ),
    (
        &["set_real_ip_from", "real_ip_header", "real_ip_recursive"],
        Settings(Access),
        "`forwarding.trusted_proxies`, `proxy_protocol_from`; `X-Forwarded-For` and the PROXY header",
    ),
    (
        &[
            "error_page",
            "proxy_intercept_errors",
            "recursive_error_pages",
        ],
        Settings(Response),
        "`error_page` with the file of a path; without `proxy_intercept_errors` for 502 and 504",
    ),
    (
        &[
            "root",
            "alias",
            "try_files",
            "index",
            "autoindex",
            "fastcgi_pass",
            "uwsgi_pass",
            "scgi_pass",
            "memcached_pass",
        ],
        Missing(Response),
        "the edge serves no files and speaks HTTP only",
    ),
    (
        &["ssl_certificate", "ssl_certificate_key", "ssl"],
        Settings(Access),
        "`tls_certificates` and `tls_key` of listener and site",
    ),
    (
        &[
            "gzip_types",
            "gzip_min_length",
            "gzip_comp_level",
            "brotli_comp_level",
            "brotli_types",
            "brotli_min_length",
        ],
        Settings(Operation),
        "`[compression]`",
    ),
    (
        &["gzip", "brotli"],
        Settings(Operation),
        "on by default for stored responses; `gzip off` is `compression = false`",
    ),
    (
        &[
            "gzip_vary",
            "gzip_proxied",
            "gzip_http_version",
            "gzip_disable",
            "gzip_buffers",
            "gzip_static",
            "brotli_static",
            "brotli_buffers",
            "brotli_window",
        ],
        Implied,
        "not needed",
    ),
    (
        &["gunzip"],
        Missing(Operation),
        "no response is decompressed",
    ),
    (
        &["access_log", "log_format"],
        Settings(Operation),
        "`[access_log]`: one log, with nginx's variables",
    ),
    (
        &["stub_status"],
        Settings(Operation),
        "`/status` and `/metrics` of `admin.address`",
    ),
    (
        &[
            "client_header_timeout",
            "client_body_timeout",
            "send_timeout",
            "keepalive_timeout",
        ],
        Settings(Operation),
        "`limits.request_head_timeout`, `limits.body_idle_timeout`, `limits.idle_timeout`",
    ),
    (
        &[
            "sub_filter",
            "sub_filter_once",
            "sub_filter_types",
            "sub_filter_last_modified",
        ],
        Missing(Response),
        "`replace`",
    ),
    (
        &[
            "proxy_cookie_path",
            "proxy_cookie_domain",
            "proxy_cookie_flags",
        ],
        Missing(Response),
        "the edge does not change cookies",
    ),
    (
        &["mirror", "mirror_request_body"],
        Missing(Operation),
        "requests are not copied",
    ),
    (
        &["secure_link", "secure_link_md5", "secure_link_secret"],
        Missing(Access),
        "the edge verifies no signatures of links",
    ),
    (
        &[
            "valid_referers",
            "referer_hash_max_size",
            "referer_hash_bucket_size",
        ],
        Missing(Access),
        "`deny` in a rule with `header.Referer`",
    ),
    (
        &["geoip_country", "geoip_city", "geoip2"],
        Missing(Access),
        "no database of countries; use a field of the load balancer",
    ),
    (
        &[
            "dav_methods",
            "image_filter",
            "mp4",
            "flv",
            "random_index",
            "perl",
            "js_content",
            "ssi",
            "addition_types",
            "add_before_body",
            "add_after_body",
            "xslt_stylesheet",
            "empty_gif",
        ],
        Missing(Response),
        "the edge creates no content",
    ),
    (
        &["stream", "mail"],
        Missing(Response),
        "the edge proxies HTTP only",
    ),
    (
        &[
            "proxy_set_body",
            "proxy_method",
            "proxy_pass_request_body",
            "proxy_pass_request_headers",
        ],
        Missing(Response),
        "requests keep their method and body",
    ),
    (
        &["split_clients", "userid", "userid_name"],
        Missing(Response),
        "no assignment of clients to groups",
    ),
    (
        &["proxy_bind", "proxy_limit_rate", "proxy_force_ranges"],
        Missing(Operation),
        "no counterpart",
    ),
    (
        &[
            "user",
            "pid",
            "events",
            "worker_processes",
            "worker_connections",
            "worker_rlimit_nofile",
            "worker_cpu_affinity",
            "worker_priority",
            "worker_shutdown_timeout",
            "multi_accept",
            "use",
            "accept_mutex",
            "daemon",
            "master_process",
            "load_module",
            "env",
            "pcre_jit",
            "thread_pool",
            "timer_resolution",
            "lock_file",
            "error_log",
            "types",
            "default_type",
            "charset",
            "charset_types",
            "sendfile",
            "sendfile_max_chunk",
            "tcp_nopush",
            "tcp_nodelay",
            "aio",
            "directio",
            "output_buffers",
            "postpone_output",
            "open_file_cache",
            "open_file_cache_valid",
            "open_file_cache_min_uses",
            "open_file_cache_errors",
            "server_tokens",
            "server_names_hash_bucket_size",
            "server_names_hash_max_size",
            "types_hash_max_size",
            "types_hash_bucket_size",
            "variables_hash_max_size",
            "variables_hash_bucket_size",
            "map_hash_max_size",
            "map_hash_bucket_size",
            "proxy_headers_hash_max_size",
            "proxy_headers_hash_bucket_size",
            "etag",
            "if_modified_since",
            "max_ranges",
            "reset_timedout_connection",
            "lingering_close",
            "lingering_time",
            "lingering_timeout",
            "client_header_buffer_size",
            "client_body_buffer_size",
            "client_body_temp_path",
            "client_body_in_file_only",
            "client_body_in_single_buffer",
            "large_client_header_buffers",
            "connection_pool_size",
            "request_pool_size",
            "log_not_found",
            "log_subrequest",
            "msie_padding",
            "merge_slashes",
            "server_name_in_redirect",
            "port_in_redirect",
            "absolute_redirect",
            "underscores_in_headers",
            "ignore_invalid_headers",
            "chunked_transfer_encoding",
            "keepalive_disable",
            "resolver",
            "resolver_timeout",
            "http2",
            "http2_max_concurrent_streams",
            "http2_push_preload",
            "http2_chunk_size",
            "http3",
            "quic_retry",
            "zone",
            "state",
            "proxy_http_version",
            "proxy_buffer_size",
            "proxy_buffers",
            "proxy_busy_buffers_size",
            "proxy_temp_path",
            "proxy_temp_file_write_size",
            "proxy_max_temp_file_size",
            "proxy_request_buffering",
            "proxy_send_timeout",
            "proxy_send_lowat",
            "proxy_socket_keepalive",
            "proxy_ignore_client_abort",
            "proxy_pass_header",
            "proxy_cache_max_range_offset",
            "proxy_next_upstream_timeout",
            "proxy_ssl_server_name",
            "proxy_ssl_protocols",
            "proxy_ssl_ciphers",
            "proxy_ssl_session_reuse",
            "proxy_ssl_verify_depth",
            "proxy_headers_hash",
            "proxy_cache_lock_timeout_off",
            "grpc_read_timeout",
            "grpc_send_timeout",
            "grpc_connect_timeout",
            "grpc_buffer_size",
            "ssl_protocols",
            "ssl_ciphers",
            "ssl_prefer_server_ciphers",
            "ssl_session_cache",
            "ssl_session_timeout",
            "ssl_session_tickets",
            "ssl_session_ticket_key",
            "ssl_dhparam",
            "ssl_ecdh_curve",
            "ssl_conf_command",
            "ssl_buffer_size",
            "ssl_stapling",
            "ssl_stapling_verify",
            "ssl_stapling_file",
            "ssl_early_data",
            "ssl_password_file",
            "uninitialized_variable_warn",
            "rewrite_log",
            "disable_symlinks",
            "fastcgi_param",
            "fastcgi_index",
            "fastcgi_split_path_info",
            "fastcgi_buffers",
            "fastcgi_buffer_size",
            "fastcgi_read_timeout",
            "uwsgi_param",
            "scgi_param",
            "open_log_file_cache",
            "hostnames",
            "volatile",
            "request_id",
        ],
        Implied,
        "not needed: the edge chooses these itself (workers, buffers, TLS 1.2 and 1.3), or files have them",
    ),
];

/// Returns the outcome of a directive that no location used.
pub(super) fn unused(name: &str) -> (Outcome, Effect, String) {
    let row = ROWS.iter().find(|(names, ..)| names.contains(&name));
    counterpart::unused(row, "from-nginx.md")
}

/// Returns the table of all directives as Markdown.
pub fn directives_markdown() -> String {
    markdown("nginx", ROWS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directive_has_one_row() {
        let mut names: Vec<&str> = ROWS
            .iter()
            .flat_map(|(names, ..)| names.iter().copied())
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn an_unknown_directive_counts_as_a_loss() {
        let (outcome, effect, _) = unused("no_such_directive");
        assert_eq!((outcome, effect), (Outcome::LeftOut, Response));
    }
}
