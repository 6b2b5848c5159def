//! Texts that match the regular expressions of a configuration, so that requests reach each branch of them.

/// Returns some texts that an expression matches: each alternative is in one of them, and each optional part is absent
/// from one. They need not be all texts, and assertions such as `\b` are ignored.
pub(super) fn samples(pattern: &str) -> Vec<String> {
    let mut parser = Parser {
        rest: pattern.chars().collect(),
        at: 0,
    };
    let mut all = parser.alternatives();
    all.sort();
    all.dedup();
    all
}

/// Up to this number of texts, each alternative of a part follows each one of the part before it.
const SAMPLES_MAX: usize = 12;

struct Parser {
    rest: Vec<char>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.rest.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        self.at += 1;
        self.rest.get(self.at - 1).copied()
    }

    fn skip(&mut self, text: &str) -> bool {
        let found = self.rest[self.at..]
            .iter()
            .copied()
            .take(text.len())
            .eq(text.chars());
        if found {
            self.at += text.len();
        }
        found
    }

    fn alternatives(&mut self) -> Vec<String> {
        let mut all = self.sequence();
        while self.skip("|") {
            all.extend(self.sequence());
        }
        all
    }

    fn sequence(&mut self) -> Vec<String> {
        let mut texts = vec![String::new()];
        while let Some(next) = self.peek() {
            if next == '|' || next == ')' {
                break;
            }
            let atom = self.atom();
            let atom = self.repeated(atom);
            texts = match texts.len() * atom.len() <= SAMPLES_MAX {
                true => texts
                    .iter()
                    .flat_map(|text| atom.iter().map(move |part| format!("{text}{part}")))
                    .collect(),
                false => (0..texts.len().max(atom.len()))
                    .map(|n| format!("{}{}", texts[n % texts.len()], atom[n % atom.len()]))
                    .collect(),
            };
        }
        texts
    }

    fn atom(&mut self) -> Vec<String> {
        let one = |text: &str| vec![text.to_owned()];
        match self.next() {
            Some('(') => {
                if self.skip("?") {
                    // `?:`, `?i)`, `?<name>`, `?P<name>`; lookahead does not occur.
                    while self
                        .peek()
                        .is_some_and(|c| c.is_ascii_alphanumeric() || "_<P".contains(c))
                    {
                        self.at += 1;
                    }
                    if self.skip(")") {
                        return one("");
                    }
                    self.at += 1;
                }
                let inner = self.alternatives();
                self.skip(")");
                inner
            }
            Some('[') => one(&self.class().to_string()),
            Some('\\') => match self.next() {
                Some('d') => one("1"),
                Some('w') => one("a"),
                Some('s') => one(" "),
                Some('b') | None => one(""),
                Some(other) => one(&other.to_string()),
            },
            Some('.') => one("x"),
            Some('^' | '$') | None => one(""),
            Some(other) => one(&other.to_string()),
        }
    }

    /// Returns a member of a class.
    fn class(&mut self) -> char {
        let is_negated = self.skip("^");
        let mut members = Vec::new();
        while let Some(member) = self.next() {
            match member {
                ']' if !members.is_empty() => break,
                '\\' => members.extend(match self.next() {
                    Some('d') => Some('1'),
                    Some('w') => Some('a'),
                    Some('s') => Some(' '),
                    other => other,
                }),
                member => members.push(member),
            }
        }
        let is_member = |c: &char| members.contains(c) != is_negated;
        let letter = ['a', '1', 'z'].into_iter().find(is_member);
        letter.unwrap_or_else(|| members.first().copied().unwrap_or('a'))
    }

    fn repeated(&mut self, atom: Vec<String>) -> Vec<String> {
        let mut atom = atom;
        match self.peek() {
            Some('?' | '*') => {
                self.at += 1;
                atom.push(String::new());
            }
            Some('+') => self.at += 1,
            Some('{') => {
                self.at += 1;
                let mut digits = String::new();
                while let Some(c) = self.next().filter(|c| *c != '}') {
                    digits.push(c);
                }
                let count = digits.split(',').next().unwrap_or_default();
                let count = count.parse().unwrap_or(1).min(32);
                atom.iter_mut().for_each(|text| *text = text.repeat(count));
            }
            _ => return atom,
        }
        // Lazy and possessive forms.
        _ = self.skip("?") || self.skip("+");
        atom
    }
}

#[test]
fn samples_have_each_alternative_and_lack_each_optional_part() {
    for (pattern, expected) in [
        ("^/(a|b)/", &["/a/", "/b/"][..]),
        (r"\.(jpe?g|png)$", &[".jpeg", ".jpg", ".png"]),
        (
            r"^(www\.)?shop\.example$",
            &["shop.example", "www.shop.example"],
        ),
        ("(?i)[0-9a-f]{8}x", &["aaaaaaaax"]),
        (r"^(?<tenant>[a-z0-9-]+)\.x", &["a.x"]),
        (r"[?&]action=(edit|raw)", &["?action=edit", "?action=raw"]),
        (r"^/(\d+)x(\d+)/", &["/1x1/"]),
        ("[^/]+/.*", &["a/", "a/x"]),
    ] {
        let found = samples(pattern);
        for text in expected {
            assert!(
                found.iter().any(|sample| sample == text),
                "{pattern}: {found:?}"
            );
        }
    }
}
