//! Tests the edge with a real site and real clients.
//!
//! The nginx of Debian serves a part of /usr/share/doc: thousands of real files, and directory listings.
//! wget, curl, h2load, Chromium and ffprobe fetch these files through `edgeward serve`, over TCP and TLS. The expected
//! results come from other programs: nginx's responses, nginx's access log, and the clients' checks.
//!
//! A test whose programs are not installed is skipped. With `EDGEWARD_REQUIRE_TOOLS=1`, as in `make test`, it fails.

mod media;
mod programs;
mod site;

use std::fs;
use std::path::Path;

use programs::{Output, are_installed, run};
use site::{Edge, Site};

/// Mirrors of the site through the edge equal nginx's files byte for byte. In the second mirror through a listener,
/// more than 95 % of the files come from the cache.
///
/// Method: mirror the site from nginx, then twice through each of the edge's two listeners. A listener never reuses the
/// responses of the other, because the port is part of the cache key. Compare the folders. Count the requests in
/// nginx's log. A directory listing has no `ETag`, `Last-Modified` or `Expires`, so the edge never reuses it: each
/// mirror fetches it from nginx again.
#[test]
fn mirrors_through_the_edge_equal_the_site_and_the_second_mirror_comes_from_the_cache() {
    if !are_installed(&["nginx", "wget", "diff", "setpriv"]) {
        return;
    }
    let Some(site) = Site::of_documentation() else {
        return;
    };
    let edge = Edge::in_front_of(&site);
    let work = tempfile::tempdir().expect("the temporary folder is created");
    let mirror = |name: &str, base: &str, edge: Option<&Edge>| {
        let folder = work.path().join(name);
        let ca = edge.map(|edge| format!("--ca-certificate={}", edge.ca_file().display()));
        let output = run(
            "wget",
            [
                "--mirror",
                "--no-verbose",
                "--no-host-directories",
                "--no-parent",
                "--tries=1",
            ]
            .into_iter()
            .chain(["--execute=robots=off", "--timeout=20", "--directory-prefix"])
            .map(str::to_owned)
            .chain([folder.display().to_string()])
            .chain(ca)
            .chain([format!("{base}/doc/")]),
        );
        // Exit code 8: some response was an error, for example for a broken link in a document.
        assert!(
            matches!(output.code, 0 | 8),
            "wget {name}: {}",
            output.tail()
        );
        (folder, site.take_log())
    };

    let (direct, direct_requests) = mirror("direct", &site.url(), None);
    let listings = direct_requests
        .iter()
        .filter(|request| request.is_listing())
        .count();
    eprintln!(
        "nginx got requests for {} files and {listings} listings",
        direct_requests.len() - listings
    );
    assert!(
        direct_requests.len() - listings > 50,
        "the site is too small for this test"
    );

    for (name, base) in [("plain", edge.plain_url()), ("TLS", edge.tls_url())] {
        for pass in 1..=2 {
            let (mirrored, requests) = mirror(&format!("{name}-{pass}"), &base, Some(&edge));
            let compared = run(
                "diff",
                ["--recursive".to_owned(), "--brief".to_owned()]
                    .into_iter()
                    .chain([&direct, &mirrored].map(|folder| folder.display().to_string())),
            );
            assert_eq!(compared.code, 0, "{}", compared.tail());
            let files: Vec<_> = requests
                .iter()
                .filter(|request| !request.is_listing())
                .map(|request| request.path.as_str())
                .collect();
            eprintln!(
                "{name}, pass {pass}: {} files fetched from nginx",
                files.len()
            );
            // AdaptSize may reject a few of the largest files: less than 5 % of the files are fetched again.
            assert!(
                pass == 1 || files.len() * 20 < direct_requests.len() - listings,
                "{name}, pass {pass}: fetched again from nginx: {files:?}"
            );
        }
    }
}

