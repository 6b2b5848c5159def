//! Clients that read parts of a large file: curl resumes a download, Chromium plays and seeks, ffprobe reads the head.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::programs::{Server, are_installed, find, run};
use crate::read_file;
use crate::site::{Edge, Site};

/// `curl --continue-at -` completes a file of which the first part is on disk. The origin sends only the missing part,
/// and a second client that resumes gets it from the cache.
#[test]
fn curl_resumes_a_download_and_the_origin_sends_only_the_missing_part() {
    if !are_installed(&["nginx", "curl", "setpriv"]) {
        return;
    }
    let site = Site::of_media();
    let edge = Edge::in_front_of(&site);
    let whole = site.file("page/sound.wav");
    let present = whole.len() - (5 << 20);
    let work = tempfile::tempdir().expect("the temporary folder is created");
    let ca = edge.ca_file().display().to_string();
    let mut from_origin = Vec::new();
    for (client, protocol, base) in [
        ("first", "--http1.1", edge.plain_url()),
        ("second", "--http2-prior-knowledge", edge.plain_url()),
        ("third", "--http2", edge.tls_url()),
    ] {
        let file = work.path().join(client);
        fs::write(&file, &whole[..present]).expect("the file is written");
        let output = run(
            "curl",
            [
                "--silent",
                "--show-error",
                "--fail",
                "--continue-at",
                "-",
                protocol,
            ]
            .into_iter()
            .chain(["--cacert", &ca, "--output"])
            .map(str::to_owned)
            .chain([file.display().to_string()])
            .chain([format!("{base}/page/sound.wav")]),
        );
        assert_eq!(output.code, 0, "{client}: {}", output.tail());
        assert!(read_file(&file) == whole, "{client}: the file differs");
        from_origin.push(site.take_log().len());
    }
    // Six slices of 1 MiB contain the part; the TLS listener has cache keys of its own.
    let expected = whole.len().div_ceil(1 << 20) - (present >> 20);
    assert_eq!(from_origin, [expected, 0, expected]);
}

/// A video element shows the length, seeks to a position far behind the bytes that it has read, and plays from there.
///
/// Method: a page reports its progress by requests, which are in the origin's log. The file has 50 MB, more than
/// Chromium reads ahead.
#[test]
fn chromium_plays_and_seeks_in_a_media_file() {
    if !are_installed(&["nginx", "chromium", "setpriv"]) {
        return;
    }
    let site = Site::of_media();
    let edge = Edge::in_front_of(&site);
    let profile = tempfile::tempdir().expect("the temporary folder is created");
    let arguments: Vec<String> = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--no-first-run",
        "--autoplay-policy=no-user-gesture-required",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain([format!("--user-data-dir={}", profile.path().display())])
    .chain([format!("{}/page/media.html", edge.plain_url())])
    .collect();
    let chromium = find("chromium").expect("the test checked that Chromium is installed");
    let _browser = Server::start(&chromium, &arguments, &[]);
    let mut requests = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    let report = loop {
        requests.extend(site.take_log().into_iter().map(|request| request.path));
        if let Some(report) = requests
            .iter()
            .find(|path| path.starts_with("/page/report-"))
        {
            break report.clone();
        }
        assert!(Instant::now() < deadline, "no report among {requests:?}");
        sleep(Duration::from_millis(50));
    };
    assert_eq!(
        report, "/page/report-duration-300-seeked-250-played",
        "{requests:?}"
    );
    // The browser has skipped the middle of the file, and so has the edge.
    let slices = requests
        .iter()
        .filter(|path| path.ends_with("/sound.wav"))
        .count();
    let all = site.file("page/sound.wav").len().div_ceil(1 << 20);
    assert!(
        slices > 2 && slices < all - 10,
        "{slices} of {all} slices were fetched"
    );
}

/// ffprobe reads the format from the first bytes.
#[test]
fn ffprobe_reads_the_length_of_a_media_file() {
    if !are_installed(&["nginx", "setpriv"]) {
        return;
    }
    if find("ffprobe").is_none() {
        // Its Debian package has hundreds of megabytes, so `make test` does not install it.
        eprintln!("skipped: not installed: ffprobe");
        return;
    }
    let site = Site::of_media();
    let edge = Edge::in_front_of(&site);
    for base in [edge.plain_url(), edge.plain_url()] {
        let url = format!("{base}/page/sound.wav");
        let arguments = [
            "-v",
            "error",
            "-show_entries",
            "format=duration",
            "-of",
            "csv=p=0",
            &url,
        ];
        let output = run("ffprobe", arguments.map(str::to_owned).into_iter());
        assert_eq!(output.text().trim(), "300.000000", "{}", output.tail());
    }
}
