//! The media types that fit the extension of a path, against web cache deception.
//!
//! An attacker sends a victim to `/account/x.css`. An origin that ignores the end of the path answers with the victim's
//! account page, and a cache that stores paths such as `*.css` gives the page to the attacker. The media type shows the
//! attack: the page is HTML or JSON, and not CSS.

use std::borrow::Cow;

use http::header::HeaderMap;

use crate::media_type::media_type;

/// The media types that fit a group of extensions.
#[derive(Clone, Copy)]
enum Fitting {
    /// Types that begin with one of these strings.
    Beginnings(&'static [&'static str]),
    /// Types that end with this string, such as `text/javascript` and `application/x-javascript`.
    Ending(&'static str),
    /// All types but texts, JSON and XML.
    Binary,
    /// Texts that are neither HTML nor JSON nor XML.
    Text,
    /// JSON, or a text that is no HTML: many servers send `text/plain` for JSON.
    Json,
    /// XML, or a text that is no HTML. XHTML is HTML.
    Xml,
}

const IMAGE: Fitting = Fitting::Beginnings(&["image/"]);
const MEDIA: Fitting = Fitting::Beginnings(&["audio/", "video/", "application/ogg"]);
const FONT: Fitting = Fitting::Beginnings(&[
    "font/",
    "application/font",
    "application/x-font",
    "application/vnd.ms-fontobject",
]);

/// The extensions of static files, in lower case, and the types that fit.
const EXTENSIONS: [(&[&str], Fitting); 9] = [
    (&["css"], Fitting::Beginnings(&["text/css"])),
    (&["js", "mjs"], Fitting::Ending("javascript")),
    (
        &[
            "avif", "bmp", "gif", "heic", "ico", "jpeg", "jpg", "jxl", "png", "svg", "tif", "tiff",
            "webp",
        ],
        IMAGE,
    ),
    (
        &[
            "aac", "avi", "flac", "flv", "m4a", "m4v", "mkv", "mov", "mp3", "mp4", "mpeg", "mpg",
            "oga", "ogg", "ogv", "opus", "wav", "webm", "wmv",
        ],
        MEDIA,
    ),
    (&["eot", "otf", "ttf", "woff", "woff2"], FONT),
    (
        &[
            "7z", "apk", "bin", "bz2", "class", "deb", "dll", "dmg", "doc", "docx", "eps", "exe",
            "gz", "ipa", "iso", "jar", "msi", "msix", "odp", "ods", "odt", "pdf", "ppt", "pptx",
            "psd", "rar", "rpm", "swf", "tar", "tgz", "war", "wasm", "whl", "xls", "xlsx", "xz",
            "zip", "zst",
        ],
        Fitting::Binary,
    ),
    (
        &[
            "cfg", "conf", "csv", "ics", "ini", "less", "log", "m3u", "m3u8", "rtf", "sass",
            "scss", "srt", "toml", "tsv", "txt", "vcf", "vtt", "yaml", "yml",
        ],
        Fitting::Text,
    ),
    (
        &[
            "geojson",
            "json",
            "json5",
            "jsonld",
            "map",
            "ndjson",
            "topojson",
            "webapp",
            "webmanifest",
        ],
        Fitting::Json,
    ),
    (
        &[
            "atom", "dtd", "gpx", "kml", "mpd", "plist", "rdf", "rss", "wsdl", "xml", "xsd", "xsl",
            "xslt",
        ],
        Fitting::Xml,
    ),
];

/// Returns the extension of `path` if the response's `Content-Type` contradicts it: `css` for `/account/x.css` and
/// `text/html`. `path` has no query. A response without the field, or with `application/octet-stream`, contradicts no
/// extension, and an extension of no static file is never contradicted.
///
/// The extension is that of the decoded path, because the globs of rules compare the decoded path, too: `x%2ecss` has
/// the extension `css`.
pub fn contradicted_extension(path: &str, response: &HeaderMap) -> Option<&'static str> {
    let path = decoded(path);
    let (_, extension) = path.rsplit_once('.')?;
    let (extension, fitting) = EXTENSIONS.iter().find_map(|(extensions, fitting)| {
        let mut known = extensions.iter();
        let known = known.find(|known| known.eq_ignore_ascii_case(extension))?;
        Some((*known, *fitting))
    })?;
    let media_type = media_type(response)?.to_ascii_lowercase();
    (!fits(fitting, &media_type)).then_some(extension)
}

