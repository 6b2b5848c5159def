//! A configuration in VCL: any text is translated or refused without a panic, and each entry of the report has a line
//! of the text.
//!
//! Run: `cargo +nightly fuzz run vcl_config`.
#![no_main]

use libfuzzer_sys::fuzz_target;

use edgeward_migrate::{Sources, vcl};

/// The input, which includes itself at most.
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
    // A backend, so that most texts have a result.
    let text = format!("{text}\nbackend origin {{ .host = \"10.0.0.1\"; }}");
    if let Ok(migration) = vcl(&Input(&text), &["input".to_owned()], "/etc/varnish") {
        let entries = &migration.report.entries;
        assert!(entries.iter().all(|entry| (1..=lines + 1).contains(&entry.at.line)));
    }
});
