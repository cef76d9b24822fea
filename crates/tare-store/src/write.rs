//! Writes runs: one transaction for each thing that was measured.

use rusqlite::params;
use tare_model::calibration::Calibration;
use tare_model::samples::{Launch, MachineUse, Slice};

use crate::blob::Packer;
use crate::{RunId, Store, StoreError};

/// A new run.
#[derive(Clone, Debug)]
pub struct NewRun {
    pub name: String,
    pub seed: u64,
    pub tare_version: String,
    pub started_unix_ms: u64,
    /// The command line, for running it again.
    pub command: String,
    /// The plan, in JSON.
    pub plan: String,
    pub machine: String,
    pub variants: Vec<String>,
}

/// How a run ended: a word for the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEnd {
    pub stopped_by: String,
}

impl Store {
    pub fn begin_run(&mut self, run: &NewRun) -> Result<RunId, StoreError> {
        let insert = || -> rusqlite::Result<RunId> {
            let transaction = self.connection.unchecked_transaction()?;
            let id = insert_run(&transaction, run)?;
            transaction.commit()?;
            Ok(id)
        };
        insert().map_err(|error| self.failed(error))
    }

    /// Stores results of other tools, whole or not at all; `found` is JSON.
    pub fn add_import(&mut self, run: &NewRun, found: &str) -> Result<RunId, StoreError> {
        let insert = || -> rusqlite::Result<RunId> {
            let transaction = self.connection.unchecked_transaction()?;
            let id = insert_run(&transaction, run)?;
            transaction
                .execute("INSERT INTO import (run, found) VALUES (?1, ?2)", params![id.0, found])?;
            transaction
                .execute("UPDATE run SET stopped_by = 'imported' WHERE id = ?1", params![id.0])?;
            transaction.commit()?;
            Ok(id)
        };
        insert().map_err(|error| self.failed(error))
    }

    /// Resumes a stopped run, with its current plan.
    pub fn resume_run(&mut self, run: RunId, plan: &str) -> Result<(), StoreError> {
        self.connection
            .execute(
                "UPDATE run SET stopped_by = NULL, owner_pid = ?2, plan = ?3 WHERE id = ?1",
                params![run.0, std::process::id(), plan],
            )
            .map_err(|error| self.failed(error))?;
        Ok(())
    }

    /// Stores what the first rounds determined, replacing earlier values.
    pub fn set_found(&mut self, run: RunId, found: &Calibration) -> Result<(), StoreError> {
        let found = serde_json::to_string(found).map_err(|error| self.damaged(error))?;
        self.connection
            .execute("UPDATE run SET found = ?2 WHERE id = ?1", params![run.0, found])
            .map_err(|error| self.failed(error))?;
        Ok(())
    }

    pub fn begin_round(
        &mut self,
        run: RunId,
        number: u32,
        cycles: u32,
        started_unix_ms: u64,
    ) -> Result<(), StoreError> {
        self.connection
            .prepare_cached(
                "INSERT INTO round (run, number, cycles, started_unix_ms) VALUES (?1, ?2, ?3, ?4)",
            )
            .and_then(|mut s| s.execute(params![run.0, number, cycles, started_unix_ms as i64]))
            .map_err(|error| self.failed(error))?;
        Ok(())
    }

