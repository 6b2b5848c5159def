//! Tests that a short request does not wait until concurrent downloads are complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::bodies::Random;
use crate::test_bed::{TestBed, tcp, within};

/// While a download uses the whole processor, a request waits only for some time slices of the download, and not for
/// all bytes that the peer has granted.
///
/// Method: run both endpoints, the target and the clients as tasks of one thread, with an endless download.
/// Measure the delay of a request as the number of bytes downloaded until its response, which does not depend
/// on the speed of the machine. Six tasks handle the request one after the other. Before each of them, each
/// task that handles the download may use its slice of 256 KiB. The bound is two slices (512 KiB) before each of the
/// six tasks, for 90 % of the requests. Without slices, the delay was eight times as long.
#[tokio::test]
async fn a_request_waits_for_time_slices_of_downloads() {
    let downloaded = downloaded_during_requests(NEW).await;
    assert!(downloaded[90] < 6 * 512, "KiB: {downloaded:?}");
}

/// If a download consists of chunks that both endpoints recognise by their fingerprints, a slice has up to four
/// times as many bytes. The time per slice stays the same.
#[tokio::test]
async fn a_request_waits_for_time_slices_of_recognised_chunks() {
    let downloaded = downloaded_during_requests(REPEATED).await;
    assert!(downloaded[90] < 4 * 6 * 512, "KiB: {downloaded:?}");
}

/// Sends requests during a download of this kind. Returns the number of KiB that were downloaded during each request,
/// sorted.
async fn downloaded_during_requests(download: u8) -> Vec<u64> {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("the listener can be bound");
    let target = listener.local_addr().expect("the address is valid");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        let noise = Arc::new(Random(1).noise(1 << 20));
        loop {
            let (tcp, _) = listener.accept().await.expect("the listener accepts");
            connections.spawn(answer(tcp, Arc::clone(&noise)));
        }
    });
    let mut test_bed = TestBed::new(false);
    let gateway = test_bed.gateway(target).await;
    let client = test_bed.client(gateway.local_addr());
    within(client.up()).await;

    let received = Arc::new(AtomicU64::new(0));
    let mut stream = client.open(tcp(target)).expect("the link is up");
    stream
        .write_all(&[download])
        .await
        .expect("the stream accepts the bytes");
    let counted = Arc::clone(&received);
    tasks.spawn(async move {
        while let Ok(Some(bytes)) = stream.chunk().await {
            counted.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
    });
    let mut stream = client.open(tcp(target)).expect("the link is up");
    let mut downloaded = Vec::new();
    for nth in 0..121 {
        let before = received.load(Ordering::Relaxed);
        within(async {
            stream
                .write_all(b"?")
                .await
                .expect("the stream accepts the bytes");
            stream.flush().await.expect("the stream accepts the bytes");
            stream
                .read_exact(&mut [0])
                .await
                .expect("the response is received");
        })
        .await;
        // The first requests do not count, because the download does not have its full credit yet.
        if nth >= 20 {
            downloaded.push((received.load(Ordering::Relaxed) - before) >> 10);
        }
    }
    downloaded.sort_unstable();
    assert!(
        received.load(Ordering::Relaxed) > 64 << 20,
        "less than 64 MiB were downloaded"
    );
    downloaded
}

/// Answers each byte with one byte. Answers [`NEW`] and [`REPEATED`] with an endless download.
async fn answer(mut tcp: TcpStream, noise: Arc<Vec<u8>>) {
    tcp.set_nodelay(true).expect("the option can be set");
    while let Ok(byte) = tcp.read_u8().await {
        if ![NEW, REPEATED].contains(&byte) {
            _ = tcp.write_all(b"!").await;
            continue;
        }
        let mut noise = noise.to_vec();
        while tcp.write_all(&noise).await.is_ok() {
            if byte == NEW {
                // One byte in each KiB is changed. No chunk is shorter than 1 KiB, so every chunk is new.
                let changed = noise.iter_mut().step_by(1 << 10);
                changed.for_each(|byte| *byte = byte.wrapping_add(1));
            }
        }
    }
}

/// The requests for a download: of new bytes, and of the same MiB again and again.
const NEW: u8 = 9;
const REPEATED: u8 = 8;
