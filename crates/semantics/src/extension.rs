//! The media types that fit the extension of a path, against web cache deception.
//!
//! An attacker sends a victim to `/account/x.css`. An origin that ignores the end of the path answers with the victim's
//! account page, and a cache that stores paths such as `*.css` gives the page to the attacker. The media type shows the
//! attack: the page is HTML or JSON, and not CSS.

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
const EXTENSIONS: [(&[&str], Fitting); 6] = [
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
            "aac", "flac", "m4a", "m4v", "mkv", "mov", "mp3", "mp4", "oga", "ogg", "ogv", "opus",
            "wav", "webm",
        ],
        MEDIA,
    ),
    (&["eot", "otf", "ttf", "woff", "woff2"], FONT),
    (
        &[
            "7z", "apk", "bin", "bz2", "deb", "dmg", "doc", "docx", "exe", "gz", "iso", "jar",
            "msi", "pdf", "ppt", "pptx", "rar", "rpm", "tar", "tgz", "wasm", "whl", "xls", "xlsx",
            "xz", "zip", "zst",
        ],
        Fitting::Binary,
    ),
];

/// Returns the extension of `path` if the response's `Content-Type` contradicts it: `css` for `/account/x.css` and
/// `text/html`. `path` has no query. A response without the field, or with `application/octet-stream`, contradicts no
/// extension, and an extension of no static file is never contradicted.
pub fn contradicted_extension(path: &str, response: &HeaderMap) -> Option<&'static str> {
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
    match fitting {
        Fitting::Beginnings(beginnings) => beginnings
            .iter()
            .any(|beginning| media_type.starts_with(beginning.as_bytes())),
        Fitting::Ending(ending) => media_type.ends_with(ending.as_bytes()),
        Fitting::Binary => {
            !media_type.starts_with(b"text/")
                && !media_type.ends_with(b"json")
                && !media_type.ends_with(b"xml")
        }
    }
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
        ] {
            for page in ["text/html; charset=utf-8", "application/json", "Text/HTML"] {
                assert_eq!(contradicted(path, page), Some("css"), "{path} {page}");
            }
        }
        for extension in ["js", "png", "mp4", "woff2", "pdf", "zip"] {
            let path = format!("/a.{extension}");
            assert_eq!(contradicted(&path, "text/html"), Some(extension));
            assert_eq!(contradicted(&path, "application/json"), Some(extension));
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
            "/a.xml",
            "/v1.2/users",
            ".",
        ] {
            assert_eq!(contradicted(path, "text/html"), None, "{path}");
        }
    }
}