    pub fn add_slice(
        &mut self,
        run: RunId,
        round: u32,
        slice: &Slice,
        packer: &mut Packer,
    ) -> Result<(), StoreError> {
        assert!(slice.counts.are_balanced(), "counters must close: {:?}", slice.counts);
        let counts = serde_json::to_string(&slice.counts).map_err(|e| self.damaged(e))?;
        let used = slice.used.as_ref().map(serde_json::to_string).transpose();
        let used = used.map_err(|e| self.damaged(e))?;
        let mut packed = Vec::new();
        for (series, distribution) in &slice.latencies {
            let bytes = packer.pack(distribution).map_err(|e| self.damaged(e))?;
            packed.push((series.name(), distribution.sum_ns().to_string(), bytes));
        }
        let insert = || -> rusqlite::Result<()> {
            let transaction = self.connection.unchecked_transaction()?;
            let c = &slice.counts;
            transaction
                .prepare_cached(
                    "INSERT INTO slice (run, round, cycle, position, variant, window_ns, started,
                     good, failed, server_cpu_ns, counts, server)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
                )?
                .execute(params![
                    run.0,
                    round,
                    slice.cycle,
                    slice.position,
                    slice.variant,
                    c.window_ns as i64,
                    c.started as i64,
                    c.good as i64,
                    c.failed as i64,
                    slice.used.as_ref().map(|used| used.cpu_ns() as i64),
                    counts,
                    used
                ])?;
            let id = transaction.last_insert_rowid();
            for (series, sum_ns, bytes) in &packed {
                transaction
                    .prepare_cached(
                        "INSERT INTO latency (slice, series, sum_ns, histogram)
                         VALUES (?1, ?2, ?3, ?4)",
                    )?
                    .execute(params![id, series, sum_ns, bytes])?;
            }
            transaction.commit()
        };
        insert().map_err(|error| self.failed(error))
    }

    /// Marks a round as lost, so that it does not count; it may have failed before its first slice.
    pub fn lose_round(
        &mut self,
        run: RunId,
        number: u32,
        started_unix_ms: u64,
        why: &str,
    ) -> Result<(), StoreError> {
        self.connection
            .execute(
                "INSERT INTO round (run, number, cycles, started_unix_ms, lost)
                 VALUES (?1, ?2, 0, ?3, ?4)
                 ON CONFLICT (run, number) DO UPDATE SET lost = excluded.lost",
                params![run.0, number, started_unix_ms as i64, why],
            )
            .map_err(|error| self.failed(error))?;
        Ok(())
    }

    pub fn end_round(
        &mut self,
        run: RunId,
        number: u32,
        elapsed_ns: u64,
        machine: &MachineUse,
        launches: &[Launch],
    ) -> Result<(), StoreError> {
        let machine = serde_json::to_string(machine).map_err(|e| self.damaged(e))?;
        let details: Result<Vec<String>, _> = launches.iter().map(serde_json::to_string).collect();
        let details = details.map_err(|e| self.damaged(e))?;
        let update = || -> rusqlite::Result<()> {
            let transaction = self.connection.unchecked_transaction()?;
            for (launch, detail) in launches.iter().zip(&details) {
                transaction
                    .prepare_cached(
                        "INSERT INTO launch (run, round, variant, started_unix_ms, ready_ns, detail)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                    )?
                    .execute(params![
                        run.0,
                        number,
                        launch.variant,
                        launch.started_unix_ms as i64,
                        launch.ready_ns as i64,
                        detail
                    ])?;
            }
            transaction
                .prepare_cached(
                    "UPDATE round SET elapsed_ns = ?3, machine = ?4 WHERE run = ?1 AND number = ?2",
                )?
                .execute(params![run.0, number, elapsed_ns as i64, machine])?;
            transaction.commit()
        };
        update().map_err(|error| self.failed(error))
    }

    pub fn add_event(
        &mut self,
        run: RunId,
        unix_ms: u64,
        who: &str,
        text: &str,
    ) -> Result<(), StoreError> {
        self.connection
            .prepare_cached("INSERT INTO event (run, unix_ms, who, text) VALUES (?1, ?2, ?3, ?4)")
            .and_then(|mut s| s.execute(params![run.0, unix_ms as i64, who, text]))
            .map_err(|error| self.failed(error))?;
        Ok(())
    }

    pub fn end_run(&mut self, run: RunId, end: &RunEnd) -> Result<(), StoreError> {
        self.connection
            .execute("UPDATE run SET stopped_by = ?2 WHERE id = ?1", params![run.0, end.stopped_by])
            .map_err(|error| self.failed(error))?;
        Ok(())
    }

    /// Deletes a run with all its data; returns whether it existed.
    pub fn delete_run(&mut self, run: RunId) -> Result<bool, StoreError> {
        let deleted = self
            .connection
            .execute("DELETE FROM run WHERE id = ?1", params![run.0])
            .map_err(|error| self.failed(error))?;
        Ok(deleted > 0)
    }
}

fn insert_run(transaction: &rusqlite::Transaction<'_>, run: &NewRun) -> rusqlite::Result<RunId> {
    transaction.execute(
        "INSERT INTO run (name, seed, tare_version, started_unix_ms, owner_pid, plan, machine,
         command) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            run.name,
            run.seed as i64,
            run.tare_version,
            run.started_unix_ms as i64,
            std::process::id(),
            run.plan,
            run.machine,
            run.command
        ],
    )?;
    let id = transaction.last_insert_rowid();
    for (number, name) in run.variants.iter().enumerate() {
        transaction.execute(
            "INSERT INTO variant (run, number, name) VALUES (?1, ?2, ?3)",
            params![id, number as i64, name],
        )?;
    }
    Ok(RunId(id))
}
