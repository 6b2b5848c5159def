//! Detects bodies of encrypted or compressed data by their first bytes.
//!
//! Compression saves nothing for these bodies. Deduplication saves nothing for encrypted bytes, which never repeat, and
//! helps with compressed files only if the same bytes are sent again. Cutting and hashing costs time, and the stored
//! chunks would displace useful chunks. The list of signatures need not be complete: a body of an unlisted format only
//! costs this time and space.

use edgeward_dedup::{StreamProtocol, detect_protocol};

/// Returns true if a body that begins with these bytes is encrypted or already compressed.
pub(crate) fn is_opaque(first: &[u8]) -> bool {
    let first = &first[..first.len().min(64)];
    detect_protocol(first) != StreamProtocol::Other
        || is_media(first)
        || SIGNATURES.iter().any(|magic| first.starts_with(magic))
}

fn is_media(first: &[u8]) -> bool {
    // ISO base media (MP4, MOV, AVIF, HEIC), RIFF (WebP, AVI).
    let iso = first.get(4..8) == Some(b"ftyp");
    let riff = first.starts_with(b"RIFF") && matches!(first.get(8..12), Some(b"WEBP" | b"AVI "));
    iso || riff
}

/// Signatures of images, sound, video and compressed files. Archives that compress each file separately (zip) are not
/// listed: between two versions of an archive most files are unchanged, so their compressed bytes repeat.
const SIGNATURES: [&[u8]; 12] = [
    b"\xff\xd8\xff",             // JPEG
    b"\x89PNG\r\n\x1a\n",        // PNG
    b"GIF8",                     // GIF
    b"\x1a\x45\xdf\xa3",         // Matroska, WebM
    b"OggS",                     // Ogg
    b"ID3",                      // MP3
    b"fLaC",                     // FLAC
    b"\x1f\x8b\x08",             // gzip
    b"\x28\xb5\x2f\xfd",         // Zstandard
    b"\xfd7zXZ\0",               // xz
    b"BZh",                      // bzip2
    b"\0\0\0\x0cJXL \r\n\x87\n", // JPEG XL
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encrypted_and_compressed_bodies_are_recognised_by_their_signature() {
        let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
        let opaque = [
            &hello[..],
            b"SSH-2.0-OpenSSH_9.9\r\n",
            b"\xff\xd8\xff\xe0\0\x10JFIF",
            b"\0\0\0\x20ftypisom",
            b"RIFF\x10\0\0\0WEBPVP8 ",
            b"\x1f\x8b\x08\0\0\0\0\0",
        ];
        let other = [
            &b""[..],
            b"GET / HTTP/1.1\r\n",
            b"\x16",
            b"RIFF\x10\0\0\0WAVEfmt ",
            b"PK\x03\x04",
            b"J\0\0\0\x0a8.4.2", // the greeting of a MySQL server
        ];
        for first in opaque {
            assert!(is_opaque(first), "{first:?}");
            assert!(!is_opaque(&first[..2]), "two bytes are not a signature");
        }
        assert!(other.into_iter().all(|first| !is_opaque(first)));
    }
}
