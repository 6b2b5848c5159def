//! The parts of a URL: patterns of rules for its path, names of query parameters and the meaning of their values.

/// Returns the pattern of the paths that a rule for this path is for: all files with an extension, all paths below the
/// first folder, or the path itself. `None` if it has bytes that a pattern cannot have.
pub(super) fn pattern_of(path: &str) -> Option<String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    if let Some(extension) = extension.filter(|it| STATIC_EXTENSIONS.contains(it)) {
        return Some(format!("*.{extension}"));
    }
    folder_pattern_of(path).or_else(|| {
        let is_name = path.get(1..).is_some_and(|name| !name.contains('/'));
        (is_name && is_plain_path(path)).then(|| path.to_owned())
    })
}

/// Returns the pattern of all paths below the first folder of this path.
pub(super) fn folder_pattern_of(path: &str) -> Option<String> {
    let (folder, _) = path.get(1..)?.split_once('/')?;
    let start = format!("/{folder}/");
    is_plain_path(&start).then(|| start + "*")
}

/// Returns true if a path needs no encoding and no escape in a rule, and all origins read it in the same way.
fn is_plain_path(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/_-.~".contains(&byte);
    path.starts_with('/')
        && path.len() <= PATH_BYTES_MAX
        && path.bytes().all(is_plain)
        && !path.contains("//")
        && !path.contains("/.")
}

/// Returns true for a path with the extension of a static file, if the media type does not contradict it.
pub(super) fn is_static(path: &str, content_type: &str) -> bool {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    let is_page = ["text/html", "application/json", "application/xhtml"]
        .iter()
        .any(|page| content_type.starts_with(page));
    STATIC_EXTENSIONS.contains(&extension) && !is_page
}

/// A query parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter<'a> {
    pub(super) name: &'a str,
    value: &'a str,
    /// Name and value, as sent.
    text: &'a str,
}

/// Returns the parameters of a query.
pub(super) fn parameters(query: &str) -> Vec<Parameter<'_>> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    let parameters = parts.map(|text| {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        Parameter { name, value, text }
    });
    parameters.collect()
}

/// Returns the patterns of parameters that a rule can have, each once.
pub(super) fn subjects<'a>(parameters: &[Parameter<'a>]) -> impl Iterator<Item = &'a str> {
    let names = parameters.iter().map(|it| it.name);
    let mut subjects: Vec<&str> = names.filter(|name| is_name(name)).map(subject_of).collect();
    subjects.sort_unstable();
    subjects.dedup();
    subjects.into_iter()
}

/// Returns the query of parameters in the order of their names, as `query.sort` makes it: parameters with one name keep
/// their order.
pub(super) fn sorted_text<'p>(parameters: impl Iterator<Item = &'p Parameter<'p>>) -> String {
    let mut sorted: Vec<&Parameter<'_>> = parameters.collect();
    sorted.sort_by_key(|parameter| parameter.name);
    let texts: Vec<&str> = sorted.iter().map(|parameter| parameter.text).collect();
    texts.join("&")
}

/// Returns true if a parameter often has no effect on the body. Other parameters are compared without it.
pub(super) fn is_noise(parameter: &Parameter<'_>) -> bool {
    is_tracking(parameter.name) || is_buster(parameter)
}

/// Returns true for the name, or the pattern, of a parameter that only analysis in browsers reads.
pub(super) fn is_tracking(name: &str) -> bool {
    name.starts_with("utm_") || TRACKING.contains(&name)
}

/// Returns true for the name of a parameter that may give access, such as the signature of a URL.
pub(super) fn gives_access(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ACCESS.iter().any(|part| name.contains(part))
}

/// Returns true if a parameter looks as if its value were new in each request.
pub(super) fn is_buster(parameter: &Parameter<'_>) -> bool {
    let value = parameter.value;
    let is_number = value.len() >= 9
        && value
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let is_random = value.len() >= 16
        && value
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_number || is_random || BUSTERS.contains(&parameter.name)
}

/// Returns the pattern of a parameter in rules.
pub(super) fn subject_of(name: &str) -> &str {
    if name.starts_with("utm_") {
        "utm_*"
    } else {
        name
    }
}

/// Returns true if a rule can have the name of this parameter without an escape.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Returns true for a host without a port that a rule can have.
pub(super) fn is_host(host: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    host.contains('.')
        && host.bytes().all(is_plain)
        && host.bytes().any(|byte| byte.is_ascii_lowercase())
}

/// Parts of the names of parameters that give access. `experiment` and `postcode` count, too: a finding that is missed
/// costs less than a rule that serves a body without its key.
const ACCESS: [&str; 25] = [
    "acl",
    "auth",
    "code",
    "credential",
    "exp",
    "hash",
    "hdnea",
    "hdnts",
    "hmac",
    "jwt",
    "key",
    "md5",
    "nonce",
    "otp",
    "pass",
    "policy",
    "pwd",
    "secret",
    "sess",
    "sid",
    "sig",
    "ticket",
    "token",
    "x-amz-",
    "x-goog-",
];

/// The longest path in a rule.
const PATH_BYTES_MAX: usize = 128;

/// The longest name of a parameter in a rule.
const NAME_BYTES_MAX: usize = 64;

/// The highest number of parameters of a URL whose parameters are compared.
pub(super) const PARAMETERS_MAX: usize = 16;

/// The extensions of files that seldom change, and that are the same for all users.
const STATIC_EXTENSIONS: [&str; 26] = [
    "css", "js", "mjs", "map", "wasm", "png", "jpg", "jpeg", "gif", "webp", "avif", "svg", "ico",
    "bmp", "woff", "woff2", "ttf", "otf", "eot", "mp3", "mp4", "webm", "pdf", "zip", "gz", "txt",
];

/// Parameters that advertisers add to links, beside `utm_*`.
const TRACKING: [&str; 10] = [
    "fbclid", "gclid", "dclid", "gbraid", "wbraid", "msclkid", "yclid", "mc_cid", "mc_eid", "_ga",
];

/// Names of parameters that clients add so that no cache answers.
const BUSTERS: [&str; 9] = [
    "_",
    "cb",
    "cachebuster",
    "nocache",
    "rnd",
    "rand",
    "random",
    "ts",
    "timestamp",
];
