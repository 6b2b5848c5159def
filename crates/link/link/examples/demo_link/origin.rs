//! An origin that serves the files of a folder. It answers one GET request per connection, with gzip for clients that
//! accept it.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::thread;

use flate2::Compression;
use flate2::write::GzEncoder;

/// The running origin. It listens until the process ends.
pub(crate) struct Origin {
    pub(crate) addr: SocketAddr,
}

impl Origin {
    pub(crate) fn start(folder: &Path) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let folder: Arc<PathBuf> = Arc::new(folder.to_owned());
        thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                let folder = Arc::clone(&folder);
                thread::spawn(move || serve(tcp, &folder));
            }
        });
        Ok(Self { addr })
    }
}

fn serve(tcp: TcpStream, folder: &Path) -> io::Result<()> {
    let mut lines = BufReader::new(tcp.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let name = first
        .split(' ')
        .nth(1)
        .unwrap_or_default()
        .trim_start_matches('/');
    let mut gzip = false;
    for line in lines {
        let line = line?.to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        gzip |= line.starts_with("accept-encoding:") && line.contains("gzip");
    }
    let name = Path::new(name);
    let is_in_folder = name
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    let body = if is_in_folder {
        fs::read(folder.join(name)).ok()
    } else {
        None
    };
    let mut tcp = tcp;
    let Some(mut body) = body else {
        return tcp.write_all(
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        );
    };
    let mut encoding = "";
    if gzip {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
        encoder.write_all(&body)?;
        (body, encoding) = (encoder.finish()?, "content-encoding: gzip\r\n");
    }
    write!(
        tcp,
        "HTTP/1.1 200 OK\r\ncontent-type: application/x-tar\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\n{encoding}connection: close\r\n\r\n",
        body.len()
    )?;
    tcp.write_all(&body)
}
