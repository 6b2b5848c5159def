//! The example `packaging/examples/many-sites.toml`: one edge with 50 hosts and 3 origins, as written but for its
//! addresses, with requests to each of its sites.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use edgeward_testkit::s3::{AccessKey, Bucket, ReceivedRequest};
use edgeward_testkit::{Answer, RecordedRequest, ScriptedOrigin};

use super::run::{Server, send_request};

const EXAMPLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../packaging/examples/many-sites.toml"
);

/// An edge with the example's configuration, and its origins.
struct ManySites {
    web: ScriptedOrigin,
    video: ScriptedOrigin,
    bucket: ScriptedOrigin,
    edge: Server,
}

/// A response.
struct Response {
    status: u16,
    head: String,
    body: String,
}

impl Response {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(": ")?;
            known.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    fn is_hit(&self) -> bool {
        let status = self.header("cache-status");
        status.is_some_and(|status| status.starts_with("edgeward; hit"))
    }
}

impl ManySites {
    fn start(folder: &Path) -> Self {
        let key = AccessKey {
            id: "AKIAEXAMPLE".to_owned(),
            secret: "example/secret".to_owned(),
            token: None,
        };
        let credentials = format!(
            "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n",
            key.id, key.secret
        );
        std::fs::write(folder.join("media.credentials"), credentials).expect("written");
        let verifier = Arc::new(Bucket::new("eu-central-1", key));
        let [web, video, bucket] = [(); 3].map(|()| ScriptedOrigin::start());
        web.otherwise(web_answer);
        video.otherwise(video_answer);
        bucket.otherwise(move |request| bucket_answer(&verifier, request));
        let mut config = std::fs::read_to_string(EXAMPLE).expect("the example exists");
        for (written, used) in [
            ("0.0.0.0:80", "127.0.0.1:0".to_owned()),
            ("127.0.0.1:9101", "127.0.0.1:0".to_owned()),
            ("http://10.0.0.7:9000", web.url("")),
            ("http://10.0.0.8:9000", video.url("")),
            (
                "https://media.s3.eu-central-1.amazonaws.com",
                bucket.url(""),
            ),
        ] {
            assert_eq!(config.matches(written).count(), 1, "{written}");
            config = config.replace(written, &used);
        }
        std::fs::write(folder.join("edge.toml"), config).expect("written");
        let path = folder.join("edge.toml").display().to_string();
        let edge = Server::start(&["serve", "--json", "--config", &path]);
        Self {
            web,
            video,
            bucket,
            edge,
        }
    }

    fn addr(&self) -> SocketAddr {
        self.edge.addr("/listening/0")
    }

    fn send(&self, method: &str, host: &str, target: &str, fields: &str) -> Response {
        let request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n"
        );
        let response = send_request(self.addr(), &request);
        let (head, body) = response.split_once("\r\n\r\n").expect("a head");
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Response {
            status: status.expect("a status"),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    fn get(&self, host: &str, target: &str) -> Response {
        self.send("GET", host, target, "")
    }

    /// Sends the same GET twice, and returns the second response, which must be a hit.
    fn hit(&self, host: &str, target: &str) -> Response {
        let first = self.get(host, target);
        assert_eq!(first.status, 200, "{host}{target}: {}", first.head);
        let second = self.get(host, target);
        assert!(second.is_hit(), "{host}{target}: {}", second.head);
        assert_eq!(first.body, second.body);
        second
    }
}

/// The origin of static sites and blogs: each response is the target, and sets a cookie.
fn web_answer(request: &RecordedRequest) -> Answer {
    let user = request.header("cookie").unwrap_or("no cookie").to_owned();
    let path = request.target().split('?').next().unwrap_or_default();
    let media_type = match path.rsplit('.').next() {
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        Some("png") => "image/png",
        _ => "text/html",
    };
    Answer::ok(format!("{} {user}", request.target()))
        .header("content-type", media_type)
        .header("set-cookie", "visit=1")
}

/// The packager: playlists and segments without `Cache-Control`.
fn video_answer(request: &RecordedRequest) -> Answer {
    Answer::ok(request.target().to_owned()).header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT")
}

/// The bucket: it refuses invalid signatures, and has all objects but those below `/get/absent`.
fn bucket_answer(verifier: &Bucket, request: &RecordedRequest) -> Answer {
    let fields = request.headers().iter();
    let fields: Vec<_> = fields
        .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
        .collect();
    let received = ReceivedRequest {
        method: request.method(),
        target: request.target(),
        fields: &fields,
        body: request.body(),
    };
    match verifier.verify(&received, SystemTime::now()) {
        Err(code) => Answer::ok(code).with_status(403),
        Ok(()) if request.target().contains("absent") => Answer::ok("NoSuchKey").with_status(404),
        Ok(()) => Answer::ok(request.target().to_owned())
            .header("x-amz-request-id", "1")
            .header("etag", "\"e\""),
    }
}

/// Method: each site gets the requests of its recipe, and each of the 50 hosts a request for its page.
#[test]
fn the_example_with_many_sites_does_what_its_comments_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let sites = ManySites::start(folder.path());

