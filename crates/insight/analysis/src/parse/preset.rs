//! The table of log formats that are known by name, each with its format string or with the names of its JSON fields.
//!
//! A new format is a new row. The names of variables in the format strings are those of `--fields`; `$_` is a value
//! that the analysis does not use.

use super::Format;
use super::fields::Field;
use super::json::FieldNames;
use super::template::Template;

/// A log format that is known by name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name on the command line and in reports.
    pub name: &'static str,
    /// The program or service that writes the format.
    pub writer: &'static str,
    form: Form,
}

#[derive(Clone, Copy, Debug)]
enum Form {
    /// A format string. No value outside of quotes has a quote in it.
    Line(&'static str),
    /// A format string whose values are padded with spaces.
    PaddedLine(&'static str),
    /// One JSON object per line, with these names of the fields.
    Json(&'static [(Field, &'static str)]),
}

/// All presets, in the order in which a log is compared with them.
pub const PRESETS: [Preset; 16] = [
    Preset {
        name: "haproxy",
        writer: "HAProxy with `option httplog` or `option httpslog`",
        // Captured fields may follow the queues.
        form: Form::Line("$_ [$time] $_ $_ $_ $status $bytes $_ $_ $_ $_ $_ \"$request\""),
    },
    Preset {
        name: "s3",
        writer: "Amazon S3 server access logs",
        form: Form::Line(
            "$_ $_ [$time] $_ $_ $_ $_ $_ \"$request\" $status $_ $bytes $_ $_ $_ \"$_\" \"$_\" $_",
        ),
    },
    Preset {
        name: "alb",
        writer: "AWS application load balancers",
        form: Form::Line("$_ $time $_ $_ $_ $_ $_ $_ $status $_ $_ $bytes \"$request\""),
    },
    Preset {
        name: "elb",
        writer: "AWS classic load balancers",
        form: Form::Line("$time $_ $_ $_ $_ $_ $_ $status $_ $_ $bytes \"$request\""),
    },
    Preset {
        name: "envoy",
        writer: "Envoy's default text",
        form: Form::Line(
            "[$time] \"$request\" $status $_ $_ $bytes $_ $_ \"$_\" \"$_\" \"$_\" \"$host\" \"$_\"",
        ),
    },
    Preset {
        name: "istio",
        writer: "Istio's default text",
        form: Form::Line(
            "[$time] \"$request\" $status $_ $_ $_ \"$_\" $_ $bytes $_ $_ \"$_\" \"$_\" \"$_\" \"$host\" \"$_\"",
        ),
    },
    Preset {
        name: "squid",
        writer: "Squid's native format",
        form: Form::PaddedLine("$time $_ $_ $cache/$status $bytes $method $url $_ $_/$_ $type"),
    },
    Preset {
        name: "cloudfront",
        writer: "CloudFront's standard logs without their `#Fields:` line",
        form: Form::Line(
            "$date\t$time\t$machine\t$bytes\t$_\t$method\t$_\t$path\t$status\t$_\t$_\t$query\t$_\t$cache\t$_\t$host\t$_",
        ),
    },
    Preset {
        name: "fastly",
        writer: "Fastly's default format",
        form: Form::Line("$_ \"$time\" $_ \"$request\" $_ $status $bytes"),
    },
    Preset {
        name: "bunny",
        writer: "bunny.net",
        form: Form::Line("$cache|$status|$time|$bytes|$_|$_|$_|$url|$machine|$_|$_|$_"),
    },
    Preset {
        name: "cloudflare",
        writer: "Cloudflare Logpush, data set `http_requests`",
        form: Form::Json(&[
            (Field::Time, "EdgeStartTimestamp EdgeEndTimestamp"),
            (Field::Method, "ClientRequestMethod"),
            (Field::Host, "ClientRequestHost"),
            (Field::Url, "ClientRequestURI"),
            (Field::Path, "ClientRequestPath"),
            (Field::Status, "EdgeResponseStatus"),
            (Field::Bytes, "EdgeResponseBodyBytes EdgeResponseBytes"),
            (Field::MediaType, "EdgeResponseContentType"),
            (Field::Outcome, "CacheCacheStatus"),
            (Field::Machine, "EdgeColoCode"),
        ]),
    },
    Preset {
        name: "gcp",
        writer: "Google Cloud's application load balancers",
        form: Form::Json(&[
            (Field::Time, "timestamp"),
            (Field::Method, "httpRequest.requestMethod"),
            (Field::Url, "httpRequest.requestUrl"),
            (Field::Status, "httpRequest.status"),
            (Field::Bytes, "httpRequest.responseSize"),
            // A request that did not reach the cache has neither of these fields.
            (
                Field::Outcome,
                "httpRequest.cacheHit=hit httpRequest.cacheLookup=miss",
            ),
        ]),
    },
    Preset {
        name: "akamai",
        writer: "Akamai DataStream 2",
        form: Form::Json(&[
            (Field::Time, "reqTimeSec"),
            (Field::Method, "reqMethod"),
            (Field::Host, "reqHost"),
            (Field::Path, "reqPath"),
            (Field::Query, "queryStr"),
            (Field::Status, "statusCode"),
            (Field::Bytes, "bytes objSize totalBytes"),
            (Field::MediaType, "rspContentType"),
            (Field::Outcome, "cacheStatus"),
            (Field::Machine, "edgeIP"),
        ]),
    },
    Preset {
        name: "traefik",
        writer: "Traefik in JSON",
        form: Form::Json(&[
            (Field::Time, "StartUTC StartLocal time"),
            (Field::Method, "RequestMethod"),
            (Field::Host, "RequestHost RequestAddr"),
            (Field::Url, "RequestPath"),
            (Field::Status, "DownstreamStatus"),
            (Field::Bytes, "DownstreamContentSize"),
            (Field::MediaType, "downstream_Content-Type"),
            (Field::Outcome, "downstream_Cache-Status downstream_X-Cache"),
        ]),
    },
    Preset {
        name: "ecs",
        writer: "Elastic Common Schema",
        form: Form::Json(&[
            (Field::Time, "@timestamp"),
            (Field::Method, "http.request.method"),
            (Field::Host, "url.domain"),
            (Field::Url, "url.original url.full"),
            (Field::Path, "url.path"),
            (Field::Query, "url.query"),
            (Field::Status, "http.response.status_code"),
            (Field::Bytes, "http.response.body.bytes http.response.bytes"),
            (Field::MediaType, "http.response.mime_type"),
            (Field::Machine, "host.name host.hostname"),
        ]),
    },
    Preset {
        name: "front-door",
        writer: "Azure Front Door",
        form: Form::Json(&[
            (Field::Time, "time"),
            (Field::Method, "properties.httpMethod"),
            (Field::Url, "properties.requestUri"),
            (Field::Status, "properties.httpStatusCode"),
            (Field::Bytes, "properties.responseBytes"),
            (Field::Outcome, "properties.cacheStatus"),
            (Field::Machine, "properties.pop"),
        ]),
    },
];

