//! The built-in plans of `edgeward lab`.

use std::path::Path;

/// Returns the built-in plan with this name, with or without `.toml`.
pub(super) fn built_in(given: &Path) -> Option<(&'static str, &'static str)> {
    let given = given.to_str()?;
    let given = given.strip_suffix(".toml").unwrap_or(given);
    PLANS
        .into_iter()
        .find(|(name, _)| name.strip_suffix(".toml") == Some(given))
}

/// The names of the built-in plans.
pub(super) fn names() -> Vec<&'static str> {
    PLANS.map(|(name, _)| name).into()
}

/// The file name and the text of each built-in plan.
const PLANS: [(&str, &str); 3] = [
    (
        "second-hit.toml",
        include_str!("../../../../../lab/second-hit.toml"),
    ),
    (
        "adaptsize-vs-peers.toml",
        include_str!("../../../../../lab/adaptsize-vs-peers.toml"),
    ),
    (
        "latency.toml",
        include_str!("../../../../../lab/latency.toml"),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Parsing a plan also checks the settings of its edges.
    #[test]
    fn every_built_in_plan_is_valid() {
        for (name, text) in PLANS {
            let plan = super::super::parse(Path::new(name), text);
            let plan = plan.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(plan.contenders.len() >= 2, "{name}");
            assert!(!plan.sources.is_empty(), "{name}: the plan has no source");
            let name_only = Path::new(name.trim_end_matches(".toml"));
            assert_eq!(built_in(name_only), Some((name, text)));
        }
        assert_eq!(built_in(Path::new("third-hit")), None);
    }
}
