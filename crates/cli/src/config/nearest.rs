//! Suggests the key or table that the user probably meant.

use strsim::osa_distance;

use super::keys::{self, SITES};

/// A hint for a key that does not exist.
pub(super) fn hint(unknown: &str) -> String {
    match nearest(unknown) {
        Some(path) => format!("did you mean {path}?"),
        None => "`edgeward check-config --reference` lists all keys".to_owned(),
    }
}

/// A hint for a table that does not exist.
pub(super) fn table_hint(unknown: &str) -> String {
    if matches!(unknown, "rule" | "rules") {
        return "did you mean [[site.rule]]?".to_owned();
    }
    let all = || tables().chain([SITES]);
    let closest = all()
        .map(|table| (osa_distance(unknown, table), table))
        .min()
        .filter(|(distance, _)| *distance <= tolerance(unknown));
    match closest {
        Some((_, table)) => format!("did you mean [{table}]?"),
        None => format!("the tables are {}", all().collect::<Vec<_>>().join(", ")),
    }
}

/// The names of the tables with keys of the list, in the order of the reference.
pub(super) fn tables() -> impl Iterator<Item = &'static str> {
    let mut last = "";
    keys::all().filter_map(move |key| {
        let (table, _) = key.path.rsplit_once('.')?;
        (std::mem::replace(&mut last, table) != table).then_some(table)
    })
}

/// Returns the key that differs least from `unknown`, or `None` if every key differs too much.
fn nearest(unknown: &str) -> Option<&'static str> {
    let leaf = unknown.rsplit('.').next().unwrap_or(unknown);
    keys::all()
        .map(|key| {
            let known = key.path.rsplit('.').next().unwrap_or(key.path);
            // A known name in the wrong table has the distance of one wrong letter.
            let distance = if known == leaf {
                1
            } else {
                osa_distance(unknown, key.path)
            };
            (distance, key.path)
        })
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= tolerance(leaf))
        .map(|(_, path)| path)
}

/// The number of letters in which a name may differ from `text` and still be suggested.
pub(super) fn tolerance(text: &str) -> usize {
    (text.chars().count() / 3).clamp(1, 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_and_a_key_in_the_wrong_table_get_a_suggestion() {
        assert_eq!(nearest("capacity"), Some("hot.capacity"));
        assert_eq!(nearest("origin.capacity"), Some("hot.capacity"));
        assert_eq!(nearest("hot.capcity"), Some("hot.capacity"));
    }

    #[test]
    fn an_unknown_key_gets_no_suggestion_if_no_key_is_similar() {
        assert_eq!(nearest("hot.zzzzzzzz"), None);
        assert!(table_hint("zzz").starts_with("the tables are "));
        assert_eq!(table_hint("hott"), "did you mean [hot]?");
        assert_eq!(table_hint("sites"), "did you mean [site]?");
        assert_eq!(table_hint("rule"), "did you mean [[site.rule]]?");
    }
}
