//! The tables of a store. `PRAGMA application_id` marks a database as one, and `PRAGMA
//! user_version` is the version of its tables.

use std::path::Path;

use rusqlite::Connection;

use crate::{StoreError, unusable};

/// "tare", as SQLite's header holds it.
const APPLICATION_ID: i64 = 0x7461_7265;
/// Raise it when the tables change. Stores of another version are not read.
const VERSION: i64 = 1;

const TABLES: &str = "
CREATE TABLE run (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    seed INTEGER NOT NULL,
    tare_version TEXT NOT NULL,
    started_unix_ms INTEGER NOT NULL,
    -- Null while it runs.
    stopped_by TEXT,
    owner_pid INTEGER NOT NULL,
    -- What was typed.
    command TEXT NOT NULL,
    plan TEXT NOT NULL,
    machine TEXT NOT NULL,
    -- JSON: the shape of its slices, and how long its variants take to be warm; null until its
    -- first rounds have found it.
    found TEXT
);
-- What other tools measured, which has no slices.
CREATE TABLE import (
    run INTEGER PRIMARY KEY REFERENCES run ON DELETE CASCADE,
    -- JSON: what was found, and the lines it was found in.
    found TEXT NOT NULL
);
CREATE TABLE variant (
    run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
    number INTEGER NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (run, number)
) WITHOUT ROWID;
CREATE TABLE round (
    run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
    number INTEGER NOT NULL,
    cycles INTEGER NOT NULL,
    started_unix_ms INTEGER NOT NULL,
    -- Null until it has ended.
    elapsed_ns INTEGER,
    machine TEXT,
    -- Why it does not count, where something failed in it.
    lost TEXT,
    PRIMARY KEY (run, number)
) WITHOUT ROWID;
CREATE TABLE launch (
    run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
    round INTEGER NOT NULL,
    variant INTEGER NOT NULL,
    started_unix_ms INTEGER NOT NULL,
    ready_ns INTEGER NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (run, round, variant)
) WITHOUT ROWID;
CREATE TABLE slice (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
    round INTEGER NOT NULL,
    -- From the round's number of cycles on: with clients that sleep while they wait.
    cycle INTEGER NOT NULL,
    position INTEGER NOT NULL,
    variant INTEGER NOT NULL,
    window_ns INTEGER NOT NULL,
    started INTEGER NOT NULL,
    good INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    server_cpu_ns INTEGER,
    counts TEXT NOT NULL,
    server TEXT
);
CREATE UNIQUE INDEX slice_place ON slice (run, round, cycle, variant);
CREATE TABLE latency (
    slice INTEGER NOT NULL REFERENCES slice ON DELETE CASCADE,
    series TEXT NOT NULL,
    sum_ns TEXT NOT NULL,
    -- HdrHistogram V2, deflated.
    histogram BLOB NOT NULL,
    PRIMARY KEY (slice, series)
) WITHOUT ROWID;
CREATE TABLE event (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run ON DELETE CASCADE,
    unix_ms INTEGER NOT NULL,
    who TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX event_of_run ON event (run);
";

/// Checks a database before anything is written: one of another program must not be changed.
pub fn check_ours_or_empty(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    // One transaction sees one state: another tare may create its tables between two queries.
    let _view = connection.unchecked_transaction().map_err(|e| unusable(path, e))?;
    let number = |query: &str| -> Result<i64, StoreError> {
        connection.query_row(query, [], |row| row.get(0)).map_err(|e| unusable(path, e))
    };
    // Foreign views and triggers could compute forever; a store of tare has none.
    let strange = number(
        "SELECT count(*) FROM sqlite_schema WHERE type NOT IN ('table', 'index')
         OR sql LIKE 'CREATE VIRTUAL%'",
    )?;
    // A column may be computed with or without the word GENERATED.
    let computed = number(
        "SELECT count(*) FROM sqlite_schema AS t, pragma_table_xinfo(t.name) AS c
         WHERE t.type = 'table' AND c.hidden <> 0",
    )?;
    let is_empty = is_empty(connection).map_err(|e| unusable(path, e))?;
    let is_ours = number("PRAGMA application_id")? == APPLICATION_ID;
    match strange + computed == 0 && (is_ours || is_empty) {
        true => Ok(()),
        false => Err(StoreError::NotOurs { path: path.display().to_string() }),
    }
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Refuses tables of another version.
pub fn check_version(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    match version(connection).map_err(|error| unusable(path, error))? {
        VERSION => Ok(()),
        found => Err(StoreError::OtherVersion {
            path: path.display().to_string(),
            found,
            known: VERSION,
        }),
    }
}

/// Creates the tables in an empty database.
pub fn make_tables(path: &Path, connection: &mut Connection) -> Result<(), StoreError> {
    let failed = |error| unusable(path, error);
    if is_empty(connection).map_err(failed)? {
        // Another process may do the same: only one gets the write lock, and the other finds the
        // tables.
        let transaction = connection
            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
            .map_err(failed)?;
        if is_empty(&transaction).map_err(failed)? {
            transaction.execute_batch(TABLES).map_err(failed)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
            transaction.pragma_update(None, "user_version", VERSION).map_err(failed)?;
        }
        transaction.commit().map_err(failed)?;
    }
    check_version(path, connection)
}
