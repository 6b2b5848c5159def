vcl 4.1;

backend default { .host = "127.0.0.1"; .port = "8088"; }

acl purge { "127.0.0.1"; "10.4.0.0"/16; }

sub vcl_recv {
    if (req.method == "PURGE") {
        if (!client.ip ~ purge) {
            return (synth(405, "Denied"));
        }
        return (purge);
    }
    if (req.http.Authorization || req.http.Cookie ~ "([sS]ession|Token|UserID)=") {
        return (pass);
    }
    if (req.url ~ "[?&]action=(edit|submit|history|raw)" || req.url ~ "^/wiki/Special:") {
        return (pass);
    }
    unset req.http.Cookie;
}

sub vcl_hash {
    if (req.http.Cookie ~ "stopMobileRedirect") {
        hash_data("desktop");
    }
}

sub vcl_backend_response {
    set beresp.grace = 120s;
    if (beresp.ttl < 48h) {
        if (!beresp.ttl > 0s) {
            set beresp.uncacheable = true;
        }
    }
    if (bereq.url ~ "^/images/") {
        set beresp.ttl = 1d;
        unset beresp.http.Set-Cookie;
    }
}
