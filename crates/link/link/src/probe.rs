//! Detects bodies of encrypted data, images, sound and video by their first bytes.
//!
//! Compression saves nothing for these bodies. Deduplication saves nothing for encrypted bytes, which never repeat, and
//! helps with media only if the same file is sent again. Cutting and hashing costs time, and the stored chunks would
//! displace useful chunks. The list of signatures need not be complete: a body of an unlisted format only costs this
//! time and space.

use edgeward_dedup::{StreamProtocol, detect_protocol};

/// Returns the content type of a body that begins with these bytes, if it is encrypted, an image, sound or video.
pub fn opaque_type(first: &[u8]) -> Option<&'static str> {
    let first = &first[..first.len().min(64)];
    match detect_protocol(first) {
        StreamProtocol::Tls => return Some("(TLS)"),
        StreamProtocol::Ssh => return Some("(SSH)"),
        StreamProtocol::Other => {}
        _ => return Some("(encrypted)"),
    }
    let signature = || {
        SIGNATURES
            .iter()
            .find(|(magic, _)| first.starts_with(magic))
    };
    media_type(first).or_else(|| signature().map(|(_, content_type)| *content_type))
}

fn media_type(first: &[u8]) -> Option<&'static str> {
    // ISO base media (MP4, MOV, AVIF, HEIC).
    if first.get(4..8) == Some(b"ftyp") {
        return Some("video/mp4");
    }
    if !first.starts_with(b"RIFF") {
        return None;
    }
    match first.get(8..12) {
        Some(b"WEBP") => Some("image/webp"),
        Some(b"AVI ") => Some("video/x-msvideo"),
        _ => None,
    }
}

/// Signatures of images, sound and video, with their content types. Archives and compressed files are not listed: a
/// gateway or a mirror often sends the same archive to several machines, and in an archive that compresses each file
/// separately (zip), most files and so their compressed bytes are equal in two versions.
const SIGNATURES: [(&[u8], &str); 8] = [
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF8", "image/gif"),
    (b"\x1a\x45\xdf\xa3", "video/webm"), // or Matroska
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "image/jxl"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encrypted_bodies_and_media_are_recognised_by_their_signature() {
        let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
        let opaque = [
            (&hello[..], "(TLS)"),
            (b"SSH-2.0-OpenSSH_9.9\r\n", "(SSH)"),
            (b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg"),
            (b"\0\0\0\x20ftypisom", "video/mp4"),
            (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
        ];
        let other = [
            &b""[..],
            b"GET / HTTP/1.1\r\n",
            b"\x16",
            b"RIFF\x10\0\0\0WAVEfmt ",
            b"PK\x03\x04",
            b"\x1f\x8b\x08\0\0\0\0\0", // gzip
            b"\x28\xb5\x2f\xfd",       // zstd
            b"J\0\0\0\x0a8.4.2",       // the greeting of a MySQL server
        ];
        for (first, content_type) in opaque {
            assert_eq!(opaque_type(first), Some(content_type));
            assert_eq!(
                opaque_type(&first[..2]),
                None,
                "two bytes are not a signature"
            );
        }
        assert!(other.into_iter().all(|first| opaque_type(first).is_none()));
    }
}
