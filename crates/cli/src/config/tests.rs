//! Tests of valid and invalid configurations and of the messages about them.

mod fleet;
mod live;
mod origins;
mod wrong_values;

use std::fs;

use clap::{Args as _, FromArgMatches as _};

use super::*;

/// Returns the configuration of a valid file.
fn load_checked(text: &str) -> CheckedConfig {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let path = folder.path().join("edge.toml");
    fs::write(&path, text).expect("the file is written");
    load(Some(&path), &[]).unwrap_or_else(|error| {
        panic!("{}", crate::diagnostic::render(&error.into()));
    })
}

/// Loads a file with this text and these flags (flag, key, value). Returns the settings that are not defaults, or the
/// errors without the path of the temporary folder.
fn load_text(text: &str, flags: &[(&str, &str, &str)]) -> String {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let path = folder.path().join("edge.toml");
    fs::write(&path, text).expect("the file is written");
    let flags: Vec<FlagSetting> = flags
        .iter()
        .map(|(flag, key, text)| FlagSetting {
            flag: (*flag).to_owned(),
            key: (*key).to_owned(),
            text: (*text).to_owned(),
        })
        .collect();
    match load(Some(&path), &flags) {
        Ok(checked) => checked
            .settings
            .iter()
            .filter(|setting| setting.source != SettingSource::Default)
            .map(
                |Setting {
                     key, value, source, ..
                 }| format!("{key} = {value} ({source})\n"),
            )
            .collect(),
        Err(error) => crate::diagnostic::render(&error.into())
            .replace(&format!("{}/", folder.path().display()), ""),
    }
}

const MINIMAL_FILE: &str =
    "[[listener]]\naddress = \"127.0.0.1:0\"\n[origin]\nurl = \"http://[::1]:9000\"\n";

#[test]
fn a_minimal_file_is_valid() {
    insta::assert_snapshot!(
        load_text(&format!("{MINIMAL_FILE}[hot]\ncapacity = \"64MiB\"\npolicy = \"threshold:32K\"\n"), &[]),
        @r"
    listener[0].address = 127.0.0.1:0 (line 2)
    origin.url = http://[::1]:9000 (line 4)
    hot.capacity = 64MiB (line 6)
    hot.policy = threshold:32KiB (line 7)
    "
    );
}

/// Method: valid values are shown as they were written; invalid ones and combinations are refused with their reason.
#[test]
fn the_settings_of_logs_and_traces_are_checked() {
    let load = |text: &str| load_text(&format!("{MINIMAL_FILE}{text}\n"), &[]);
    for (text, shown) in [
        (
            "[access_log]\npath = \"-\"\nformat = '$status ${host} \"$http_user_agent\"'",
            "access_log.format = $status ${host} \"$http_user_agent\" (line 7)\n",
        ),
        (
            "[access_log]\nsyslog = \"udp:192.0.2.1:514\"",
            "access_log.syslog = udp:192.0.2.1:514 (line 6)\n",
        ),
        (
            "[access_log]\njournald = true\nformat = \"combined\"",
            "access_log.journald = true (line 6)\n",
        ),
        (
            "[access_log]\npath = \"-\"\njournald = false",
            "access_log.path = - (line 6)\n",
        ),
        (
            "[tracing]\nendpoint = \"http://127.0.0.1:4318\"\nsample = 0.25",
            "tracing.sample = 0.25 (line 7)\n",
        ),
        ("[tracing]\nsample = 1", "tracing.sample = 1 (line 6)\n"),
    ] {
        let loaded = load(text);
        assert!(loaded.contains(shown), "{text}: {loaded}");
    }
    for (text, reason) in [
        (
            "path = \"-\"\nformat = '$nothing'",
            "has no variable `$nothing`",
        ),
        ("path = \"-\"\nformat = 'common'", "is not known"),
        (
            "syslog = \"192.0.2.1:514\"",
            "is not the address of a syslog server",
        ),
        ("path = \"-\"\njournald = true", "are both set"),
        (
            "format = \"json\"\njournald = false",
            "but the access log is off",
        ),
    ] {
        let loaded = load(&format!("[access_log]\n{text}"));
        assert!(
            loaded.contains("error: ") && loaded.contains(reason),
            "{text}: {loaded}"
        );
    }
    for sample in ["1.01", "-0.1", "nan", "true", "\"1\""] {
        let loaded = load(&format!("[tracing]\nsample = {sample}"));
        assert!(
            loaded.contains("error: tracing.sample"),
            "{sample}: {loaded}"
        );
    }
}

