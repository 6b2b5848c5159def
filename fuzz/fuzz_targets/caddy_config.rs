//! A Caddyfile: any text is translated or refused without a panic, and each entry of the report has a line
//! of the text.
//!
//! Run: `cargo +nightly fuzz run caddy_config`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_migrate::{Sources, caddy};

/// The input, which imports itself at most.
struct Input<'a>(&'a str);

impl Sources for Input<'_> {
    fn read(&self, path: &str) -> Result<String, String> {
        match path {
            "input" => Ok(self.0.to_owned()),
            _ => Err("no such file".to_owned()),
        }
    }

    fn glob(&self, _pattern: &str) -> Vec<String> {
        Vec::new()
    }
}

fuzz_target!(|text: &str| {
    let lines = text.matches('\n').count() + 1;
    // A site with an origin, so that most texts have a result.
    let text = format!("{text}\norigin.example {{\nreverse_proxy 10.0.0.1\n}}");
    if let Ok(migration) = caddy(&Input(&text), &["input".to_owned()], "/etc/caddy") {
        let entries = &migration.report.entries;
        assert!(entries.iter().all(|entry| (1..=lines + 3).contains(&entry.at.line)));
    }
});
