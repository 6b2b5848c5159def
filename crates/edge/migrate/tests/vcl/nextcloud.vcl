vcl 4.1;

backend app { .path = "/run/nextcloud.sock"; .first_byte_timeout = 300s; }

sub vcl_recv {
    if (req.http.X-Forwarded-Proto !~ "https") {
        return (synth(750, "https://" + req.http.host + req.url));
    }
    if (req.url == "/.well-known/carddav" || req.url == "/.well-known/caldav") {
        return (synth(751, "/remote.php/dav/"));
    }
    if (req.url ~ "^/(data|config|\.ht|db_structure\.xml|README)") {
        return (synth(403, "Forbidden"));
    }
    if (req.url ~ "^/(core|apps|dist|themes)/" && req.url ~ "v=") {
        unset req.http.Cookie;
        return (hash);
    }
    if (req.url ~ "^/(core|dist)/") {
        unset req.http.Cookie;
        return (hash);
    }
    return (pass);
}

sub vcl_synth {
    if (resp.status == 750) {
        set resp.http.Location = resp.reason;
        set resp.status = 301;
        set resp.reason = "Moved Permanently";
        return (deliver);
    } elseif (resp.status == 751) {
        set resp.http.Location = "https://" + req.http.host + resp.reason;
        set resp.status = 302;
        return (deliver);
    }
    set resp.http.Content-Type = "text/plain; charset=utf-8";
    synthetic(resp.reason);
    return (deliver);
}

sub vcl_backend_response {
    if (bereq.url ~ "^/(core|dist)/") {
        unset beresp.http.Set-Cookie;
        set beresp.ttl = 6h;
        set beresp.grace = 1h;
    }
}

sub vcl_deliver {
    set resp.http.X-Frame-Options = "SAMEORIGIN";
    set resp.http.Referrer-Policy = "no-referrer";
}
