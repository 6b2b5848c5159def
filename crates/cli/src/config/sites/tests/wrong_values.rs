//! The messages about wrong values of rules.

use super::messages;

/// Each of these lines of a rule is wrong. The message contains the second text, the hint the third.
const WRONG: [(&str, &str, &str); 91] = [
    (
        "path = 'a/*'",
        "path = 'a/*' matches no path",
        "begins with `/`",
    ),
    ("path = '//a'", "matches no path", "write"),
    (
        "path = 5",
        "path = 5 is a number, not a path",
        "\"/static/*\"",
    ),
    ("path = []", "path = [] is empty", "remove the key"),
    (
        "path_regex = '('",
        "is not a regular expression: unclosed group",
        "write",
    ),
    ("path_regex = []", "is empty", "remove the key"),
    (
        "host_regex = '('",
        "is not a regular expression: unclosed group",
        r"write '^[^.]+\.example\.com$'",
    ),
    ("method = 'get'", "is not in upper case", "write GET"),
    ("method = 'G T'", "is not a method", "write GET"),
    ("method = []", "is empty", "remove the key"),
    (
        "header = 'X-A'",
        "header = 'X-A' is a string, not a table of field names",
        "X-Country",
    ),
    ("header = {}", "is empty", "remove the key"),
    (
        "header = { X-A = [] }",
        "header.X-A = [] is empty",
        "remove the key",
    ),
    (
        "header = { 'X A' = 'b' }",
        "`X A`, which is not the name of a field",
        "letters",
    ),
    (
        "header = { X-A = 'b', x-a = 'c' }",
        "is given twice",
        "no case",
    ),
    (
        "request.only = ['X A']",
        "is not the name of a field",
        "hyphens",
    ),
    (
        "dictionary = '/js/:name'",
        "is not a pattern of paths",
        "* stands for any text",
    ),
    ("dictionary = 'js/*'", "is not a pattern of paths", "path"),
    ("dictionary = 5", "is a number", "/js/app.*.js"),
    ("request.only = true", "is a boolean", "user-agent"),
    ("cookie = 'a=b'", "is not a name", "only the name"),
    ("cookie = ''", "is not a name", "only the name"),
    ("cookie = []", "is empty", "remove the key"),
    ("parameter = 'a&b'", "is not a name", "only the name"),
    ("client = '10.0.0.0/33'", "is not a network", "10.0.0.0/8"),
    (
        "client = ['10.0.0.1', 'host']",
        "client = 'host' is not a network",
        "10.0.0.0/8",
    ),
    (
        "origin = 'web'",
        "origin = \"web\" is not the name of an origin",
        "the origins are default",
    ),
    (
        "origin = 1",
        "is a number, not the name of an origin",
        "\"default\"",
    ),
    (
        "pass = 'yes'",
        "pass = \"yes\" is a string, not a boolean",
        "true or false",
    ),
    (
        "deny = 'true'",
        "is a string, not a boolean or a status",
        "400 to 599",
    ),
    ("deny = 399", "deny = 399 is too small", "use 400 to 599"),
    ("deny = 600", "deny = 600 is too large", "use 400 to 599"),
    (
        "redirect = true",
        "is a boolean, not a template",
        "or false",
    ),
    (
        "redirect = 'example.org'",
        "is neither a URL nor a path",
        "https://",
    ),
    (
        "redirect = '//example.org/'",
        "could lead to another host",
        "https://${host}/",
    ),
    (
        "redirect = '/${path}'",
        "could lead to another host",
        "https://${host}/",
    ),
    (
        "redirect = 'https://a.example${header.x}'",
        "could lead to another host",
        "a slash",
    ),
    ("redirect = 'https:///a'", "has no host", "https://${host}/"),
    (
        "redirect = '/a b'",
        "has a character that a URL may not contain",
        "%20",
    ),
    (
        "redirect = '/ä'",
        "has a character that a URL may not contain",
        "%20",
    ),
    (
        "redirect = '/${none}'",
        "${none} is not a variable",
        "use scheme, host",
    ),
    (
        "redirect = '/a${1}'",
        "needs a path_regex with at least 1 groups",
        "write",
    ),
    (
        "redirect = '/a'\nredirect_status = 304",
        "is not the status of a redirect",
        "301, 302",
    ),
    (
        "redirect_status = 301",
        "redirect_status is set without redirect",
        "add redirect",
    ),
    (
        "redirect = false\nredirect_status = 301",
        "is set without redirect",
        "add redirect",
    ),
    ("rewrite = 'a'", "is not a path", "begin with a slash"),
    ("rewrite = '/a#b'", "has a #", "%23"),
    (
        "memory = 'always'",
        "is not a rule for memory",
        "normal or never",
    ),
    (
        "disk = 'always'",
        "is not a rule for the disk",
        "first-request",
    ),
    (
        "id_filter = 'even'",
        "is not the name of a [[negative]]",
        "add a name",
    ),
    (
        "replace = 'a'",
        "is a string, not a table with from and to",
        "{ from = ",
    ),
    (
        "replace = [{ from = 'a' }]",
        "has not both from and to",
        "{ from = ",
    ),
    (
        "replace = [{ from = 'a', to = 'b', x = 1 }]",
        "has the unknown key x",
        "use from and to",
    ),
    (
        "replace = [{ from = '', to = 'b' }]",
        "has a `from` with 0 bytes",
        "{ from = ",
    ),
    (
        "replace = [{ from = 'a', to = '${client}' }]",
        "has the variable of one request in `${client}`",
        "{ from = ",
    ),
    (
        "replace_types = ['text/html; charset=utf-8']",
        "is not a media type",
        "text/*",
    ),
    (
        "replace_fields = ['Content-Length']",
        "cannot change Content-Length",
        "remove it",
    ),
    ("ttl = 5", "ttl = 5 is a number, not a duration", "\"5s\""),
    ("ttl = { 200 = '5' }", "ttl.200 = \"5\" has no unit", "30s"),
    (
        "ttl = { 700 = '5s' }",
        "`700`, which is not a status",
        "5xx",
    ),
    ("ttl = '1500ms'", "is not a whole number of seconds", "1s"),
    ("ttl = '3651d'", "is too large", "3650d"),
    ("stale_if_error = -1", "is a number, not a duration", "unit"),
    (
        "query.keep = 'a=b'",
        "is not the name of a parameter",
        "utm_*",
    ),
    (
        "query.drop = ['']",
        "is not the name of a parameter",
        "utm_*",
    ),
    (
        "query = 5",
        "query = 5 is a number, not a table",
        "query.sort",
    ),
    (
        "query.sort = 1",
        "query.sort = 1 is a number, not a boolean",
        "true or false",
    ),
    ("key = 'devices'", "is not a class", "device"),
    ("key = 'header:a b'", "is not a class", "header:NAME"),
    (
        "request.set = 5",
        "request.set = 5 is a number, not a table",
        "X-Name",
    ),
    (
        "request.set.X-A = 5",
        "request.set.X-A = 5 is a number, not a template",
        "\"value\"",
    ),
    ("request.set.X-A = ''", "is an empty value", "remove"),
    (
        "request.set.X-A = ' a'",
        "begins or ends with a space",
        "remove the spaces",
    ),
    (
        "request.set.X-A = \"a\\nb\"",
        "has a control character",
        "write",
    ),
    (
        "request.add.Host = 'a'",
        "cannot change Host: it occurs exactly once",
        "remove it",
    ),
    (
        "request.set.Range = 'a'",
        "is written by the edge",
        "remove it",
    ),
    (
        "request.remove = ['Upgrade']",
        "cannot change Upgrade: it concerns one connection",
        "remove it",
    ),
    (
        "response.set.Content-Length = '5'",
        "states where the body ends",
        "remove it",
    ),
    (
        "response.set.Host = 'a'",
        "is a field of requests",
        "remove it",
    ),
    (
        "response.set.X-A = 'a'\nresponse.remove = 'x-a'",
        "changes x-a a second time",
        "keep one",
    ),
    ("rate_limit = '5/d'", "is not a rate", "600/min"),
    ("rate_limit = '0/s'", "is not a rate", "600/min"),
    (
        "rate_limit_burst = 5",
        "rate_limit_burst is set without rate_limit",
        "add rate_limit",
    ),
    (
        "rate_limit = '1/s'\nrate_limit_by = 'cookie'",
        "does not identify clients",
        "header:NAME",
    ),
    ("answer = { body = 'a', status = 205 }", "status", "204"),
    (
        "answer = { body = 'a', status = 204 }",
        "has a body and the status 204",
        "remove the body",
    ),
    (
        "answer = { body = 'a', content_type = \"a\\nb\" }",
        "is not a media type",
        "text/html",
    ),
    (
        "answer = { text = 'a' }",
        "is not a part of a page",
        "write body",
    ),
    (
        "error_page = { 404 = { body = 'a', status = 200 } }",
        "is not a part of a page",
        "write body",
    ),
    (
        "error_page = { 200 = { body = 'a' } }",
        "is not the page of an error",
        "from 400 to 599",
    ),
    (
        "error_page = { 200 = 'a.html' }",
        "does not exist",
        "full path",
    ),
];

#[test]
fn a_wrong_value_has_one_message_with_its_line_and_a_hint() {
    for (lines, message, hint) in WRONG {
        let text = format!("[[site]]\nhosts = 'a.example'\n[[site.rule]]\n{lines}\n");
        let printed = messages(&text);
        assert_eq!(printed.matches("error: ").count(), 1, "{lines}\n{printed}");
        let (first, rest) = printed.split_once('\n').expect("lines");
        let line = 3 + lines.lines().count();
        assert!(first.contains(message), "{lines}\n{printed}");
        assert!(
            rest.contains(&format!("line {line}\n")),
            "{lines}\n{printed}"
        );
        assert!(
            rest.contains("hint: ") && rest.contains(hint),
            "{lines}\n{printed}"
        );
    }
}
