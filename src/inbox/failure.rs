//! What a failed statement says: about the event, about others, or about the database.

use super::ErrorKind;

/// An error text in the database is no longer than this.
const ERROR_LENGTH_MAX: usize = 2000;

/// The database's own words.
pub(super) fn said(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}

pub(super) fn shortened(mut text: String) -> String {
    if text.len() > ERROR_LENGTH_MAX {
        let end = (0..=ERROR_LENGTH_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// What a failed statement says about the event that it failed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatementFailure {
    /// The event cannot be written as it is: an attempt.
    Own,
    /// A company's function says that something is not there yet: an attempt.
    NotYet,
    /// A company's function says that it cannot be: dead.
    Refused,
    /// A company's function says that it means nothing here.
    Ignored,
    /// Somebody else was at the same rows: try again.
    Conflict,
    /// The database is in trouble or busy: nobody's fault, no attempt.
    System,
}

impl StatementFailure {
    pub(super) fn kind(self) -> ErrorKind {
        match self {
            Self::Own | Self::Ignored => ErrorKind::Database,
            Self::NotYet => ErrorKind::EffectNotYet,
            Self::Refused => ErrorKind::EffectRefused,
            Self::Conflict => ErrorKind::Conflict,
            Self::System => ErrorKind::DatabaseBusy,
        }
    }
}

/// Classifies an error of the database; `None`: the connection itself failed, and nothing is known.
pub(super) fn statement_failure(error: &sqlx::Error) -> Option<StatementFailure> {
    // A function's answer that is no message, or a row that this Wharf does not know: the connection is well.
    if matches!(error, sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. }) {
        return Some(StatementFailure::Own);
    }
    let code = error.as_database_error()?.code()?;
    match &*code {
        // docs/EFFECTS.md
        "WH001" => Some(StatementFailure::NotYet),
        "WH002" => Some(StatementFailure::Refused),
        "WH003" => Some(StatementFailure::Ignored),
        // Serialization failure, deadlock.
        "40001" | "40P01" => Some(StatementFailure::Conflict),
        // Lock not available, statement canceled, a plan that outlived a change of the schema.
        "55P03" | "57014" | "0A000" => Some(StatementFailure::System),
        // Shutting down, starting up, idle in transaction too long: the session is gone.
        "57P01" | "57P02" | "57P03" | "25P03" => None,
        // Out of disk, memory or connections.
        code if code.starts_with("53") => Some(StatementFailure::System),
        // A read-only server (a standby that was promoted elsewhere) will not get better on this connection.
        "25006" => None,
        _ => Some(StatementFailure::Own),
    }
}
