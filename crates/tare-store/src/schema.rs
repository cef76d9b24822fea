//! Tables, and how older stores become today's. `PRAGMA user_version` holds the version.

use std::path::Path;

use rusqlite::Connection;

use crate::{StoreError, unusable};

/// Each entry takes the store from the version that is its index to the next. Entries are never
/// changed once released; a new one is added.
const MIGRATIONS: [&str; 3] = [V1, V2, V3];

const V1: &str = "
CREATE TABLE run (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    seed INTEGER NOT NULL,
    tare_version TEXT NOT NULL,
    started_unix_ms INTEGER NOT NULL,
    -- Null while it runs.
    stopped_by TEXT,
    owner_pid INTEGER NOT NULL,
    plan TEXT NOT NULL,
    machine TEXT NOT NULL
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

/// What was typed to make a run; what other tools measured, which has no slices.
const V2: &str = "
ALTER TABLE run ADD COLUMN command TEXT NOT NULL DEFAULT '';
CREATE TABLE import (
    run INTEGER PRIMARY KEY REFERENCES run ON DELETE CASCADE,
    -- JSON: what was found, and the lines it was found in.
    found TEXT NOT NULL
);
";

/// What a run's first rounds found: until now it was written into the plan.
const V3: &str = "
CREATE TABLE found (
    run INTEGER PRIMARY KEY REFERENCES run ON DELETE CASCADE,
    -- JSON: the shape of its slices, and how long its variants take to be warm.
    found TEXT NOT NULL
);
INSERT INTO found SELECT id, json_extract(plan, '$.slices.found') FROM run
    WHERE CASE WHEN json_valid(plan) THEN json_type(plan, '$.slices.found') = 'object' END;
UPDATE run SET plan = json_remove(plan, '$.slices.found')
    WHERE id IN (SELECT run FROM found);
";

/// Looks before anything is written: a database of somebody else must not be changed.
pub fn is_ours_or_empty(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    // All is seen at one moment: between two looks another tare may make its tables.
    let _view = connection.unchecked_transaction().map_err(|e| unusable(path, e))?;
    let count = |what: &str| -> Result<i64, StoreError> {
        let query = format!("SELECT count(*) FROM sqlite_schema WHERE type = 'table' {what}");
        connection.query_row(&query, [], |row| row.get(0)).map_err(|e| unusable(path, e))
    };
    // A stranger's views and triggers could compute for ever; ours has none.
    let query = "SELECT count(*) FROM sqlite_schema WHERE type NOT IN ('table', 'index')
                 OR sql LIKE 'CREATE VIRTUAL%'";
    let strange: i64 =
        connection.query_row(query, [], |row| row.get(0)).map_err(|e| unusable(path, e))?;
    // Of columns that are computed, with or without the word GENERATED.
    let query = "SELECT count(*) FROM sqlite_schema AS t, pragma_table_xinfo(t.name) AS c
                 WHERE t.type = 'table' AND c.hidden <> 0";
    let computed: i64 =
        connection.query_row(query, [], |row| row.get(0)).map_err(|e| unusable(path, e))?;
    if strange > 0 || computed > 0 {
        return Err(StoreError::NotOurs { path: path.display().to_string() });
    }
    let ours = count("AND name IN ('run', 'variant', 'round', 'launch', 'slice', 'event')")?;
    // Tables of SQLite's own, such as its counters, are nobody's.
    let all = count("AND name NOT LIKE 'sqlite_%'")?;
    match (ours, all) {
        (6, _) | (_, 0) => Ok(()),
        _ => Err(StoreError::NotOurs { path: path.display().to_string() }),
    }
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Of a store that cannot be brought up to date.
pub fn is_current(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    let known = MIGRATIONS.len() as i64;
    let path_text = path.display().to_string();
    match version(connection).map_err(|error| unusable(path, error))? {
        found if found == known => Ok(()),
        found if found > known => Err(StoreError::Newer { path: path_text, found, known }),
        found => Err(StoreError::Unusable {
            path: path_text,
            why: format!(
                "an older tare made it (schema {found}; {known} is needed), and it is read-only: \
                 copy it, and report on the copy"
            ),
        }),
    }
}

pub fn migrate(path: &Path, connection: &mut Connection) -> Result<(), StoreError> {
    let failed = |error| unusable(path, error);
    let known = MIGRATIONS.len() as i64;
    let found = version(connection).map_err(failed)?;
    if found == known {
        return Ok(());
    }
    if found > known || found < 0 {
        return Err(StoreError::Newer { path: path.display().to_string(), found, known });
    }
    // Another process may be at it: only one gets the write lock, the other finds it done.
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(failed)?;
    let found = version(&transaction).map_err(failed)?;
    for migration in &MIGRATIONS[found as usize..] {
        transaction.execute_batch(migration).map_err(failed)?;
    }
    transaction.pragma_update(None, "user_version", known).map_err(failed)?;
    transaction.commit().map_err(failed)
}