    // Static sites. The origin's cookie is refused by default, so a response that sets one is not stored.
    let page = sites.get("alder.example", "/about?utm_source=x");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    let sent = sites.web.last("/about").expect("a request");
    assert_eq!((sent.target(), sent.header("cookie")), ("/about", None));
    let redirect = sites.get("www.alder.example", "/a?b");
    assert_eq!(redirect.status, 301);
    assert_eq!(
        redirect.header("location"),
        Some("https://alder.example/a?b")
    );

    // Blogs: pages are shared without their cookie, and users with a login get their own.
    let blog = "blog.alder.example";
    let page = sites.hit(blog, "/post?utm_source=a&b=2&a=1");
    assert_eq!(page.header("set-cookie"), None);
    assert_eq!(page.body, "/post?a=1&b=2 no cookie");
    let login = "Cookie: wordpress_logged_in_1=me\r\n";
    for _ in 0..2 {
        let own = sites.send("GET", blog, "/post?a=1&b=2", login);
        assert!(
            own.body.contains("wordpress_logged_in_1=me"),
            "{}",
            own.body
        );
        assert_eq!(own.header("set-cookie"), Some("visit=1"));
    }
    assert!(
        sites
            .hit(blog, "/wp-content/a.css?ver=1")
            .header("age")
            .is_some()
    );
    assert_eq!(sites.get(blog, "/wp-admin/users.php").status, 403);
    let post = || {
        sites
            .send("POST", blog, "/wp-login.php", "Content-Length: 0\r\n")
            .status
    };
    let posts: Vec<u16> = (0..8).map(|_| post()).collect();
    assert!(posts[..5].iter().all(|status| *status == 200), "{posts:?}");
    assert!(posts.contains(&429), "{posts:?}");

    // Videos: segments are stored, ranges are answered, and a player's session does not matter.
    let segment = sites.hit("video.alder.example", "/film/1.m4s?session=1");
    assert_eq!(segment.header("access-control-allow-origin"), Some("*"));
    assert!(
        sites
            .get("video.alder.example", "/film/1.m4s?session=2")
            .is_hit()
    );
    let range = sites.send(
        "GET",
        "video.alder.example",
        "/film/1.m4s",
        "Range: bytes=1-4\r\n",
    );
    assert_eq!((range.status, &*range.body), (206, "film"));
    let vod = sites.hit("video.alder.example", "/film/index.m3u8");
    let live = sites.hit("live.alder.example", "/live/index.m3u8");
    let ttl = |response: &Response| -> i64 {
        let status = response.header("cache-status").expect("a hit");
        let ttl = status
            .split("; ")
            .find_map(|part| part.strip_prefix("ttl="));
        ttl.and_then(|ttl| ttl.parse().ok()).expect("a ttl")
    };
    assert!(
        ttl(&vod) > 3000 && ttl(&live) <= 1,
        "{} {}",
        ttl(&vod),
        ttl(&live)
    );

    // Media of Mastodon: only media, signed, with the fields that protect the host.
    let media = sites.hit("files.alder.example", "/media_attachments/files/a+b@2x.png");
    assert_eq!(media.body, "/media/media_attachments/files/a%2Bb%402x.png");
    assert_eq!(
        media.header("content-security-policy"),
        Some("default-src 'none'; form-action 'none'")
    );
    assert_eq!(media.header("x-amz-request-id"), None);
    let total = sites.bucket.requests_total();
    for target in ["/", "/backup.sql", "/get/index.html"] {
        assert_eq!(
            sites.get("files.alder.example", target).status,
            404,
            "{target}"
        );
    }
    let upload = sites.send(
        "PUT",
        "files.alder.example",
        "/accounts/x",
        "Content-Length: 0\r\n",
    );
    assert_eq!(upload.status, 405);
    assert_eq!(sites.bucket.requests_total(), total);

    // Downloads: folders have a page, and only versions select another object.
    let page = sites.hit("get.alder.example", "/tools/?acl");
    assert_eq!(page.body, "/media/get/tools/index.html");
    let object = sites.hit("get.alder.example", "/tools/a.tar.gz?versionId=7&acl");
    assert_eq!(object.body, "/media/get/tools/a.tar.gz?versionId=7");
    assert_eq!(sites.get("get.alder.example", "/absent").status, 404);
    assert!(sites.get("get.alder.example", "/absent").is_hit());

    // All hosts belong to a site, and no other host does.
    let example = std::fs::read_to_string(EXAMPLE).expect("the example exists");
    let quoted = example.split('"').skip(1).step_by(2);
    let hosts: Vec<&str> = quoted
        .filter(|text| text.ends_with(".example") && !text.contains(['/', ' ']))
        .collect();
    assert_eq!(hosts.len(), 50, "{hosts:?}");
    let mut statuses = BTreeMap::new();
    for host in hosts {
        *statuses.entry(sites.get(host, "/").status).or_insert(0) += 1;
    }
    // The media have no page.
    assert_eq!(statuses, BTreeMap::from([(200, 36), (301, 8), (404, 6)]));
    assert_eq!(sites.get("other.example", "/").status, 421);
    assert!(sites.video.requests_total() > 0);
}
