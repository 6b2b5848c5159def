vcl 4.1;

backend origin {
    .host = "127.0.0.1";
    .port = "@origin.port@";
}

sub vcl_recv {
    # `pass` skips the cache. Otherwise Varnish would store a hit-for-miss object for each key.
    if (req.url ~ "^/p/") {
        return (pass);
    }
    return (hash);
}
