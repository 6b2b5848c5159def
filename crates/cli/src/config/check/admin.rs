//! Checks the settings of the admin server, and reads its tokens.

use std::collections::HashSet;
use std::path::Path;

use edgeward_proxy::config::{AdminToken, ListenAddress, Token};

use super::super::draft::{ConfigDraft, DraftToken};
use super::super::file::RawSetting;
use super::super::setting::SettingSource;
use super::combinations::name;
use crate::diagnostic::Diagnostic;

/// Runs all checks of this module and adds their errors to `diagnostics`.
pub(super) fn check_admin(
    raw_settings: &[RawSetting],
    draft: &mut ConfigDraft,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    check_port(raw_settings, draft, diagnostics);
    check_tls(raw_settings, draft, diagnostics);
    check_purge(raw_settings, draft, diagnostics);
    check_tokens(raw_settings, draft, diagnostics);
    check_required_token(raw_settings, draft, diagnostics);
}

/// Reads the token with all roles. The API is on the admin server, so the token needs `admin.address`.
fn check_purge(
    raw_settings: &[RawSetting],
    draft: &mut ConfigDraft,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    let is_token_file = |setting: &&RawSetting| setting.key.path == "purge.token_file";
    let (Some(path), Some(setting)) = (
        &draft.purge_token_file,
        raw_settings.iter().rev().find(is_token_file),
    ) else {
        return;
    };
    match read_token(path) {
        Ok(token) => draft.edge.purge.token = Some(token),
        Err(reason) => diagnostics.push((
            setting.source.clone(),
            Diagnostic::new(format!("purge.token_file: {reason}"))
                .hint("`openssl rand -hex 16` prints a token"),
        )),
    }
    if draft.edge.admin.address.is_none() {
        let text = "purge.token_file is set, but the purge API needs the admin server";
        let diagnostic =
            Diagnostic::new(text).hint("add [admin] with address = \"127.0.0.1:9101\"");
        diagnostics.push((setting.source.clone(), diagnostic));
    }
}

/// Reads each `[[admin.token]]`. It needs a name, a file and roles; two tokens differ in name and secret.
fn check_tokens(
    raw_settings: &[RawSetting],
    draft: &mut ConfigDraft,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    let mut names = HashSet::from(["purge.token_file".to_owned()]);
    for (item, token) in draft.admin_tokens.iter().enumerate() {
        let of_item = |setting: &&RawSetting| {
            setting.item == item && setting.key.path.starts_with("admin.token.")
        };
        let Some(setting) = raw_settings.iter().find(of_item) else {
            continue;
        };
        let mut report = |text: String, hint: &str| {
            diagnostics.push((setting.source.clone(), Diagnostic::new(text).hint(hint)));
        };
        let DraftToken { name, file, roles } = token;
        // A setting with an invalid value is reported already, and is no missing one.
        let is_given = |path: &str| {
            let mut of_item = raw_settings.iter().filter(of_item);
            of_item.any(|setting| setting.key.path == path)
        };
        for (path, example) in [
            ("admin.token.name", "name = \"deployment\""),
            (
                "admin.token.file",
                "file = \"/etc/edgeward/deployment-token\"",
            ),
            ("admin.token.roles", "roles = [\"purge\"]"),
        ] {
            if !is_given(path) {
                let text = format!("this [[admin.token]] has no {path}");
                report(text, &format!("add {example}"));
            }
        }
        let (Some(name), Some(file), Some(roles)) = (name, file, roles) else {
            continue;
        };
        if !names.insert(name.clone()) {
            let text = format!("admin.token.name = \"{name}\" is given twice");
            report(text, "give each token a name of its own, which logs show");
        }
        let token = match read_token(file) {
            Ok(token) => token,
            Err(reason) => {
                let text = format!("admin.token.file of `{name}`: {reason}");
                report(text, "`openssl rand -hex 16` prints a token");
                continue;
            }
        };
        let others = draft.edge.admin.tokens.iter().map(|other| &other.token);
        let mut others = others.chain(&draft.edge.purge.token);
        if others.any(|other| other.is_same(&token)) {
            let text = format!("the token `{name}` has the same secret as another token");
            report(text, "`openssl rand -hex 16` prints a token");
        }
        draft.edge.admin.tokens.push(AdminToken {
            name: name.clone(),
            token,
            roles: *roles,
        });
        if draft.edge.admin.address.is_none() {
            report(
                "an [[admin.token]] is set, but there is no admin server".to_owned(),
                "add [admin] with address = \"127.0.0.1:9101\"",
            );
        }
    }
}

