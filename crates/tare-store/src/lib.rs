//! The store: one SQLite file with every run, slice and event.
//!
//! [`Store`] is the file; [`schema`] has its tables; [`blob`] is the format of histograms;
//! [`Writer`] writes on a thread of its own while a run measures.

#![forbid(unsafe_code)]

mod blob;
mod conclusions;
mod read;
mod schema;
mod write;
mod writer;

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use tare_io::files;
use tare_io::owned::{self, OwnedError};
use tare_model::Failure;

pub use read::{LoggedEvent, RunFilter, RunRow};
pub use write::{NewRun, RunEnd};
pub use writer::{Entry, Writer};

/// A run's number in its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub i64);

impl std::fmt::Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Errors of a store; each names the path.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot use the store {path}: {why}")]
    Unusable { path: String, why: String },
    #[error("there is no run {id} in {path}; 'tare runs' lists them")]
    NoSuchRun { id: String, path: String },
    #[error(
        "the store {path} was made by another version of tare: its tables have version {found}, \
         this tare reads {known}"
    )]
    OtherVersion { path: String, found: i64, known: i64 },
    #[error(
        "{path} is not a tare store, or is one of before the first release; it was left as it is"
    )]
    NotOurs { path: String },
    #[error("the store {path} is damaged: {why}")]
    Damaged { path: String, why: String },
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoSuchRun { .. } => Self::usage(error.to_string()),
            _ => Self::environment(error.to_string()),
        }
    }
}

/// An open store.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    connection: Connection,
    /// Whether it was opened for writing.
    is_ours: bool,
}

/// SQLite option that declares that nobody changes the file; SQLite then needs no files beside it.
const IMMUTABLE: &str = "?immutable=1";
/// How long to wait for another tare that is writing.
const BUSY_MS: u64 = 10_000;
/// Pause between two tries where SQLite does not wait by itself.
const TRY_MS: u64 = 5;

/// Switches a new file to a write-ahead log. SQLite needs exclusive access for that, and does not
/// wait for it.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let mut tries = 0;
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && tries < BUSY_MS / TRY_MS =>
            {
                tries += 1;
                std::thread::park_timeout(std::time::Duration::from_millis(TRY_MS));
            }
            done => return done,
        }
    }
}

impl Store {
    /// Opens the store, creating it (and its folder) if it does not exist.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        check_regular(path)?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            owned::create_dirs(folder).map_err(|error| unusable(path, error))?;
        }
        let real = check_private(path).map_err(|error| unusable(path, error))?;
        make_private(&real).map_err(|error| unusable(path, error))?;
        let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let connection =
            Connection::open_with_flags(&real, flags).map_err(|error| unusable(path, error))?;
        Self::prepared(path, connection)
    }

    /// Opens the store for reading; it must exist.
    pub fn open_existing(path: &Path) -> Result<Self, StoreError> {
        if !path.exists() {
            return Err(unusable(path, "there is none yet; runs make it"));
        }
        check_regular(path)?;
        // No file is created beside a store that another user controls, and none there is trusted.
        let Ok(path) = &check_private(path) else {
            return Self::open_unchanged(path, &[IMMUTABLE]);
        };
        if is_read_only(path) {
            return Self::open_unchanged(path, &["", IMMUTABLE]);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(path, flags).map_err(|error| unusable(path, error))?;
        limit(path, &connection)?;
        Self::prepared(path, connection)
    }

    /// Opens a store read-only, with the first of these options that works. Readers of a
    /// write-ahead log share an index with its writer; if there is none and none can be created,
    /// the file is read as it is.
    fn open_unchanged(path: &Path, ways: &[&str]) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_URI;
        let open = |options: &str| {
            // The newest data of a run is in the log until the run ends.
            let log = path.with_file_name(format!(
                "{}-wal",
                path.file_name().unwrap_or_default().to_string_lossy()
            ));
            if options == IMMUTABLE && log.metadata().is_ok_and(|log| log.len() > 0) {
                let why = "the newest rounds are in its log (-wal), which cannot be read here: \
                           copy both files, and report on the copy";
                return Err(unusable(path, why));
            }
            let uri = uri(path) + options;
            let connection = Connection::open_with_flags(uri, flags);
            let connection = connection.map_err(|error| unusable(path, error))?;
            schema::check_ours_or_empty(path, &connection).map(|()| connection)
        };
        let mut connection = Err(unusable(path, "it cannot be read"));
        for way in ways {
            connection = open(way);
            if !matches!(connection, Err(StoreError::Unusable { .. })) {
                break;
            }
        }
        let connection = connection?;
        limit(path, &connection)?;
        schema::check_version(path, &connection)?;
        Ok(Self { path: path.to_owned(), connection, is_ours: false })
    }

    fn prepared(path: &Path, mut connection: Connection) -> Result<Self, StoreError> {
        let failed = |error| unusable(path, error);
        connection.busy_timeout(std::time::Duration::from_millis(BUSY_MS)).map_err(failed)?;
        schema::check_ours_or_empty(path, &connection)?;
        // A commit then reaches the operating system: it survives the death of this process, and
        // does not wait for the disk. Only a crash of the machine can lose the last few.
        write_ahead(&connection).map_err(failed)?;
        connection.pragma_update(None, "synchronous", "NORMAL").map_err(failed)?;
        connection.pragma_update(None, "foreign_keys", true).map_err(failed)?;
        schema::make_tables(path, &mut connection)?;
        Ok(Self { path: path.to_owned(), connection, is_ours: true })
    }

    /// Whether it is writable; read-only stores and those of another user are not.
    pub fn is_writable(&self) -> bool {
        self.is_ours
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn failed(&self, error: rusqlite::Error) -> StoreError {
        unusable(&self.path, error)
    }

    fn damaged(&self, why: impl ToString) -> StoreError {
        StoreError::Damaged { path: self.path.display().to_string(), why: why.to_string() }
    }
}

