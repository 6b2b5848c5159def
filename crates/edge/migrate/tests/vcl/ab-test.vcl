vcl 4.1;

backend a { .host = "10.6.0.1"; .port = "80"; }
backend b { .host = "10.6.0.2"; .port = "80"; }

sub vcl_recv {
    if (req.http.Cookie ~ "variant=b") {
        set req.http.X-Variant = "b";
        set req.backend_hint = b;
    } else {
        set req.http.X-Variant = "a";
        set req.backend_hint = a;
    }
    if (req.url ~ "^/account") {
        return (pass);
    }
    unset req.http.Cookie;
    return (hash);
}

sub vcl_hash {
    hash_data(req.url);
    hash_data(req.http.host);
    hash_data(req.http.X-Variant);
    return (lookup);
}

sub vcl_backend_response {
    set beresp.ttl = 5m;
    unset beresp.http.Set-Cookie;
    return (deliver);
}

sub vcl_deliver {
    set resp.http.X-Variant = req.http.X-Variant;
}
