//! Errors of reading ids, distinguished by what an operator can do about them.

use std::error::Error;

/// The underlying error of a database client.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why ids could not be read from a source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The address of the source is incomplete or invalid.
    #[error("`{url}` is no address of a database: {why}")]
    Address {
        /// The address without its password.
        url: String,
        /// The reason.
        why: String,
    },
    /// This program was built without the client for this database.
    #[error("ids cannot be read from {scheme}://")]
    Unsupported {
        /// The scheme of the address.
        scheme: String,
    },
    /// The server cannot be reached or refuses the connection.
    #[error("cannot connect to {label}")]
    Connect {
        /// The source.
        label: String,
        /// The error of the database client.
        #[source]
        cause: Cause,
        /// True if a retry may help: for a server that is down, not for a wrong password.
        transient: bool,
    },
    /// The database refuses the query.
    #[error("{label} refuses the query")]
    Query {
        /// The source.
        label: String,
        /// The error of the database.
        #[source]
        cause: Cause,
    },
    /// The query has the wrong number of columns or parameters.
    #[error("the query gives {found} columns where {wanted}")]
    Columns {
        /// The number of columns returned.
        found: usize,
        /// The expected columns.
        wanted: &'static str,
    },
    /// A column has a type that is not supported.
    #[error("column `{column}` is of type {type_name}, which holds no ids")]
    ColumnType {
        /// The name of the column.
        column: String,
        /// The database's name of the type.
        type_name: String,
    },
    /// A value is not an id.
    #[error("{place}, column `{column}`: {what}")]
    NotAnId {
        /// The number of the row, and what it is counted from.
        place: String,
        /// The name of the column.
        column: String,
        /// The reason.
        what: String,
    },
    /// The connection failed, or the server stopped, while rows were read.
    #[error("{label} stopped in the middle")]
    Lost {
        /// The source.
        label: String,
        /// The error of the database client.
        #[source]
        cause: Cause,
    },
    /// Changes are not in ascending order of their numbers.
    #[error("changes are not in order: {number} follows a higher number")]
    Unordered {
        /// The number that is too small.
        number: i64,
    },
    /// The receiver could not accept the changes now. They are delivered again.
    #[error("the changes were not taken")]
    NotTaken,
    /// The caller cancelled the operation.
    #[error("cancelled")]
    Cancelled,
}

impl SourceError {
    /// Returns the error and its causes on one line.
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

    /// Returns true if a retry may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect { transient, .. } => *transient,
            Self::Lost { .. } | Self::NotTaken => true,
            _ => false,
        }
    }

    /// Returns advice for the operator.
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
