vcl 4.1;

import std;

backend debian { .host = "192.0.2.1"; .port = "80"; .connect_timeout = 10s; .first_byte_timeout = 120s; }
backend security { .host = "192.0.2.2"; .port = "80"; }

sub vcl_recv {
    if (req.method != "GET" && req.method != "HEAD") {
        return (synth(405, "Read only"));
    }
    if (req.http.host == "security.mirror.example") {
        set req.backend_hint = security;
        set req.http.Host = "security.debian.org";
    } else {
        set req.backend_hint = debian;
        set req.http.Host = "deb.debian.org";
    }
    unset req.http.Cookie;
    unset req.http.Authorization;
    set req.url = regsub(req.url, "\?.*$", "");
    return (hash);
}

sub vcl_backend_response {
    unset beresp.http.Set-Cookie;
    unset beresp.http.Vary;
    if (bereq.url ~ "\.(deb|udeb|dsc|tar\.(gz|xz|bz2))$") {
        set beresp.ttl = 30d;
        set beresp.grace = 30d;
    } elseif (bereq.url ~ "/(InRelease|Release|Release\.gpg)$") {
        set beresp.ttl = 1m;
        set beresp.grace = 1d;
    } elsif (bereq.url ~ "/by-hash/") {
        set beresp.ttl = 7d;
    } else {
        set beresp.ttl = 10m;
    }
    if (beresp.status == 404) {
        set beresp.ttl = 30s;
    }
    if (beresp.status >= 500 && beresp.status <= 599) {
        set beresp.ttl = 0s;
    }
    return (deliver);
}
