//! Where a cluster is and how it is read:
//! `cassandra://user:password@node:9042,other/keyspace?consistency=local_one&dc=…`.

use scylla::frame::types::Consistency;

/// A cluster's address, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) nodes: Vec<String>,
    pub(super) user: Option<(String, String)>,
    pub(super) keyspace: Option<String>,
    pub(super) consistency: Consistency,
    pub(super) datacenter: Option<String>,
    /// Rows of a page: 20,000 UUIDs are 0.6 MB, which a node holds for each range being read.
    pub(super) page_rows: i32,
    /// Into how many ranges the ring is cut at least.
    pub(super) ranges: u32,
}

impl Place {
    pub(super) fn parse(address: &str) -> Result<Self, String> {
        let (_, rest) = address.split_once("://").ok_or("it has no scheme")?;
        let (rest, settings) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, keyspace) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, nodes) = match authority.rsplit_once('@') {
            Some((user, nodes)) => {
                let (user, password) = user.split_once(':').ok_or("a user has a password")?;
                (Some((decoded(user)?, decoded(password)?)), nodes)
            }
            None => (None, authority),
        };
        let nodes: Vec<_> = nodes
            .split(',')
            .filter(|node| !node.is_empty())
            .map(str::to_owned)
            .collect();
        if nodes.is_empty() {
            return Err("it names no node: cassandra://node:9042/keyspace".to_owned());
        }
        let mut place = Self {
            nodes,
            user,
            keyspace: (!keyspace.is_empty()).then(|| keyspace.to_owned()),
            consistency: Consistency::LocalQuorum,
            datacenter: None,
            page_rows: 20_000,
            ranges: 64,
        };
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
            let number = |least: u32, most: u32| {
                let number = value.parse::<u32>().ok();
                let number = number.filter(|number| (least..=most).contains(number));
                number.ok_or_else(|| format!("{name} is a number from {least} to {most}"))
            };
            match name {
                "consistency" => place.consistency = consistency(value)?,
                "dc" => place.datacenter = Some(decoded(value)?),
                "page" => {
                    place.page_rows = i32::try_from(number(1, 1_000_000)?).unwrap_or(i32::MAX);
                }
                "ranges" => place.ranges = number(1, 65_536)?,
                _ => {
                    return Err(format!(
                        "there is no setting `{name}`; there are consistency, dc, page, ranges"
                    ));
                }
            }
        }
        Ok(place)
    }
}

fn consistency(name: &str) -> Result<Consistency, String> {
    Ok(match name.to_ascii_lowercase().as_str() {
        "one" => Consistency::One,
        "local_one" => Consistency::LocalOne,
        "quorum" => Consistency::Quorum,
        "local_quorum" => Consistency::LocalQuorum,
        "all" => Consistency::All,
        _ => {
            return Err(format!(
                "consistency is `{name}`; there are local_quorum, local_one, quorum, one, all"
            ));
        }
    })
}

/// Without its `%40`s.
fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = after.split_at_checked(2).and_then(|(digits, after)| {
            rest = after;
            u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        });
        bytes.push(digits.ok_or("a % is followed by two hex digits")?);
    }
    String::from_utf8(bytes).map_err(|_| "it is no UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_where_and_how() {
        let place = Place::parse(
            "cassandra://me:p%40ss@a:9042,b/shop?consistency=LOCAL_ONE&dc=eu&page=5000&ranges=9",
        )
        .expect("an address");
        assert_eq!(place.nodes, ["a:9042", "b"]);
        assert_eq!(place.user, Some(("me".to_owned(), "p@ss".to_owned())));
        assert_eq!(place.keyspace.as_deref(), Some("shop"));
        assert_eq!(place.consistency, Consistency::LocalOne);
        assert_eq!(place.datacenter.as_deref(), Some("eu"));
        assert_eq!((place.page_rows, place.ranges), (5000, 9));
    }

    #[test]
    fn a_wrong_address_says_what_is_wrong() {
        for (address, why) in [
            ("cassandra://", "no node"),
            ("cassandra:///shop", "no node"),
            ("cassandra://a/shop?consistency=most", "most"),
            ("cassandra://a/shop?page=0", "page is a number"),
            ("cassandra://a/shop?tls=1", "no setting `tls`"),
            ("cassandra://me@a/shop", "password"),
            ("cassandra://me:%4@a/shop", "hex"),
        ] {
            let error = Place::parse(address).expect_err("wrong");
            assert!(error.contains(why), "{error}");
        }
    }
}
