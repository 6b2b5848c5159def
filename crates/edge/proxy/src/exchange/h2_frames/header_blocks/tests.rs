//! Tests of [`BlockScreen`] with two simple decoders: one that accepts any text, as the peer's table has it, and one
//! that accepts valid text only, as h2's table has it.

use proptest::prelude::*;

use edgeward_semantics::encode_delimiters;

use super::*;

/// The dynamic table with its text, the newest field first.
#[derive(Debug, Default)]
struct Table {
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    size_max: usize,
}

/// The fields of the static table that the tests use.
fn static_field(index: usize) -> (Vec<u8>, Vec<u8>) {
    let (name, value) = match index {
        2 => (":method", "GET"),
        4 => (":path", "/"),
        6 => (":scheme", "http"),
        8 => (":status", "200"),
        16 => ("accept-encoding", "gzip, deflate"),
        57 => ("transfer-encoding", ""),
        _ => panic!("the tests do not use the index {index}"),
    };
    (name.into(), value.into())
}

impl Table {
    fn new() -> Self {
        Self {
            size_max: TABLE_BYTES_MAX,
            ..Self::default()
        }
    }

    fn trim(&mut self) {
        let size = |fields: &[(Vec<u8>, Vec<u8>)]| -> usize {
            let sizes = fields.iter();
            sizes
                .map(|(name, value)| name.len() + value.len() + 32)
                .sum()
        };
        while size(&self.fields) > self.size_max {
            self.fields.pop();
        }
    }

    fn field(&self, index: usize) -> (Vec<u8>, Vec<u8>) {
        match index.checked_sub(62) {
            Some(nth) => self.fields[nth].clone(),
            None => static_field(index),
        }
    }

    /// Decodes a block. `is_strict` demands that h2 can decode each field.
    fn decode(&mut self, mut block: &[u8], is_strict: bool) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut fields = Vec::new();
        while let Some(&first) = block.first() {
            let prefix = match first {
                0x80.. => 7,
                0x40.. => 6,
                0x20.. => 5,
                _ => 4,
            };
            let (index, rest) = parse_integer(block, prefix).expect("an integer");
            block = rest;
            let field = match prefix {
                7 => self.field(index),
                5 => {
                    self.size_max = index;
                    self.trim();
                    continue;
                }
                _ => {
                    let mut text = || {
                        let mut decoded = Vec::new();
                        let (text, rest) = string(block, &mut decoded).ok().expect("a string");
                        let text = text.to_vec();
                        block = rest;
                        text
                    };
                    let name = match index {
                        0 => text(),
                        _ => self.field(index).0,
                    };
                    (name, text())
                }
            };
            if is_strict {
                assert!(is_decodable(&field), "{field:?}");
            }
            if prefix == 6 {
                self.fields.insert(0, field.clone());
                self.trim();
            }
            fields.push(field);
        }
        fields
    }
}

/// Returns true if h2 decodes the field, although the message may be malformed.
fn is_decodable((name, value): &(Vec<u8>, Vec<u8>)) -> bool {
    match Name::of(name) {
        Name::Invalid => false,
        Name::Te => Name::Other.allows(value),
        name => name.allows(value),
    }
}

/// An oracle: the rules of RFC 9113 §8.2 and §8.3 for a list of fields.
fn is_malformed(fields: &[(Vec<u8>, Vec<u8>)]) -> bool {
    let is_pseudo = |name: &[u8]| name.starts_with(b":");
    let names: Vec<&[u8]> = fields.iter().map(|(name, _)| &**name).collect();
    let last_pseudo = names.iter().rposition(|name| is_pseudo(name));
    let first_regular = names.iter().position(|name| !is_pseudo(name));
    let repeats = |name: &&[u8]| names.iter().filter(|other| *other == name).count() > 1;
    fields.iter().any(|field| !is_decodable(field))
        || fields
            .iter()
            .any(|(name, value)| name == b"te" && value != b"trailers")
        || names.iter().any(|name| Name::of(name) == Name::Connection)
        || names.iter().any(|name| is_pseudo(name) && repeats(name))
        || last_pseudo
            .zip(first_regular)
            .is_some_and(|(pseudo, regular)| pseudo > regular)
}

/// A representation of a field. References are to the field of the dynamic table with this number, if it exists.
#[derive(Clone, Debug)]
enum Piece {
    Static(usize),
    Dynamic(usize),
    Literal {
        pattern: u8,
        name: Vec<u8>,
        value: Vec<u8>,
    },
    Named {
        pattern: u8,
        nth: usize,
        value: Vec<u8>,
    },
}

