//! Demonstrates how many bytes the link saves. It transfers two versions of packages over a WAN path of 20 Mb/s
//! and 80 ms round-trip time: uncompressed, with gzip, and over the link.
//!
//! ```sh
//! cargo build --release --package edgeward-cli
//! cargo run --release --package edgeward-link --example demo_link -- \
//!   FOLDER [--mbps 20] [--rtt-ms 80] [--edgeward PATH]
//! ```
//!
//! `FOLDER/1` and `FOLDER/2` have two versions of files with the same names (`make demo-link` downloads
//! packages). If `FOLDER/1` does not exist, `FOLDER/synthetic` is used. Only `.tar` files below 40 MB are transferred.
//! An origin serves the files over HTTP/1.1. The WAN path is a relay on loopback that limits the
//! bandwidth and delays the bytes. Without the link, a client requests the files from the origin over the WAN
//! path. With the link, the client requests them from `edgeward serve` with `[origin.link]`, which connects
//! over the WAN path to `edgeward gateway --origin`. The origin sends `cache-control: no-store`, so the edge
//! stores no responses and requests every body from the gateway. The client compares every body with the file.

mod edge_and_gateway;
mod origin;

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;

use edgeward_testkit::{Wan, WanSettings};

use edge_and_gateway::EdgeAndGateway;
use origin::Origin;

#[expect(clippy::print_stdout, reason = "a demonstration's result")]
fn main() -> io::Result<()> {
    let options = Options::parse()?;
    let versions = [1, 2].map(|version| files(&options.folder.join(version.to_string())));
    let [old, new] = versions;
    let (old, new) = (old?, new?);
    let bytes = |files: &[PathBuf]| -> io::Result<u64> {
        let bytes = files
            .iter()
            .map(|file| fs::metadata(file).map(|metadata| metadata.len()));
        bytes.sum()
    };
    println!(
        "{} files in two versions, {:.1} and {:.1} MB, over {} Mb/s and {} ms round trip{}\n",
        new.len(),
        bytes(&old)? as f64 / 1e6,
        bytes(&new)? as f64 / 1e6,
        options.mbps,
        options.rtt.as_millis(),
        if options.synthetic {
            "; SYNTHETIC FILES, GENERATED FROM A SEED"
        } else {
            ""
        },
    );
    let origin = Origin::start(&options.folder)?;
    let settings = WanSettings {
        bits_per_second: options.mbps * 1_000_000,
        delay: options.rtt / 2,
    };
    let direct = Wan::start(origin.addr, settings)?;
    let link = EdgeAndGateway::start(&options.edgeward, origin.addr, settings)?;

    // `times less`: the size of the files divided by the bytes on the WAN path.
    println!(
        "{:<28}{:>12}{:>10}{:>12}",
        "", "MB on WAN", "seconds", "times less"
    );
    let measure =
        |name: &str, files: &[PathBuf], wan: &Wan, to: SocketAddr, gzip: bool| -> io::Result<()> {
            let sum = |wan: &Wan| wan.bytes().iter().sum::<u64>();
            let (before, start) = (sum(wan), Instant::now());
            for file in files {
                fetch(to, &options.folder, file, gzip)?;
            }
            let seconds = start.elapsed().as_secs_f64();
            let sent = sum(wan) - before;
            println!(
                "{name:<28}{:>12.2}{seconds:>10.1}{:>12.1}",
                sent as f64 / 1e6,
                bytes(files)? as f64 / sent as f64
            );
            Ok(())
        };
    measure("plain", &old, &direct, direct.addr(), false)?;
    measure("gzip", &old, &direct, direct.addr(), true)?;
    measure("link, first version", &old, &link.wan, link.addr, false)?;
    measure("link, second version", &new, &link.wan, link.addr, false)?;
    measure(
        "link, second version again",
        &new,
        &link.wan,
        link.addr,
        false,
    )?;
    println!("\nevery body is the same as at the origin");
    Ok(())
}

