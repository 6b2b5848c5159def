//! The word that was probably meant.

/// The nearest of `known`, if it is near enough to be meant.
pub(super) fn nearest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let tolerance = (unknown.chars().count() / 3).clamp(1, 4);
    known
        .map(|word| (distance(unknown, word), word))
        .min()
        .filter(|(distance, _)| *distance <= tolerance)
        .map(|(_, word)| word)
}

/// Letters to add, drop or change (Levenshtein), row by row.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(LONGEST).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().take(LONGEST).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, other) in b.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Longer words than any of ours need not be told apart.
const LONGEST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_to_change_are_counted() {
        for (a, b, expected) in [
            ("", "", 0),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("min_use", "min_uses", 1),
            ("rate", "rate", 0),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
            assert_eq!(distance(b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn what_is_far_from_all_words_has_no_nearest() {
        let known = ["memory", "disk", "server"];
        assert_eq!(nearest("memroy", known.into_iter()), Some("memory"));
        assert_eq!(nearest("colour", known.into_iter()), None);
    }
}