/// Returns the format of a preset, or `None` if no preset has this name. Letter case has no effect. The names of other
/// programs for some of the formats are accepted, too. `custom` has JSON names that take precedence over those of the
/// preset.
pub fn preset(name: &str, custom: &[(Field, String)]) -> Option<Format> {
    let name = name.to_ascii_lowercase();
    let name = ALIASES
        .iter()
        .find(|(alias, _)| *alias == name)
        .map_or(&name[..], |(_, name)| name);
    match name {
        "ncsa" => Some(Format::Ncsa),
        "w3c" => Some(Format::W3c),
        "json" => Some(Format::Json(FieldNames::with_custom(
            custom.iter().cloned(),
        ))),
        _ => {
            let preset = PRESETS.iter().find(|preset| preset.name == name)?;
            Some(preset.format(custom))
        }
    }
}

impl Preset {
    /// Returns true if the fields are found by their names in JSON objects.
    pub const fn is_json(&self) -> bool {
        matches!(self.form, Form::Json(_))
    }

    /// Returns the format. `custom` has JSON names that take precedence over those of the preset.
    pub(super) fn format(&self, custom: &[(Field, String)]) -> Format {
        let line = |text, padded| {
            let template = Template::compile(text).expect("a test compiles every preset");
            Format::Template(template.into_strict(padded))
        };
        let format = match self.form {
            Form::Line(text) => line(text, false),
            Form::PaddedLine(text) => line(text, true),
            Form::Json(table) => {
                Format::Json(FieldNames::of_table(table).preceded_by(FieldNames::only(custom)))
            }
        };
        Format::Preset {
            name: self.name,
            format: Box::new(format),
        }
    }
}

/// Names of GoAccess and of other programs for the same formats.
const ALIASES: [(&str, &str); 13] = [
    ("common", "ncsa"),
    ("combined", "ncsa"),
    ("vcommon", "ncsa"),
    ("vcombined", "ncsa"),
    ("traefikclf", "ncsa"),
    ("caddy", "json"),
    ("awss3", "s3"),
    ("awsalb", "alb"),
    ("awselb", "elb"),
    ("httplog", "haproxy"),
    ("akamai-ds2", "akamai"),
    ("azure", "front-door"),
    ("frontdoor", "front-door"),
];

#[cfg(test)]
mod tests {
    use crate::{Outcome, Parser, detect_format};

    use super::*;

