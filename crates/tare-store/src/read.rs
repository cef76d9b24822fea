//! Reading runs back.

use rusqlite::{OptionalExtension, Row, params};
use serde::de::DeserializeOwned;
use tare_model::plain;
use tare_model::samples::{Launch, LaunchPart, PARTS_MAX, Round, Series, Slice};

use crate::{RunId, Store, StoreError, blob};

/// A run without its rounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    pub id: RunId,
    pub name: String,
    pub seed: u64,
    pub tare_version: String,
    pub started_unix_ms: u64,
    /// `None` while it runs, or if it was killed.
    pub stopped_by: Option<String>,
    pub owner_pid: u32,
    pub plan: String,
    /// Values that its first rounds determined, in JSON.
    pub found: Option<String>,
    pub machine: String,
    pub command: String,
    /// Whether it holds results of other tools; it then has no rounds.
    pub is_import: bool,
    pub variants: Vec<String>,
    /// Number of rounds that ended.
    pub rounds: u32,
    /// Time that these rounds took.
    pub elapsed_ns: u64,
    /// Rounds that were lost, and why the first one was.
    pub lost: (u32, Option<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedEvent {
    pub unix_ms: u64,
    pub who: String,
    pub text: String,
}

#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Text that the run's name, or the name of one of its variants, must contain.
    pub contains: Option<String>,
}

// Limits on what a store from somebody else can put into memory, far beyond what tare writes.
/// Most runs in a list.
pub const RUNS_MAX: usize = 100_000;
/// Most events of a run.
const EVENTS_MAX: usize = 500_000;
/// Most slices of a round.
const SLICES_MAX: usize = 20_000;
/// Most buckets of all histograms of a round's slices.
const BUCKETS_MAX: usize = 4_000_000;
/// Most characters of the reason why a round was lost.
const WHY_CHARS_MAX: usize = 500;
/// Most elements of a JSON value: each takes many times the memory of its text.
const ELEMENTS_MAX: usize = 500_000;

const RUN_COLUMNS: &str = "id, name, seed, tare_version, started_unix_ms, stopped_by, owner_pid,
    plan, machine, found,
    (SELECT count(*) FROM round WHERE run = run.id AND elapsed_ns IS NOT NULL),
    (SELECT coalesce(sum(elapsed_ns), 0) FROM round WHERE run = run.id),
    command, EXISTS (SELECT 1 FROM import WHERE run = run.id),
    (SELECT count(lost) FROM round WHERE run = run.id),
    (SELECT lost FROM round WHERE run = run.id AND lost IS NOT NULL ORDER BY number LIMIT 1)";

impl Store {
    /// Lists runs, newest first, at most [`RUNS_MAX`]. Plans, machines and findings are left empty,
    /// because they may be long.
    pub fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, StoreError> {
        let query = || -> rusqlite::Result<Vec<RunRow>> {
            let columns = RUN_COLUMNS.replace("plan, machine, found,", "'', '', NULL,");
            let sql = format!("SELECT {columns} FROM run ORDER BY id DESC LIMIT {RUNS_MAX}");
            let mut statement = self.connection.prepare(&sql)?;
            let rows = statement.query_map([], run_row)?;
            rows.collect()
        };
        let mut runs = query().map_err(|error| self.failed(error))?;
        for run in &mut runs {
            run.variants = self.variants(run.id)?;
        }
        if let Some(part) = &filter.contains {
            let part = part.to_lowercase();
            let has = |text: &String| text.to_lowercase().contains(&part);
            runs.retain(|run| has(&run.name) || run.variants.iter().any(has));
        }
        Ok(runs)
    }

    /// Finds a run by its number, or `last`.
    pub fn find_run(&self, text: &str) -> Result<RunRow, StoreError> {
        let sql = match text {
            "last" => format!("SELECT {RUN_COLUMNS} FROM run ORDER BY id DESC LIMIT 1"),
            _ => format!("SELECT {RUN_COLUMNS} FROM run WHERE id = ?1"),
        };
        let id: i64 = text.parse().unwrap_or(-1);
        let found = match text {
            "last" => self.connection.query_row(&sql, [], run_row),
            _ => self.connection.query_row(&sql, params![id], run_row),
        };
        let found = found.optional().map_err(|error| self.failed(error))?;
        let mut run = found.ok_or_else(|| StoreError::NoSuchRun {
            id: text.to_owned(),
            path: self.path.display().to_string(),
        })?;
        self.check_elements(&run.plan)?;
        self.check_elements(&run.machine)?;
        self.check_elements(run.found.as_deref().unwrap_or_default())?;
        run.variants = self.variants(run.id)?;
        Ok(run)
    }

