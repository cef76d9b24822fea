//! Conclusions of runs, computed from their slices and stored so that lists of many runs need not
//! compute them again.

use rusqlite::params;

use crate::read::RUNS_MAX;
use crate::{RunId, Store, StoreError};

/// Created with the first conclusion, in stores that do not have it yet. It holds nothing that
/// cannot be computed again.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS conclusion (
    run INTEGER PRIMARY KEY REFERENCES run ON DELETE CASCADE,
    -- Of the method.
    version INTEGER NOT NULL,
    -- The rounds that it is of: a run may have been resumed since.
    rounds INTEGER NOT NULL,
    text TEXT NOT NULL
)";

/// Longest text of a run's conclusions: a run has a few variants, and a few metrics that decide.
const TEXT_MAX: usize = 64 << 10;

impl Store {
    /// Conclusions by that version of the method: the run, its number of rounds, and the text.
    /// Unreadable ones are left out, because they can be computed again.
    pub fn conclusions(&self, version: u32) -> Vec<(RunId, u32, String)> {
        let query = || -> rusqlite::Result<Vec<(RunId, u32, String)>> {
            let mut statement = self.connection.prepare(&format!(
                "SELECT run, rounds, text FROM conclusion
                 WHERE version = ?1 AND length(text) <= {TEXT_MAX} LIMIT {RUNS_MAX}"
            ))?;
            let rows = statement.query_map(params![version], |row| {
                Ok((RunId(row.get(0)?), row.get(1)?, row.get(2)?))
            })?;
            Ok(rows.filter_map(Result::ok).collect())
        };
        query().unwrap_or_default()
    }

    /// Stores the conclusions of a run, replacing earlier ones.
    pub fn conclude(
        &self,
        run: RunId,
        version: u32,
        rounds: u32,
        text: &str,
    ) -> Result<(), StoreError> {
        let write = || -> rusqlite::Result<()> {
            self.connection.execute(TABLE, [])?;
            let mut statement = self.connection.prepare_cached(
                "INSERT OR REPLACE INTO conclusion (run, version, rounds, text)
                 VALUES (?1, ?2, ?3, ?4)",
            )?;
            statement.execute(params![run.0, version, rounds, text]).map(drop)
        };
        write().map_err(|error| self.failed(error))
    }
}