    /// A format, a line, and the URL with its host, the status, the bytes and the outcome of the line.
    type LineCase = (
        &'static str,
        &'static str,
        &'static str,
        u16,
        Option<u64>,
        Option<Outcome>,
    );

    /// One line or more of each format.
    const LINES: [LineCase; 21] = [
        (
            "haproxy",
            r#"Feb  6 12:14:14 lb1 haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] fe be/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {example.org} {} "GET /a?b HTTP/1.1""#,
            "/a?b",
            200,
            Some(2750),
            None,
        ),
        (
            "haproxy",
            r#"10.0.1.2:33317 [06/Feb/2009:12:14:14.655] fe~ be/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 "GET /a b HTTP/2.0" 0/0000000000000000/0/0/0 example.org/TLSv1.3/TLS_AES_256_GCM_SHA384"#,
            "/a b",
            200,
            Some(2750),
            None,
        ),
        (
            "s3",
            r#"79a5 media [06/Feb/2019:00:00:38 +0000] 192.0.2.3 79a5 3E57427F3 REST.GET.OBJECT a/b.png "GET /a/b.png HTTP/1.1" 404 NoSuchKey 297 - 38 - "-" "curl/8 x" - s9lzHYrFp SigV4 ECDHE AuthHeader media.s3.amazonaws.com TLSV1.2 - -"#,
            "/a/b.png",
            404,
            Some(297),
            None,
        ),
        (
            "alb",
            r#"https 2018-07-02T22:23:00.186641Z app/lb/50dc 192.0.2.1:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://a.example:443/x?y=1 HTTP/1.1" "curl/7.46" ECDHE TLSv1.2 arn "Root=1" "a.example" "arn" 1 2018-07-02T22:22:48.364000Z "forward" "-" "-" "10.0.0.1:80" "200" "-" "-""#,
            "a.example:443/x?y=1",
            200,
            Some(57),
            None,
        ),
        (
            "elb",
            r#"2015-05-13T23:39:43.945958Z lb 192.0.2.1:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 29 "GET http://a.example:80/x HTTP/1.1" "curl/7.38.0" - -"#,
            "a.example:80/x",
            200,
            Some(29),
            None,
        ),
        (
            "envoy",
            r#"[2016-04-15T20:17:00.310Z] "GET /a HTTP/2" 204 - 154 17 226 100 "10.0.35.28" "agent x" "cc21d9b0" "a.example" "tcp://10.0.2.1:80""#,
            "a.example/a",
            204,
            Some(17),
            None,
        ),
        (
            "istio",
            r#"[2020-11-25T21:26:18.409Z] "GET /a HTTP/1.1" 200 - via_upstream - "-" 0 135 4 4 "-" "curl/7.73" "84961386" "a.example:8000" "10.44.1.27:80" outbound - -"#,
            "a.example:8000/a",
            200,
            Some(135),
            None,
        ),
        (
            "squid",
            "1505241510.370      7 192.0.2.10 TCP_MISS_ABORTED/000 2904 GET http://a.example/f - HIER_DIRECT/198.51.100.9 text/html",
            "a.example/f",
            0,
            Some(2904),
            Some(Outcome::Miss),
        ),
        (
            "cloudfront",
            "2019-12-04\t21:02:31\tLAX1\t392\t192.0.2.100\tGET\td111.cloudfront.net\t/index.html\t200\t-\tMozilla\ta=b\t-\tHit\tSOX4==\twww.example.org\thttps\t23\t0.001",
            "www.example.org/index.html?a=b",
            200,
            Some(392),
            Some(Outcome::Hit),
        ),
        (
            "fastly",
            r#"192.0.2.10 "Wed, 03 Jan 2024 10:39:10 GMT" - "GET /p" HTTP/1.1 200 1010"#,
            "/p",
            200,
            Some(1010),
            None,
        ),
        (
            "bunny",
            "HIT|200|1507167062421|412|390|192.0.2.1|-|https://a.example/x.jpg|WA|Mozilla/5.0 (X11)|322b6889|US",
            "a.example/x.jpg",
            200,
            Some(412),
            Some(Outcome::Hit),
        ),
        (
            "cloudflare",
            r#"{"ClientRequestHost":"a.example","ClientRequestMethod":"GET","ClientRequestURI":"/x?y","EdgeResponseBytes":12,"EdgeResponseStatus":200,"EdgeStartTimestamp":1704278310000000000,"CacheCacheStatus":"dynamic"}"#,
            "a.example/x?y",
            200,
            Some(12),
            Some(Outcome::Pass),
        ),
        (
            "gcp",
            r#"{"httpRequest":{"cacheLookup":true,"requestMethod":"GET","requestUrl":"http://a.example/x","responseSize":"12","status":200},"timestamp":"2024-01-03T10:39:10.123456Z"}"#,
            "a.example/x",
            200,
            Some(12),
            Some(Outcome::Miss),
        ),
        (
            "gcp",
            r#"{"httpRequest":{"cacheLookup":true,"cacheHit":true,"requestMethod":"GET","requestUrl":"http://a.example/x","status":200},"timestamp":"2024-01-03T10:39:10.123456Z"}"#,
            "a.example/x",
            200,
            None,
            Some(Outcome::Hit),
        ),
        (
            "gcp",
            r#"{"httpRequest":{"cacheHit":false,"requestMethod":"GET","requestUrl":"http://a.example/x","status":200},"timestamp":"2024-01-03T10:39:10.123456Z"}"#,
            "a.example/x",
            200,
            None,
            None,
        ),
        (
            "akamai",
            r#"{"version":1,"cp":"7","reqTimeSec":"1704278310.123","bytes":"12","statusCode":"206","reqHost":"a.example","reqMethod":"GET","reqPath":"x/y.mp4","queryStr":"z=1","cacheStatus":"1"}"#,
            "a.example/x/y.mp4?z=1",
            206,
            Some(12),
            Some(Outcome::Hit),
        ),
        (
            "traefik",
            r#"{"ClientHost":"192.0.2.1","DownstreamContentSize":12,"DownstreamStatus":200,"RequestHost":"a.example","RequestMethod":"GET","RequestPath":"/x?y=1","StartUTC":"2024-01-03T10:39:10.123456789Z","time":"2024-01-03T10:39:11Z"}"#,
            "a.example/x?y=1",
            200,
            Some(12),
            None,
        ),
        (
            "ecs",
            r#"{"@timestamp":"2024-01-03T10:39:10.000Z","http":{"request":{"method":"GET"},"response":{"status_code":200,"body":{"bytes":12}}},"url":{"path":"/x","query":"y=1","domain":"a.example"}}"#,
            "a.example/x?y=1",
            200,
            Some(12),
            None,
        ),
        (
            "front-door",
            r#"{"time":"2024-01-03T10:39:10.000Z","category":"FrontDoorAccessLog","properties":{"httpMethod":"GET","httpStatusCode":"200","responseBytes":"12","requestUri":"https://a.example:443/x?y=1","cacheStatus":"PRIVATE_NOSTORE","pop":"FRA"}}"#,
            "a.example:443/x?y=1",
            200,
            Some(12),
            Some(Outcome::Pass),
        ),
        (
            "docker",
            r#"{"log":"192.0.2.1 - - [03/Jan/2024:10:39:01 +0000] \"GET /x?y\u0026z HTTP/1.1\" 200 12 \"-\" \"a\"\n","stream":"stdout","time":"2024-01-03T10:39:01.5Z"}"#,
            "/x?y&z",
            200,
            Some(12),
            None,
        ),
        (
            "ncsa",
            r#"192.0.2.1 - - [03/Jan/2024:10:39:01.123 +0000] "GET /x HTTP/1.1" 200 12 "-" "a b""#,
            "/x",
            200,
            Some(12),
            None,
        ),
    ];

