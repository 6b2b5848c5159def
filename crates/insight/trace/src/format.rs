//! The formats of traces.

use std::fmt;
use std::str::FromStr;

/// The format of the records of a trace, after decompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Lines of `time key size`, separated by white space.
    Text,
    /// Lines of delimited fields; the first line names the columns.
    Csv,
    /// libCacheSim's oracleGeneral: 24 packed little-endian bytes per request.
    OracleGeneral,
    /// LCS, libCacheSim's format with a header: packed little-endian records, in the versions 1 to 8.
    Lcs,
    /// Lines of `time id size [feature…]` with whole numbers, the format of LRB's simulator.
    Lrb,
    /// NCSA common or combined access log, with or without a virtual host at the start of each line.
    Ncsa,
    /// JSON lines of edgeward's own access log.
    Json,
}

impl Format {
    /// Every format, in the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::Text,
        Self::Csv,
        Self::OracleGeneral,
        Self::Lcs,
        Self::Lrb,
        Self::Ncsa,
        Self::Json,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Csv => "csv",
            Self::OracleGeneral => "oracle-general",
            Self::Lcs => "lcs",
            Self::Lrb => "lrb",
            Self::Ncsa => "ncsa",
            Self::Json => "json",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = ParseFormatError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // libCacheSim's spelling, oracleGeneral, is accepted too.
        let wanted = text.replace(['-', '_'], "").to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|format| format.name().replace('-', "") == wanted)
            .ok_or_else(|| ParseFormatError {
                text: text.to_owned(),
            })
    }
}

/// The text is not the name of a trace format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a trace format; use text, csv, oracle-general, lcs, lrb, ncsa or json")]
pub struct ParseFormatError {
    text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_parsed_from_its_name_and_from_libcachesims_spelling() {
        for format in Format::ALL {
            assert_eq!(format.name().parse(), Ok(format));
        }
        assert_eq!("oracleGeneral".parse(), Ok(Format::OracleGeneral));
        let message = "parquet"
            .parse::<Format>()
            .expect_err("the name is not a format")
            .to_string();
        assert!(message.contains("oracle-general"), "{message}");
    }
}
