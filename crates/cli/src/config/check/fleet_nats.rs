//! Checks `[fleet.nats]`.

use crate::config::draft::ConfigDraft;
use crate::config::file::RawSetting;
use crate::config::setting::SettingSource;
use crate::diagnostic::Diagnostic;

/// Checks that `[fleet.nats]` is complete, if any of its settings is given.
pub(super) fn check_fleet_nats(
    raw_settings: &[RawSetting],
    draft: &ConfigDraft,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    let given = |path: &str| {
        let mut settings = raw_settings.iter().rev();
        settings.find(|setting| setting.key.path == path)
    };
    let Some(first) = raw_settings
        .iter()
        .find(|setting| setting.key.path.starts_with("fleet.nats."))
    else {
        return;
    };
    if !cfg!(feature = "fleet") {
        let diagnostic = Diagnostic::lacks_feature("[fleet.nats]", "fleet");
        diagnostics.push((first.source.clone(), diagnostic));
        return;
    }
    let nats = &draft.fleet_nats;
    let mut report = |path: &str, text: &str, hint: &str| {
        let source = given(path).unwrap_or(first).source.clone();
        diagnostics.push((source, Diagnostic::new(text.to_owned()).hint(hint)));
    };
    if given("fleet.nats.servers").is_none() {
        report(
            "fleet.nats.servers",
            "[fleet.nats] has no servers",
            "add servers = [\"nats://10.0.0.5:4222\"]",
        );
    }
    if nats.user.is_some() != nats.password_file.is_some() {
        report(
            "fleet.nats.user",
            "only one of fleet.nats.user and fleet.nats.password_file is set",
            "set both",
        );
    }
    if nats.token_file.is_some() && nats.user.is_some() {
        report(
            "fleet.nats.token_file",
            "fleet.nats has a token and a user",
            "remove one of them",
        );
    }
    if nats.certificate.is_some() != nats.key.is_some() {
        report(
            "fleet.nats.certificate",
            "only one of fleet.nats.certificate and fleet.nats.key is set",
            "set both",
        );
    }
}
