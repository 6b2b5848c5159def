vcl 4.1;

backend forum { .host = "10.3.0.1"; .port = "3000"; .between_bytes_timeout = 60s; }

sub vcl_recv {
    if (req.url ~ "^/message-bus/") {
        return (pass);
    }
    if (req.url ~ "^/(images|assets|uploads|user_avatar|letter_avatar_proxy)/") {
        unset req.http.Cookie;
        return (hash);
    }
    if (req.http.Cookie ~ "_t=") {
        return (pass);
    }
    if (req.http.Discourse-Logged-In || req.http.X-Requested-With == "XMLHttpRequest") {
        return (pass);
    }
    unset req.http.Cookie;
    return (hash);
}

sub vcl_hash {
    hash_data(req.http.Accept-Language);
}

sub vcl_backend_response {
    if (bereq.url ~ "^/(images|assets)/") {
        set beresp.ttl = 365d;
        return (deliver);
    }
    if (bereq.url ~ "^/(uploads|user_avatar|letter_avatar_proxy)/") {
        set beresp.ttl = 1d;
        unset beresp.http.Set-Cookie;
    }
    if (beresp.status == 429) {
        set beresp.ttl = 0s;
    }
}