    /// Imported results of other tools; `None` for a run of tare.
    pub fn import(&self, run: RunId) -> Result<Option<String>, StoreError> {
        let found: Option<String> = self
            .connection
            .query_row("SELECT found FROM import WHERE run = ?1", params![run.0], |row| row.get(0))
            .optional()
            .map_err(|error| self.failed(error))?;
        found.iter().try_for_each(|text| self.check_elements(text))?;
        Ok(found)
    }

    fn variants(&self, run: RunId) -> Result<Vec<String>, StoreError> {
        let query = || -> rusqlite::Result<Vec<String>> {
            let mut statement = self
                .connection
                .prepare_cached("SELECT name FROM variant WHERE run = ?1 ORDER BY number")?;
            let rows = statement.query_map(params![run.0], |row| {
                Ok(plain::line(&row.get::<_, String>(0)?).into_owned())
            })?;
            rows.collect()
        };
        query().map_err(|error| self.failed(error))
    }

    /// The numbers of all rounds that were begun and not lost.
    pub fn round_numbers(&self, run: RunId) -> Result<Vec<u32>, StoreError> {
        let query = || -> rusqlite::Result<Vec<u32>> {
            let mut statement = self.connection.prepare_cached(
                "SELECT number FROM round WHERE run = ?1 AND lost IS NULL ORDER BY number",
            )?;
            let rows = statement.query_map(params![run.0], |row| row.get(0))?;
            rows.collect()
        };
        query().map_err(|error| self.failed(error))
    }

    /// The number of a run's next round.
    pub fn next_round(&self, run: RunId) -> Result<u32, StoreError> {
        let query = "SELECT coalesce(max(number) + 1, 0) FROM round WHERE run = ?1";
        self.connection
            .query_row(query, params![run.0], |row| row.get(0))
            .map_err(|error| self.failed(error))
    }

    /// Reads one round with its launches and slices.
    pub fn round(&self, run: RunId, number: u32) -> Result<Round, StoreError> {
        let mut round = self.round_head(run, number)?;
        round.launches = self.launches(run, number)?;
        let cycles = round.cycles;
        (round.slices, round.by_sleepers) =
            self.slices(run, number)?.into_iter().partition(|slice| slice.cycle < cycles);
        Ok(round)
    }

    fn round_head(&self, run: RunId, number: u32) -> Result<Round, StoreError> {
        let (cycles, started, elapsed, machine) = self
            .connection
            .prepare_cached(
                "SELECT cycles, started_unix_ms, elapsed_ns, machine FROM round
                 WHERE run = ?1 AND number = ?2",
            )
            .and_then(|mut statement| {
                statement.query_row(params![run.0, number], |row| {
                    Ok((
                        row.get::<_, u32>(0)?,
                        row.get::<_, i64>(1)?,
                        row.get::<_, Option<i64>>(2)?,
                        row.get::<_, Option<String>>(3)?,
                    ))
                })
            })
            .map_err(|error| self.failed(error))?;
        let machine = machine.map(|text| self.json(&text)).transpose()?;
        Ok(Round {
            index: number,
            cycles,
            started_unix_ms: started as u64,
            elapsed_ns: elapsed.unwrap_or(0) as u64,
            machine: machine.unwrap_or_default(),
            ..Round::default()
        })
    }

    fn launches(&self, run: RunId, number: u32) -> Result<Vec<Launch>, StoreError> {
        let query = || -> rusqlite::Result<Vec<String>> {
            let mut statement = self.connection.prepare_cached(
                "SELECT detail FROM launch WHERE run = ?1 AND round = ?2 ORDER BY variant",
            )?;
            let rows = statement.query_map(params![run.0, number], |row| row.get(0))?;
            rows.collect()
        };
        let details = query().map_err(|error| self.failed(error))?;
        let bounded = |text: &String| {
            let mut launch: Launch = self.json(text)?;
            if launch.parts.len() > PARTS_MAX {
                return Err(self.damaged(format!("a launch has over {PARTS_MAX} parts")));
            }
            launch.parts = launch.parts.into_iter().map(LaunchPart::bounded).collect();
            Ok(launch)
        };
        details.iter().map(bounded).collect()
    }

