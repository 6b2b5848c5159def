vcl 4.0;

import directors;
import std;

probe health {
    .request =
        "GET /core/misc/druplicon.png HTTP/1.1"
        "Host: www.drupal.example"
        "Connection: close";
    .interval = 10s;
    .timeout = 5s;
}

backend web1 { .host = "10.0.0.11"; .port = "80"; .probe = health; }
backend web2 { .host = "10.0.0.12"; .port = "80"; .probe = health; }

acl purge {
    "127.0.0.1";
    "10.0.0.0"/24;
}

sub vcl_init {
    new cluster = directors.round_robin();
    cluster.add_backend(web1);
    cluster.add_backend(web2);
}

sub vcl_recv {
    set req.backend_hint = cluster.backend();

    if (req.method == "BAN") {
        if (client.ip !~ purge) {
            return (synth(403, "Not allowed."));
        }
        if (req.http.Cache-Tags) {
            ban("obj.http.Cache-Tags ~ " + req.http.Cache-Tags);
        } else {
            return (synth(403, "Cache-Tags header missing."));
        }
        return (synth(200, "Ban added."));
    }
    if (req.method == "URIBAN") {
        ban("req.http.host == " + req.http.host + " && req.url == " + req.url);
        return (synth(200, "Ban added."));
    }
    if (req.method != "GET" && req.method != "HEAD") {
        return (pass);
    }
    if (req.url ~ "^/status\.php$" || req.url ~ "^/update\.php" || req.url ~ "^/install\.php"
        || req.url ~ "^/cron\.php" || req.url ~ "^/(admin|user)(/.*)?$" || req.url ~ "^/flag/.*$"
        || req.url ~ "^.*/ajax/.*$") {
        return (pass);
    }
    if (req.url ~ "^/(cron|install)\.php$" && client.ip !~ purge) {
        return (synth(404, "Page not found."));
    }
    if (req.url ~ "(?i)\.(pdf|asc|dat|txt|doc|xls|ppt|tgz|csv|png|gif|jpeg|jpg|ico|swf|css|js)(\?.*)?$") {
        unset req.http.Cookie;
    }
    if (req.http.Cookie) {
        set req.http.Cookie = ";" + req.http.Cookie;
        set req.http.Cookie = regsuball(req.http.Cookie, "; +", ";");
        set req.http.Cookie = regsuball(req.http.Cookie, ";(SESS[a-z0-9]+|SSESS[a-z0-9]+|NO_CACHE)=", "; \1=");
        set req.http.Cookie = regsuball(req.http.Cookie, ";[^ ][^;]*", "");
        set req.http.Cookie = regsuball(req.http.Cookie, "^[; ]+|[; ]+$", "");
        if (req.http.Cookie == "") {
            unset req.http.Cookie;
        } else {
            return (pass);
        }
    }
}

sub vcl_backend_response {
    if (bereq.url ~ "(?i)\.(pdf|asc|dat|txt|doc|xls|ppt|tgz|csv|png|gif|jpeg|jpg|ico|swf|css|js)(\?.*)?$") {
        unset beresp.http.set-cookie;
    }
    set beresp.http.X-Url = bereq.url;
    set beresp.http.X-Host = bereq.http.host;
    if (beresp.status == 404 || beresp.status == 301 || beresp.status == 500) {
        set beresp.ttl = 10m;
    }
    set beresp.grace = 6h;
}

sub vcl_deliver {
    unset resp.http.X-Url;
    unset resp.http.X-Host;
    unset resp.http.Cache-Tags;
    if (obj.hits > 0) {
        set resp.http.X-Varnish-Cache = "HIT";
    } else {
        set resp.http.X-Varnish-Cache = "MISS";
    }
}

sub vcl_backend_error {
    set beresp.http.Content-Type = "text/html; charset=utf-8";
    synthetic({"<html><body><h1>Page unavailable</h1></body></html>"});
    return (deliver);
}