/// Requests a path and returns the status code.
fn status(from: SocketAddr, path: &str) -> io::Result<u16> {
    let mut tcp = TcpStream::connect(from)?;
    write!(
        tcp,
        "GET {path} HTTP/1.1\r\nhost: origin\r\nconnection: close\r\n\r\n"
    )?;
    let mut line = String::new();
    BufReader::new(tcp).read_line(&mut line)?;
    let status = line
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    status.ok_or_else(|| io::Error::other("the response is not HTTP"))
}

/// Requests a file and compares the body of the response with the file.
fn fetch(from: SocketAddr, folder: &Path, file: &Path, gzip: bool) -> io::Result<()> {
    let name = file
        .strip_prefix(folder)
        .expect("the file is in the folder")
        .display();
    let mut tcp = TcpStream::connect(from)?;
    let accept = if gzip {
        "accept-encoding: gzip\r\n"
    } else {
        ""
    };
    write!(
        tcp,
        "GET /{name} HTTP/1.1\r\nhost: origin\r\nconnection: close\r\n{accept}\r\n"
    )?;
    let mut response = BufReader::new(tcp);
    let (mut length, mut is_gzip, mut line) = (None, false, String::new());
    loop {
        line.clear();
        response.read_line(&mut line)?;
        let head = line.trim().to_ascii_lowercase();
        if head.is_empty() {
            break;
        }
        if head.starts_with("http/") && !head.contains(" 200") {
            return Err(io::Error::other(format!("{name}: {head}")));
        }
        if let Some(value) = head.strip_prefix("content-length:") {
            length = value.trim().parse::<u64>().ok();
        }
        is_gzip |= head == "content-encoding: gzip";
    }
    let length = length.ok_or_else(|| io::Error::other("no length"))?;
    let mut body = Vec::new();
    if is_gzip {
        GzDecoder::new(response.take(length)).read_to_end(&mut body)?;
    } else {
        response.take(length).read_to_end(&mut body)?;
    }
    if body != fs::read(file)? {
        return Err(io::Error::other(format!(
            "{name}: the body differs from the file"
        )));
    }
    Ok(())
}

/// Returns the `.tar` files of a folder that have less than 40 MB, sorted by name.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "tar"));
    // Larger packages are skipped, because each uncompressed transfer of 40 MB takes 16 s at 20 Mb/s.
    files.retain(|file| fs::metadata(file).is_ok_and(|metadata| metadata.len() < 40_000_000));
    files.sort();
    Ok(files)
}

struct Options {
    folder: PathBuf,
    /// The path of the `edgeward` program. Default: the program that cargo built with the profile of this example.
    edgeward: PathBuf,
    /// True if the files were generated instead of downloaded.
    synthetic: bool,
    /// The bandwidth of the WAN path in each direction, in Mb/s.
    mbps: u64,
    /// The round-trip time of the WAN path.
    rtt: Duration,
}

impl Options {
    fn parse() -> io::Result<Self> {
        let mut options = Self {
            folder: PathBuf::new(),
            edgeward: PathBuf::new(),
            synthetic: false,
            mbps: 20,
            rtt: Duration::from_millis(80),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().expect("the option has a value");
            let mut number = || value().parse().expect("the value is a number");
            match argument.as_str() {
                "--edgeward" => options.edgeward = PathBuf::from(value()),
                "--mbps" => options.mbps = number(),
                "--rtt-ms" => options.rtt = Duration::from_millis(number()),
                _ => options.folder = PathBuf::from(argument),
            }
        }
        if !options.folder.join("1").is_dir() && options.folder.join("synthetic/1").is_dir() {
            options.folder.push("synthetic");
            options.synthetic = true;
        }
        options.folder = options.folder.canonicalize()?;
        if options.edgeward.as_os_str().is_empty() {
            options.edgeward = edge_and_gateway::edgeward()?;
        }
        Ok(options)
    }
}