    fn slices(&self, run: RunId, number: u32) -> Result<Vec<Slice>, StoreError> {
        type Fields = (i64, u32, u32, u32, String, Option<String>);
        let query = || -> rusqlite::Result<Vec<Fields>> {
            let mut statement = self.connection.prepare_cached(
                "SELECT id, cycle, position, variant, counts, server FROM slice
                 WHERE run = ?1 AND round = ?2 ORDER BY cycle, position LIMIT ?3",
            )?;
            let rows =
                statement.query_map(params![run.0, number, SLICES_MAX as i64 + 1], |row| {
                    Ok((
                        row.get(0)?,
                        row.get(1)?,
                        row.get(2)?,
                        row.get(3)?,
                        row.get(4)?,
                        row.get(5)?,
                    ))
                })?;
            rows.collect()
        };
        let rows = query().map_err(|error| self.failed(error))?;
        let (mut slices, mut buckets) = (Vec::new(), 0);
        if rows.len() > SLICES_MAX {
            return Err(self.damaged(format!("round {number} has over {SLICES_MAX} slices")));
        }
        for (id, cycle, position, variant, counts, used) in rows {
            let latencies = self.latencies(id)?;
            buckets += latencies.iter().map(|(_, latency)| latency.counts().len()).sum::<usize>();
            if buckets > BUCKETS_MAX {
                let text =
                    format!("the histograms of round {number} hold over {BUCKETS_MAX} values");
                return Err(self.damaged(text));
            }
            let slice = Slice {
                variant,
                cycle,
                position,
                counts: self.json(&counts)?,
                used: used.map(|text: String| self.json(&text)).transpose()?,
                latencies,
            };
            // Counts were checked on writing, and are checked again before they are trusted.
            if !slice.counts.are_possible() {
                return Err(self.damaged(format!("the counters of slice {id} do not close")));
            }
            slices.push(slice);
        }
        Ok(slices)
    }

    fn latencies(&self, slice: i64) -> Result<Vec<(Series, tare_model::Distribution)>, StoreError> {
        let query = || -> rusqlite::Result<Vec<(String, String, Vec<u8>)>> {
            let mut statement = self
                .connection
                .prepare_cached("SELECT series, sum_ns, histogram FROM latency WHERE slice = ?1")?;
            let rows = statement
                .query_map(params![slice], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            rows.collect()
        };
        let mut found = Vec::new();
        for (name, sum_ns, bytes) in query().map_err(|error| self.failed(error))? {
            let series = Series::ALL.into_iter().find(|series| series.name() == name);
            let series = series.ok_or_else(|| self.damaged(format!("unknown series {name}")))?;
            let sum_ns = sum_ns.parse().map_err(|error| self.damaged(error))?;
            found.push((series, blob::unpack(&bytes, sum_ns).map_err(|e| self.damaged(e))?));
        }
        found.sort_by_key(|(series, _)| *series);
        Ok(found)
    }

    /// Events of a run, in chronological order.
    pub fn events(&self, run: RunId) -> Result<Vec<LoggedEvent>, StoreError> {
        let query = || -> rusqlite::Result<Vec<LoggedEvent>> {
            let mut statement = self.connection.prepare(
                "SELECT unix_ms, who, text FROM event WHERE run = ?1 ORDER BY unix_ms, id LIMIT ?2",
            )?;
            let rows = statement.query_map(params![run.0, EVENTS_MAX as i64], |row| {
                let unix_ms = row.get::<_, i64>(0)? as u64;
                Ok(LoggedEvent { unix_ms, who: row.get(1)?, text: row.get(2)? })
            })?;
            rows.collect()
        };
        query().map_err(|error| self.failed(error))
    }
}

impl Store {
    fn json<T: DeserializeOwned>(&self, text: &str) -> Result<T, StoreError> {
        self.check_elements(text)?;
        serde_json::from_str(text).map_err(|error| self.damaged(error))
    }

    fn check_elements(&self, text: &str) -> Result<(), StoreError> {
        if elements(text) > ELEMENTS_MAX {
            return Err(self.damaged(format!("a value has over {ELEMENTS_MAX} elements")));
        }
        Ok(())
    }
}

/// An upper limit on the number of elements in a JSON text, not counting the contents of strings.
fn elements(text: &str) -> usize {
    let (mut found, mut in_string, mut escaped) = (0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => found += 1,
            _ => {}
        }
    }
    found
}

fn is_of_version(c: char) -> bool {
    c.is_ascii_alphanumeric() || ".+-".contains(c)
}

fn run_row(row: &Row<'_>) -> rusqlite::Result<RunRow> {
    Ok(RunRow {
        id: RunId(row.get(0)?),
        name: plain::line(&row.get::<_, String>(1)?).into_owned(),
        seed: row.get::<_, i64>(2)? as u64,
        tare_version: row.get::<_, String>(3)?.chars().filter(|c| is_of_version(*c)).collect(),
        started_unix_ms: row.get::<_, i64>(4)? as u64,
        stopped_by: row.get::<_, Option<String>>(5)?.map(|text| plain::line(&text).into_owned()),
        owner_pid: row.get(6)?,
        plan: row.get(7)?,
        machine: row.get(8)?,
        found: row.get(9)?,
        rounds: row.get(10)?,
        elapsed_ns: row.get::<_, i64>(11)? as u64,
        command: plain::line(&row.get::<_, String>(12)?).into_owned(),
        is_import: row.get(13)?,
        lost: (
            row.get(14)?,
            row.get::<_, Option<String>>(15)?.map(|why| plain::short(&why, WHY_CHARS_MAX)),
        ),
        variants: Vec::new(),
    })
}
