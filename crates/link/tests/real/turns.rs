//! Who has little to say does not wait until the others have said everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::bodies::Stream;
use crate::stand::{Stand, tcp, within};

/// Beside downloads that take all of the processor a question waits for some turns of each, and not for what they were granted.
///
/// Method: both ends, the target and those who ask are tasks of one thread, and there is always more to download. What was downloaded
/// while a question was under way is a measure of how long that was which does not depend on the machine: the question passes
/// six tasks, before each of which everybody who has work may have a turn of 256 KiB. Without turns it was eight times as much.
#[tokio::test]
async fn a_question_waits_for_turns_of_downloads() {
    let waited = waited_beside(NEW).await;
    assert!(waited[90] < 6 * 512, "KiB: {waited:?}");
}

/// Where downloads bring what both ends know by its mark, a turn has four times as much of it, for the same time.
#[tokio::test]
async fn a_question_waits_for_turns_of_what_is_recognised() {
    let waited = waited_beside(REPEATED).await;
    assert!(waited[90] < 4 * 6 * 512, "KiB: {waited:?}");
}

/// KiB that were downloaded while each question was under way, in order.
async fn waited_beside(download: u8) -> Vec<u64> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("it listens");
    let target = listener.local_addr().expect("an address");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        let noise = Arc::new(Stream(1).noise(1 << 20));
        loop {
            let (tcp, _) = listener.accept().await.expect("it accepts");
            connections.spawn(answer(tcp, Arc::clone(&noise)));
        }
    });
    let mut stand = Stand::new(false);
    let gateway = stand.gateway(target).await;
    let client = stand.client(gateway.local_addr());
    within(client.up()).await;

    let came = Arc::new(AtomicU64::new(0));
    let mut stream = client.open(tcp(target)).expect("it is up");
    stream.write_all(&[download]).await.expect("it is taken");
    let counted = Arc::clone(&came);
    tasks.spawn(async move {
        while let Ok(Some(bytes)) = stream.chunk().await {
            counted.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
    });
    let mut stream = client.open(tcp(target)).expect("it is up");
    let mut waited = Vec::new();
    for nth in 0..121 {
        let before = came.load(Ordering::Relaxed);
        within(async {
            stream.write_all(b"?").await.expect("it is taken");
            stream.flush().await.expect("it is taken");
            stream.read_exact(&mut [0]).await.expect("it is answered");
        })
        .await;
        // Until the downloads have been granted what they may have.
        if nth >= 20 {
            waited.push((came.load(Ordering::Relaxed) - before) >> 10);
        }
    }
    waited.sort_unstable();
    assert!(
        came.load(Ordering::Relaxed) > 64 << 20,
        "nothing was downloaded"
    );
    waited
}

/// Answers bytes, or sends noise without end.
async fn answer(mut tcp: TcpStream, noise: Arc<Vec<u8>>) {
    tcp.set_nodelay(true).expect("it is a socket");
    while let Ok(byte) = tcp.read_u8().await {
        if ![NEW, REPEATED].contains(&byte) {
            _ = tcp.write_all(b"!").await;
            continue;
        }
        let mut noise = noise.to_vec();
        while tcp.write_all(&noise).await.is_ok() {
            if byte == NEW {
                // No chunk is so short that it stays as it was.
                let changed = noise.iter_mut().step_by(1 << 10);
                changed.for_each(|byte| *byte = byte.wrapping_add(1));
            }
        }
    }
}

/// Questions that are answered with a download: of what was not seen before, and of the same MiB again and again.
const NEW: u8 = 9;
const REPEATED: u8 = 8;
