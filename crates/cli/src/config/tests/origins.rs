//! Tests of `[origin]` and `[[origin]]`.

use super::*;

#[test]
fn several_origins_have_names_and_their_own_keys() {
    let text = r#"
[[listener]]
address = "127.0.0.1:0"
[[origin]]
name = "web"
url = "http://[::1]:9000"
[[origin]]
name = "npm"
url = "https://registry.npmjs.org"
queue_max = 7
"#;
    let flags = [("--origin", "origin.url", "http://127.0.0.1:1")];
    insta::assert_snapshot!(load_text(text, &flags), @r"
    listener[0].address = 127.0.0.1:0 (line 3)
    origin[0].name = web (line 5)
    origin[0].url = http://127.0.0.1:1 (--origin)
    origin[1].name = npm (line 8)
    origin[1].url = https://registry.npmjs.org (line 9)
    origin[1].queue_max = 7 (line 10)
    ");
    let one = "[[listener]]\naddress = \"127.0.0.1:0\"\n[[origin]]\nurl = \"http://[::1]:9000\"\n";
    assert_eq!(load_text(one, &[]), load_text(MINIMAL_FILE, &[]));
}

#[test]
fn origins_are_checked_together() {
    let text = r#"
[[listener]]
address = "127.0.0.1:8080"
[[origin]]
name = "web"
url = "http://127.0.0.1:9000"
[[origin]]
name = "web"
protocol = "http2"
[[origin]]
url = "http://127.0.0.1:9001"
"#;
    insta::assert_snapshot!(load_text(text, &[]), @r#"
    error: this [[origin]] has no url
      in edge.toml, line 8
      hint: add url = "http://HOST:PORT"
    error: origin.name is given twice
      in edge.toml, line 8
      hint: give each origin a name of its own
    error: this [[origin]] has no name
      in edge.toml, line 11
      hint: add name = "web": each of several origins needs a name
    "#);
}

/// Each origin may have a link of its own. The settings of a link are shown only for origins that have one. Two links
/// cannot have one store.
#[test]
fn each_origin_may_have_a_link() {
    let text = |store: &str| {
        format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n\
             [[origin]]\nname = \"plain\"\nurl = \"http://a\"\n\
             [[origin]]\nname = \"one\"\nurl = \"http://b\"\n\
             [origin.link]\ngateway = \"gw:1\"\nkeys = \"keys\"\nstore = \"chunks\"\n\
             [[origin]]\nname = \"two\"\nurl = \"http://c\"\n\
             [origin.link]\ngateway = \"gw:2\"\nkeys = \"keys\"\nstore = \"{store}\"\ndelta = false\n"
        )
    };
    if cfg!(feature = "link") {
        let printed = load_text(&text("other"), &[]);
        assert!(
            printed.contains("origin[1].link.gateway = gw:1 (line 10)\n"),
            "{printed}"
        );
        assert!(
            printed.contains("origin[2].link.delta = false (line 20)\n"),
            "{printed}"
        );
        let same = load_text(&text("chunks"), &[]);
        assert!(
            same.contains("is the store of two links\n  in edge.toml, line 19\n"),
            "{same}"
        );
    }
}

#[test]
fn the_servers_of_an_origin_are_checked_together() {
    let listener = "[[listener]]\naddress = \"127.0.0.1:0\"\n[origin]\n";
    for (settings, reason) in [
        (
            "url = \"http://a\"\nservers = \"http://b\"",
            "origin.url and origin.servers are both set",
        ),
        (
            "servers = [\"http://a\", \"https://b\"]",
            "origin.servers has servers with http and with https",
        ),
        (
            "url = \"http://a\"\nbackup_servers = [\"https://b\"]",
            "origin.backup_servers has servers with http and with https",
        ),
        (
            "url = \"https://a\"\ntls_certificate = \"edge.toml\"",
            "origin.tls_certificate is set without origin.tls_key",
        ),
        ("balance = \"hash\"", "origin.url is missing"),
        (
            "url = \"http://a\"\nhealth_path = \"health\"",
            "is not a path of a URL",
        ),
    ] {
        let printed = load_text(&format!("{listener}{settings}\n"), &[]);
        assert!(printed.contains(reason), "{settings}: {printed}");
    }
}

/// Method: the settings of a bucket, each with one fault. No message has a part of the file of credentials.
#[test]
fn the_settings_of_a_bucket_are_checked_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("the folder is writable");
        format!("s3_credentials_file = \"{}\"", path.display())
    };
    let usable = file(
        "usable",
        "[default]\naws_access_key_id = AKID\naws_secret_access_key = TOPSECRET\n",
    );
    let half = file("half", "[default]\naws_secret_access_key = TOPSECRET\n");
    let url = "url = \"https://s3.eu-central-1.amazonaws.com\"";
    let bucket = "s3_bucket = \"media\"\ns3_region = \"eu-central-1\"";
    for (settings, reason) in [
        (format!("{url}\n{bucket}\n{usable}"), "edge.toml is valid"),
        (
            format!("{url}\ns3_region = \"x\"\n{usable}"),
            "this origin has settings of S3, but no s3_bucket",
        ),
        (
            format!("{url}\ns3_bucket = \"media\"\n{usable}"),
            "s3_bucket is set without s3_region",
        ),
        (
            format!("{url}\nhost = \"forward\"\n{bucket}\n{usable}"),
            "a bucket cannot get the Host of clients",
        ),
        (
            format!("url = \"unix:/run/s3.sock\"\n{bucket}\n{usable}"),
            "a bucket behind a Unix socket needs its Host",
        ),
        (
            format!("{url}\n{bucket}\n{half}"),
            "has no usable credentials: aws_access_key_id is missing",
        ),
        (
            format!("{url}\n{bucket}\n{usable}\ns3_profile = \"edge\""),
            "has no usable credentials: there is no section [edge]",
        ),
        (
            format!("{url}\ns3_bucket = \"a/b\"\ns3_region = \"x\"\n{usable}"),
            "is not the name of a bucket",
        ),
    ] {
        let listener = "[[listener]]\naddress = \"127.0.0.1:0\"\n[origin]\n";
        let text = format!("{listener}{settings}\n");
        let printed = match reason {
            "edge.toml is valid" => {
                let loaded = load_checked(&text);
                let s3 = loaded.edge.origins[0].s3.clone().expect("a bucket");
                assert!(s3.path_style, "the host does not begin with the bucket");
                format!("edge.toml is valid {:?}", loaded.edge)
            }
            _ => load_text(&text, &[]),
        };
        assert!(printed.contains(reason), "{settings}: {printed}");
        assert!(!printed.contains("TOPSECRET"), "{printed}");
    }
}

