//! Suggests the key or table that the user probably meant.

use strsim::osa_distance;

use super::keys::KEYS;

/// A hint for a key that does not exist.
pub(super) fn hint(unknown: &str) -> String {
    match nearest(unknown) {
        Some(path) => format!("did you mean {path}?"),
        None => "`edgeward check-config --reference` lists all keys".to_owned(),
    }
}

/// A hint for a table that does not exist.
pub(super) fn table_hint(unknown: &str) -> String {
    let near = tables()
        .map(|table| (osa_distance(unknown, table), table))
        .min()
        .filter(|(distance, _)| *distance <= tolerance(unknown));
    match near {
        Some((_, table)) => format!("did you mean [{table}]?"),
        None => format!("the tables are {}", tables().collect::<Vec<_>>().join(", ")),
    }
}

/// The names of the tables, in the order of the reference.
pub(super) fn tables() -> impl Iterator<Item = &'static str> {
    let mut last = "";
    KEYS.iter().filter_map(move |key| {
        let (table, _) = key.path.rsplit_once('.')?;
        (std::mem::replace(&mut last, table) != table).then_some(table)
    })
}

/// Returns the key that differs least from `unknown`, or `None` if every key differs too much.
fn nearest(unknown: &str) -> Option<&'static str> {
    let leaf = unknown.rsplit('.').next().unwrap_or(unknown);
    KEYS.iter()
        .map(|key| {
            let known = key.path.rsplit('.').next().unwrap_or(key.path);
            // A known name in the wrong table has the distance of one wrong letter.
            let near = if known == leaf {
                1
            } else {
                osa_distance(unknown, key.path)
            };
            (near, key.path)
        })
        .min_by_key(|(near, _)| *near)
        .filter(|(near, _)| *near <= tolerance(leaf))
        .map(|(_, path)| path)
}

/// The number of letters in which a name may differ from `text` and still be suggested.
fn tolerance(text: &str) -> usize {
    (text.chars().count() / 3).clamp(1, 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_the_wrong_table_gets_a_suggestion() {
        assert_eq!(nearest("capacity"), Some("hot.capacity"));
        assert_eq!(nearest("origin.capacity"), Some("hot.capacity"));
        assert_eq!(nearest("hot.capcity"), Some("hot.capacity"));
    }

    #[test]
    fn an_unknown_key_without_a_similar_one_gets_no_suggestion() {
        assert_eq!(nearest("hot.zzzzzzzz"), None);
        assert!(table_hint("zzz").starts_with("the tables are "));
        assert_eq!(table_hint("hott"), "did you mean [hot]?");
    }
}
