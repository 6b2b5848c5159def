//! Suggests the intended word for a misspelt one.

/// Returns the word of `known` with the smallest edit distance to `unknown`. Returns `None` if the distance exceeds a
/// third of the characters of `unknown`; this tolerance is at least 1 and at most 4.
pub(crate) fn nearest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let tolerance = (unknown.chars().count() / 3).clamp(1, 4);
    known
        .map(|word| (strsim::osa_distance(unknown, word), word))
        .min()
        .filter(|(distance, _)| *distance <= tolerance)
        .map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_far_from_all_known_words_has_no_suggestion() {
        let known = ["memory", "disk", "server"];
        assert_eq!(nearest("memroy", known.into_iter()), Some("memory"));
        assert_eq!(nearest("colour", known.into_iter()), None);
    }
}
