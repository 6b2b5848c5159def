//! The values of rules of sites: any text is a template, a class, a network, a host or a status, or refused without a
//! panic. An accepted text formats to a text with the same meaning, and no value of a field has a control character.
//!
//! The input is a value, a regular expression, a path and a request field, separated by line feeds.
//! Run: `cargo +nightly fuzz run site_values`.
#![no_main]

use std::net::IpAddr;

use http::Method;
use http::header::{ACCEPT, ACCEPT_LANGUAGE, COOKIE, HeaderMap, HeaderValue, USER_AGENT};
use libfuzzer_sys::fuzz_target;

use edgeward_sites::{
    CLASS_BYTES_MAX, Class, HostPattern, Network, PathPattern, PathReadings, RequestView,
    StatusSet, Template,
};

fuzz_target!(|text: &str| {
    let mut lines = text.splitn(4, '\n');
    let [value, regex, path, field] = [(); 4].map(|()| lines.next().unwrap_or_default());
    let mut fields = HeaderMap::new();
    if let Ok(field) = HeaderValue::from_bytes(field.as_bytes()) {
        for name in [ACCEPT, ACCEPT_LANGUAGE, COOKIE, USER_AGENT] {
            fields.insert(name, field.clone());
        }
    }
    let readings = PathReadings::of(path);
    let request = RequestView {
        method: &Method::GET,
        scheme: "https",
        host: "example.org",
        path: &readings,
        sent_path: path,
        query: "",
        fields: &fields,
        client: IpAddr::from([192, 0, 2, 1]),
    };
    if let Ok(class) = value.parse::<Class>() {
        let mut key = Vec::new();
        if class.write(&fields, &mut key).is_ok() && !matches!(class, Class::Language(_)) {
            // Each byte of a value takes up to three, and a delimiter stands on each side.
            assert!(key.len() <= 3 * CLASS_BYTES_MAX + 2);
            assert!(!key.contains(&b'#') && !key.iter().any(u8::is_ascii_control));
        }
        let again: Class = class.to_string().parse().expect("a class formats to its text");
        assert_eq!(again.to_string(), class.to_string());
    }
    let regex = match PathPattern::regex(regex) {
        Ok(PathPattern::Regex(regex)) => Some(regex),
        _ => None,
    };
    if let Ok(template) = Template::new(value, regex.as_ref()) {
        assert!(Template::new(&template.to_string(), regex.as_ref()).is_ok());
        let value = template.field_value(&request);
        assert!(value.iter().all(|byte| *byte == b'\t' || !byte.is_ascii_control()));
        let _ = template.url(&request);
    }
    if let Ok(network) = value.parse::<Network>() {
        assert_eq!(network.to_string().parse(), Ok(network));
    }
    if let Ok(host) = value.parse::<HostPattern>() {
        assert_eq!(host.to_string().parse(), Ok(host));
    }
    if let Ok(status) = value.parse::<StatusSet>() {
        assert_eq!(status.to_string().parse(), Ok(status));
    }
});
