vcl 4.1;

backend default { .host = "127.0.0.1"; .port = "8080"; }

acl office { "192.0.2.0"/24; ! "192.0.2.66"; }

sub vcl_recv {
    if (client.ip !~ office && req.url !~ "^/status") {
        return (synth(503, "Maintenance"));
    }
    if (req.url ~ "^/old/") {
        set req.url = regsub(req.url, "^/old/", "/new/");
    }
    return (pass);
}

sub vcl_synth {
    if (resp.status == 503) {
        set resp.http.Retry-After = "3600";
        set resp.http.Content-Type = "text/html";
        synthetic({"<h1>Back soon</h1>"});
        return (deliver);
    }
}
