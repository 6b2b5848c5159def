vcl 4.1;

import std;
import directors;

backend primary { .host = "10.12.0.1"; .port = "8080"; }
backend secondary { .host = "10.12.0.2"; .port = "8080"; }

sub vcl_init {
    new pool = directors.fallback();
    pool.add_backend(primary);
    pool.add_backend(secondary);
}

sub vcl_recv {
    set req.backend_hint = pool.backend();
    set req.http.X-Real-IP = client.ip;
    if (req.url ~ "^/-/(health|liveness|readiness|metrics)") {
        return (synth(404));
    }
    if (req.url ~ "^/assets/" || req.url ~ "^/uploads/-/system/") {
        unset req.http.Cookie;
        unset req.http.Authorization;
        return (hash);
    }
    if (req.url ~ "/raw/" && !req.http.Cookie && !req.http.Private-Token) {
        return (hash);
    }
    return (pass);
}

sub vcl_backend_response {
    if (bereq.url ~ "^/assets/") {
        set beresp.ttl = 365d;
        unset beresp.http.Set-Cookie;
        return (deliver);
    }
    if (bereq.url ~ "^/uploads/-/system/") {
        set beresp.ttl = 1d;
        set beresp.grace = 12h;
        set beresp.keep = 1d;
    }
}