#[test]
fn a_link_is_a_nested_table() {
    let link = "[origin.link]\ngateway = \"GW.example:7443\"\nkeys = \"keys\"\nstore = \"chunks\"\n\
                encryption = false\n";
    let printed = load_text(&format!("{MINIMAL_FILE}{link}"), &[]);
    assert!(
        printed.contains("origin.link.gateway = gw.example:7443 (line 6)\n"),
        "{printed}"
    );
    assert!(
        printed.contains("origin.link.encryption = false (line 9)\n"),
        "{printed}"
    );
    let flag = [("--set origin.link.gateway", "origin.link.gateway", "gw:1")];
    assert!(
        load_text(&format!("{MINIMAL_FILE}{link}"), &flag)
            .contains("gw:1 (--set origin.link.gateway)")
    );
}

#[test]
fn an_incomplete_link_lists_its_missing_keys() {
    let text = format!(
        "{MINIMAL_FILE}protocol = \"http2\"\n[origin.link]\ngatway = \"gw:1\"\ngateway = \"gw\"\n"
    );
    insta::assert_snapshot!(load_text(&text, &[]), @r#"
    error: a link does not support HTTP/2 to the origin
      in edge.toml, line 5
      hint: remove origin.protocol or set it to http1
    error: unknown key origin.link.gatway
      in edge.toml, line 7
      hint: did you mean origin.link.gateway?
    error: origin.link.gateway = "gw" is not HOST:PORT
      in edge.toml, line 8
      hint: write "gateway.example:7443"
    error: [origin.link] has no keys: the link needs the keys of the edge
      in edge.toml, line 8
      hint: add keys = "keys/edge", the folder that `edgeward link keygen` created
    error: [origin.link] has no store: the link needs a store for chunks
      in edge.toml, line 8
      hint: add store = "/var/lib/edgeward/link"
    "#);
}

#[test]
fn a_flag_overrides_the_file() {
    let flags = [
        ("--hot", "hot.capacity", "32MiB"),
        ("--listen", "listener.address", "127.0.0.1:81"),
        ("--listen", "listener.address", "127.0.0.1:82"),
        ("--set limits.headers_max", "limits.headers_max", "50"),
    ];
    let text = format!("{MINIMAL_FILE}[hot]\ncapacity = \"64MiB\"\n[server]\nworkers = 3\n");
    insta::assert_snapshot!(load_text(&text, &flags), @r"
    listener[0].address = 127.0.0.1:81 (--listen)
    listener[1].address = 127.0.0.1:82 (--listen)
    origin.url = http://[::1]:9000 (line 4)
    hot.capacity = 32MiB (--hot)
    server.workers = 3 (line 8)
    limits.headers_max = 50 (--set limits.headers_max)
    ");
}

#[test]
fn every_default_parses_to_itself() {
    let draft = draft::ConfigDraft::new();
    for key in keys::all() {
        // 0 is the index of the item in a repeated table; other tables ignore it.
        let Some(text) = key.field.show(&draft, 0) else {
            continue;
        };
        let mut second_draft = draft::ConfigDraft::new();
        key.field
            .set(
                &mut second_draft,
                0,
                &Raw::Flag(text.clone()),
                Path::new(""),
            )
            .unwrap_or_else(|value_error| panic!("{} = {text} {}", key.path, value_error.reason));
        assert_eq!(key.field.show(&second_draft, 0), Some(text), "{}", key.path);
    }
}

/// Method: each flag is given alone.
#[test]
fn a_flag_sets_the_key_of_its_row() {
    for key in keys::all() {
        let Some(flag) = key.flag else { continue };
        let (value, text) = match flag.value_name() {
            Some(_) => (Some("a value"), "a value"),
            None => (None, "true"),
        };
        let arguments = ["serve", flag.name()].into_iter().chain(value);
        let command = SettingFlags::augment_args(clap::Command::new("serve"));
        let matches = command.try_get_matches_from(arguments);
        let matches = matches.unwrap_or_else(|error| panic!("{}: {error}", flag.name()));
        let SettingFlags(given) =
            SettingFlags::from_arg_matches(&matches).expect("a flag is given");
        let given: Vec<_> = given
            .iter()
            .map(|setting| (&*setting.flag, &*setting.key, &*setting.text))
            .collect();
        assert_eq!(given, [(flag.name(), key.path, text)]);
    }
}

#[test]
fn every_key_occurs_once_and_in_a_listed_table() {
    let mut paths: Vec<&str> = keys::all().map(|key| key.path).collect();
    let tables: Vec<&str> = keys::TABLES.iter().map(|(table, _)| *table).collect();
    // `nearest::tables` reads the keys in order, and yields a table whenever it differs from the previous key's table.
    // A table that is not listed, or whose keys are not adjacent, therefore makes the two sequences differ.
    assert_eq!(nearest::tables().collect::<Vec<_>>(), tables);
    paths.sort_unstable();
    let count = paths.len();
    paths.dedup();
    assert_eq!(paths.len(), count);
}

/// The values next to them are rejected, see `wrong_values`.
#[test]
fn the_minimum_and_the_maximum_are_accepted() {
    for key in keys::all() {
        for bound in key
            .field
            .bounds()
            .into_iter()
            .flat_map(|(min, max)| [min, max])
        {
            let mut draft = draft::ConfigDraft::new();
            let raw = Raw::Flag(bound.clone());
            let set = key.field.set(&mut draft, 0, &raw, Path::new(""));
            assert!(set.is_ok(), "{} = {bound}", key.path);
        }
    }
}

#[test]
fn all_errors_are_reported_together() {
    let text = r#"workers = 2
[origin]
url = "example.com"
conect_timeout = "5s"
retries_max = 99
protocol = "http3"

[hot]
capacity = "12 parsecs"
policy = "lfu"
seed = -1

[limits]
idle_timeout = 30
headers_max = "50"
connections_max = 1.5
"#;
    insta::assert_snapshot!(load_text(text, &[]), @r#"
    error: unknown key workers outside of a table
      in edge.toml, line 1
      hint: did you mean server.workers?
    error: origin.url = "example.com" has no known scheme
      in edge.toml, line 3
      hint: start with http:// or https://
    error: unknown key origin.conect_timeout
      in edge.toml, line 4
      hint: did you mean origin.connect_timeout?
    error: origin.retries_max = 99 is too large
      in edge.toml, line 5
      hint: use 0 to 10
    error: origin.protocol = "http3" is not known
      in edge.toml, line 6
      hint: use http1 or http2
    error: hot.capacity = "12 parsecs" has an unknown unit
      in edge.toml, line 9
      hint: use B, KiB, MiB, GiB, TiB or KB, MB, GB, TB
    error: hot.policy = "lfu" is not a policy
      in edge.toml, line 10
      hint: use lru, gdsf, density, adaptsize+gdsf or another policy of `edgeward simulate --help`
    error: hot.seed = -1 is negative
      in edge.toml, line 11
      hint: write a number such as 42
    error: limits.idle_timeout = 30 is a number, not a duration
      in edge.toml, line 14
      hint: add a unit: write "30s" or "30ms"
    error: limits.headers_max = "50" is a string, not a whole number
      in edge.toml, line 15
      hint: write 50 without quotes
    error: limits.connections_max = 1.5 is a fraction, not a whole number
      in edge.toml, line 16
      hint: write a number such as 8
    error: listener.address is missing: the edge needs an address to listen on
      in edge.toml
      hint: add [[listener]] with address = "127.0.0.1:8080", or give --listen 127.0.0.1:8080
    "#);
}

#[test]
fn a_syntax_error_does_not_hide_other_errors() {
    let text = "[origin]\nurl = \"http://a\nhost = \"a\"\nhost = \"b\"\n[hot\ncapacity = 1\n[server]\nworkers = \n";
    insta::assert_snapshot!(load_text(text, &[]), @r#"
    error: invalid TOML: invalid basic string, expected `"`
      in edge.toml, line 2
    error: host is given twice
      in edge.toml, line 4
      hint: remove one of the two
    error: invalid TOML: unclosed table, expected `]`
      in edge.toml, line 5
    error: invalid TOML: string values must be quoted, expected literal string
      in edge.toml, line 8
    error: listener.address is missing: the edge needs an address to listen on
      in edge.toml
      hint: add [[listener]] with address = "127.0.0.1:8080", or give --listen 127.0.0.1:8080
    "#);
}

#[test]
fn listeners_are_checked_together() {
    let text = r#"
[origin]
url = "http://127.0.0.1:9000"
[[listener]]
address = "127.0.0.1:8080"
[[listener]]
address = "127.0.0.1:8080"
tls_key = "nowhere.pem"
[[listener]]
tls_certificates = "edge.toml"
[access_log]
format = "combined"
"#;
    insta::assert_snapshot!(load_text(text, &[]), @r#"
    error: listener.address 127.0.0.1:8080 is given twice
      in edge.toml, line 7
      hint: remove one of the two
    error: listener.tls_key = "nowhere.pem" does not exist
      in edge.toml, line 8
      hint: the full path is nowhere.pem
    error: listener.tls_key is set without listener.tls_certificates (--tls-cert)
      in edge.toml, line 8
      hint: give both: TLS needs a certificate and its key
    error: listener.tls_certificates is set without listener.tls_key (--tls-key)
      in edge.toml, line 10
      hint: give both: TLS needs a certificate and its key
    error: this [[listener]] has no address
      in edge.toml, line 10
      hint: add address = "0.0.0.0:8443"
    error: access_log.format is set, but the access log is off
      in edge.toml, line 12
      hint: set access_log.path (--access-log) to a file, or to - for stdout
    "#);
}

#[test]
fn a_list_is_an_array_or_a_text_with_commas() {
    let listener = "[[listener]]\naddress = \"127.0.0.1:0\"\n[origin]\n";
    let expected = "origin.servers = http://a:1, unix:/run/app.sock (line 4)\n";
    for servers in [
        r#"["http://a:1", "unix:/run/app.sock"]"#,
        r#""http://a:1, unix:/run/app.sock""#,
    ] {
        let printed = load_text(&format!("{listener}servers = {servers}\n"), &[]);
        assert!(printed.contains(expected), "{printed}");
    }
    for (servers, reason) in [
        (r#"["http://a:1", "b:2"]"#, "has no known scheme"),
        (r#"["http://a:1,http://b:2"]"#, "has a comma"),
        (r#"["http://a:1", 7]"#, "is a list, not a list of URLs"),
        ("[]", "is a list, not a list of URLs"),
    ] {
        let printed = load_text(&format!("{listener}servers = {servers}\n"), &[]);
        assert!(printed.contains(reason), "{servers}: {printed}");
    }
}

#[test]
fn an_objective_that_the_policy_ignores_is_rejected() {
    let load = |hot: &str| load_text(&format!("{MINIMAL_FILE}[hot]\n{hot}"), &[]);
    insta::assert_snapshot!(load("objective = \"bytes\"\npolicy = \"lru\"\n"), @"
    error: the policy `lru` does not follow the objective `bytes`
      in edge.toml, line 6
      hint: use density, gds or a form of gdsf, or remove hot.objective
    ");
    for hot in [
        "objective = \"bytes\"\n",
        "objective = \"origin-cost\"\npolicy = \"second-hit+gdsf\"\n",
        "objective = \"requests\"\npolicy = \"lru\"\n",
    ] {
        let loaded = load(hot);
        assert!(!loaded.contains("error"), "{hot}: {loaded}");
    }
}

#[test]
fn a_table_of_another_type_is_rejected() {
    let text =
        format!("{MINIMAL_FILE}[[hot]]\ncapacity = 1\n[admin]\naddress = \"off\"\n[hott]\nx = 1\n");
    insta::assert_snapshot!(load_text(&format!("limits = 5\n{text}"), &[]), @r#"
    error: limits = 5 is not a table
      in edge.toml, line 1
      hint: write [limits] on a line, and its keys below
    error: [[hot]] is given as an array of tables
      in edge.toml, line 6
      hint: there is only one: write [hot]
    error: admin.address = "off" is not an address and port
      in edge.toml, line 9
      hint: write 127.0.0.1:8080 (this machine), 0.0.0.0:8080 (all of IPv4) or [::]:8080 (all addresses)
    error: unknown table [hott]
      in edge.toml, line 10
      hint: did you mean [hot]?
    "#);
}

#[test]
fn flags_are_named_as_given() {
    let flags = [
        ("--hot", "hot.capacity", "lots"),
        ("--set hot.polcy", "hot.polcy", "lru"),
        ("--workers", "server.workers", "0"),
        ("--set caching.heuristic", "caching.heuristic", "yes"),
    ];
    insta::assert_snapshot!(load_text("", &flags), @r#"
    error: --set hot.polcy: unknown key
      hint: did you mean hot.policy?
    error: --hot lots has an unknown unit
      hint: use B, KiB, MiB, GiB, TiB or KB, MB, GB, TB
    error: --workers 0 is too small
      hint: use 1 to 1024
    error: --set caching.heuristic yes is not a boolean
      hint: write true or false
    error: origin.url is missing: the edge needs an origin to fetch misses from
      in edge.toml
      hint: add [origin] with url = "http://HOST:PORT", or give --origin http://HOST:PORT
    error: listener.address is missing: the edge needs an address to listen on
      in edge.toml
      hint: add [[listener]] with address = "127.0.0.1:8080", or give --listen 127.0.0.1:8080
    "#);
}

#[test]
fn an_incomplete_negative_rule_lists_its_missing_keys() {
    insta::assert_snapshot!(load_text(
        &format!(
            "{MINIMAL_FILE}[[negative]]\npath = \"/r/{{id}}\"\nfilter = \"http://[::1]:1/sets/r\"\n\
             [[negative]]\npath = \"/r/{{name}}\"\nfilter = \"missing.ids\"\npublic_key = \"00\"\nmax_stale = \"1s\"\n"
        ),
        &[],
    ), @r#"
    error: this [[negative]] has no max_staleness: a published filter needs a bound on its age
      in edge.toml, line 7
      hint: add max_staleness = "10s": an id that was committed longer ago is never answered 404
    error: this [[negative]] has no public_key: without https the filter must be signed
      in edge.toml, line 7
      hint: add the key that `edgeward filter keygen --public` prints, or use https
    error: negative.path = "/r/{name}" is not a path with one {id} in it
      in edge.toml, line 9
      hint: write /resource/{id} or /img/{id}.jpg
    error: negative.filter = "missing.ids" does not exist
      in edge.toml, line 10
      hint: the full path is missing.ids
    error: negative.public_key = "00" is not a public key of 64 hex digits
      in edge.toml, line 11
      hint: `edgeward filter keygen --public FILE` prints the key of a publisher
    error: unknown key negative.max_stale
      in edge.toml, line 12
      hint: `edgeward check-config --reference` lists all keys
    "#);
}

#[test]
fn the_configuration_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == reference_markdown(),
        "docs/reference/configuration.md is out of date; write it with\n  \
         cargo run -- check-config --reference > docs/reference/configuration.md"
    );
}

#[test]
fn a_host_has_its_own_rule_of_admission() {
    let disk = format!("{MINIMAL_FILE}[[disk_device]]\npath = \"d\"\ncapacity = \"1GiB\"\n");
    let two_hosts = "[[disk_host]]\nhost = \"IMG.example.com\"\nadmission = \"never\"\n\
               [[disk_host]]\nhost = \"*.example.com\"\nadmission = \"nth-hit:3\"\n";
    let printed = load_text(&format!("{disk}{two_hosts}"), &[]);
    for line in [
        "disk_host[0].host = img.example.com (line 9)",
        "disk_host[0].admission = never (line 10)",
        "disk_host[1].host = *.example.com (line 12)",
        "disk_host[1].admission = nth-hit:3 (line 13)",
    ] {
        assert!(printed.contains(line), "{printed}");
    }
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let path = folder.path().join("edge.toml");
    fs::write(&path, format!("{disk}{two_hosts}")).expect("the file is written");
    let disk_cache = load(Some(&path), &[])
        .expect("the configuration is valid")
        .edge
        .disk;
    assert_eq!(disk_cache.expect("there is a disk").hosts.len(), 2);
}

#[test]
fn an_incomplete_or_repeated_disk_host_is_an_error() {
    let disk = format!("{MINIMAL_FILE}[[disk_device]]\npath = \"d\"\ncapacity = \"1GiB\"\n");
    let always = "[[disk_host]]\nhost = \"a\"\nadmission = \"always\"\n";
    for (text, expected) in [
        (
            "[[disk_host]]\nhost = \"a\"\n".to_owned(),
            "this [[disk_host]] has no admission",
        ),
        (
            "[[disk_host]]\nadmission = \"never\"\n".to_owned(),
            "this [[disk_host]] has no host",
        ),
        (
            format!("{always}{always}"),
            "disk_host.host a is given twice",
        ),
        (
            always.replace("\"a\"", "\"http://a\""),
            "is not a host name",
        ),
        (
            always.replace("\"always\"", "\"often\""),
            "unknown disk admission rule `often`",
        ),
    ] {
        let printed = load_text(&format!("{disk}{text}"), &[]);
        assert!(printed.contains(expected), "{text}{printed}");
    }
    let printed = load_text(&format!("{MINIMAL_FILE}{always}"), &[]);
    assert!(printed.contains("there is no disk cache"), "{printed}");
}

/// Sets each word that the name of a type lists, such as those of choices. Checks that the configuration then prints
/// the same word. This detects a setter that confuses two words.
#[test]
fn each_word_of_a_choice_is_shown_unchanged() {
    let mut words_shown = 0;
    for key in keys::all() {
        let name = key.field.type_name();
        let words = name.split('"').skip(1).step_by(2);
        for word in words.filter(|word| *word != "*.DOMAIN") {
            let mut draft = draft::ConfigDraft::new();
            let raw = Raw::Flag(word.to_owned());
            let set = key.field.set(&mut draft, 0, &raw, Path::new(""));
            set.expect("every listed word is valid");
            assert_eq!(key.field.show(&draft, 0).as_deref(), Some(word), "{key:?}");
            words_shown += 1;
        }
    }
    assert!(words_shown > 20, "only {words_shown} words");
}

/// Method: complete tokens are shown without their secrets. Each error names the key and a way out.
#[test]
fn a_token_of_the_admin_api_needs_name_file_roles_and_a_secret_of_its_own() {
    let folder = tempfile::tempdir().expect("the temporary folder is created");
    let file = |name: &str, secret: &str| {
        let path = folder.path().join(name);
        fs::write(&path, secret).expect("the file is written");
        path.display().to_string()
    };
    let (one, two) = (
        file("one", "first-secret-of-16"),
        file("two", "other-secret-of-16"),
    );
    let (short, same) = (file("short", "short"), file("same", "first-secret-of-16\n"));
    let token = |name: &str, file: &str, roles: &str| {
        format!("[[admin.token]]\nname = \"{name}\"\nfile = \"{file}\"\nroles = {roles}\n")
    };
    let admin = "[admin]\naddress = \"127.0.0.1:0\"\n";
    let load = |text: &str| load_text(&format!("{MINIMAL_FILE}{text}"), &[]);
    let first = token("ci", &one, "[\"purge\", \"read\"]");
    let valid = load(&format!("{admin}{first}{}", token("b", &two, "\"reload\"")));
    assert!(
        valid.contains("admin.token[0].roles = read,purge (line 10)\n"),
        "{valid}"
    );
    assert!(
        valid.contains("admin.token[1].roles = reload (line 14)\n"),
        "{valid}"
    );
    assert!(!valid.contains("secret-of"), "{valid}");
    for (text, reason) in [
        (first.clone(), "there is no admin server"),
        (
            format!("{admin}[[admin.token]]\nname = \"a\"\n"),
            "has no admin.token.file",
        ),
        (
            format!("{admin}[[admin.token]]\nfile = \"{one}\"\n"),
            "has no admin.token.roles",
        ),
        (
            format!("{admin}{}", token("a", &one, "[\"write\"]")),
            "has the unknown role `write`",
        ),
        (
            format!("{admin}{}", token("a", &short, "\"read\"")),
            "at least 16 visible",
        ),
        (
            format!("{admin}{}", token("a", "absent", "\"read\"")),
            "does not exist",
        ),
        (
            format!("{admin}{first}{}", token("ci", &two, "\"read\"")),
            "is given twice",
        ),
        (
            format!("{admin}{first}{}", token("b", &same, "\"read\"")),
            "has the same secret",
        ),
        (
            format!("{admin}{first}[purge]\ntoken_file = \"{same}\"\n"),
            "has the same secret",
        ),
        (
            format!("{admin}require_token = true\n"),
            "but there is no token",
        ),
        (format!("{admin}token = \"a\"\n"), "is not a table"),
    ] {
        let loaded = load(&text);
        assert!(
            loaded.contains("error: ") && loaded.contains(reason),
            "{text}: {loaded}"
        );
    }
}