fn any_value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::sample::select(vec![
            &b"a"[..],
            b"",
            b"trailers",
            b"200",
            b"2x",
            b"GET",
            b"G T",
            b"a\x01b",
            b"\xff",
            b"a\n",
            b"/a?b=\"c\"",
            b"/<d>",
            b"/\"\x7f",
        ])
        .prop_map(<[u8]>::to_vec),
        (0usize..4100).prop_map(|length| vec![b'v'; length]),
        (0usize..1500).prop_map(|length| vec![1; length]),
    ]
}

fn any_piece() -> impl Strategy<Value = Piece> {
    let names = vec![
        &b"a"[..],
        b"b-c",
        b"X",
        b"x y",
        b"te",
        b"connection",
        b":path",
        b":method",
        b":status",
        b":x",
        b"",
        b"\xff",
    ];
    let pattern = || prop::sample::select(vec![0x00u8, 0x10, 0x40, 0x40, 0x40]);
    let name = prop::sample::select(names).prop_map(<[u8]>::to_vec);
    prop_oneof![
        prop::sample::select(vec![2usize, 4, 6, 8, 16]).prop_map(Piece::Static),
        (0usize..20).prop_map(Piece::Dynamic),
        (pattern(), name, any_value()).prop_map(|(pattern, name, value)| Piece::Literal {
            pattern,
            name,
            value
        }),
        (pattern(), 0usize..20, any_value()).prop_map(|(pattern, nth, value)| Piece::Named {
            pattern,
            nth,
            value
        }),
    ]
}

fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    push_integer(out, 0, 7, text.len());
    out.extend_from_slice(text);
}

/// Encodes the pieces. `table` has the fields that earlier blocks have added.
fn encode(sizes: &[usize], pieces: &[Piece], table: &mut Table) -> Vec<u8> {
    let mut block = Vec::new();
    for &size in sizes {
        push_integer(&mut block, SIZE_UPDATE, 5, size);
    }
    table.decode(&block, false);
    for piece in pieces {
        let mut out = Vec::new();
        let prefix = |pattern: u8| if pattern == 0x40 { 6 } else { 4 };
        let count = table.fields.len();
        match piece {
            Piece::Static(index) => push_integer(&mut out, 0x80, 7, *index),
            Piece::Dynamic(nth) if count > 0 => push_integer(&mut out, 0x80, 7, 62 + nth % count),
            Piece::Named {
                pattern,
                nth,
                value,
            } if count > 0 => {
                push_integer(&mut out, *pattern, prefix(*pattern), 62 + nth % count);
                push_string(&mut out, value);
            }
            Piece::Literal {
                pattern,
                name,
                value,
            } if !name.is_empty() || !value.is_empty() => {
                out.push(*pattern);
                push_string(&mut out, name);
                push_string(&mut out, value);
            }
            _ => {}
        }
        table.decode(&out, false);
        block.extend(out);
    }
    block
}

