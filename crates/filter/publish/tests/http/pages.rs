//! Responses for web pages (CORS), and for programs that use Guava on the JVM.

use edgeward_filter::guava::{Funnel, GuavaFilter};
use edgeward_publish::AllowedOrigins;

use crate::SET;
use crate::support::{Answer, Table, config, get, post, send_request, start, wait_until};

const PAGE: &str = "https://shop.example";

fn preflight(addr: std::net::SocketAddr, path: &str, origin: &str) -> Answer {
    let fields = [
        ("origin", origin),
        ("access-control-request-method", "GET"),
        (
            "access-control-request-headers",
            "cache-control,edgeward-challenge",
        ),
    ];
    send_request(addr, "OPTIONS", path, &fields, b"")
}

/// A page of an allowed origin passes the preflight and may read the response with its proof. Pages of other
/// origins get no CORS fields. The preflight permits only GET and HEAD, so no page may post.
#[test]
fn a_page_may_read_only_if_its_origin_is_allowed() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let mut config = config(folder.path());
    config.allowed_origins = AllowedOrigins::List(vec![PAGE.parse().expect("the origin is valid")]);
    let publisher = start(config, &Table::with(0..10));
    let addr = publisher.addr();

    let preflighted = preflight(addr, SET, PAGE);
    assert_eq!((preflighted.status, preflighted.body.len()), (204, 0));
    assert_eq!(preflighted.field("access-control-allow-origin"), PAGE);
    assert_eq!(
        preflighted.field("access-control-allow-methods"),
        "GET, HEAD"
    );
    let allowed = preflighted.field("access-control-allow-headers");
    for name in ["edgeward-challenge", "cache-control", "if-none-match"] {
        assert!(allowed.contains(name), "{allowed}");
    }
    let read = get(addr, SET, &[("origin", PAGE)]);
    assert_eq!(read.field("access-control-allow-origin"), PAGE);
    let exposed = read.field("access-control-expose-headers");
    assert!(exposed.contains("edgeward-proof"), "{exposed}");
    // A page can also read error responses.
    let missing = get(
        addr,
        &format!("{SET}/snapshot/{}", "0".repeat(64)),
        &[("origin", PAGE)],
    );
    assert_eq!(
        (missing.status, missing.field("access-control-allow-origin")),
        (404, PAGE)
    );

    for other in ["https://evil.example", "https://shop.example.evil", "null"] {
        let preflighted = preflight(addr, SET, other);
        assert_eq!(
            preflighted.field("access-control-allow-origin"),
            "",
            "{other}"
        );
        let read = get(addr, SET, &[("origin", other)]);
        assert_eq!(read.field("access-control-allow-origin"), "", "{other}");
        // The publisher still responds with 200. The browser hides a response without CORS fields from the page.
        assert_eq!(read.status, 200);
    }
    // This post is not from a page: it has a token, but no `Origin` field.
    let posted = post(addr, &format!("{SET}/ids"), "77");
    assert_eq!(
        (posted.status, posted.field("access-control-allow-origin")),
        (200, "")
    );
}

/// By default, responses have no CORS fields. With [`AllowedOrigins::Any`], every page may read.
#[test]
fn no_page_may_read_by_default_and_every_page_with_any() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let publisher = start(config(folder.path()), &Table::with(0..10));
    let read = get(publisher.addr(), SET, &[("origin", PAGE)]);
    assert_eq!(read.field("access-control-allow-origin"), "");
    assert_eq!(preflight(publisher.addr(), SET, PAGE).status, 405);

    let folder = tempfile::tempdir().expect("the folder is created");
    let mut config = config(folder.path());
    config.allowed_origins = AllowedOrigins::Any;
    let publisher = start(config, &Table::with(0..10));
    for fields in [&[("origin", PAGE)][..], &[]] {
        let read = get(publisher.addr(), SET, fields);
        assert_eq!(read.field("access-control-allow-origin"), "*");
        assert!(!read.field("vary").contains("origin"));
    }
}

/// The Guava filter contains every id of the scan, has validators and the date of the scan, and is replaced by
/// the next scan.
#[test]
fn a_set_is_served_in_guavas_format_if_configured() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let mut config = config(folder.path());
    config.guava = Some(Funnel::Utf8);
    let table = Table::with(0..3000);
    let publisher = start(config, &table);
    let (addr, path) = (publisher.addr(), format!("{SET}/guava"));
    let fetched = || {
        let response = get(addr, &path, &[]);
        (response.status == 200).then_some(response)
    };
    let first = wait_until("the filter in Guava's format is served", fetched);
    let contains = |file: &Answer, id: u64| {
        let filter = GuavaFilter::from_bytes(&file.body).expect("the filter has Guava's format");
        let hash = Funnel::Utf8.hash(id.to_string().as_bytes());
        filter.might_contain(hash.expect("the id is UTF-8"))
    };
    assert!((0..3000).all(|id| contains(&first, id)));
    assert!(!first.field("last-modified").is_empty());
    let tag = first.field("etag").to_owned();
    let unchanged = get(addr, &path, &[("if-none-match", &tag)]);
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    assert_eq!(
        unchanged.field("last-modified"),
        first.field("last-modified")
    );

    let added = (3000..6000).map(|id: u64| id.to_string());
    table
        .0
        .lock()
        .expect("no thread panics while it has the lock")
        .extend(added);
    publisher.rebuild();
    let second = wait_until("the filter of the next scan is served", || {
        fetched().filter(|file| file.field("etag") != tag)
    });
    assert!((0..6000).all(|id| contains(&second, id)));
}

#[test]
fn a_set_without_guavas_format_names_the_flag_for_it() {
    let folder = tempfile::tempdir().expect("the folder is created");
    let publisher = start(config(folder.path()), &Table::with(0..10));
    let response = get(publisher.addr(), &format!("{SET}/guava"), &[]);
    assert_eq!(response.status, 404);
    assert!(response.text().contains("--guava"), "{}", response.text());
}
