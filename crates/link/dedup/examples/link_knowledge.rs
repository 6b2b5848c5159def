//! Measures the memory for the knowledge of many edges at one gateway.
//!
//! ```sh
//! cargo run --release --package edgeward-dedup --example link_knowledge -- EDGES CONTAINERS CHUNKS [MIB]
//! ```
//!
//! Each edge restores the knowledge of CONTAINERS containers, as after a restart of the gateway. With CHUNKS = `all`,
//! each edge knows all 105 to 121 chunks of each container. With a number, each edge knows this many random chunks of
//! each page of 64 containers, so no two pages are equal. MIB is the limit of the memory of all pages.

use std::error::Error;
use std::io::Write as _;
use std::time::Instant;

use edgeward_dedup::knowledge::{Knowledge, SharedPages};
use edgeward_dedup::store::ChunkLocation;
use edgeward_types::SplitMix64;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [edges, containers, chunks, rest @ ..] = &args[..] else {
        return Err("give EDGES, CONTAINERS and CHUNKS".into());
    };
    let (edges, containers): (usize, u32) = (edges.parse()?, containers.parse()?);
    let mib: usize = rest.first().map_or(Ok(1024), |mib| mib.parse())?;
    let chunks: Option<u32> = match chunks.as_str() {
        "all" => None,
        number => Some(number.parse()?),
    };
    let mut table = SharedPages::new(mib << 20, edges);
    let before = rss_bytes()?;
    let mut file = Vec::new();
    let mut all_edges = Vec::new();
    let start = Instant::now();
    for edge in 0..edges {
        if file.is_empty() || chunks.is_some() {
            file = encoded(edge as u64, containers, chunks);
        }
        let knowledge = Knowledge::decode(&file, containers as usize);
        let mut knowledge = knowledge.ok_or("the encoding is not valid")?;
        while knowledge.must_share() {
            knowledge.share(&mut table);
        }
        all_edges.push(knowledge);
    }
    let seconds = start.elapsed().as_secs_f64();
    let known: usize = all_edges.iter().map(Knowledge::containers).sum();
    drop(file);
    let rss = rss_bytes()? - before;
    let status = table.status();
    writeln!(
        std::io::stdout(),
        r#"{{"edges":{edges},"containers":{containers},"chunks":"{}","limit_mib":{mib},"rss_mib":{:.1},"kib_per_edge":{:.1},"pages_mib":{:.1},"forgotten_pages":{},"containers_per_edge":{},"seconds":{seconds:.1}}}"#,
        args[2],
        rss as f64 / 1024.0 / 1024.0,
        rss as f64 / 1024.0 / edges as f64,
        status.bytes as f64 / 1024.0 / 1024.0,
        status.forgotten_pages,
        known / edges.max(1),
    )?;
    Ok(())
}

/// Returns the file of one edge.
fn encoded(edge: u64, containers: u32, chunks: Option<u32>) -> Vec<u8> {
    let mut knowledge = Knowledge::new(containers as usize);
    let mut random = SplitMix64(edge);
    match chunks {
        None => {
            for container in 0..containers {
                let slots = 105 + (random.draw() % 17) as u16;
                (0..slots).for_each(|slot| knowledge.add(ChunkLocation { container, slot }));
            }
        }
        Some(chunks) => {
            for page in 0..containers / 64 {
                for _ in 0..chunks {
                    let container = page * 64 + (random.draw() % 64) as u32;
                    let slot = (random.draw() % 113) as u16;
                    knowledge.add(ChunkLocation { container, slot });
                }
            }
        }
    }
    knowledge.encode(u32::MAX)
}

/// Returns the resident memory of this process.
fn rss_bytes() -> Result<usize, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kib.ok_or("an unknown format")?.parse::<usize>()? * 1024)
}