proptest! {
    /// The screen finds exactly the malformed blocks. h2 can decode everything that passes, and its table then has the
    /// same sizes as the peer's, and the same text where the text is valid. The text of an invalid `TE` may differ.
    #[test]
    fn malformed_blocks_are_found_and_keep_the_table_in_step(
        blocks in prop::collection::vec(
            (
                prop::collection::vec(prop::sample::select(vec![0usize, 100, 1000, 4096]), 0..3),
                prop::collection::vec(any_piece(), 0..8),
            ),
            1..12,
        ),
    ) {
        let (mut peer, mut writer, mut h2) = (Table::new(), Table::new(), Table::new());
        let mut screen = BlockScreen::new();
        for (sizes, pieces) in blocks {
            let block = encode(&sizes, &pieces, &mut writer);
            let fields = peer.decode(&block, false);
            let replaced = screen.replacement(&block, BlockKind::Request);
            // A field with an empty name and an empty value in the table cannot be replaced.
            let gives_up = |(name, value): &(Vec<u8>, Vec<u8>)| name.is_empty() && value.is_empty();
            if fields.iter().any(gives_up) {
                return Ok(());
            }
            prop_assert!(!screen.is_lost);
            // A valid block may name a field by one whose name was replaced: it is refused, too.
            prop_assert!(replaced.is_some() || !is_malformed(&fields), "{:?}", fields);
            let has_delimiters = |(name, value): &(Vec<u8>, Vec<u8>)| {
                name == b":path" && delimited(value).is_some()
            };
            match &replaced {
                None => prop_assert_eq!(h2.decode(&block, true), fields),
                Some((replaced, _)) if replaced.ends_with(b"%22") || replaced.ends_with(b"%3E") => {
                    prop_assert!(!is_malformed(&fields), "{:?}", fields);
                    let mut got = h2.decode(replaced, true);
                    let (_, encoded) = got.pop().expect("the field with the path");
                    for (got, sent) in got.iter().zip(&fields) {
                        if has_delimiters(sent) {
                            let text = str::from_utf8(&sent.1).expect("valid");
                            let expected = encode_delimiters(text);
                            prop_assert_eq!(&*encoded, expected.as_bytes());
                            prop_assert_eq!(got, &(sent.0.clone(), vec![b'/'; text.len()]));
                        } else {
                            prop_assert_eq!(got, sent);
                        }
                    }
                    prop_assert_eq!(got.len(), fields.len());
                }
                Some((replaced, ends)) => {
                    prop_assert!(ends.is_sorted() && ends.iter().all(|end| *end < replaced.len()));
                    let fields = h2.decode(replaced, true);
                    prop_assert_eq!(&fields.last().expect("a field").0, b"transfer-encoding");
                }
            }
            prop_assert_eq!(h2.fields.len(), peer.fields.len());
            for (h2_field, field) in h2.fields.iter().zip(&peer.fields) {
                let size = |(name, value): &(Vec<u8>, Vec<u8>)| name.len() + value.len();
                prop_assert_eq!(size(h2_field), size(field));
                let is_used = is_decodable(field) && field.0 != b"te" && !has_delimiters(field);
                prop_assert!(h2_field == field || !is_used, "{:?}", field);
            }
        }
    }

    #[test]
    fn no_block_causes_a_panic(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..5)) {
        let mut screen = BlockScreen::new();
        for block in blocks {
            _ = screen.replacement(&block, BlockKind::Request);
        }
    }
}

#[test]
fn a_valid_block_passes_and_a_malformed_one_is_replaced() {
    let literal = |name: &[u8], value: &[u8]| {
        let mut block = vec![0];
        push_string(&mut block, name);
        push_string(&mut block, value);
        block
    };
    let method = &[0x82][..];
    for (block, is_replaced) in [
        (literal(b"a", b"b"), false),
        (literal(b"a", b"\x01"), true),
        (literal(b"a", b"\xff\t "), false),
        (literal(b"A", b"b"), true),
        (literal(b"a b", b"b"), true),
        (literal(b"", b"b"), true),
        (literal(b":x", b"b"), true),
        (literal(b":method", b"G T"), true),
        (literal(b":path", b"/\xff"), true),
        (literal(b":path", "/é".as_bytes()), false),
        (literal(b":status", b"20"), true),
        (literal(b"te", b"trailers"), false),
        (literal(b"te", b"gzip"), true),
        (literal(b"keep-alive", b"5"), true),
        ([method, &literal(b"a", b"b")].concat(), false),
        ([&literal(b"a", b"b"), method].concat(), true),
        ([method, method].concat(), true),
    ] {
        let replaced = BlockScreen::new().replacement(&block, BlockKind::Request);
        assert_eq!(replaced.is_some(), is_replaced, "{block:?}");
    }
}

/// Method: add a field with an invalid value in the Huffman code, then refer to it.
#[test]
fn a_reference_to_an_invalid_field_is_malformed() {
    let mut screen = BlockScreen::new();
    // The code of the byte 1 is 0x7fffd8 in 23 bits.
    let block = [0x40, 1, b'a', 0x83, 0xff, 0xff, 0xb1];
    let replaced = [0x40, 1, b'a', 1, b'x', 0x0f, 42, 0];
    assert_eq!(
        screen
            .replacement(&block, BlockKind::Request)
            .map(|(block, _)| block),
        Some(replaced.to_vec())
    );
    assert!(
        screen
            .replacement(&[0x80 | 62], BlockKind::Request)
            .is_some()
    );
    // The name of that field is valid, so another field may have it. Its index 62 is 15 and 47.
    assert!(
        screen
            .replacement(&[0x0f, 47, 1, b'b'], BlockKind::Request)
            .is_none()
    );
    assert!(!screen.is_lost);
}
