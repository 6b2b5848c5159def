//! A well-behaved client beside an attack on a server: the load of `bench/attacks/plan.toml`.
//!
//! usage: `attack KIND STRENGTH SECONDS PORT CLIENT_PORT PAGE PIDS`
//!
//! KIND is `none` or a kind of attack, STRENGTH is `moderate` or `strong`. The attack is sent to PORT and the client's
//! requests to CLIENT_PORT. PAGE is a path that the client requests, or `-` for objects of the lab's origin. PIDS are
//! the processes that share the client's core, separated by commas. Prints one line of JSON. Sends to loopback only.
#![expect(clippy::print_stdout, reason = "it prints its result")]

mod attacks;
mod client;
mod h2;
mod kinds;

use std::time::Duration;

use client::Servers;
use kinds::{Attack, Strength};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, strength, seconds, port, client_port, page, pids] = &words[..] else {
        return Err("usage: attack KIND STRENGTH SECONDS PORT CLIENT_PORT PAGE PIDS".into());
    };
    let attack = match kind.as_str() {
        "none" => None,
        name => {
            let known = Attack::ALL.into_iter().find(|kind| kind.name() == name);
            Some(known.ok_or_else(|| format!("there is no attack {name}"))?)
        }
    };
    let strength = Strength::from_name(strength).ok_or("write moderate or strong")?;
    let length = Duration::from_secs(seconds.parse()?);
    let others: Result<Vec<u32>, _> = pids.split(',').map(str::parse).collect();
    let servers = Servers {
        port: client_port.parse()?,
        page: (page != "-").then_some(page.as_str()),
        others: &others?,
    };
    client::fill(servers)?;
    let running = match attack {
        Some(attack) => Some(attacks::start(attack, strength, port.parse()?)?),
        None => None,
    };
    let attack_seconds = || {
        running
            .as_ref()
            .map_or(0.0, attacks::RunningAttack::cpu_seconds)
    };
    let mut result = client::measure(servers, length, attack_seconds);
    if let Some(running) = running {
        result["attack"] = running.stop();
    }
    println!("{result}");
    Ok(())
}
