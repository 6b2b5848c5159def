//! The key that was probably meant.

use super::keys::KEYS;

/// A hint for a key or table that does not exist.
pub(super) fn hint(unknown: &str) -> String {
    match nearest(unknown) {
        Some(path) => format!("did you mean {path}?"),
        None => "`edgeward check-config --reference` lists all keys".to_owned(),
    }
}

/// The same for a table.
pub(super) fn table_hint(unknown: &str) -> String {
    let near = tables()
        .map(|table| (distance(unknown, table), table))
        .min()
        .filter(|(distance, _)| *distance <= tolerance(unknown));
    match near {
        Some((_, table)) => format!("did you mean [{table}]?"),
        None => format!("there are {}", tables().collect::<Vec<_>>().join(", ")),
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

fn nearest(unknown: &str) -> Option<&'static str> {
    let leaf = unknown.rsplit('.').next().unwrap_or(unknown);
    KEYS.iter()
        .map(|key| {
            let known = key.path.rsplit('.').next().unwrap_or(key.path);
            // The right key in the wrong table is as near as one wrong letter.
            let near = if known == leaf {
                1
            } else {
                distance(unknown, key.path)
            };
            (near, key.path)
        })
        .min_by_key(|(near, _)| *near)
        .filter(|(near, _)| *near <= tolerance(leaf))
        .map(|(_, path)| path)
}

/// How many letters may be wrong.
fn tolerance(text: &str) -> usize {
    (text.chars().count() / 3).clamp(1, 4)
}

/// Letters to add, drop, change or swap with their neighbour (Damerau, restricted form).
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(LONGEST).collect();
    let b: Vec<char> = b.chars().take(LONGEST).collect();
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut least = (rows[i - 1][j] + 1)
                .min(rows[i][j - 1] + 1)
                .min(rows[i - 1][j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

/// No key is longer; what is typed may be.
const LONGEST: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slip_of_the_finger_is_one_step() {
        for (a, b, steps) in [
            ("capacity", "capacity", 0),
            ("capcity", "capacity", 1),
            ("capaciti", "capacity", 1),
            ("cpaacity", "capacity", 1),
            ("", "abc", 3),
        ] {
            assert_eq!(distance(a, b), steps, "{a} {b}");
            assert_eq!(distance(b, a), steps, "{b} {a}");
        }
    }

    #[test]
    fn the_right_key_in_the_wrong_table_is_found() {
        assert_eq!(nearest("capacity"), Some("hot.capacity"));
        assert_eq!(nearest("origin.capacity"), Some("hot.capacity"));
        assert_eq!(nearest("hot.capcity"), Some("hot.capacity"));
    }

    #[test]
    fn what_is_like_nothing_is_met_with_no_guess() {
        assert_eq!(nearest("hot.zzzzzzzz"), None);
        assert!(table_hint("zzz").starts_with("there are "));
        assert_eq!(table_hint("hott"), "did you mean [hot]?");
    }
}
