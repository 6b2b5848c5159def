//! `serve --disk`, killed at any moment under load: what it serves afterwards is right to the last byte.
//!
//! The origin's bodies follow from their names, so every byte that comes can be checked. Ten kills here;
//! `EDGEWARD_KILLS=300` makes it a long run. The seed is printed.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use edgeward_replay::Pattern;
use rustix::process::Signal;

use super::run::Server;

/// Method: clients ask for objects of 100 bytes to 2 MB, some by ranges, now and then one is invalidated by a POST;
/// after a random while the edge gets SIGKILL and is started on the same directory. Whatever came must be a beginning of
/// the right bytes, and whole unless the edge was killed meanwhile. In the end most of it must still be there.
#[test]
fn killed_under_load_it_serves_the_right_bytes_or_none() {
    let kills: u64 = std::env::var("EDGEWARD_KILLS").map_or(10, |text| {
        text.parse().expect("EDGEWARD_KILLS is a number of kills")
    });
    let seed = std::env::var("EDGEWARD_SEED")
        .map_or(7, |text| text.parse().expect("EDGEWARD_SEED is a number"));
    eprintln!("{kills} kills, EDGEWARD_SEED={seed}");
    let folder = tempfile::tempdir().expect("a folder");
    let origin = Server::start(&["origin", "--json", "--listen=127.0.0.1:0"]);
    let origin_url = format!("--origin=http://{}", origin.addr("/listen"));
    let path = format!("--disk={}", folder.path().display());
    let mut random = Random(seed);
    let (whole, from_disk) = (AtomicU64::new(0), AtomicU64::new(0));
    for _ in 0..=kills {
        let edge = Server::start(&[
            "serve",
            "--json",
            "--listen=127.0.0.1:0",
            "--workers=1",
            "--hot=1MiB",
            "--policy=lru",
            "--disk-size=64MiB",
            "--disk-admission=always",
            "--set=disk.segment_bytes=1MiB",
            "--log=off",
            &origin_url,
            &path,
        ]);
        let addr = edge.addr("/listening/0");
        let killed = AtomicBool::new(false);
        let pause = Duration::from_millis(50 + random.below(400));
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                let mut random = Random(random.next());
                let (killed, whole, from_disk) = (&killed, &whole, &from_disk);
                scope.spawn(move || {
                    while !killed.load(Ordering::SeqCst) {
                        let asked = ask(addr, &mut random);
                        whole.fetch_add(u64::from(asked.whole), Ordering::Relaxed);
                        from_disk.fetch_add(u64::from(asked.from_disk), Ordering::Relaxed);
                        assert!(
                            asked.whole
                                || killed.load(Ordering::SeqCst)
                                || asked.may_be_killed(addr),
                            "a body ended early while the edge ran"
                        );
                    }
                });
            }
            thread::sleep(pause);
            edge.signal(Signal::KILL);
            killed.store(true, Ordering::SeqCst);
        });
        let (status, _, _) = edge.ended();
        assert_eq!(status.code(), None, "it was killed");
    }
    let (whole, from_disk) = (whole.into_inner(), from_disk.into_inner());
    eprintln!("{whole} whole responses, {from_disk} of them from disk");
    assert!(whole > kills * 10, "{whole}: too few to say anything");
    assert!(from_disk > kills, "{from_disk}: the disk served nothing");
}

struct Asked {
    whole: bool,
    from_disk: bool,
}

impl Asked {
    /// The kill comes a moment before its flag is set: nobody listens then.
    fn may_be_killed(&self, addr: SocketAddr) -> bool {
        thread::sleep(Duration::from_millis(20));
        TcpStream::connect(addr).is_err()
    }
}

/// One request. Panics if a byte of the answer is wrong.
fn ask(addr: SocketAddr, random: &mut Random) -> Asked {
    let nothing = Asked {
        whole: false,
        from_disk: false,
    };
    let id = random.below(OBJECTS);
    let size = [100, 5_000, 70_000, 400_000, 2_000_000][(id % 5) as usize] + id;
    let name = id.to_string();
    let (method, range) = match random.below(20) {
        0 => ("POST", None),
        1..=4 => {
            let first = random.below(size);
            ("GET", Some((first, random.below(size - first) + first)))
        }
        _ => ("GET", None),
    };
    let fields = match (method, range) {
        ("POST", _) => "Content-Length: 0\r\n".to_owned(),
        (_, Some((first, last))) => format!("Range: bytes={first}-{last}\r\n"),
        _ => String::new(),
    };
    let Ok(mut stream) = TcpStream::connect(addr) else {
        return nothing;
    };
    stream
        .set_read_timeout(Some(Duration::from_secs(50)))
        .expect("a bound");
    let request = format!(
        "{method} /o/{name}?size={size} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n{fields}\r\n"
    );
    let mut answer = Vec::new();
    if stream.write_all(request.as_bytes()).is_err() {
        return nothing;
    }
    // A reset leaves what came before it.
    _ = stream.read_to_end(&mut answer);
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
        return nothing;
    };
    let head = String::from_utf8(answer[..end].to_vec()).expect("a head is text");
    let body = &answer[end + 4..];
    if method == "POST" {
        return Asked {
            whole: true,
            from_disk: false,
        };
    }
    let (offset, expected) = match range {
        Some((first, last)) if head.starts_with("HTTP/1.1 206") => (first, last - first + 1),
        _ => (0, size),
    };
    assert!(
        head.starts_with("HTTP/1.1 20"),
        "{name} of {size} bytes: {head}"
    );
    assert!(body.len() as u64 <= expected, "{head}");
    let wrong = Pattern::of(&name).first_wrong(offset, body);
    assert_eq!(wrong, None, "{name} of {size} bytes, {range:?}: {head}");
    Asked {
        whole: body.len() as u64 == expected,
        from_disk: head.contains("detail=disk"),
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

const CLIENTS: usize = 4;

const OBJECTS: u64 = 60;