/// Returns the real path of a store that only root and this user can change, in a folder where
/// nobody else can create files. SQLite trusts the journals (`-journal`, `-wal`, `-shm`) there, and
/// a rollback journal can name another file to be deleted.
fn check_private(path: &Path) -> Result<PathBuf, OwnedError> {
    let real = owned::check_new_file(path)?;
    owned::check_closed(real.parent().unwrap_or(Path::new("/")))?;
    Ok(real)
}

/// A store from somebody else may hold values of any length, and a hostile schema.
fn limit(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    let failed = |error| unusable(path, error);
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX).map_err(failed)?;
    connection.pragma_update(None, "trusted_schema", false).map_err(failed)
}

/// The longest value is a plan, with the body of its requests.
const VALUE_BYTES_MAX: i32 = 64 << 20;

/// Creates a store for its user alone: plans hold headers and environment variables, which may
/// contain secrets. SQLite gives its log and index the store's own mode.
fn make_private(path: &Path) -> std::io::Result<()> {
    let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match new {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Accepts only regular files: a device is not a store, and opening a pipe would block.
fn check_regular(path: &Path) -> Result<(), StoreError> {
    match path.metadata() {
        Ok(found) if !found.is_file() => Err(unusable(path, "it is not a regular file")),
        _ => Ok(()),
    }
}

fn is_read_only(path: &Path) -> bool {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    !files::is_writable(path) || !files::is_writable(folder.unwrap_or(Path::new(".")))
}

/// The file's URI for SQLite.
fn uri(path: &Path) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(byte);
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match plain(byte) {
            true => uri.push(char::from(*byte)),
            false => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri
}

fn unusable(path: &Path, why: impl Into<Why>) -> StoreError {
    let Why(why) = why.into();
    StoreError::Unusable { path: path.display().to_string(), why }
}

/// SQLite's errors in plain words.
struct Why(String);

impl From<rusqlite::Error> for Why {
    fn from(error: rusqlite::Error) -> Self {
        Self(match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => "the disk is full".into(),
            Some(ErrorCode::ReadOnly) => "it is read-only".into(),
            Some(ErrorCode::CannotOpen) => "it cannot be opened or made".into(),
            Some(ErrorCode::PermissionDenied) => "permission denied".into(),
            Some(ErrorCode::NotADatabase) => "it is not a tare store (nor any SQLite file)".into(),
            Some(ErrorCode::DatabaseBusy) => "another tare is writing to it for too long".into(),
            _ => error.to_string(),
        })
    }
}

impl From<std::io::Error> for Why {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<OwnedError> for Why {
    fn from(error: OwnedError) -> Self {
        Self(format!(
            "{error}; give a place that only you can write to (--store FILE, or set XDG_DATA_HOME; with sudo: sudo -H)"
        ))
    }
}

impl From<&str> for Why {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}
