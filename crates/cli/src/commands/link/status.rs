//! `edgeward link status`: prints the status of a running endpoint.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde_json::Value;

use edgeward_link::KeyFolder;
use edgeward_types::ByteSize;

use crate::diagnostic::Diagnostic;
use crate::output::{self, Column, Table};

use super::reasons::{Context, EXPLAINED_BYTES_MIN, Forms};

/// Show what a running endpoint saved, per peer and per host
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    /// The endpoint's admin address, as HOST:PORT
    #[arg(value_name = "ADDR")]
    addr: String,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Fetches the status and prints it.
pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let addr = args
        .addr
        .trim_start_matches("http://")
        .trim_end_matches('/');
    let status = fetch_status(addr).map_err(|error| {
        Diagnostic::new(format!("{addr} did not return a status: {error:#}"))
            .hint("give the --admin address of the endpoint, or origin.link.admin of an edge")
    })?;
    if args.json {
        output::print_json(&status)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    print(&status, &mut out)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn fetch_status(addr: &str) -> anyhow::Result<Value> {
    let mut tcp = TcpStream::connect(addr)?;
    tcp.set_read_timeout(Some(TIMEOUT))?;
    tcp.set_write_timeout(Some(TIMEOUT))?;
    // A response over HTTP/1.0 is not chunked, and its body ends when the server closes the connection.
    write!(tcp, "GET /status HTTP/1.0\r\nHost: {addr}\r\n\r\n")?;
    let mut bytes = Vec::new();
    tcp.take(STATUS_BYTES_MAX).read_to_end(&mut bytes)?;
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.context("the response is not HTTP")?;
    let head = String::from_utf8_lossy(&bytes[..end]);
    anyhow::ensure!(
        head.split(' ').nth(1) == Some("200"),
        "{}",
        head.lines().next().unwrap_or_default()
    );
    let status: Value =
        serde_json::from_slice(&bytes[end + 4..]).context("the response is not JSON")?;
    anyhow::ensure!(
        status["peers"].is_array(),
        "the server is not an endpoint of a link"
    );
    Ok(status)
}

fn print(status: &Value, out: &mut impl std::io::Write) -> anyhow::Result<()> {
    if status["encrypted"] != true {
        writeln!(out, "NOT ENCRYPTED\n")?;
    }
    // `raw_bytes` is the total size of the chunks whose bytes are stored, `listed_bytes` of the chunks whose hash alone
    // is stored.
    let store = &status["store"];
    writeln!(
        out,
        "store {} of {} for {} of bodies and the hashes of {}, {} chunks, index {} of memory",
        size(&store["bytes"]),
        size(&store["bytes_max"]),
        size(&store["raw_bytes"]),
        size(&store["listed_bytes"]),
        number(&store["chunks"]),
        size(&store["index_bytes"]),
    )?;
    let new_bytes = number(&store["new_bytes"]);
    for larger in store["evicted_too_early"].as_array().into_iter().flatten() {
        // One in a hundred bytes is not worth a larger store.
        let bytes = number(&larger["bytes"]);
        if bytes > new_bytes / 100 {
            writeln!(
                out,
                "{} of new chunks had been evicted: a store of {} would have kept them",
                share(bytes, new_bytes),
                size(&larger["store_bytes"]),
            )?;
        }
    }
    if store["recovering"] == true {
        writeln!(
            out,
            "the index is being recovered: {} containers left, {} lookups found nothing",
            number(&store["unread_trailers"]),
            number(&store["absent_while_recovering"]),
        )?;
    }
    // Only a gateway has these counters. `GatewayCounters` explains each of them.
    let gateway_counts = &status["gateway"];
    if gateway_counts.is_object() {
        writeln!(
            out,
            "{} connections, {} refused, {} displaced, {} denied, {} malformed, {} violations; {} streams, {} not \
             allowed, {} unreachable",
            number(&gateway_counts["connections"]),
            number(&gateway_counts["refused"]),
            number(&gateway_counts["displaced"]),
            number(&gateway_counts["denied"]),
            number(&gateway_counts["malformed"]),
            number(&gateway_counts["violations"]),
            number(&gateway_counts["streams"]),
            number(&gateway_counts["not_allowed"]),
            number(&gateway_counts["unreachable"]),
        )?;
    }
    let busy = status["busy_peers"].as_array().map_or(0, Vec::len);
    if busy > 0 {
        writeln!(
            out,
            "{busy} peers did not report within a second and are not below"
        )?;
    }
    print_certificates(status, out)?;
    let mut peers = Table::new(
        [Column::words("peer"), Column::words("")]
            .into_iter()
            .chain(FIGURES.map(Column::figures))
            .chain(["naks", "connections"].map(Column::figures)),
    );
    let mut hosts = rows_table("host");
    let mut content_types = rows_table("content type");
    let (mut resent, mut errors) = (Vec::new(), Vec::new());
    let (mut host_forms, mut type_forms) = (SumsByName::default(), SumsByName::default());
    for peer in status["peers"].as_array().into_iter().flatten() {
        let address = text(&peer["peer"]);
        let name = match peer["edge"].as_str() {
            Some(edge) => format!("{edge} {address}"),
            None => address.to_owned(),
        };
        if let Some(error) = peer["last_error"].as_str() {
            errors.push(format!("cannot connect to {address}: {error}\n"));
        }
        for direction in DIRECTIONS {
            let side = &peer[direction];
            let bytes = number(&side["bytes"]);
            // A nak reports a frame with a reference that cannot be resolved. For received data, the endpoint counts
            // the causes: the chunk is missing, was never exchanged with the peer, or has another order in the store.
            let naks = match direction {
                "sent" => number(&side["naks"]),
                _ => ["missing", "foreign", "disordered"]
                    .iter()
                    .map(|cause| number(&side[cause]))
                    .sum(),
            };
            peers.row([
                name.clone(),
                direction.to_owned(),
                size(&side["bytes"]),
                size(&side["wire_bytes"]),
                saved(bytes, number(&side["wire_bytes"])),
                share(number(&side["referenced_bytes"]), bytes),
                share(number(&side["delta_bytes"]), bytes),
                naks.to_string(),
                number(&peer["connections"]).to_string(),
            ]);
        }
        resent.extend(resent_text(&name, &peer["sent"]));
        for host in peer["hosts"].as_array().into_iter().flatten() {
            host_forms.add(text(&host["host"]), host);
        }
        for body in peer["content_types"].as_array().into_iter().flatten() {
            type_forms.add(text(&body["content_type"]), body);
        }
    }
    for error in errors.iter().take(EXPLANATIONS_MAX) {
        write!(out, "\n{error}")?;
    }
    host_forms.add_rows(&mut hosts);
    write!(out, "\n{peers}\n{hosts}")?;
    if type_forms.0.iter().any(|(name, _)| name != UNKNOWN_TYPE) {
        type_forms.add_rows(&mut content_types);
        write!(out, "\n{content_types}")?;
    }
    let larger_store = sufficient_store(store);
    let bypassed = type_forms.0.iter();
    let bypassed = bypassed.map(|(name, both)| (name.as_str(), bypassed_bytes(both)));
    let context = Context::new(larger_store, bypassed);
    print_explanations("hosts", &host_forms, |_, _| context.clone(), out)?;
    // The row of the host explains the bytes without a known type.
    type_forms.0.remove(UNKNOWN_TYPE);
    let context_of_type = |name: &str, both: &[Forms; 2]| {
        Context::new(larger_store, [(name, bypassed_bytes(both))].into_iter())
    };
    print_explanations("content types", &type_forms, context_of_type, out)?;
    for text in resent.iter().take(EXPLANATIONS_MAX) {
        write!(out, "\n{text}")?;
    }
    Ok(())
}

/// Returns an explanation if a considerable share of the bytes was sent as references that the peer could not resolve.
fn resent_text(peer: &str, sent: &Value) -> Option<String> {
    let (bytes, resent) = (number(&sent["bytes"]), number(&sent["resent_bytes"]));
    let is_considerable = bytes >= EXPLAINED_BYTES_MIN && resent >= bytes / 20;
    if !is_considerable || number(&sent["naks"]) == 0 {
        return None;
    }
    let percent = share(resent, bytes);
    Some(format!(
        "{percent} of the bytes for {peer} were sent twice: its store had lost chunks that this endpoint referred to\n  \
         give the peer a store as large as the one of this endpoint, or check why it lost its store\n"
    ))
}

fn bypassed_bytes(both: &[Forms; 2]) -> u64 {
    both.iter().map(|forms| forms.bypassed).sum()
}

/// Prints why the hosts or content types with the most bytes on the wire save less than half. `kind` is the plural of
/// what the names are.
fn print_explanations(
    kind: &str,
    sums: &SumsByName,
    context: impl Fn(&str, &[Forms; 2]) -> Context,
    out: &mut impl std::io::Write,
) -> anyhow::Result<()> {
    let mut explanations = Vec::new();
    for (name, both) in &sums.0 {
        let context = context(name, both);
        for (direction, forms) in DIRECTIONS.into_iter().zip(both) {
            let explanation = forms.explanation(&format!("{name} ({direction})"), &context);
            explanations.extend(explanation.map(|text| (forms.wire, text)));
        }
    }
    explanations.sort_by_key(|(wire, _)| std::cmp::Reverse(*wire));
    for (_, text) in explanations.iter().take(EXPLANATIONS_MAX) {
        write!(out, "\n{text}")?;
    }
    if explanations.len() > EXPLANATIONS_MAX {
        let more = explanations.len() - EXPLANATIONS_MAX;
        writeln!(
            out,
            "\n{more} further {kind} save less than half; --json lists all"
        )?;
    }
    Ok(())
}

fn rows_table(name: &'static str) -> Table {
    let columns = [Column::words(name), Column::words("")];
    let figures = FIGURES.map(Column::figures);
    Table::new(columns.into_iter().chain(figures))
}

/// The bytes of all peers by host or by content type, sent and received.
#[derive(Debug, Default)]
struct SumsByName(BTreeMap<String, [Forms; 2]>);

impl SumsByName {
    /// Adds the bytes of one peer.
    fn add(&mut self, name: &str, row: &Value) {
        let sums = self.0.entry(name.to_owned()).or_default();
        for (direction, sum) in DIRECTIONS.into_iter().zip(sums) {
            let field = |field: &str| number(&row[format!("{direction}_{field}")]);
            sum.add(&Forms {
                bytes: field("bytes"),
                wire: field("wire_bytes"),
                referenced: field("referenced_bytes"),
                delta: field("delta_bytes"),
                literal: field("literal_bytes"),
                incompressible: field("incompressible_bytes"),
                evicted: field("evicted_bytes"),
                plain: field("plain_bytes"),
                bypassed: field("bypassed_bytes"),
            });
        }
    }

    /// Adds one row for each name and direction with bytes, those with the most bytes first.
    fn add_rows(&self, table: &mut Table) {
        let mut sums: Vec<_> = self.0.iter().collect();
        sums.sort_by_key(|(_, both)| std::cmp::Reverse(both[0].bytes + both[1].bytes));
        for (name, both) in sums {
            for (direction, forms) in DIRECTIONS.into_iter().zip(both) {
                if forms.bytes > 0 {
                    table.row([
                        name.clone(),
                        direction.to_owned(),
                        ByteSize(forms.bytes).to_string(),
                        ByteSize(forms.wire).to_string(),
                        saved(forms.bytes, forms.wire),
                        share(forms.referenced, forms.bytes),
                        share(forms.delta, forms.bytes),
                    ]);
                }
            }
        }
    }
}

/// Returns the smallest size of a store that would have kept at least nine tenths of the evicted chunks.
fn sufficient_store(store: &Value) -> Option<u64> {
    let sizes = store["evicted_too_early"].as_array()?;
    let all = number(&sizes.last()?["bytes"]);
    let mut sizes = sizes.iter();
    let smallest = sizes.find(|larger| number(&larger["bytes"]) * 10 >= all * 9)?;
    Some(number(&smallest["store_bytes"])).filter(|_| all > 0)
}

/// Prints when the certificate of this endpoint expires, and a table of the edges that are connected, the one that
/// expires first at the top.
fn print_certificates(status: &Value, out: &mut impl std::io::Write) -> anyhow::Result<()> {
    let own = &status["certificate"];
    if own.is_object() {
        let name = text(&own["name"]);
        let days_left = own["days_left"].as_i64();
        writeln!(out, "certificate `{name}` {}", expiry(name, days_left))?;
    }
    let mut edges: Vec<_> = status["edges"].as_array().into_iter().flatten().collect();
    if edges.is_empty() {
        return Ok(());
    }
    edges.sort_by_key(|edge| edge["days_left"].as_i64().unwrap_or(i64::MAX));
    let figures = ["stores", "connections", "streams", "refused streams"];
    let columns = [Column::words("edge"), Column::words("certificate")];
    let columns = columns.into_iter().chain(figures.map(Column::figures));
    let mut table = Table::new(columns);
    for edge in edges {
        let name = text(&edge["name"]);
        table.row([
            name.to_owned(),
            expiry(name, edge["days_left"].as_i64()),
            number(&edge["stores"]).to_string(),
            number(&edge["connections"]).to_string(),
            number(&edge["streams"]).to_string(),
            number(&edge["refused_streams"]).to_string(),
        ]);
    }
    write!(out, "\n{table}")?;
    Ok(())
}

/// Returns when a certificate expires, and the command that renews it if this is soon.
fn expiry(name: &str, days_left: Option<i64>) -> String {
    let renewal = format!("`edgeward link keys renew {name}` renews it");
    match days_left {
        None => "does not expire".to_owned(),
        Some(days) if days < 0 => format!("EXPIRED {} days ago: {renewal}", -days),
        Some(days) if days < KeyFolder::WARNING_DAYS => {
            format!("EXPIRES in {days} days: {renewal}")
        }
        Some(days) => format!("expires in {days} days"),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn size(value: &Value) -> String {
    ByteSize(number(value)).to_string()
}

/// The share of `bytes` that was saved because only `wire` bytes were sent. It is negative if the frames took
/// more bytes than the bodies.
fn saved(bytes: u64, wire: u64) -> String {
    if bytes == 0 {
        return "-".to_owned();
    }
    format!("{:.1} %", (1.0 - wire as f64 / bytes as f64) * 100.0)
}

fn share(part: u64, bytes: u64) -> String {
    if bytes == 0 {
        return "-".to_owned();
    }
    format!("{:.1} %", part as f64 / bytes as f64 * 100.0)
}

const DIRECTIONS: [&str; 2] = ["sent", "received"];

/// The headings of figures in the tables.
const FIGURES: [&str; 5] = ["bytes", "on the wire", "saved", "referenced", "delta"];

/// The content type of bodies whose type the endpoint does not know.
const UNKNOWN_TYPE: &str = "(unknown)";

/// The highest numbers of hosts and of content types that are explained, and of peers whose errors are printed.
const EXPLANATIONS_MAX: usize = 5;

const TIMEOUT: Duration = Duration::from_secs(5);

const STATUS_BYTES_MAX: u64 = 64 << 20;

const EXAMPLES: &str = "\
`saved` is the share of the bytes that was not sent, `referenced` the share whose chunks the
peer had, `delta` the share sent as deltas. `naks` counts frames that the receiver could not
decode, for example because it lost a chunk that they refer to; their bytes were sent again. A
few naks after a crash or a lost store are normal.
For hosts and content types with 64 KiB or more that save less than half, the last lines state
why, and what to do.

Examples:
  edgeward link status 127.0.0.1:7444
  edgeward link status 127.0.0.1:7444 --json | jq .peers";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn printed(status: &Value) -> String {
        let mut out = Vec::new();
        print(status, &mut out).expect("a vector can be written");
        String::from_utf8(out).expect("the output is text")
    }

    /// Certificates are shown with the one that expires first at the top, and with the command that renews them if this
    /// is soon.
    #[test]
    fn certificates_are_shown_with_their_expiry() {
        let edge = |name: &str, days_left: Option<i64>| json!({ "name": name, "days_left": days_left, "stores": 1 });
        let text = printed(&json!({
            "encrypted": true,
            "certificate": { "name": "gateway", "days_left": 30 },
            "edges": [edge("rome", Some(30)), edge("oslo", None), edge("paris", Some(-2)), edge("bonn", Some(29))],
        }));
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        at("certificate `gateway` expires in 30 days\n");
        let order = [
            at("paris  EXPIRED 2 days ago: `edgeward link keys renew paris` renews it"),
            at("bonn   EXPIRES in 29 days: `edgeward link keys renew bonn` renews it"),
            at("rome   expires in 30 days "),
            at("oslo   does not expire "),
        ];
        assert!(order.is_sorted(), "{text}");
    }

    /// A good content type does not hide a bad one of the same host. The advice is for the type alone.
    #[test]
    fn content_types_that_save_less_than_half_are_explained() {
        let row = |content_type: &str, wire: u64, form: &str| {
            json!({
                "content_type": content_type,
                "sent_bytes": 1 << 20,
                "sent_wire_bytes": wire,
                format!("sent_{form}_bytes"): 1 << 20,
            })
        };
        let opaque = json!({
            "content_type": "application/gzip",
            "sent_bytes": 1 << 20,
            "sent_wire_bytes": 1 << 20,
            "sent_literal_bytes": 1 << 20,
            "sent_incompressible_bytes": 1 << 20,
        });
        let mut photo = row("image/jpeg", 1 << 20, "plain");
        photo["sent_bypassed_bytes"] = (1 << 20).into();
        let mut tls = row("(TLS)", 1 << 20, "plain");
        tls["sent_bypassed_bytes"] = (1 << 20).into();
        let text = printed(&json!({
            "encrypted": true,
            "peers": [{
                "hosts": [{ "host": "the origin", "sent_bytes": 9 << 20, "sent_wire_bytes": 3 << 20 }],
                "content_types": [
                    row("text/html", 1, "referenced"),
                    row("(unknown)", 1 << 20, "literal"),
                    opaque,
                    photo,
                    tls,
                ],
            }],
        }));
        let explained: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("why "))
            .collect();
        let expected = ["(TLS)", "application/gzip", "image/jpeg"];
        assert_eq!(
            explained,
            expected.map(|name| format!("why {name} (sent) saves nothing:"))
        );
        for advice in [
            "100.0 %  encrypted or compressed before the link (image/jpeg): media files stay as they are\n",
            "100.0 %  new data that looks encrypted or compressed: only an identical copy saves bytes",
        ] {
            assert!(text.contains(advice), "{text}");
        }
    }

    /// An edge that is refused shows why. A gateway shows which edge has which savings.
    #[test]
    fn peers_are_shown_with_their_name_or_their_error() {
        let text = printed(&json!({
            "encrypted": true,
            "peers": [
                { "peer": "gw:7443", "last_error": "it is refused", "received": { "bytes": 10, "delta_bytes": 5 } },
                { "peer": "127.0.0.1#00e5", "edge": "oslo", "connections": 2 },
            ],
        }));
        assert!(
            text.contains("cannot connect to gw:7443: it is refused\n"),
            "{text}"
        );
        assert_eq!(text.matches("cannot connect").count(), 1, "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for row in [
            "oslo 127.0.0.1#00e5 sent 0 B 0 B - - - 0 2",
            "gw:7443 received 10 B 0 B 100.0 % 0.0 % 50.0 % 0 0",
        ] {
            assert!(words.contains(row), "{text}");
        }
    }

    /// The bytes of one host that several peers have are added. Both sides of the share of bytes that are sent twice.
    #[test]
    fn hosts_are_summed_and_lost_chunks_are_explained() {
        let peer = |resent: u64| {
            json!({
                "peer": "10.0.0.1#1",
                "sent": { "bytes": 100_000, "resent_bytes": resent, "naks": 3 },
                "hosts": [{ "host": "db:1", "sent_bytes": 1 << 20, "sent_wire_bytes": 1 << 20 }],
            })
        };
        for (resent, explained) in [(4_999, false), (5_000, true)] {
            let text = printed(&json!({ "encrypted": true, "peers": [peer(resent), peer(0)] }));
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for expected in [
                "db:1 sent 2 MiB 2 MiB 0.0 %",
                "why db:1 (sent) saves nothing:",
            ] {
                assert!(words.contains(expected), "{text}");
            }
            let twice = words.contains("5.0 % of the bytes for 10.0.0.1#1 were sent twice");
            assert_eq!(twice, explained, "{text}");
        }
    }
}
