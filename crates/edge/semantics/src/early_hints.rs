//! `Link` of 103 Early Hints (RFC 8297), kept with the stored response.
//!
//! A hit needs no 103 of its own: its final response follows at once, and clients handle a `Link` there as one in a
//! 103. Clients of HTTP/1.1 that mistake a 103 for the final response (RFC 8297 §3) are not affected, and HTTP/2
//! clients, which get no 103 from this cache, learn of the links.

use http::header::{HeaderMap, HeaderValue, LINK};

use crate::cache_control::ResponseDirectives;

/// Adds the values of `Link` of interim responses to the head to store, unless it has them. `response` is the final
/// response. Returns false if one was left out, because all added values would have more than `bytes_max` bytes.
pub fn keep_links(
    head: &mut HeaderMap,
    response: &HeaderMap,
    links: &[HeaderValue],
    bytes_max: u64,
) -> bool {
    let directives = ResponseDirectives::from_headers(response);
    // §5.2.2.4 and §5.2.2.7 of RFC 9111: a listed field is not stored.
    let excludes_links = [&directives.no_cache, &directives.private]
        .iter()
        .any(|scope| scope.fields().contains(&LINK));
    if excludes_links {
        return true;
    }
    let mut bytes_left = bytes_max;
    let mut keeps_all = true;
    for link in links {
        if head.get_all(LINK).iter().any(|known| known == link) {
            continue;
        }
        let bytes = (LINK.as_str().len() + ": \r\n".len() + link.len()) as u64;
        if bytes > bytes_left {
            keeps_all = false;
            continue;
        }
        bytes_left -= bytes;
        head.append(LINK, link.clone());
    }
    keeps_all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::headers;

    fn kept(response: &str, links: &[&'static str], bytes_max: u64) -> (Vec<String>, bool) {
        let response = headers(response);
        let links: Vec<_> = links
            .iter()
            .map(|link| HeaderValue::from_static(link))
            .collect();
        let mut head = response.clone();
        let keeps_all = keep_links(&mut head, &response, &links, bytes_max);
        let kept = head
            .get_all(LINK)
            .iter()
            .map(|link| link.to_str().expect("ASCII").to_owned());
        (kept.collect(), keeps_all)
    }

    fn texts(links: &[&str]) -> Vec<String> {
        links.iter().map(|&link| link.to_owned()).collect()
    }

    #[test]
    fn links_are_added_once_and_after_those_of_the_final_response() {
        assert_eq!(
            kept("link: </a>", &["</b>", "</a>", "</b>"], 100),
            (texts(&["</a>", "</b>"]), true)
        );
        assert_eq!(kept("", &[], 100), (vec![], true));
    }

    /// Each link takes 12 bytes as a field line.
    #[test]
    fn the_added_lines_have_a_limit() {
        assert_eq!(
            kept("link: </a>", &["</b>", "</c>"], 24),
            (texts(&["</a>", "</b>", "</c>"]), true)
        );
        assert_eq!(
            kept("link: </a>", &["</b>", "</c>"], 23),
            (texts(&["</a>", "</b>"]), false)
        );
        assert_eq!(kept("", &["</b>"], 0), (vec![], false));
    }

    #[test]
    fn a_response_that_excludes_links_gets_none() {
        for directive in ["no-cache=\"link\"", "private=\"x, Link\""] {
            let response = format!("cache-control: max-age=9, {directive}");
            assert_eq!(kept(&response, &["</b>"], 100), (vec![], true));
        }
    }
}
