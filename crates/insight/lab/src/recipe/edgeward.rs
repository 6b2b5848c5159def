//! How the lab starts an edge: its arguments, and its configuration file with the settings of the plan and the
//! addresses.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Environment, Recipe};
use crate::plan::{Contender, Setting, SettingValue};

pub(super) fn recipe(
    contender: &Contender,
    settings: &[Setting],
    environment: &Environment<'_>,
) -> Recipe {
    let file = environment.folder.join("edgeward.toml");
    let store = environment.folder.join("store");
    let arguments = [
        "serve".to_owned(),
        "--config".to_owned(),
        file.display().to_string(),
        "--log=warn".to_owned(),
    ];
    Recipe {
        folders: vec![store],
        files: vec![(file, text(contender, settings, environment))],
        arguments: arguments.into(),
        has_status: true,
        files_in_memory: None,
        enforced_capacity: None,
    }
}

/// Returns the text of the configuration file.
fn text(contender: &Contender, settings: &[Setting], environment: &Environment<'_>) -> String {
    let lab_setting = |table: &str, key: &str, value: SettingValue| Setting {
        table: table.to_owned(),
        key: key.to_owned(),
        value,
        line: 0,
    };
    let number = |n: u64| SettingValue::Number(i64::try_from(n).unwrap_or(i64::MAX));
    let mut all = vec![
        lab_setting(
            "origin",
            "url",
            SettingValue::Text(format!("http://127.0.0.1:{}", environment.origin_port)),
        ),
        lab_setting(
            "admin",
            "address",
            SettingValue::Text(format!("127.0.0.1:{}", environment.admin_port)),
        ),
        lab_setting("server", "workers", number(contender.workers.get() as u64)),
        lab_setting(
            "hot",
            "capacity",
            // A plan without a memory tier has the capacity 0.
            number(environment.memory_bytes.unwrap_or(0)),
        ),
    ];
    all.extend(settings.iter().cloned());
    let mut tables: BTreeMap<&str, Vec<&Setting>> = BTreeMap::new();
    for setting in &all {
        tables.entry(&setting.table).or_default().push(setting);
    }
    let mut text = format!(
        "[[listener]]\naddress = \"127.0.0.1:{}\"\n",
        environment.port
    );
    if let Some(bytes) = environment.disk_bytes {
        let path = quoted(&environment.folder.join("store").display().to_string());
        _ = write!(
            text,
            "\n[[disk_device]]\npath = {path}\ncapacity = {bytes}\n"
        );
    }
    for (table, settings) in tables {
        _ = write!(text, "\n[{table}]\n");
        for setting in settings {
            let value = match &setting.value {
                SettingValue::Text(text) => quoted(text),
                other => other.to_string(),
            };
            _ = writeln!(text, "{} = {value}", quoted(&setting.key));
        }
    }
    text
}

/// Formats text as a TOML basic string.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => _ = write!(quoted, "\\u{:04X}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
