vcl 4.1;

import std;
import xkey;

backend cms { .host = "10.0.5.1"; .port = "80"; .host_header = "www.news.example"; }

acl editors { "10.0.5.0"/24; }

sub vcl_recv {
    if (req.http.host == "news.example") {
        return (synth(301, "Moved"));
    }
    if (req.method == "PURGE") {
        if (client.ip !~ editors) {
            return (synth(403, "Forbidden"));
        }
        if (req.http.xkey-purge) {
            set req.http.n-gone = xkey.softpurge(req.http.xkey-purge);
            return (synth(200, "Invalidated"));
        }
        return (purge);
    }
    call normalize;
    if (req.url ~ "^/preview/" || req.http.Cookie ~ "subscriber=") {
        return (pass);
    }
    if (req.url ~ "^/(feed|rss)") {
        unset req.http.User-Agent;
    }
    unset req.http.Cookie;
    return (hash);
}

sub normalize {
    if (req.url ~ "(\?|&)(utm_[a-z]+|ref)=") {
        set req.url = regsuball(req.url, "(utm_[a-z]+|ref)=[^&]+&?", "");
        set req.url = regsub(req.url, "(\?&?|&)$", "");
    }
    if (req.url ~ "^/index\.html$") {
        set req.url = "/";
    }
}

sub vcl_synth {
    if (resp.status == 301) {
        set resp.http.Location = "https://www.news.example" + req.url;
        return (deliver);
    }
}

sub vcl_backend_response {
    if (bereq.uncacheable) {
        return (deliver);
    }
    if (bereq.url == "/" || bereq.url ~ "^/section/") {
        set beresp.ttl = 1m;
    } else {
        set beresp.ttl = 10m;
    }
    set beresp.grace = 24h;
    unset beresp.http.Set-Cookie;
    if (beresp.http.Content-Type ~ "(text|json|xml)") {
        set beresp.do_gzip = true;
    }
}

sub vcl_deliver {
    unset resp.http.xkey;
    set resp.http.X-Served-By = "news";
}