/// Checks that there is a token if the pages need one.
fn check_required_token(
    raw_settings: &[RawSetting],
    draft: &ConfigDraft,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    let mut settings = raw_settings.iter().rev();
    let setting = settings.find(|setting| setting.key.path == "admin.require_token");
    let has_token = draft.purge_token_file.is_some() || !draft.admin_tokens.is_empty();
    if let Some(setting) = setting
        && draft.edge.admin.requires_token
        && !has_token
    {
        let text = format!("{} is set, but there is no token", name(setting));
        let hint = "add [[admin.token]] with name, file and roles";
        diagnostics.push((setting.source.clone(), Diagnostic::new(text).hint(hint)));
    }
}

fn read_token(file: &Path) -> Result<Token, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    Token::new(&text).map_err(|error| error.to_string())
}

/// Checks that TLS has a certificate, its key and a port of TCP.
fn check_tls(
    raw_settings: &[RawSetting],
    draft: &ConfigDraft,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    let (certificate, key) = ("admin.tls_certificates", "admin.tls_key");
    let find = |path: &str| raw_settings.iter().find(|setting| setting.key.path == path);
    let (text, setting, hint) = match (find(certificate), find(key), &draft.edge.admin.address) {
        (Some(setting), None, _) => (
            format!("{certificate} is set without {key}"),
            setting,
            "give both: TLS needs a certificate and its key",
        ),
        (None, Some(setting), _) => (
            format!("{key} is set without {certificate}"),
            setting,
            "give both: TLS needs a certificate and its key",
        ),
        (Some(setting), Some(_), Some(ListenAddress::Unix(_))) => (
            format!("{certificate} is set for a Unix socket"),
            setting,
            "remove it: a connection inside of a machine needs no encryption",
        ),
        _ => return,
    };
    diagnostics.push((setting.source.clone(), Diagnostic::new(text).hint(hint)));
}

/// Checks that the admin server does not use the port of a listener.
fn check_port(
    raw_settings: &[RawSetting],
    draft: &ConfigDraft,
    diagnostics: &mut Vec<(SettingSource, Diagnostic)>,
) {
    let given = raw_settings
        .iter()
        .rev()
        .find(|setting| setting.key.path == "admin.address");
    let addr = draft.edge.admin.address.as_ref();
    let (Some(setting), Some(addr)) = (given, addr.and_then(ListenAddress::tcp)) else {
        return;
    };
    // A server on an unspecified address (0.0.0.0 or ::) accepts connections to every address with its port.
    let is_on_same_port = |listener: std::net::SocketAddr| {
        listener.port() == addr.port()
            && addr.port() != 0
            && (listener.ip() == addr.ip()
                || listener.ip().is_unspecified()
                || addr.ip().is_unspecified())
    };
    let listeners = draft.listeners.iter();
    let mut listeners = listeners.filter_map(|setting| setting.address.as_ref()?.tcp());
    if let Some(listener) = listeners.find(|listener| is_on_same_port(*listener)) {
        let what = if listener == addr {
            format!("{} {addr} is also a listener's address", name(setting))
        } else {
            format!(
                "{} {addr} uses the port of the listener {listener}",
                name(setting)
            )
        };
        diagnostics.push((
            setting.source.clone(),
            Diagnostic::new(what)
                .hint("give the admin server a port of its own, as in 127.0.0.1:9900"),
        ));
    }
}
