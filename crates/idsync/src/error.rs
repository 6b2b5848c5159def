//! Why ids could not be read, told apart by what somebody has to do about it.

use std::error::Error;

/// What underlies an error of a database's client.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why ids could not be read from a source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The source's address says too little, or something else than it may.
    #[error("`{url}` is no address of a database: {why}")]
    Address {
        /// As given, without its password.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// This program was built without the client of this kind of database.
    #[error("ids cannot be read from {scheme}://")]
    Unsupported {
        /// What the address begins with.
        scheme: String,
    },
    /// Nobody there, or nobody who lets us in.
    #[error("cannot connect to {label}")]
    Connect {
        /// Which source.
        label: String,
        /// What the client says.
        #[source]
        cause: Cause,
        /// Whether trying again may help: a server that is down, not a wrong password.
        transient: bool,
    },
    /// The database does not understand or does not allow the query.
    #[error("{label} refuses the query")]
    Query {
        /// Which source.
        label: String,
        /// What the database says.
        #[source]
        cause: Cause,
    },
    /// The query gives something else than one column, or two where changes are asked for.
    #[error("the query gives {found} columns where {wanted}")]
    Columns {
        /// How many it gives.
        found: usize,
        /// How many it should and what they are.
        wanted: &'static str,
    },
    /// A column whose values are no ids.
    #[error("column `{column}` is of type {type_name}, which holds no ids")]
    ColumnType {
        /// Its name.
        column: String,
        /// The database's word for its type.
        type_name: String,
    },
    /// A value that is no id.
    #[error("{place}, column `{column}`: {what}")]
    NotAnId {
        /// Which row: its number, and of what.
        place: String,
        /// The column's name.
        column: String,
        /// What stands there instead.
        what: String,
    },
    /// The connection broke or the server gave up while rows came.
    #[error("{label} stopped in the middle")]
    Lost {
        /// Which source.
        label: String,
        /// What the client says.
        #[source]
        cause: Cause,
    },
    /// Changes do not come in the order of their numbers, so that the last is not the highest.
    #[error("changes are not in order: {number} follows a higher number")]
    Unordered {
        /// The number that came too late.
        number: i64,
    },
    /// Whoever takes the changes could not take them now. They come again.
    #[error("the changes were not taken")]
    NotTaken,
    /// Whoever began it no longer wants it.
    #[error("cancelled")]
    Cancelled,
}

impl SourceError {
    /// The error and what underlies it, on one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut next = self.source();
        while let Some(cause) = next {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            next = cause.source();
        }
        text
    }

    /// Whether the same attempt may succeed a little later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect { transient, .. } => *transient,
            Self::Lost { .. } | Self::NotTaken => true,
            _ => false,
        }
    }

    /// What whoever reads it can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unsupported { .. } => Some(
                "there are postgres://, sqlite:// and cassandra://, unless this program was built without them; or let the database's own client write into `--source -`",
            ),
            Self::Columns { .. } => Some("select the id's column alone: SELECT id FROM resource"),
            Self::ColumnType { .. } => {
                Some("integers, text, UUIDs and bytes are ids; cast it in the query to one of them")
            }
            Self::NotAnId { .. } => Some(
                "--ids says what the ids are, a WHERE leaves rows out, --skip-malformed leaves out what is no id",
            ),
            Self::Unordered { .. } => Some("end the query with ORDER BY and its second column"),
            _ => None,
        }
    }
}
