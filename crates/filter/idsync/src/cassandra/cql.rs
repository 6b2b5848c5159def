//! Adds a condition to a SELECT, so that the query reads only one token range.

/// Adds a condition on the token of `keys`, the columns of the partition key, to a query
/// `SELECT id FROM t [WHERE …] [ALLOW FILTERING]`.
pub(super) fn with_token_range(query: &str, keys: &[String]) -> Result<String, String> {
    let words = words(query);
    let find = |wanted: &str| {
        let mut found = words.iter();
        found.find(|(_, word)| word.eq_ignore_ascii_case(wanted))
    };
    for keyword in ["ORDER", "GROUP", "LIMIT", "PER"] {
        if let Some((_, word)) = find(keyword) {
            return Err(format!(
                "the table is read in token ranges, so the query must not contain {word}"
            ));
        }
    }
    let quoted: Vec<_> = keys.iter().map(|key| quoted(key)).collect();
    let token = format!("token({})", quoted.join(", "));
    let condition = format!("{token} > ? AND {token} <= ?");
    let end = find("ALLOW").map_or(query.len(), |(at, _)| *at);
    let (before, after) = query.split_at(end);
    let conjunction = if find("WHERE").is_some() {
        "AND"
    } else {
        "WHERE"
    };
    Ok(
        format!("{} {conjunction} {condition} {after}", before.trim_end())
            .trim_end()
            .to_owned(),
    )
}

/// Returns an identifier in quotes. Without quotes, Cassandra would convert it to lower case.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns the words of a query outside quotes, with their offsets.
fn words(query: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let (mut start, mut quote) = (None, None);
    for (at, character) in query.char_indices() {
        let part_of_word = character.is_alphanumeric() || character == '_';
        if let Some(closing) = quote {
            // A doubled quote is an escaped quote within the text. Here the first of the two quotes ends the
            // text and the second begins another text. The words of both texts are ignored.
            if character == closing {
                quote = None;
            }
        } else if character == '\'' || character == '"' {
            quote = Some(character);
        } else if part_of_word {
            start.get_or_insert(at);
            continue;
        }
        if let Some(start) = start.take() {
            words.push((start, &query[start..at]));
        }
    }
    if let Some(start) = start {
        words.push((start, &query[start..]));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrite(query: &str) -> Result<String, String> {
        with_token_range(query, &["id".to_owned()])
    }

    #[test]
    fn the_condition_is_appended_to_the_where_clause() {
        let range = r#"token("id") > ? AND token("id") <= ?"#;
        for (query, expected) in [
            (
                "SELECT id FROM t",
                format!("SELECT id FROM t WHERE {range}"),
            ),
            (
                "select id from ks.t where kind = 'where allow' allow filtering",
                format!(
                    "select id from ks.t where kind = 'where allow' AND {range} allow filtering"
                ),
            ),
            (
                "SELECT \"limit\" FROM t",
                format!("SELECT \"limit\" FROM t WHERE {range}"),
            ),
        ] {
            assert_eq!(rewrite(query), Ok(expected));
        }
        let two = with_token_range("SELECT b FROM t", &["Key".to_owned(), "b".to_owned()]);
        assert!(
            two.expect("the query is rewritten")
                .contains(r#"token("Key", "b") > ?"#)
        );
    }

    #[test]
    fn a_query_that_needs_the_whole_table_is_refused() {
        for query in [
            "SELECT id FROM t LIMIT 5",
            "SELECT id FROM t PER PARTITION LIMIT 1",
            "SELECT id FROM t WHERE a = 1 ORDER BY b",
            "SELECT id FROM t GROUP BY id",
        ] {
            assert!(rewrite(query).is_err(), "{query}");
        }
        assert!(rewrite("SELECT id FROM t WHERE a = 'it''s LIMIT'").is_ok());
    }
}
