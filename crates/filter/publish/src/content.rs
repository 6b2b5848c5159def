//! The contents of responses. A content is compressed once, when it is created, and only if compression saves space.

use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use edgeward_filter::Digest;
use http::HeaderValue;

/// The content coding of a representation (RFC 9110 §8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    Identity,
    Gzip,
    Zstd,
}

impl Coding {
    pub(crate) const fn name(self) -> Option<&'static str> {
        match self {
            Self::Identity => None,
            Self::Gzip => Some("gzip"),
            Self::Zstd => Some("zstd"),
        }
    }

    /// Returns the best coding that `Accept-Encoding` allows (RFC 9110 §12.5.3). A member of the list with
    /// `q=0` allows no coding. Other weights are ignored: zstd is preferred to gzip. Unlike in the RFC,
    /// `gzip;q=0, *` allows gzip, because the member `*` allows every coding.
    fn choose(accepted: &str, has: impl Fn(Self) -> bool) -> Self {
        let accepts = |coding: Self| {
            let name = coding.name().unwrap_or_default();
            accepted.split(',').any(|member| {
                let mut parts = member.split(';').map(str::trim);
                let is_named = parts
                    .next()
                    .is_some_and(|token| token.eq_ignore_ascii_case(name) || token == "*");
                let has_zero_weight = parts.any(|parameter| {
                    let weight = parameter
                        .strip_prefix("q=")
                        .or_else(|| parameter.strip_prefix("Q="));
                    weight.is_some_and(|q| q.parse::<f32>().is_ok_and(|q| q <= 0.0))
                });
                is_named && !has_zero_weight
            })
        };
        [Self::Zstd, Self::Gzip]
            .into_iter()
            .find(|coding| has(*coding) && accepts(*coding))
            .unwrap_or(Self::Identity)
    }
}

/// A content in all its codings.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    identity: Bytes,
    gzip: Option<Bytes>,
    zstd: Option<Bytes>,
    /// The entity tag without quotes and without the name of the coding.
    tag: String,
}

impl Content {
    /// Compresses the content if the first 256 KiB are compressible. Most filters are not: their bytes look random.
    pub(crate) fn new(bytes: Bytes, tag: String) -> Self {
        let sample = &bytes[..bytes.len().min(SAMPLE_BYTES)];
        let is_compressible = bytes.len() >= COMPRESSED_BYTES_MIN
            && zstd::bulk::compress(sample, ZSTD_LEVEL)
                .is_ok_and(|c| saves_enough(c.len(), sample.len()));
        let keep_if_smaller = |compressed_bytes: std::io::Result<Vec<u8>>| {
            compressed_bytes
                .ok()
                .filter(|compressed_bytes| saves_enough(compressed_bytes.len(), bytes.len()))
                .map(Bytes::from)
        };
        let (mut gzip, mut zstd) = (None, None);
        if is_compressible {
            zstd = keep_if_smaller(zstd::bulk::compress(&bytes, ZSTD_LEVEL));
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            gzip = keep_if_smaller(encoder.write_all(&bytes).and_then(|()| encoder.finish()));
        }
        Self {
            identity: bytes,
            gzip,
            zstd,
            tag,
        }
    }

    /// Returns the representation for a client, and its coding.
    pub(crate) fn select(&self, accepted: &str) -> (Coding, Bytes) {
        let representation = |coding| match coding {
            Coding::Identity => Some(&self.identity),
            Coding::Gzip => self.gzip.as_ref(),
            Coding::Zstd => self.zstd.as_ref(),
        };
        let coding = Coding::choose(accepted, |coding| representation(coding).is_some());
        let bytes = representation(coding).unwrap_or(&self.identity);
        (coding, bytes.clone())
    }

    /// Returns a strong validator, which differs for each coding (RFC 9110 §8.8.3.3).
    pub(crate) fn etag(&self, coding: Coding) -> HeaderValue {
        let tag = match coding.name() {
            None => format!("\"{}\"", self.tag),
            Some(name) => format!("\"{}-{name}\"", self.tag),
        };
        HeaderValue::try_from(tag).expect("entity tags are visible ASCII text")
    }

    /// Returns true if the representation depends on `Accept-Encoding`, so that responses need `Vary`.
    pub(crate) fn varies(&self) -> bool {
        self.gzip.is_some() || self.zstd.is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.identity.len()
    }
}

/// A file that is served under its digest.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) kind: FileKind,
    pub(crate) sha256: Digest,
    pub(crate) content: Content,
}

/// The kind of a file, which is a part of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Snapshot,
    Delta,
}

impl File {
    pub(crate) fn new(kind: FileKind, sha256: Digest, bytes: Bytes) -> Arc<Self> {
        Arc::new(Self {
            kind,
            sha256,
            content: Content::new(bytes, sha256.to_string()),
        })
    }
}

/// Returns true if compression saves more than a twentieth of the bytes. A smaller saving does not justify a second
/// representation in caches.
fn saves_enough(compressed: usize, uncompressed: usize) -> bool {
    compressed < uncompressed - uncompressed / 20
}

/// The smallest content that is compressed, in bytes. For smaller contents the additional header fields take as many
/// bytes as compression saves.
const COMPRESSED_BYTES_MIN: usize = 512;
const SAMPLE_BYTES: usize = 1 << 18;
const ZSTD_LEVEL: i32 = 9;

#[cfg(test)]
mod tests {
    use edgeward_types::mix64;

    use super::*;

    #[test]
    fn compressible_content_is_stored_in_three_codings_and_other_content_in_one() {
        let text = Content::new(Bytes::from(vec![b'a'; 10_000]), "t".to_owned());
        for (accepted, coding) in [
            ("", Coding::Identity),
            ("gzip", Coding::Gzip),
            ("gzip, zstd", Coding::Zstd),
            ("zstd;q=0, gzip", Coding::Gzip),
            ("*", Coding::Zstd),
            ("br", Coding::Identity),
        ] {
            assert_eq!(text.select(accepted).0, coding, "{accepted}");
        }
        let (_, zstd) = text.select("zstd");
        assert_eq!(
            zstd::bulk::decompress(&zstd, 20_000).expect("the content can be decompressed"),
            vec![b'a'; 10_000]
        );
        assert_ne!(text.etag(Coding::Zstd), text.etag(Coding::Identity));
        // Random numbers are not compressible.
        let noise: Vec<u8> = (1..4096).flat_map(|n| mix64(n).to_le_bytes()).collect();
        let noise = Content::new(Bytes::from(noise), "n".to_owned());
        assert_eq!(noise.select("gzip, zstd").0, Coding::Identity);
        assert!(!noise.varies());
    }
}
