//! Carrying requests out, one at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use serde_json::Value;
use tare_io::time::{monotonic_now, wall_unix_ns};
use tare_io::{Instant, system};
use tare_lab::agent::protocol::{Clock, Failed, LaneLife, Opened, Probed, Request, Used};
use tare_lab::groups::Group;
use tare_lab::local::{HostContext, LocalServer};
use tare_lab::server::Server;
use tare_lab::{Event, LabError, count, log_file};
use tare_load::measured::Measured;
use tare_load::probe::Prober;
use tare_load::session::Session;
use tare_load::{LoadError, LoadPlan};

/// What this agent has in hand: a server, and connections to one.
pub struct Executor {
    stop: Arc<AtomicBool>,
    events: Sender<Event>,
    server: Option<LocalServer>,
    load: Option<(Session, Vec<LoadPlan>)>,
    prober: Option<Prober>,
    /// The container's that it is in.
    own_group: Option<Group>,
    /// Of pods that were asked for, and of containers in them.
    pod_groups: HashMap<(String, Option<String>), Group>,
}

type Answer = Result<Value, Failed>;

/// Pods come and go; groups are found again.
const POD_GROUPS_MAX: usize = 256;
/// Open files beside connections.
const SPARE_FILES: u64 = 64;

impl Executor {
    pub fn new(stop: Arc<AtomicBool>, events: Sender<Event>, in_pod: bool) -> Self {
        let own_group = if in_pod { Group::own() } else { None };
        let (server, load, prober) = (None, None, None);
        let pod_groups = HashMap::new();
        Self { stop, events, server, load, prober, own_group, pod_groups }
    }

    pub fn carry_out(&mut self, request: Request) -> Answer {
        match request {
            Request::Start { launch_spec, cpus } => {
                self.server = None;
                let events = self.events.clone();
                let who = "server".to_owned();
                let host = HostContext { who, cpus, cgroup: None, journal: None, events };
                self.server = Some(LocalServer::start(*launch_spec, &host).map_err(lab)?);
                done(())
            }
            Request::Listening => {
                let stop = self.stop.clone();
                let waited = self.server()?.wait_until_listening(&stop);
                done(waited.map_err(|error| self.with_memory(error))?)
            }
            Request::NotYet { late } => {
                let limit = if late { monotonic_now() } else { Instant::FAR };
                let waited = self.server()?.not_yet(limit);
                done(waited.map_err(|error| self.with_memory(error))?)
            }
            Request::IsAlive => done(self.server.as_ref().is_some_and(Server::is_alive)),
            Request::Used => {
                if let Some(group) = &self.own_group {
                    return done(group.used());
                }
                let meter = self.server()?.meter();
                done(Used {
                    server: meter.read(),
                    rss_bytes: meter.rss_bytes(),
                    throttled_periods: 0,
                })
            }
            Request::HowItEnded => {
                let how = self.server()?.how_it_ended();
                done(how.map(|how| how + &self.out_of_memory()))
            }
            Request::UsedByPod { uid, container } => done(self.used_by_pod(uid, container)),
            Request::Peers { port } => done(crate::seen::peers(port)),
            Request::Logged => done(self.server()?.logged()),
            Request::Page { address, path } => done(count::fetch(address, &path)),
            Request::Lines { path } => done(log_file::lines(&path)),
            Request::AskToStop => {
                if let Some(server) = &mut self.server {
                    server.ask_to_stop();
                }
                done(())
            }
            Request::Stop => {
                self.server = None;
                crate::seen::end_children();
                done(())
            }
            request => self.carry_out_load(request),
        }
    }

