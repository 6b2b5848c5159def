vcl 4.1;

backend typo3 { .host = "10.8.0.1"; .port = "8080"; }

acl cms { "10.8.0.5"; }

sub vcl_recv {
    if (req.method == "BAN") {
        if (!client.ip ~ cms) {
            return (synth(403, "Not allowed"));
        }
        ban("obj.http.X-Tag ~ " + req.http.X-Tag);
        return (synth(200, "Banned"));
    }
    if (req.method != "GET" && req.method != "HEAD") {
        return (pass);
    }
    if (req.url ~ "^/typo3" || req.http.Cookie ~ "be_typo_user" || req.http.Cookie ~ "fe_typo_user") {
        return (pass);
    }
    if (req.http.User-Agent ~ "(?i)mobile|android|iphone") {
        set req.http.X-Device = "mobile";
    } else {
        set req.http.X-Device = "desktop";
    }
    unset req.http.Cookie;
    return (hash);
}

sub vcl_hash {
    hash_data(req.http.X-Device);
}

sub vcl_backend_response {
    if (beresp.http.Cache-Control ~ "private" || beresp.http.Set-Cookie) {
        set beresp.uncacheable = true;
        return (deliver);
    }
    if (bereq.url ~ "^/(typo3temp|fileadmin)/") {
        set beresp.ttl = 30d;
    }
    set beresp.grace = 1h;
}