fn fits(fitting: Fitting, media_type: &[u8]) -> bool {
    if media_type == b"application/octet-stream" {
        return true;
    }
    let is_text = media_type.starts_with(b"text/");
    let is_html = media_type == b"text/html" || media_type.starts_with(b"application/xhtml");
    let is_json = media_type.ends_with(b"json");
    let is_xml = media_type.ends_with(b"xml");
    match fitting {
        Fitting::Beginnings(beginnings) => beginnings
            .iter()
            .any(|beginning| media_type.starts_with(beginning.as_bytes())),
        Fitting::Ending(ending) => media_type.ends_with(ending.as_bytes()),
        Fitting::Binary => !is_text && !is_json && !is_xml,
        Fitting::Text => !is_html && !is_json && !is_xml,
        Fitting::Json => is_json || is_text && !is_html || media_type.ends_with(b"javascript"),
        Fitting::Xml => (is_xml || is_text) && !is_html,
    }
}

/// Returns the path with percent-encoding decoded. Bytes that are not UTF-8 become U+FFFD.
fn decoded(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let digits = (digit(after.first()), digit(after.get(1)));
        decoded.push(match (byte, digits) {
            (b'%', (Some(high), Some(low))) => {
                rest = &after[2..];
                u8::try_from(high * 16 + low).expect("two hexadecimal digits")
            }
            _ => byte,
        });
    }
    Cow::Owned(String::from_utf8_lossy(&decoded).into_owned())
}

#[cfg(test)]
mod tests {
    use http::header::{CONTENT_TYPE, HeaderValue};

    use super::*;

    fn contradicted(path: &str, content_type: &str) -> Option<&'static str> {
        let mut head = HeaderMap::new();
        if !content_type.is_empty() {
            let value = HeaderValue::from_str(content_type).expect("a value");
            head.insert(CONTENT_TYPE, value);
        }
        contradicted_extension(path, &head)
    }

    #[test]
    fn a_page_contradicts_the_extension_of_a_static_file() {
        for path in [
            "/account/x.css",
            "/account/X.CSS",
            "/account;x.css",
            "/account%2Fx.css",
            "/account/.css",
            "/account/x%2ecss",
            "/account/x%2E%63ss",
            "/account/x.cs%73",
        ] {
            for page in ["text/html; charset=utf-8", "application/json", "Text/HTML"] {
                assert_eq!(contradicted(path, page), Some("css"), "{path} {page}");
            }
        }
        for extension in [
            "js",
            "png",
            "mp4",
            "woff2",
            "pdf",
            "zip",
            "txt",
            "json",
            "xml",
            "csv",
            "map",
            "webmanifest",
            "rss",
        ] {
            let path = format!("/a.{extension}");
            assert_eq!(contradicted(&path, "text/html"), Some(extension));
            assert_eq!(
                contradicted(&path, "application/xhtml+xml"),
                Some(extension)
            );
            let fits = ["json", "map", "webmanifest"].contains(&extension);
            let of_json = contradicted(&path, "application/json");
            assert_eq!(of_json, (!fits).then_some(extension));
        }
    }

    #[test]
    fn the_types_that_origins_send_for_static_files_fit() {
        for (path, content_type) in [
            ("/a.css", "text/css; charset=utf-8"),
            ("/a.js", "application/javascript"),
            ("/a.js", "text/javascript;charset=UTF-8"),
            ("/a.mjs", "application/x-javascript"),
            ("/a.png", "image/webp"),
            ("/a.svg", "image/svg+xml"),
            ("/a.ico", "image/vnd.microsoft.icon"),
            ("/a.mp4", "video/mp4"),
            ("/a.ogg", "application/ogg"),
            ("/a.ttf", "application/x-font-ttf"),
            ("/a.woff", "application/font-woff"),
            ("/a.pdf", "application/pdf"),
            ("/a.tgz", "application/gzip"),
            ("/a.txt", "text/plain; charset=utf-8"),
            ("/a.csv", "text/csv"),
            ("/a.csv", "application/csv"),
            ("/a.json", "application/problem+json"),
            ("/a.json", "text/plain"),
            ("/a.map", "application/json"),
            ("/a.webmanifest", "application/manifest+json"),
            ("/a.xml", "application/rss+xml"),
            ("/a.xml", "text/xml"),
            ("/sitemap.xml", "text/plain"),
            ("/a.yaml", "application/x-yaml"),
            ("/a.docx", "application/vnd.openxmlformats-officedocument"),
        ] {
            assert_eq!(contradicted(path, content_type), None, "{path}");
            assert_eq!(contradicted(path, "application/octet-stream"), None);
            assert_eq!(contradicted(path, ""), None);
        }
    }

    #[test]
    fn other_paths_contradict_no_type() {
        for path in [
            "/",
            "/css",
            "/a.css/",
            "/a.html",
            "/a.php",
            "/a%2ecss/",
            "/v1.2/users",
            ".",
        ] {
            assert_eq!(contradicted(path, "text/html"), None, "{path}");
        }
    }
}