/// Ranges, HEAD, conditional requests and errors work the same over HTTP/1.1, HTTP/2, TCP and TLS.
#[test]
fn curl_gets_whole_files_ranges_heads_and_not_modified_over_each_protocol() {
    if !are_installed(&["nginx", "curl", "setpriv"]) {
        return;
    }
    let site = Site::of_a_page();
    let edge = Edge::in_front_of(&site);
    let body = site.file("page/long.txt");
    let ca = edge.ca_file().display().to_string();
    let protocols: [(&[&str], String, &str); 4] = [
        (&["--http1.1"], edge.plain_url(), "1.1"),
        (&["--http2-prior-knowledge"], edge.plain_url(), "2"),
        (&["--http1.1", "--cacert", &ca], edge.tls_url(), "1.1"),
        (&["--http2", "--cacert", &ca], edge.tls_url(), "2"),
    ];
    for (flags, base, version) in protocols {
        let curl = |more: &[&str], path: &str| {
            let arguments = [
                "--silent",
                "--show-error",
                "--max-time",
                "20",
                "--dump-header",
                "-",
            ];
            let all = arguments
                .iter()
                .chain(flags)
                .chain(more)
                .map(|&flag| flag.to_owned());
            let output = run("curl", all.chain([format!("{base}{path}")]));
            assert_eq!(
                output.code,
                0,
                "curl {flags:?} {more:?} {path}: {}",
                output.tail()
            );
            CurlResponse::parse(&output)
        };
        let what = format!("HTTP/{version} at {base}");

        let whole = curl(&[], "/page/long.txt");
        assert_eq!(whole.status, 200, "{what}");
        assert_eq!(whole.version, version, "{what}");
        assert_eq!(whole.body, body, "{what}: the body differs");
        let again = curl(&[], "/page/long.txt");
        assert!(
            again.header("cache-status").contains("hit"),
            "{what}: {:?}",
            again.head
        );
        assert!(!again.header("age").is_empty(), "{what}: {:?}", again.head);
        assert_eq!(again.body, body, "{what}: the body of the hit differs");

        // The closure's `--dump-header -` prints the head, also for HEAD. With `--head`, curl outputs the head a second
        // time as if it were the body, so `--output` discards this copy. `--write-out` then prints the number of body
        // bytes.
        let count = [
            "--head",
            "--output",
            "/dev/null",
            "--write-out",
            "%{size_download}",
        ];
        let head = curl(&count, "/page/long.txt");
        assert_eq!(head.status, 200, "{what}");
        assert_eq!(
            head.header("content-length"),
            body.len().to_string(),
            "{what}"
        );
        assert_eq!(head.body, b"0", "{what}: HEAD has a body");

        let middle = curl(&["--range", "1000-2999"], "/page/long.txt");
        assert_eq!(middle.status, 206, "{what}");
        assert_eq!(middle.body, &body[1000..3000], "{what}: the range differs");
        let last = curl(&["--range", "-5"], "/page/long.txt");
        assert_eq!(
            (last.status, last.body.as_slice()),
            (206, &body[body.len() - 5..]),
            "{what}"
        );
        let beyond = curl(&["--range", "99999999-"], "/page/long.txt");
        assert_eq!(beyond.status, 416, "{what}");

        let etag = format!("If-None-Match: {}", whole.header("etag"));
        let same = curl(&["--header", &etag], "/page/long.txt");
        assert_eq!((same.status, same.body.len()), (304, 0), "{what}");
        let other = curl(&["--header", "If-None-Match: \"other\""], "/page/long.txt");
        assert_eq!(
            (other.status, other.body.as_slice()),
            (200, body.as_slice()),
            "{what}"
        );

        assert_eq!(curl(&[], "/page/nowhere").status, 404, "{what}");
        // nginx answers a POST to a static file with 405.
        assert_eq!(
            curl(&["--data", "x=1"], "/page/long.txt").status,
            405,
            "{what}"
        );
    }
}

/// Sends 600 requests over four connections. A connection of HTTP/2 has up to ten concurrent streams.
#[test]
fn h2load_gets_every_response_over_http_1_and_2() {
    if !are_installed(&["nginx", "h2load", "setpriv"]) {
        return;
    }
    let site = Site::of_a_page();
    let edge = Edge::in_front_of(&site);
    for (flags, base) in [
        (vec![], edge.plain_url()),
        (vec![], edge.tls_url()),
        (vec!["--h1"], edge.plain_url()),
        (vec!["--h1"], edge.tls_url()),
    ] {
        let fixed = [
            "--requests=600",
            "--clients=4",
            "--max-concurrent-streams=10",
        ];
        let paths = ["/page/index.html", "/page/long.txt", "/page/style.css"];
        let output = run(
            "h2load",
            fixed
                .into_iter()
                .chain(flags.iter().copied())
                .map(str::to_owned)
                .chain(paths.map(|path| format!("{base}{path}"))),
        );
        let text = output.text();
        let all = "600 total, 600 started, 600 done, 600 succeeded, 0 failed, 0 errored, 0 timeout";
        assert!(text.contains(all), "h2load {flags:?} {base}: {text}");
        assert!(
            text.contains("600 2xx, 0 3xx, 0 4xx, 0 5xx"),
            "h2load {flags:?} {base}: {text}"
        );
    }
}

/// Opens a page in a browser. The page has a style sheet, an image and a script that calls `fetch`.
#[test]
fn chromium_shows_a_page_with_all_its_parts_over_tcp_and_tls() {
    if !are_installed(&["nginx", "chromium", "setpriv"]) {
        return;
    }
    let site = Site::of_a_page();
    let edge = Edge::in_front_of(&site);
    // Each visit starts a browser with an empty cache, so the third visit requests the page from the edge again.
    for base in [edge.plain_url(), edge.tls_url(), edge.plain_url()] {
        let profile = tempfile::tempdir().expect("the temporary folder is created");
        let output = run(
            "chromium",
            [
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--no-first-run",
                "--ignore-certificate-errors",
                "--virtual-time-budget=10000",
                "--dump-dom",
            ]
            .map(str::to_owned)
            .into_iter()
            .chain([format!("--user-data-dir={}", profile.path().display())])
            .chain([format!("{base}/page/index.html")]),
        );
        let dom = output.text();
        for part in [
            "script ran",
            "image 30x20",
            "colour rgb(1, 2, 3)",
            "fetched 200000 bytes",
        ] {
            assert!(
                dom.contains(part),
                "{base}: {part:?} is not in {dom}\n{}",
                output.tail()
            );
        }
    }
}

/// A response as `curl --dump-header -` prints it.
struct CurlResponse {
    status: u16,
    version: String,
    head: Vec<String>,
    body: Vec<u8>,
}

impl CurlResponse {
    fn parse(output: &Output) -> Self {
        let bytes = &output.stdout;
        let end = bytes
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .map(|position| position + 4);
        let (head, body) = bytes.split_at(end.expect("curl printed a head"));
        let head: Vec<_> = String::from_utf8_lossy(head)
            .lines()
            .map(str::to_owned)
            .collect();
        let mut words = head[0].split_whitespace();
        let version = words.next().and_then(|word| word.strip_prefix("HTTP/"));
        let status = words.next().and_then(|word| word.parse().ok());
        Self {
            version: version
                .expect("a status line begins with the version")
                .to_owned(),
            status: status.expect("a status line has a status"),
            body: body.to_vec(),
            head,
        }
    }

    /// The value of a field, or an empty string.
    fn header(&self, name: &str) -> &str {
        let found = self.head.iter().find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        });
        found.unwrap_or("")
    }
}

/// Reads a file that the test wrote.
fn read_file(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
