vcl 4.1;

include "backends.vcl";

sub vcl_recv {
    unset req.http.X-Forwarded-For;
    set req.http.X-Forwarded-For = client.ip;
    if (req.url ~ "^/administrator" || req.url ~ "^/component/(banners|users)") {
        return (pass);
    }
    if (req.http.Cookie ~ "joomla_user_state=logged_in") {
        return (pass);
    }
    if (req.url ~ "\.(css|js|png|jpg|gif|ico|svg)$") {
        unset req.http.Cookie;
        return (hash);
    }
    unset req.http.Cookie;
    return (hash);
}

sub vcl_backend_response {
    unset beresp.http.Pragma;
    if (bereq.url ~ "\.(css|js|png|jpg|gif|ico|svg)$") {
        set beresp.ttl = 8h;
    } else {
        set beresp.ttl = 5m;
    }
    unset beresp.http.Set-Cookie;
    set beresp.grace = 1h;
}

sub vcl_deliver {
    unset resp.http.X-Powered-By;
    unset resp.http.X-Content-Encoded-By;
}
