//! Generates docs/configuration.md from the list of keys.

use std::fmt::Write as _;

use super::check::Draft;
use super::keys::{KEYS, TABLES};

/// Returns the whole document.
pub(crate) fn markdown() -> String {
    let draft = Draft::new();
    let mut text = String::from(INTRODUCTION);
    for (table, about) in TABLES {
        let brackets = if super::keys::is_repeated(table) {
            format!("[[{table}]]")
        } else {
            format!("[{table}]")
        };
        _ = write!(text, "\n## `{brackets}`\n\n{about}\n");
        for key in KEYS.iter() {
            let Some((_, name)) = key.path.rsplit_once('.').filter(|(of, _)| *of == table) else {
                continue;
            };
            let default = match (key.path, (key.show)(&draft, 0)) {
                // The value depends on the machine.
                ("server.workers", _) => "one a core".to_owned(),
                (_, Some(value)) if key.kind.quoted() => format!("`\"{value}\"`"),
                (_, Some(value)) if value == super::kind::NONE => format!("`\"{value}\"`"),
                (_, Some(value)) => format!("`{value}`"),
                ("origin.url" | "listener.address", None) => "must be given".to_owned(),
                (_, None) => "not set".to_owned(),
            };
            _ = write!(text, "\n### `{name}`\n\n{}\n\n", key.doc);
            _ = writeln!(text, "- takes: {}", key.kind.name());
            _ = writeln!(text, "- default: {default}");
            if let Some((least, most)) = key.kind.bounds() {
                _ = writeln!(text, "- least `{least}`, most `{most}`");
            }
            if let Some(flag) = key.flag {
                _ = writeln!(text, "- flag: `{flag}`");
            }
        }
    }
    text
}

const INTRODUCTION: &str = r#"# Configuration

<!-- Written by `edgeward check-config --reference`. Change crates/cli/src/config/keys.rs instead. -->

`edgeward serve --config edgeward.toml` reads this file; flags say the same things and win over it. What has
no flag of its own is typed as `--set hot.seed=7`. `edgeward check-config edgeward.toml` says all that is wrong
with a file, with line and way out, or shows every setting as it will be and where it came from.

```toml
[[listener]]
address = "0.0.0.0:8080"

[[listener]]
address = "0.0.0.0:8443"
tls_certificates = "tls/fullchain.pem"
tls_key = "tls/privkey.pem"

[origin]
url = "http://10.0.0.7:9000"

[hot]
capacity = "256MiB"

[[disk_device]]
path = "/var/cache/edgeward"
capacity = "100GiB"

[admin]
address = "127.0.0.1:9900"
```

- **size**: text such as `"64MiB"` or `"20MB"` (`KiB` is 1024 bytes, `KB` is 1000, a bare `K` is `KiB`), or a number of bytes.
- **duration**: text with a whole number and `ms`, `s`, `min`, `h` or `d`, such as `"30s"`.
- **switch**: `true` or `false`.
- **file**: a path; a relative one starts at the folder of the configuration file, or at the current folder when
  it is typed at the prompt.
"#;