/// `auto` names the bucket by the path, unless the `Host` for the origin begins with its name.
#[test]
fn the_style_of_a_bucket_follows_its_host() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("credentials");
    fs::write(
        &path,
        "[default]\naws_access_key_id=A\naws_secret_access_key=B\n",
    )
    .expect("the folder is writable");
    for (settings, path_style) in [
        (
            "url = \"https://media.s3.eu-central-1.amazonaws.com\"",
            false,
        ),
        ("url = \"https://s3.eu-central-1.amazonaws.com\"", true),
        (
            "url = \"http://10.0.0.7:9000\"\nhost = \"media.minio.internal\"",
            false,
        ),
        ("url = \"http://media:9000\"", false),
        ("url = \"http://media-1.example\"", true),
        ("url = \"http://media.example\"\ns3_style = \"path\"", true),
        ("url = \"http://10.0.0.7\"\ns3_style = \"host\"", false),
    ] {
        let text = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n[origin]\n{settings}\ns3_bucket = \"media\"\n\
             s3_region = \"us-east-1\"\ns3_credentials_file = \"{}\"\n",
            path.display()
        );
        let s3 = load_checked(&text).edge.origins[0]
            .s3
            .clone()
            .expect("a bucket");
        assert_eq!(s3.path_style, path_style, "{settings}");
    }
}
