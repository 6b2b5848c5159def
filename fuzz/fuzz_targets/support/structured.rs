//! A literal parser of dictionaries, step by step as in RFC 8941 §4.2 and RFC 9651 §4.2. It is the oracle for fields
//! that the product parses by a crate. Byte sequences are not parsed, because the RFCs let parsers accept some invalid
//! ones.

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Integer(i64),
    String(String),
    Boolean(bool),
    InnerList(Vec<Value>),
    /// A decimal, a token, a date or a display string. No field of the product has such values.
    Other,
}

/// Parses a dictionary (§4.2.2). If `with_dates`, items may be dates and display strings (RFC 9651).
pub fn dictionary(text: &[u8], with_dates: bool) -> Option<Vec<(String, Value)>> {
    let text = std::str::from_utf8(text)
        .ok()
        .filter(|text| text.is_ascii())?;
    let mut input = Input {
        rest: text.trim_matches(' '),
        with_dates,
    };
    let mut members: Vec<(String, Value)> = Vec::new();
    while !input.rest.is_empty() {
        let key = input.key()?;
        let value = if input.skip('=') {
            input.item_or_inner_list()?
        } else {
            input.parameters()?;
            Value::Boolean(true)
        };
        match members.iter_mut().find(|(other, _)| *other == key) {
            Some(member) => member.1 = value,
            None => members.push((key, value)),
        }
        input.rest = input.rest.trim_start_matches([' ', '\t']);
        if input.rest.is_empty() {
            return Some(members);
        }
        input.skip(',').then_some(())?;
        input.rest = input.rest.trim_start_matches([' ', '\t']);
        if input.rest.is_empty() {
            return None;
        }
    }
    Some(members)
}

/// The text that is not parsed yet.
struct Input<'a> {
    rest: &'a str,
    with_dates: bool,
}

impl Input<'_> {
    fn skip(&mut self, first: char) -> bool {
        let rest = self.rest.strip_prefix(first);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn take(&mut self) -> Option<char> {
        let first = self.rest.chars().next()?;
        self.rest = &self.rest[1..];
        Some(first)
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &str {
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (part, rest) = self.rest.split_at(end);
        self.rest = rest;
        part
    }

    /// §4.2.3.3.
    fn key(&mut self) -> Option<String> {
        self.rest
            .starts_with(|c: char| c.is_ascii_lowercase() || c == '*')
            .then_some(())?;
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c);
        Some(self.take_while(is_part).to_owned())
    }

    /// §4.2.1.1 and §4.2.1.2.
    fn item_or_inner_list(&mut self) -> Option<Value> {
        if !self.skip('(') {
            return self.item();
        }
        let mut items = Vec::new();
        loop {
            self.rest = self.rest.trim_start_matches(' ');
            if self.skip(')') {
                self.parameters()?;
                return Some(Value::InnerList(items));
            }
            items.push(self.item()?);
            self.rest.starts_with([' ', ')']).then_some(())?;
        }
    }

    /// §4.2.3.
    fn item(&mut self) -> Option<Value> {
        let value = self.bare_item()?;
        self.parameters()?;
        Some(value)
    }

    /// §4.2.3.2. No field of the product has parameters, so their values are dropped.
    fn parameters(&mut self) -> Option<()> {
        while self.skip(';') {
            self.rest = self.rest.trim_start_matches(' ');
            self.key()?;
            if self.skip('=') {
                self.bare_item()?;
            }
        }
        Some(())
    }

    /// §4.2.3.1.
    fn bare_item(&mut self) -> Option<Value> {
        match self.rest.chars().next()? {
            '-' | '0'..='9' => self.number(),
            '"' => self.string(),
            '?' => {
                self.take();
                match self.take()? {
                    '1' => Some(Value::Boolean(true)),
                    '0' => Some(Value::Boolean(false)),
                    _ => None,
                }
            }
            'a'..='z' | 'A'..='Z' | '*' => {
                self.take_while(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(c));
                Some(Value::Other)
            }
            '@' if self.with_dates => {
                self.take();
                let is_integer = matches!(self.number()?, Value::Integer(_));
                is_integer.then_some(Value::Other)
            }
            '%' if self.with_dates => self.display_string(),
            _ => None,
        }
    }

    /// §4.2.4.
    fn number(&mut self) -> Option<Value> {
        let sign = if self.skip('-') { -1 } else { 1 };
        let integer = self.take_while(|c| c.is_ascii_digit()).to_owned();
        if integer.is_empty() || integer.len() > 15 {
            return None;
        }
        if !self.skip('.') {
            return Some(Value::Integer(sign * integer.parse::<i64>().ok()?));
        }
        let fraction = self.take_while(|c| c.is_ascii_digit());
        let is_valid = integer.len() <= 12 && (1..=3).contains(&fraction.len());
        is_valid.then_some(Value::Other)
    }

    /// §4.2.5.
    fn string(&mut self) -> Option<Value> {
        self.take();
        let mut text = String::new();
        loop {
            match self.take()? {
                '"' => return Some(Value::String(text)),
                '\\' => text.push(self.take().filter(|c| "\"\\".contains(*c))?),
                c @ ' '..='~' => text.push(c),
                _ => return None,
            }
        }
    }

    /// RFC 9651 §4.2.10.
    fn display_string(&mut self) -> Option<Value> {
        self.take();
        self.skip('"').then_some(())?;
        let mut bytes = Vec::new();
        loop {
            match self.take()? {
                '"' => return std::str::from_utf8(&bytes).ok().map(|_| Value::Other),
                '%' => {
                    let digits = self.rest.get(..2)?;
                    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
                    digits.chars().all(is_hex).then_some(())?;
                    bytes.push(u8::from_str_radix(digits, 16).ok()?);
                    self.rest = &self.rest[2..];
                }
                c @ ' '..='~' => bytes.push(u8::try_from(c).ok()?),
                _ => return None,
            }
        }
    }
}
