//! The lab: a folder, a control group for each variant, and a journal of both.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;

use tare_io::DurationNs;
use tare_io::process::{Watched, adopt_orphans, reap, signal};

use crate::error::LabError;
use crate::filters::FilterSpec;
use crate::journal::{Journal, Made, PREFIX};
use crate::launch::{Event, Launched, Site};
use crate::meter::Cgroup;
use crate::processes::{self, Stat};
use crate::servers::{Kitchen, ServerSpec};

/// What the lab is for.
#[derive(Debug)]
pub struct LabPlan<'a> {
    /// Where journals are kept.
    pub state: &'a Path,
    pub servers: Vec<Placed>,
    /// CPUs of the servers; empty leaves them to the kernel.
    pub cpus: Vec<usize>,
    /// Connections that load will open to each.
    pub connections: u32,
    pub events: Sender<Event>,
}

/// One variant's server.
#[derive(Clone, Debug)]
pub struct Placed {
    pub name: String,
    pub server: ServerSpec,
    /// Where the user said that it listens.
    pub fixed: Option<SocketAddr>,
    pub filter: Option<FilterSpec>,
}

/// Starts servers, and removes whatever that took. Servers must be dropped before it.
#[derive(Debug)]
pub struct Lab {
    servers: Vec<Placed>,
    sites: Vec<Site>,
    folder: PathBuf,
    connections: u32,
    /// Why servers are metered by process and not by control group.
    pub cgroup_note: Option<String>,
    journal: Journal,
    /// Children that this process had before: of the shell that became it. Not ours to end.
    inherited: Vec<(u32, u64)>,
}

/// A process for good: numbers are used again.
fn born(pid: u32) -> (u32, u64) {
    (pid, Stat::of(pid).map_or(0, |stat| stat.started_ticks))
}

impl Lab {
    pub fn open(plan: LabPlan<'_>) -> Result<Self, LabError> {
        let mut journal = Journal::create(plan.state)?;
        adopt_orphans().map_err(|error| {
            LabError::Environment(format!("cannot adopt what servers leave: {error}"))
        })?;
        let inherited = processes::children(std::process::id()).into_iter().map(born).collect();
        let folder = std::env::temp_dir().join(format!("{PREFIX}{}", unique()));
        journal.about_to_make(Made::Folder(folder.clone()))?;
        std::fs::create_dir(&folder).map_err(|e| LabError::file("make", &folder, e))?;
        // Servers that give up root must still read what is in it.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&folder, open)
            .map_err(|e| LabError::file("open up", &folder, e))?;
        let mut cgroup_note = None;
        let mut sites = Vec::new();
        for (index, placed) in plan.servers.iter().enumerate() {
            let own = folder.join(index.to_string());
            std::fs::create_dir(&own).map_err(|e| LabError::file("make", &own, e))?;
            let cgroup = if placed.server == ServerSpec::Up {
                None
            } else {
                let name = format!("{}-{index}", unique());
                match Cgroup::make(&name, &mut journal)? {
                    Ok(cgroup) => Some(cgroup),
                    Err(note) => {
                        cgroup_note = Some(note);
                        None
                    }
                }
            };
            let pidfile = own.join("pid");
            journal.about_to_make(Made::ProcessesOf(pidfile.clone()))?;
            journal.about_to_make(Made::ProcessesOf(pidfile.with_extension("companion")))?;
            sites.push(Site {
                who: placed.name.clone(),
                cpus: plan.cpus.clone(),
                cgroup,
                pidfile,
                events: plan.events.clone(),
            });
        }
        Ok(Self {
            servers: plan.servers,
            sites,
            folder,
            connections: plan.connections,
            cgroup_note,
            journal,
            inherited,
        })
    }

    /// Starts a variant's server; `None` where it is up already.
    pub fn launch(&self, variant: usize) -> Result<Option<Launched>, LabError> {
        let placed = &self.servers[variant];
        if placed.server == ServerSpec::Up {
            return Ok(None);
        }
        let folder = self.folder.join(variant.to_string());
        let kitchen = Kitchen {
            folder: &folder,
            connections: self.connections,
            fixed: placed.fixed,
            filter: placed.filter.as_ref(),
        };
        let recipe = placed.server.recipe(&kitchen).map_err(|error| named(&placed.name, error))?;
        Ok(Some(Launched::start(recipe, &self.sites[variant])?))
    }

    /// Ends what servers left to themselves: daemons that outlived the process tare started. To be
    /// called when no other server or helper of this process runs.
    pub fn end_orphans(&self) {
        let children = processes::children(std::process::id()).into_iter();
        for pid in children.filter(|pid| !self.inherited.contains(&born(*pid))) {
            let watched = Watched::new(pid);
            let _ = signal(pid, libc::SIGKILL);
            if let Ok(watched) = watched {
                watched.ends_within(KILLED_WITHIN);
            }
            reap(pid);
        }
    }

    /// Removes everything now; complaints about what could not be removed.
    pub fn close(mut self) -> Vec<String> {
        self.journal.remove_all()
    }
}

/// A process that was killed is gone within this.
const KILLED_WITHIN: DurationNs = DurationNs::from_secs(2);

/// Says which server an error is about.
fn named(name: &str, error: LabError) -> LabError {
    match error {
        LabError::Usage(text) => LabError::Usage(format!("{name}: {text}")),
        LabError::Environment(text) => LabError::Environment(format!("{name}: {text}")),
    }
}

/// This process, and which of its labs.
fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static LABS: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), LABS.fetch_add(1, Ordering::Relaxed))
}
