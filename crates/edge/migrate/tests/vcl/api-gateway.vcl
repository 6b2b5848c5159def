vcl 4.1;

import std;
import directors;
import vsthrottle;

backend users1 { .host = "10.1.0.1"; .port = "8000"; }
backend users2 { .host = "10.1.0.2"; .port = "8000"; }
backend orders { .host = "10.2.0.1"; .port = "8000"; .first_byte_timeout = 10s; }

sub vcl_init {
    new users = directors.random();
    users.add_backend(users1, 10);
    users.add_backend(users2, 10);
}

sub vcl_recv {
    if (vsthrottle.is_denied(client.identity, 600, 60s)) {
        return (synth(429, "Too Many Requests"));
    }
    if (req.url ~ "^/v1/users/") {
        set req.backend_hint = users.backend();
    } elseif (req.url ~ "^/v1/orders/") {
        set req.backend_hint = orders;
        return (pass);
    } else {
        return (synth(404, "No such service"));
    }
    if (!req.http.X-API-Key) {
        return (synth(401, "Key required"));
    }
    if (req.http.Authorization) {
        return (pass);
    }
    set req.url = std.querysort(req.url);
    unset req.http.Cookie;
}

sub vcl_hash {
    hash_data(req.http.X-API-Key);
}

sub vcl_synth {
    set resp.http.Content-Type = "application/json";
    set resp.http.Cache-Control = "no-store";
    if (resp.status == 429) {
        set resp.http.Retry-After = "60";
    }
    synthetic("error: " + resp.reason);
    return (deliver);
}

sub vcl_backend_response {
    if (bereq.url ~ "^/v1/users/" && beresp.status == 200) {
        set beresp.ttl = 10m;
        set beresp.grace = 30s;
        return (deliver);
    }
    if (beresp.status >= 400) {
        set beresp.ttl = 1s;
    }
}

sub vcl_deliver {
    set resp.http.Access-Control-Allow-Origin = "*";
    unset resp.http.X-Powered-By;
}
