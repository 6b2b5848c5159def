vcl 4.1;

backend default { .host = "10.7.0.1"; .port = "8080"; }
backend eu { .host = "10.7.1.1"; .port = "8080"; }

sub vcl_recv {
    # The load balancer states the country.
    if (req.http.X-Country ~ "^(DE|FR|AT)$") {
        set req.backend_hint = eu;
        set req.http.X-Region = "eu";
    } elseif (req.http.X-Country == "XX") {
        return (synth(451, "Unavailable"));
    } else {
        set req.http.X-Region = "world";
    }
    if (req.url ~ "^/api/") {
        return (pass);
    }
    unset req.http.Cookie;
    return (hash);
}

sub vcl_hash {
    hash_data(req.http.X-Region);
}

sub vcl_backend_response {
    set beresp.http.X-Region = bereq.http.X-Region;
    if (bereq.url !~ "^/api/") {
        set beresp.ttl = 15m;
    }
}
