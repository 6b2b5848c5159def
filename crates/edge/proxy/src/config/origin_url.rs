//! The URL of a server of an origin.

use std::path::PathBuf;
use std::str::FromStr;

/// Scheme, host and port of a server, from a URL such as `http://10.0.0.7:9000`, or a Unix socket such as
/// `unix:/run/app.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginUrl {
    /// `https` rather than `http`.
    pub tls: bool,
    /// A name or an address; IPv6 without its brackets. For SRV records, the name without service and protocol: it is
    /// the name in `Host` and in the certificate, because DNS alone does not prove the names of the targets.
    pub host: String,
    /// The port of the URL, or 80 or 443. SRV records have ports of their own.
    pub port: u16,
    /// The owner of SRV records, such as `_http._tcp.example.com`: a name that begins with `_`.
    pub service: Option<String>,
    /// The path of a Unix socket. Host and port are then `localhost` and 80, for `Host`.
    pub socket: Option<PathBuf>,
}

impl OriginUrl {
    /// Returns host and port in the form of `Host`: the scheme's default port is omitted.
    pub fn authority(&self) -> String {
        if self.port == default_port(self.tls) {
            self.bracketed_host()
        } else {
            self.authority_with_port()
        }
    }

    /// Returns host and port.
    pub(crate) fn authority_with_port(&self) -> String {
        format!("{}:{}", self.bracketed_host(), self.port)
    }

    fn bracketed_host(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        }
    }
}

const fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

impl std::fmt::Display for OriginUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(path) = &self.socket {
            return write!(f, "unix:{}", path.display());
        }
        let scheme = if self.tls { "https" } else { "http" };
        match &self.service {
            Some(service) => write!(f, "{scheme}://{service}"),
            None => write!(f, "{scheme}://{}", self.authority()),
        }
    }
}

impl FromStr for OriginUrl {
    type Err = ParseOriginUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |problem| ParseOriginUrlError {
            text: text.to_owned(),
            problem,
        };
        if let Some(path) = text.strip_prefix("unix:") {
            if !path.starts_with('/') || path.ends_with('/') {
                return Err(error(UrlProblem::Socket));
            }
            return Ok(Self {
                tls: false,
                host: "localhost".to_owned(),
                port: 80,
                service: None,
                socket: Some(PathBuf::from(path)),
            });
        }
        let uri: http::Uri = text.parse().map_err(|_| error(UrlProblem::Syntax))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(error(UrlProblem::Scheme)),
        };
        let authority = uri.authority().ok_or_else(|| error(UrlProblem::Syntax))?;
        if authority.as_str().contains('@') {
            return Err(error(UrlProblem::User));
        }
        if uri.path() != "/" || uri.query().is_some() {
            return Err(error(UrlProblem::Path));
        }
        let port = match authority.port() {
            Some(port) if port.as_u16() == 0 => return Err(error(UrlProblem::Syntax)),
            Some(port) => port.as_u16(),
            None => default_port(tls),
        };
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(error(UrlProblem::Syntax));
        }
        if !host.starts_with('_') {
            return Ok(Self {
                tls,
                host,
                port,
                service: None,
                socket: None,
            });
        }
        let labels = host.split('.').skip_while(|label| label.starts_with('_'));
        let domain = labels.collect::<Vec<_>>().join(".");
        if domain.is_empty() || authority.port().is_some() {
            return Err(error(UrlProblem::Service));
        }
        Ok(Self {
            tls,
            host: domain,
            port,
            service: Some(host),
            socket: None,
        })
    }
}

/// The reason why a text is not the URL of an origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` {problem}")]
pub struct ParseOriginUrlError {
    text: String,
    problem: UrlProblem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum UrlProblem {
    #[error("is not a URL; write http://HOST:PORT")]
    Syntax,
    #[error("has no known scheme; start with http:// or https://")]
    Scheme,
    #[error("has a user name; the edge sends no credentials, so remove the text up to the @")]
    User,
    #[error("is not the absolute path of a Unix socket; write unix:/run/NAME.sock")]
    Socket,
    #[error("is not the name of SRV records; write http://_SERVICE._tcp.DOMAIN without a port")]
    Service,
    #[error("has a path; requests keep their own paths, so end the URL after the port")]
    Path,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_scheme_a_host_and_a_port() {
        for (text, shown, port) in [
            ("http://127.0.0.1:9000", "http://127.0.0.1:9000", 9000),
            ("http://example.com", "http://example.com", 80),
            ("https://example.com/", "https://example.com", 443),
            ("http://[::1]:8080", "http://[::1]:8080", 8080),
            ("unix:/run/app.sock", "unix:/run/app.sock", 80),
            (
                "http://_app._tcp.example.com",
                "http://_app._tcp.example.com",
                80,
            ),
        ] {
            let url: OriginUrl = text.parse().expect(text);
            assert_eq!((url.to_string().as_str(), url.port), (shown, port));
        }
    }

    #[test]
    fn the_host_of_srv_records_is_their_domain() {
        let url: OriginUrl = "https://_app._tcp.example.com".parse().expect("a URL");
        assert_eq!(url.authority(), "example.com");
        assert_eq!(url.service.as_deref(), Some("_app._tcp.example.com"));
    }

    #[test]
    fn an_invalid_url_is_refused_with_a_hint() {
        for (text, hint) in [
            ("example.com:80", "http://"),
            ("ftp://example.com", "scheme"),
            ("http://user@example.com", "@"),
            ("http://example.com/site", "path"),
            ("http://example.com/?a", "path"),
            ("unix:app.sock", "unix:/run/"),
            ("http://_app._tcp.example.com:8080", "without a port"),
            ("https://_app._tcp", "SRV"),
            ("", "http://"),
        ] {
            let message = text.parse::<OriginUrl>().expect_err(text).to_string();
            assert!(message.contains(hint), "{text}: {message}");
        }
    }
}
