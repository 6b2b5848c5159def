vcl 4.1;

backend web { .host = "127.0.0.1"; .port = "3000"; }
backend streaming { .host = "127.0.0.1"; .port = "4000"; }

sub vcl_recv {
    if (req.url ~ "^/api/v1/streaming") {
        set req.backend_hint = streaming;
        return (pipe);
    }
    set req.backend_hint = web;
    if (req.method != "GET" && req.method != "HEAD") {
        return (pass);
    }
    if (req.url ~ "^/(system|packs|emoji|sounds|assets|avatars|headers)/" || req.url == "/sw.js") {
        unset req.http.Cookie;
        return (hash);
    }
    if (req.http.Authorization || req.http.Cookie ~ "(_mastodon_session|_session_id)=") {
        return (pass);
    }
    unset req.http.Cookie;
}

sub vcl_pipe {
    if (req.http.upgrade) {
        set bereq.http.upgrade = req.http.upgrade;
        set bereq.http.connection = req.http.connection;
    }
}

sub vcl_hash {
    hash_data(req.http.Accept);
    hash_data(req.http.Accept-Language);
}

sub vcl_backend_response {
    if (bereq.url ~ "^/(packs|emoji|sounds)/") {
        unset beresp.http.Set-Cookie;
        set beresp.ttl = 30d;
        set beresp.http.Cache-Control = "public, max-age=2592000, immutable";
        return (deliver);
    }
    if (bereq.url ~ "^/system/") {
        set beresp.ttl = 7d;
        set beresp.grace = 1d;
    }
    if (beresp.status >= 500) {
        set beresp.uncacheable = true;
        set beresp.ttl = 5s;
        return (deliver);
    }
}

sub vcl_deliver {
    set resp.http.Strict-Transport-Security = "max-age=63072000; includeSubDomains";
    unset resp.http.Via;
}
