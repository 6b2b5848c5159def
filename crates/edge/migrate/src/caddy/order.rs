//! The order in which Caddy applies the directives of a block.
//!
//! Caddy sorts directives by their names, and those of one name by their paths, the longest first. Its comparison is no
//! order of all directives: one whose matcher has no single path is equal to each other one with a matcher. The result
//! therefore depends on the way of sorting, which is insertion for up to 20 directives.

use super::tree::Directive;

/// The order of names, the first ones first.
const ORDER: [&str; 40] = [
    "tracing",
    "map",
    "vars",
    "fs",
    "root",
    "log_append",
    "skip_log",
    "log_skip",
    "header",
    "copy_response_headers",
    "request_body",
    "cache",
    "redir",
    "method",
    "rewrite",
    "uri",
    "try_files",
    "basicauth",
    "basic_auth",
    "forward_auth",
    "request_header",
    "encode",
    "push",
    "intercept",
    "templates",
    "rate_limit",
    "invoke",
    "handle",
    "handle_path",
    "route",
    "abort",
    "error",
    "copy_response",
    "respond",
    "metrics",
    "reverse_proxy",
    "php_fastcgi",
    "file_server",
    "acme_server",
    "webdav",
];

/// Directives of one name with their matchers.
type Group<'t> = Vec<(Matched, &'t Directive)>;

/// The order of names, as the option `order` changes it.
#[derive(Debug)]
pub(super) struct Order(Vec<String>);

impl Default for Order {
    fn default() -> Self {
        Self(ORDER.map(str::to_owned).to_vec())
    }
}

impl Order {
    /// Applies an option such as `order cache before rewrite`. Returns false for an option of another form.
    pub(super) fn change(&mut self, args: &[String]) -> bool {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let (name, place, other) = match args[..] {
            [name, place @ ("first" | "last")] => (name, place, ""),
            [name, place @ ("before" | "after"), other] => (name, place, other),
            _ => return false,
        };
        let mut changed = self.0.clone();
        changed.retain(|known| known != name);
        let of_other = changed.iter().position(|known| known == other);
        let position = match (place, of_other) {
            ("first", _) => 0,
            ("last", _) => changed.len(),
            ("before", Some(position)) => position,
            ("after", Some(position)) => position + 1,
            _ => return false,
        };
        changed.insert(position, name.to_owned());
        self.0 = changed;
        true
    }

    /// Sorts directives. `matched` returns the matcher of a directive.
    pub(super) fn sort<'t>(
        &self,
        directives: &'t [Directive],
        matched: impl Fn(&Directive) -> Matched,
    ) -> Vec<&'t Directive> {
        let rank = |directive: &Directive| {
            // `handle` and `handle_path` are one group.
            let name = match directive.name.as_str() {
                "handle_path" => "handle",
                name => name,
            };
            self.0.iter().position(|known| known == name)
        };
        let mut groups: Vec<(Option<usize>, Group<'t>)> = Vec::new();
        for directive in directives {
            let (rank, entry) = (rank(directive), (matched(directive), directive));
            match groups.iter_mut().find(|(known, _)| *known == rank) {
                Some((_, group)) => group.push(entry),
                None => groups.push((rank, vec![entry])),
            }
        }
        groups.sort_by_key(|(rank, _)| *rank);
        for (_, group) in &mut groups {
            for end in 1..group.len() {
                let mut at = end;
                while at > 0 && group[at].0.precedes(&group[at - 1].0) {
                    group.swap(at, at - 1);
                    at -= 1;
                }
            }
        }
        let sorted = groups.into_iter().flat_map(|(_, group)| group);
        sorted.map(|(_, directive)| directive).collect()
    }
}

/// The matcher of a directive, as far as the order depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Matched {
    /// No matcher, or `*`.
    All,
    /// A matcher with one path.
    Path(String),
    /// Another matcher.
    Other,
}

impl Matched {
    fn precedes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Path(a), Self::Path(b)) => {
                let stem = |path: &'_ str| path.strip_suffix('*').unwrap_or(path).to_owned();
                match stem(a) == stem(b) {
                    true => a.len() < b.len(),
                    false => a.len() > b.len(),
                }
            }
            (a, b) => *a != Self::All && *b == Self::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_changes_the_order() {
        let place = |order: &Order, name: &str| order.0.iter().position(|known| known == name);
        let args = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut order = Order::default();
        assert!(order.change(&args("respond before redir")));
        assert!(place(&order, "respond") < place(&order, "redir"));
        assert!(order.change(&args("authorize first")));
        assert_eq!(place(&order, "authorize"), Some(0));
        assert!(order.change(&args("respond last")));
        assert_eq!(place(&order, "respond"), Some(order.0.len() - 1));
        for text in ["respond", "respond before nothing", "respond beside redir"] {
            assert!(!order.change(&args(text)), "{text}");
        }
    }

    #[test]
    fn a_longer_path_precedes_and_another_matcher_keeps_its_place() {
        let path = |text: &str| Matched::Path(text.to_owned());
        assert!(path("/abc").precedes(&path("/a*")));
        assert!(path("/a").precedes(&path("/a*")));
        assert!(!path("/a*").precedes(&path("/a")));
        assert!(path("/a").precedes(&Matched::All));
        assert!(Matched::Other.precedes(&Matched::All));
        assert!(!Matched::Other.precedes(&path("/a")));
        assert!(!path("/a").precedes(&Matched::Other));
    }
}
