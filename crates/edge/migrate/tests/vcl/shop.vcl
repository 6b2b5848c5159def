vcl 4.1;

import cookie;
import std;

backend shop { .host = "10.14.0.1"; .port = "80"; }
backend static { .host = "10.14.0.2"; .port = "80"; }

sub vcl_recv {
    if (req.http.host ~ "^(www\.)?shop\.example$") {
        set req.backend_hint = shop;
    } elseif (req.http.host == "static.shop.example") {
        set req.backend_hint = static;
        unset req.http.Cookie;
        return (hash);
    } else {
        return (synth(404, "Unknown host"));
    }
    if (req.http.host == "www.shop.example") {
        return (synth(301, "https://shop.example" + req.url));
    }
    if (req.method != "GET" && req.method != "HEAD") {
        return (pass);
    }
    if (req.url ~ "^/(cart|checkout|account)") {
        return (pass);
    }
    cookie.parse(req.http.cookie);
    set req.http.X-Currency = cookie.get("currency");
    if (cookie.isset("session")) {
        return (pass);
    }
    unset req.http.Cookie;
    return (hash);
}

sub vcl_hash {
    if (req.http.X-Currency) {
        hash_data(req.http.X-Currency);
    }
}

sub vcl_synth {
    if (resp.status == 301) {
        set resp.http.Location = resp.reason;
        return (deliver);
    }
}

sub vcl_backend_response {
    if (bereq.http.host == "static.shop.example") {
        set beresp.ttl = 7d;
        set beresp.http.Cache-Control = "public, max-age=604800";
        unset beresp.http.Set-Cookie;
        return (deliver);
    }
    if (beresp.status == 200) {
        set beresp.ttl = 5m;
        set beresp.grace = 1h;
        unset beresp.http.Set-Cookie;
    }
}

sub vcl_deliver {
    if (req.http.host == "static.shop.example") {
        set resp.http.Access-Control-Allow-Origin = "*";
    }
    unset resp.http.X-Powered-By;
}
