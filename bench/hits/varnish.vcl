vcl 4.1;

backend origin {
    .host = "127.0.0.1";
    .port = "@ORIGIN@";
}

sub vcl_recv {
    # Declared uncacheable, so Varnish need not store a hit-for-miss object per key.
    if (req.url ~ "^/p/") {
        return (pass);
    }
    return (hash);
}
