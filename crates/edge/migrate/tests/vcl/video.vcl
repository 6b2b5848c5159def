vcl 4.1;

import directors;

probe packager_probe {
    .url = "/ping";
    .interval = 1s;
    .timeout = 500ms;
    .expected_response = 204;
}

backend packager_a { .host = "10.9.0.1"; .port = "8888"; .probe = packager_probe; }
backend packager_b { .host = "10.9.0.2"; .port = "8888"; .probe = packager_probe; }

sub vcl_init {
    new packagers = directors.hash();
    packagers.add_backend(packager_a, 1.0);
    packagers.add_backend(packager_b, 1.0);
}

sub vcl_recv {
    set req.backend_hint = packagers.backend(req.url);
    if (req.url ~ "^/live/" || req.url ~ "^/vod/") {
        unset req.http.Cookie;
        set req.url = regsuball(req.url, "([?&])(session|token|nocache)=[^&]*", "");
        return (hash);
    }
    return (synth(404));
}

sub vcl_backend_response {
    if (bereq.url ~ "\.(m3u8|mpd)(\?.*)?$") {
        if (bereq.url ~ "^/live/") {
            set beresp.ttl = 1s;
            set beresp.grace = 2s;
        } else {
            set beresp.ttl = 1h;
        }
    } elseif (bereq.url ~ "\.(ts|m4s|mp4|cmfv|cmfa)(\?.*)?$") {
        set beresp.ttl = 1d;
        set beresp.grace = 10s;
    }
    if (beresp.status == 404) {
        set beresp.ttl = 1s;
        set beresp.grace = 0s;
    }
    unset beresp.http.Set-Cookie;
    set beresp.do_stream = true;
}

sub vcl_deliver {
    set resp.http.Access-Control-Allow-Origin = "*";
    set resp.http.Timing-Allow-Origin = "*";
}
