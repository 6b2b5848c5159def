vcl 4.1;

import std;

backend imgproxy { .host = "10.13.0.1"; .port = "8080"; .max_connections = 64; .first_byte_timeout = 30s; }

sub vcl_recv {
    if (req.url !~ "^/(resize|crop|fit)/") {
        return (synth(404, "Not found"));
    }
    if (req.method != "GET" && req.method != "HEAD") {
        return (synth(405, "Method not allowed"));
    }
    if (req.http.Accept ~ "image/avif") {
        set req.http.X-Format = "avif";
    } elseif (req.http.Accept ~ "image/webp") {
        set req.http.X-Format = "webp";
    } else {
        set req.http.X-Format = "jpeg";
    }
    unset req.http.Cookie;
    unset req.http.Accept;
    set req.url = regsub(req.url, "\?.*$", "");
    return (hash);
}

sub vcl_hash {
    hash_data(req.http.X-Format);
}

sub vcl_backend_response {
    unset beresp.http.Set-Cookie;
    unset beresp.http.Vary;
    if (beresp.status == 200) {
        set beresp.ttl = 30d;
        set beresp.grace = 7d;
    } else {
        set beresp.ttl = 10s;
    }
    set beresp.http.Cache-Control = "public, max-age=86400";
    return (deliver);
}