    /// Method: for each line of the table, detect its format in a log with this line alone, and parse the line. Then
    /// select the format by name.
    #[test]
    fn every_preset_is_detected_and_parses_its_lines() {
        for (name, line, url, status, bytes, outcome) in LINES {
            let format = detect_format(line.as_bytes(), &FieldNames::default()).expect(line);
            assert_eq!(format.name(), name, "{line}");
            let by_name = preset(name, &[]);
            for format in std::iter::once(format).chain(by_name) {
                let mut parser = Parser::new(&format);
                let entry = parser.parse(line.as_bytes()).expect(line).expect(line);
                let found = [entry.host, entry.url].concat();
                assert_eq!(String::from_utf8_lossy(&found), url, "{line}");
                assert!(matches!(entry.method, b"GET" | b""), "{line}");
                assert_eq!(
                    (entry.status, entry.bytes, entry.outcome),
                    (status, bytes, outcome),
                    "{line}"
                );
                assert!(
                    entry
                        .time
                        .is_some_and(|time| time.as_secs() > 1_000_000_000),
                    "{line}"
                );
            }
        }
        for Preset { name, .. } in PRESETS {
            assert!(
                LINES.iter().any(|(other, ..)| *other == name),
                "{name} has no line"
            );
        }
    }

    #[test]
    fn names_of_other_programs_are_accepted() {
        for (alias, name) in ALIASES {
            assert!(PRESETS.iter().all(|preset| preset.name != alias), "{alias}");
            let format = preset(&alias.to_ascii_uppercase(), &[]).expect(alias);
            assert_eq!(format.name(), name);
        }
        assert_eq!(preset("parquet", &[]), None);
    }
}
