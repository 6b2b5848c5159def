vcl 4.1;

import std;

backend default {
    .host = "192.0.2.10";
    .port = "80";
    .probe = { .url = "/"; .interval = 10s; }
}

sub vcl_recv {
    if (std.healthy(req.backend_hint)) {
        set req.grace = 10s;
    }
    if (req.http.Cookie) {
        set req.http.Cookie = regsuball(req.http.Cookie, "(^|;\s*)(_[_a-z]+|has_js)=[^;]*", "");
        set req.http.Cookie = regsub(req.http.Cookie, "^;\s*", "");
        if (req.http.Cookie ~ "^\s*$") {
            unset req.http.Cookie;
        }
    }
}

sub vcl_backend_response {
    set beresp.ttl = 2m;
    set beresp.grace = 24h;
    set beresp.keep = 8h;
    if (beresp.status >= 500 && bereq.is_bgfetch) {
        return (abandon);
    }
}
