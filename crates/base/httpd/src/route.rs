//! The rows of the table of an admin server's pages: path, method, role and the function that answers.

use std::pin::Pin;

use bytes::Bytes;
use http::{Method, StatusCode};

use crate::access::{Access, Caller, Role};
use crate::events::EventStream;

/// A page for one method.
#[derive(Debug)]
pub struct Route<P: 'static> {
    /// The path.
    pub path: &'static str,
    /// The token that a request needs.
    pub access: Access,
    /// The function that answers, and with it the method.
    pub run: Run<P>,
    /// Returns false if this server does not have the page.
    pub is_available: fn(&P) -> bool,
}

/// The function that answers a request for a page.
#[derive(Debug)]
pub enum Run<P: 'static> {
    /// Answers GET and HEAD with a text.
    Show(Media, fn(&P) -> String),
    /// Answers GET and HEAD with metrics: in the text format of Prometheus, or in that of OpenMetrics for clients that
    /// accept it, if the second function returns a text.
    Metrics(fn(&P) -> String, fn(&P) -> Option<String>),
    /// Answers GET and HEAD with a text that takes time to compose.
    Compose(Media, fn(P) -> Answering<String>),
    /// Answers GET and HEAD with a file of the program.
    Send(File),
    /// Answers GET with a stream of events. `None`: the maximum number of streams is open.
    Follow(fn(&P) -> Option<EventStream>),
    /// Carries out a POST. Returns the status and a body in JSON.
    Post(fn(P, Call) -> Answering<(StatusCode, String)>),
    /// Changes a setting by PUT. Returns a message about the change, or the reason why the value is refused.
    ///
    /// The server may have no tokens, so only a client on the same machine may change a setting. A web page cannot: a
    /// browser asks the server before a cross-origin PUT (Fetch, "CORS-preflight request"), and the server refuses this
    /// question. From a page of the server itself a change needs a token with the role of the row.
    Change(fn(P, Call) -> Answering<Result<String, String>>),
}

/// The future of an answer.
pub type Answering<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A request with a body, which the server has allowed and read.
#[derive(Debug)]
pub struct Call {
    /// The client.
    pub caller: Caller,
    /// The body.
    pub body: Bytes,
}

/// A file of the program: a part of a page for browsers.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// The media type.
    pub media: Media,
    /// The content.
    pub bytes: &'static [u8],
}

/// The media type of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// A page for browsers.
    Html,
    /// A script of such a page.
    JavaScript,
    /// A style sheet of such a page.
    Css,
    /// Server-sent events.
    Events,
    /// Text.
    Text,
    /// JSON.
    Json,
    /// The text format of Prometheus.
    Metrics,
    /// The text format of OpenMetrics.
    OpenMetrics,
}

impl Media {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Html => "text/html; charset=utf-8",
            Self::JavaScript => "text/javascript; charset=utf-8",
            Self::Css => "text/css; charset=utf-8",
            Self::Events => "text/event-stream",
            Self::Text => "text/plain; charset=utf-8",
            Self::Json => "application/json",
            Self::Metrics => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl<P> Route<P> {
    /// Returns a page that shows a text. If the server requires tokens for reading, its requests need one.
    pub const fn show(path: &'static str, media: Media, show: fn(&P) -> String) -> Self {
        Self::new(path, Access::IfRequired(Role::Read), Run::Show(media, show))
    }

    /// Returns metrics in the text formats of Prometheus and of OpenMetrics, the latter if `open_metrics` returns a
    /// text. They need a token like a page of [`show`](Self::show).
    pub const fn metrics(
        path: &'static str,
        text: fn(&P) -> String,
        open_metrics: fn(&P) -> Option<String>,
    ) -> Self {
        let run = Run::Metrics(text, open_metrics);
        Self::new(path, Access::IfRequired(Role::Read), run)
    }

    /// Returns a page like [`show`](Self::show), whose text takes time to compose.
    pub const fn compose(
        path: &'static str,
        media: Media,
        compose: fn(P) -> Answering<String>,
    ) -> Self {
        Self::new(
            path,
            Access::IfRequired(Role::Read),
            Run::Compose(media, compose),
        )
    }

    /// Returns a file for everybody.
    pub const fn file(path: &'static str, file: File) -> Self {
        Self::new(path, Access::Open, Run::Send(file))
    }

    /// Returns a stream of events. It needs a token like a page of [`show`](Self::show).
    pub const fn follow(path: &'static str, follow: fn(&P) -> Option<EventStream>) -> Self {
        Self::new(path, Access::IfRequired(Role::Read), Run::Follow(follow))
    }

    /// Returns a page whose POST always needs a token with `role`.
    pub const fn post(
        path: &'static str,
        role: Role,
        post: fn(P, Call) -> Answering<(StatusCode, String)>,
    ) -> Self {
        Self::new(path, Access::Always(role), Run::Post(post))
    }

    /// Returns the PUT of a setting. If the server requires tokens for reading, a request needs the role
    /// [`Role::Reload`].
    pub const fn change(
        path: &'static str,
        change: fn(P, Call) -> Answering<Result<String, String>>,
    ) -> Self {
        Self::new(path, Access::IfRequired(Role::Reload), Run::Change(change))
    }

    const fn new(path: &'static str, access: Access, run: Run<P>) -> Self {
        Self {
            path,
            access,
            run,
            is_available: |_| true,
        }
    }

    /// Returns the page with access for everybody.
    #[must_use]
    pub const fn open(mut self) -> Self {
        self.access = Access::Open;
        self
    }

    /// Returns the page as one that needs a token also if the server listens on an address that other machines reach.
    #[must_use]
    pub const fn for_local(mut self) -> Self {
        self.access = Access::IfRemote(Role::Read);
        self
    }

    /// Returns the page as one that a server has only if `is_available` returns true.
    #[must_use]
    pub const fn only_if(mut self, is_available: fn(&P) -> bool) -> Self {
        self.is_available = is_available;
        self
    }

    /// Returns the methods of the row.
    pub fn methods(&self) -> &'static [&'static str] {
        match self.run {
            Run::Show(..) | Run::Metrics(..) | Run::Compose(..) | Run::Send(_) => &["GET", "HEAD"],
            Run::Follow(_) => &["GET"],
            Run::Post(_) => &["POST"],
            Run::Change(_) => &["PUT"],
        }
    }

    pub(crate) fn has(&self, method: &Method) -> bool {
        self.methods().contains(&method.as_str())
    }
}
