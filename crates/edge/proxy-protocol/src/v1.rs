//! Version 1: `PROXY TCP4 192.0.2.1 198.51.100.2 50000 80` and CRLF (section 2.1).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::io::Write as _;

use crate::header::{Addresses, Header, HeaderError, Progress, has_signature};

/// Reads a header that begins with `P`.
pub(crate) fn read(bytes: &[u8], len_max: usize) -> Result<Progress, HeaderError> {
    if !has_signature(bytes, SIGNATURE) {
        return Err(HeaderError::Missing);
    }
    let max = LEN_MAX.min(len_max);
    let searched = &bytes[..bytes.len().min(max)];
    let Some(end) = searched.iter().position(|byte| *byte == b'\n') else {
        return if searched.len() == max {
            Err(HeaderError::TooLong)
        } else {
            Ok(Progress::Incomplete)
        };
    };
    let line = searched[..end]
        .strip_suffix(b"\r")
        .and_then(|line| std::str::from_utf8(line).ok())
        .ok_or(HeaderError::Malformed)?;
    let header = parse(line).ok_or(HeaderError::Malformed)?;
    Ok(Progress::Complete {
        header,
        len: end + 1,
    })
}

/// Parses a line without its end.
fn parse(line: &str) -> Option<Header> {
    let mut words = line.split(' ');
    if words.next() != Some("PROXY") {
        return None;
    }
    let header = match words.next()? {
        // The receiver ignores the rest of the line.
        "UNKNOWN" => return Some(Header::Local),
        "TCP4" => addresses::<Ipv4Addr>(&mut words)?,
        "TCP6" => addresses::<Ipv6Addr>(&mut words)?,
        _ => return None,
    };
    words.next().is_none().then_some(header)
}

fn addresses<'a, A>(words: &mut impl Iterator<Item = &'a str>) -> Option<Header>
where
    A: std::str::FromStr + Into<IpAddr>,
{
    let mut address = || words.next()?.parse::<A>().ok().map(Into::into);
    let (source, destination): (IpAddr, IpAddr) = (address()?, address()?);
    let mut port = || port(words.next()?);
    let (source_port, destination_port) = (port()?, port()?);
    Some(Header::Proxied(Addresses {
        source: SocketAddr::new(source, source_port),
        destination: SocketAddr::new(destination, destination_port),
    }))
}

/// Parses a decimal number without a sign or leading zeros.
fn port(text: &str) -> Option<u16> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    let has_leading_zero = text.len() > 1 && text.starts_with('0');
    (is_decimal && !has_leading_zero).then(|| text.parse().ok())?
}

pub(crate) fn write(header: Header, out: &mut Vec<u8>) {
    let written = match header {
        Header::Local => out.write_all(b"PROXY UNKNOWN\r\n"),
        Header::Proxied(Addresses {
            source,
            destination,
        }) => {
            let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
            write!(
                out,
                "PROXY {family} {} {} {} {}\r\n",
                source.ip(),
                destination.ip(),
                source.port(),
                destination.port()
            )
        }
    };
    written.expect("writes to memory succeed");
}

const SIGNATURE: &[u8] = b"PROXY ";

/// The longest line with its end, as the specification calculates it: UNKNOWN with two IPv6 addresses.
const LEN_MAX: usize = 107;