    /// What is about load, and about the place.
    fn carry_out_load(&mut self, request: Request) -> Answer {
        match request {
            Request::Open { lanes } => self.open(lanes),
            Request::Slice { lane, stretch } => {
                let (session, plans) = self.load.as_mut().ok_or_else(no_lanes)?;
                let plan = plans.get(lane).ok_or_else(no_lanes)?;
                let reports = session.slice(lane, stretch).map_err(load)?;
                done(Measured::of(plan, &reports))
            }
            Request::Close => {
                let Some((mut session, plans)) = self.load.take() else { return done(()) };
                let lives = session.close().map_err(load)?;
                let of_lane = |lane| LaneLife::of_workers(&lives, lane);
                done((0..plans.len()).map(of_lane).collect::<Vec<_>>())
            }
            Request::Probe { plan } => self.probe(&plan),
            Request::Clock => done(Clock {
                unix_ns: wall_unix_ns(),
                monotonic_ns: monotonic_now().since(Instant::default()).as_ns(),
            }),
            // Heard where lines are read.
            Request::Cancel | Request::Alive => done(()),
            // Carried out above.
            _ => done(()),
        }
    }

    /// An error with what the kernel says of this place's memory.
    fn with_memory(&self, error: LabError) -> Failed {
        match lab(error) {
            Failed::Environment(text) => Failed::Environment(text + &self.out_of_memory()),
            failed => failed,
        }
    }

    fn out_of_memory(&self) -> String {
        match self.own_group.as_ref().map_or(0, Group::oom_kills) {
            0 => String::new(),
            n => format!("; its pod ran out of memory: the kernel ended {n} of its processes"),
        }
    }

    fn used_by_pod(&mut self, uid: String, container: Option<String>) -> Used {
        let key = (uid, container);
        if let Some(group) = self.pod_groups.get(&key) {
            return group.used();
        }
        let Some(group) = Group::of_pod(&key.0, key.1.as_deref()) else { return Used::default() };
        if self.pod_groups.len() >= POD_GROUPS_MAX {
            self.pod_groups.clear();
        }
        let used = group.used();
        self.pod_groups.insert(key, group);
        used
    }

    fn server(&mut self) -> Result<&mut LocalServer, Failed> {
        self.server.as_mut().ok_or_else(|| Failed::Usage("no server was started here".into()))
    }

    fn open(&mut self, plans: Vec<LoadPlan>) -> Answer {
        self.load = None;
        let Some(first) = plans.first() else { return Err(no_lanes()) };
        for plan in &plans {
            provide_files(plan)?;
        }
        let mut session = Session::start(first.workers, &first.cpus, &self.stop)
            .map_err(|error| load(error.into()))?;
        let opened = session.open(&plans.iter().collect::<Vec<_>>()).map_err(load)?;
        self.load = Some((session, plans));
        done(Opened { reactor: opened.how.to_owned(), note: opened.note })
    }

    fn probe(&mut self, plan: &LoadPlan) -> Answer {
        if self.prober.is_none() {
            self.prober = Some(Prober::new(&self.stop).map_err(load)?);
        }
        let Some(prober) = &mut self.prober else { return Err(no_lanes()) };
        let answer = prober.ask(plan).map_err(load)?;
        let sent = prober.take_sent();
        done(match answer {
            Ok(probe) => Probed { probe: Some(probe), why: String::new(), sent },
            Err(why) => Probed { probe: None, why, sent },
        })
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn done(value: impl serde::Serialize) -> Answer {
    Ok(serde_json::to_value(value).unwrap_or(Value::Null))
}

fn no_lanes() -> Failed {
    Failed::Usage("no such connections were opened here".into())
}

fn lab(error: LabError) -> Failed {
    match error {
        LabError::Usage(text) => Failed::Usage(text),
        LabError::Environment(text) => Failed::Environment(text),
        LabError::Target(text) => Failed::Target(text),
    }
}

fn load(error: LoadError) -> Failed {
    match error {
        LoadError::Setup(_) | LoadError::WorkerLost => Failed::Environment(error.to_string()),
        _ => Failed::Target(error.to_string()),
    }
}

fn provide_files(plan: &LoadPlan) -> Result<(), Failed> {
    let wanted = u64::from(plan.max_connections()) + SPARE_FILES;
    let allowed = system::raise_open_files(wanted);
    match allowed >= wanted {
        true => Ok(()),
        false => Err(Failed::Environment(format!(
            "{} connections need {wanted} open files, and in this place {allowed} are allowed",
            plan.max_connections()
        ))),
    }
}
