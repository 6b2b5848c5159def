//! Formats the settings of a contender for the report, and computes the settings after a switch. A switch is a change
//! of an edgeward contender's settings during the run, which a plan can request.

use edgeward_types::ByteSize;

use crate::plan::{Amount, Contender, DISK_BYTES_MIN, Server, Setting, Size};

/// Returns the settings of a contender as text, one setting per line. A capacity that the plan gives as a
/// share of `footprint_bytes`, the total size of all objects, is also shown in bytes.
pub(crate) fn lines(contender: &Contender, footprint_bytes: u64) -> Vec<String> {
    let mut lines = Vec::new();
    let mut capacity = |what: &str, size: Option<Size>, least: u64| {
        if let Some(size) = size {
            let bytes = ByteSize(rounded(size.of(footprint_bytes).max(least)));
            lines.push(match size {
                Size::Bytes(_) => format!("{what} {bytes}"),
                Size::Share(share) => {
                    format!("{what} {bytes}, {} % of all objects", share * 100.0)
                }
            });
        }
    };
    capacity("memory", contender.memory, 0);
    capacity("disk", contender.disk, DISK_BYTES_MIN);
    match &contender.server {
        Server::Edgeward {
            settings,
            settings_switch,
        } => {
            lines.extend(settings.iter().map(line));
            if let Some(settings_switch) = settings_switch {
                let changes: Vec<String> = settings_switch.settings.iter().map(line).collect();
                let at = match settings_switch.at {
                    Amount::Requests(n) => format!("{n} requests"),
                    Amount::Share(share) => format!("{} % of the requests", share * 100.0),
                };
                lines.push(format!("after {at}: {}", changes.join(", ")));
            }
        }
        Server::Nginx { min_uses } => lines.push(format!("proxy_cache_min_uses {min_uses}")),
        Server::Varnish | Server::TrafficServer => {}
    }
    lines
}

fn line(setting: &Setting) -> String {
    format!("{} = {}", setting.path(), setting.value)
}

/// Rounds a size down to ten significant bits, which are about three digits, because a share of a size is rarely a
/// round number.
fn rounded(bytes: u64) -> u64 {
    let shift = bytes.checked_ilog2().unwrap_or(0).saturating_sub(9);
    if bytes.trailing_zeros() >= shift {
        bytes
    } else {
        bytes >> shift << shift
    }
}

/// Returns `settings` with the values of `changes` replaced or added.
pub(crate) fn with_changes(settings: &[Setting], changes: &[Setting]) -> Vec<Setting> {
    let stays = |setting: &&Setting| changes.iter().all(|change| change.path() != setting.path());
    let mut changed: Vec<Setting> = settings.iter().filter(stays).cloned().collect();
    changed.extend_from_slice(changes);
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::SettingValue;

    fn setting(table: &str, key: &str, value: i64) -> Setting {
        Setting {
            table: table.to_owned(),
            key: key.to_owned(),
            value: SettingValue::Number(value),
            line: 1,
        }
    }

    #[test]
    fn a_switch_replaces_existing_settings_and_adds_new_ones() {
        let settings = [setting("a", "x", 1), setting("b", "x", 2)];
        let changed = with_changes(&settings, &[setting("b", "x", 3), setting("c", "y", 4)]);
        let shown: Vec<String> = changed.iter().map(line).collect();
        assert_eq!(shown, ["a.x = 1", "b.x = 3", "c.y = 4"]);
    }

    #[test]
    fn sizes_are_rounded_to_three_digits_unless_they_are_round() {
        assert_eq!(rounded(64 << 20), 64 << 20);
        assert_eq!(rounded(0), 0);
        let near = rounded(123_456_789);
        assert!(near.abs_diff(123_456_789) < 300_000 && near.trailing_zeros() >= 17);
    }
}
