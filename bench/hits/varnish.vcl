vcl 4.1;

backend origin {
    .host = "127.0.0.1";
    .port = "@ORIGIN@";
}

sub vcl_recv {
    # Known to be uncacheable: Varnish need not remember each key as such.
    if (req.url ~ "^/p/") {
        return (pass);
    }
    return (hash);
}
