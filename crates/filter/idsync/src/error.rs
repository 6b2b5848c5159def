//! Errors of reading ids. Each kind of error needs a different action of the operator.

use std::error::Error;

/// The underlying error of a database client.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why ids could not be read from a source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The address of the source is incomplete or invalid.
    #[error("`{url}` is not a valid database address: {why}")]
    Address {
        /// The address without its password.
        url: String,
        /// The reason.
        why: String,
    },
    /// This program was built without the client for this database.
    #[error("reading ids from {scheme}:// is not supported")]
    Unsupported {
        /// The scheme of the address.
        scheme: String,
    },
    /// The server cannot be reached or refuses the connection.
    #[error("cannot connect to {label}")]
    Connect {
        /// The name of the source, without its password.
        label: String,
        /// The error of the database client.
        #[source]
        cause: Cause,
        /// True if a retry may help: for a server that is down, not for a wrong password.
        transient: bool,
    },
    /// The database refuses the query.
    #[error("{label} refused the query")]
    Query {
        /// The name of the source, without its password.
        label: String,
        /// The error of the database.
        #[source]
        cause: Cause,
    },
    /// The query has the wrong number of columns or parameters.
    #[error("the query returns {found} columns; {expected}")]
    Columns {
        /// The number of columns returned.
        found: usize,
        /// The expected columns and parameters.
        expected: &'static str,
    },
    /// A column has a type that is not supported.
    #[error("column `{column}` has the unsupported type {type_name}")]
    ColumnType {
        /// The name of the column.
        column: String,
        /// The database's name of the type.
        type_name: String,
    },
    /// The ids of the column have several spellings, and the form of the ids is `text`.
    #[error("the ids of column `{column}` have the form {form}, not text")]
    TextForm {
        /// The name of the column.
        column: String,
        /// The form of the ids in the column.
        form: edgeward_filter::IdForm,
    },
    /// The database equates different texts of the column, and the form of the ids is `text`.
    #[error(
        "the database equates different texts in column `{column}`, such as `a` and `A`, and a filter does not"
    )]
    EquatesTexts {
        /// The name of the column.
        column: String,
    },
    /// A value is not an id.
    #[error("{row}, column `{column}`: {what}")]
    NotAnId {
        /// The row with its number, if known. For Cassandra, also the token range within which rows are numbered.
        row: String,
        /// The name of the column.
        column: String,
        /// The reason.
        what: String,
    },
    /// The connection failed, or the server stopped, while rows were read.
    #[error("lost the connection to {label} while reading")]
    Lost {
        /// The name of the source, without its password.
        label: String,
        /// The error of the database client.
        #[source]
        cause: Cause,
    },
    /// The rows of a changes query are not in ascending order of their second column, the number of the change.
    #[error("changes are not in ascending order: {number} follows a higher number")]
    Unordered {
        /// The number that is too small.
        number: i64,
    },
    /// The function that receives the changes returned false. The next poll delivers these changes again.
    #[error("the changes were not accepted")]
    NotAccepted,
    /// The caller cancelled the operation.
    #[error("cancelled")]
    Cancelled,
}

impl SourceError {
    /// Returns the error and its causes on one line.
    pub fn chain(&self) -> String {
        edgeward_types::with_causes(self)
    }

    /// Returns true if a retry may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect { transient, .. } => *transient,
            Self::Lost { .. } | Self::NotAccepted => true,
            _ => false,
        }
    }

    /// Returns advice for the operator, if there is any for this kind of error.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unsupported { .. } => Some(
                "use postgres://, sqlite:// or cassandra://, if this program was built with them; or pipe ids from another client into `--source -`",
            ),
            Self::Columns { .. } => Some(
                "select only the id column: SELECT id FROM resource; a changes query selects the id and its number",
            ),
            Self::ColumnType { .. } => {
                Some("cast the column to an integer, text, UUID or bytes in the query")
            }
            Self::TextForm { .. } => {
                Some("give the form of the column with --ids uuid or --ids integer")
            }
            Self::EquatesTexts { .. } => Some(
                "select one spelling and look up only this one, for example lower(id::text) in PostgreSQL and lower(id) in SQLite; or give --ids uuid if the ids are UUIDs",
            ),
            Self::NotAnId { .. } => Some(
                "set the form of the ids with --ids, exclude rows with WHERE, or skip malformed ids with --skip-malformed",
            ),
            Self::Unordered { .. } => Some("end the query with ORDER BY its second column"),
            _ => None,
        }
    }
}
