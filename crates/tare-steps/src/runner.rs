//! Carries out procedures: the order of the repetitions, and the steps of each.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tare_io::time::{monotonic_now, wall_unix_ms};
use tare_io::{DurationNs, Instant, Random, owned};
use tare_lab::journal::Journal;
use tare_lab::journal::resources::{ResetScript, Resource};
use tare_lab::journal::temporary;
use tare_lab::machine;
use tare_lab::machine::cgroup::Cgroup;
use tare_model::Failure;
use tare_model::plain;
use tare_model::steps::{Procedure, Repetition, Reset, Step, Timed};

use crate::images::Nodes;
use crate::shell::{Shell, objects};
use crate::wait;

/// The procedures to carry out, and how.
#[derive(Clone, Debug)]
pub struct Order {
    /// The procedures, each with the folder of its file.
    pub procedures: Vec<(Procedure, PathBuf)>,
    pub repetitions: u32,
    pub seed: u64,
    /// No new round begins after this time.
    pub max_time: Option<DurationNs>,
    /// Prompts for manual steps and times them.
    pub by_hand: bool,
    /// The first step to run; of those before it, only steps that give a value run again.
    pub from: Option<String>,
    /// Leaves everything as it is at the end, without undo or reset.
    pub keeps: bool,
}

/// Receives progress, and has a person carry out manual steps.
pub trait Observer {
    fn round_begins(&mut self, round: u32);
    fn step_begins(&mut self, variant: usize, step: &Step);
    fn is_done(&mut self, repetition: &Repetition);
    /// Returns when a person has done the step, with the text that they entered.
    fn by_hand(&mut self, step: &Step) -> String;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepsError {
    /// A step failed; `after` says whether the steps done so far were undone.
    Step {
        procedure: String,
        step: String,
        why: String,
        log: Option<PathBuf>,
        after: String,
    },
    /// The clean state that a procedure begins with could not be restored.
    Reset {
        procedure: String,
        why: String,
    },
    Interrupted,
    Lab(String),
}

impl From<Failure> for StepsError {
    fn from(error: Failure) -> Self {
        Self::Lab(error.to_string())
    }
}

impl fmt::Display for StepsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step { procedure, step, why, log, after } => {
                write!(f, "{procedure}: step '{step}' failed: {why}; {after}")?;
                match log {
                    Some(log) => write!(f, "; all that it printed: {}", log.display()),
                    None => Ok(()),
                }
            }
            Self::Reset { procedure, why } => write!(f, "{procedure}: {why}"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Lab(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for StepsError {}

/// State shared by all repetitions.
struct Runner<'a> {
    order: &'a Order,
    journal: &'a Journal,
    stop: &'a AtomicBool,
    /// Temporary folder of the run.
    folder: PathBuf,
    entrances: Vec<PathBuf>,
}

/// Returns why the procedure cannot run here, or `None` if it can.
pub fn unmet_need(procedure: &Procedure, home: &Path) -> Option<String> {
    let needs = procedure.needs.as_ref()?;
    let env = environment(procedure, home);
    let shell = Shell { folder: home.to_owned(), env, entrances: Vec::new() };
    let done = shell.run(needs, NEEDS_WITHIN);
    (!done.worked).then(|| plain::short(&done.said, WHY_CHARS_MAX))
}

fn environment(procedure: &Procedure, home: &Path) -> BTreeMap<String, String> {
    let mut env = procedure.env.clone();
    env.insert("PROCEDURE".into(), home.display().to_string());
    env
}

const NEEDS_WITHIN: DurationNs = DurationNs::from_secs(30);

/// Returns all finished repetitions, also when a later one fails.
pub fn carry_out(
    order: &Order,
    journal: &Journal,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> (Vec<Repetition>, Result<(), StepsError>) {
    let mut done = Vec::new();
    let ended =
        Runner::set_up(order, journal, stop).and_then(|desk| desk.all_rounds(observer, &mut done));
    (done, ended)
}

impl<'a> Runner<'a> {
    fn set_up(
        order: &'a Order,
        journal: &'a Journal,
        stop: &'a AtomicBool,
    ) -> Result<Self, StepsError> {
        let folder = temporary::folder(journal)?;
        // Without a control group, processes that a step leaves running are not ended.
        let group = Cgroup::make(&format!("{}-steps", std::process::id()), journal)?;
        let entrances = group.map(|group| group.entrances()).unwrap_or_default();
        Ok(Self { order, journal, stop, folder, entrances })
    }

    fn all_rounds(
        &self,
        observer: &mut dyn Observer,
        done: &mut Vec<Repetition>,
    ) -> Result<(), StepsError> {
        let began = monotonic_now();
        for round in 0..self.order.repetitions {
            let spent = monotonic_now().since(began);
            if round > 0 && self.order.max_time.is_some_and(|most| spent >= most) {
                break;
            }
            observer.round_begins(round);
            for variant in self.order_of(round) {
                let repetition = self.repetition(variant, round, observer)?;
                observer.is_done(&repetition);
                done.push(repetition);
            }
        }
        Ok(())
    }

    fn order_of(&self, round: u32) -> Vec<usize> {
        let mut random = Random::stream(self.order.seed, "order of procedures", u64::from(round));
        let mut all: Vec<usize> = (0..self.order.procedures.len()).collect();
        for at in (1..all.len()).rev() {
            all.swap(at, random.below(at as u64 + 1) as usize);
        }
        all
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Runs one repetition, from a clean state to a clean state.
    fn repetition(
        &self,
        variant: usize,
        round: u32,
        observer: &mut dyn Observer,
    ) -> Result<Repetition, StepsError> {
        let (procedure, home) = &self.order.procedures[variant];
        let folder = self.folder.join(format!("{round}-{variant}"));
        std::fs::create_dir(&folder).map_err(|error| Failure::file("make", &folder, error))?;
        let env = environment(procedure, home);
        let mut shell = Shell { folder, env, entrances: self.entrances.clone() };
        let written = match (&procedure.reset, &self.order.from) {
            (Some(reset), None) => {
                let written = self.write_reset(procedure, reset, &shell, round, variant)?;
                self.reset(procedure, reset, &shell)?;
                Some(written)
            }
            (Some(reset), Some(_)) => {
                Some(self.write_reset(procedure, reset, &shell, round, variant)?)
            }
            (None, _) => None,
        };
        let mut going = RepetitionRun {
            desk: self,
            procedure,
            shell: &mut shell,
            began: monotonic_now(),
            done: Vec::new(),
            undo: Vec::new(),
        };
        let nodes = Nodes::snapshot(&procedure.images_of, going.shell).map_err(StepsError::Lab)?;
        going.began = monotonic_now();
        let before = machine::Counters::take();
        let started_unix_ms = wall_unix_ms();
        let ended = going.all_steps(variant, observer);
        let cpu_ns = machine::Counters::take().since(&before).busy_ns;
        let RepetitionRun { done: steps, undo, .. } = going;
        if let Err(failed) = ended {
            return Err(self.after_failure(failed, procedure, &shell, undo, written));
        }
        let images = nodes.map(Nodes::images).transpose().map_err(StepsError::Lab);
        if !self.order.keeps {
            let undone = undo_all(&shell, undo);
            if let Some(reset) = &procedure.reset {
                self.reset(procedure, reset, &shell)?;
            }
            if let Err(why) = undone {
                return Err(StepsError::Reset { procedure: procedure.name.clone(), why });
            }
        }
        self.forget_reset(&written);
        let images = images?;
        Ok(Repetition { variant: variant as u32, round, started_unix_ms, steps, cpu_ns, images })
    }

    /// Undoes the steps done so far, unless `--keep` was given or the run was interrupted.
    fn after_failure(
        &self,
        failed: Failed,
        procedure: &Procedure,
        shell: &Shell,
        undo: Vec<(String, String)>,
        written: Option<Resource>,
    ) -> StepsError {
        if self.order.keeps {
            // `tare clean` must not undo it either.
            self.forget_reset(&written);
        }
        let after = match () {
            () if self.order.keeps => "what was done is left as it is (--keep)".to_owned(),
            () if self.is_stopped() => "what was done is taken back by tare clean".to_owned(),
            () => {
                let undone = undo_all(shell, undo);
                let reset = procedure.reset.as_ref().map(|r| self.reset(procedure, r, shell));
                match (undone, reset.transpose()) {
                    (Ok(()), Ok(_)) => {
                        self.forget_reset(&written);
                        "what was done was taken back".to_owned()
                    }
                    (Err(why), _) => why,
                    (_, Err(error)) => error.to_string(),
                }
            }
        };
        match failed {
            Failed::Interrupted => StepsError::Interrupted,
            Failed::Step { step, why, log } => {
                StepsError::Step { procedure: procedure.name.clone(), step, why, log, after }
            }
        }
    }

    fn forget_reset(&self, written: &Option<Resource>) {
        if let Some(made) = written {
            self.journal.entries().forget(made);
        }
    }

    /// Restores the clean state that a procedure begins with, unless it is clean already.
    fn reset(&self, procedure: &Procedure, reset: &Reset, shell: &Shell) -> Result<(), StepsError> {
        let failed =
            |why: String| Err(StepsError::Reset { procedure: procedure.name.clone(), why });
        let within = DurationNs::parse(&reset.within).unwrap_or(RESET_WITHIN);
        if shell.run(&reset.clean, within).worked {
            return Ok(());
        }
        let done = shell.run(&reset.run, within);
        if self.is_stopped() {
            return Err(StepsError::Interrupted);
        }
        if !done.worked {
            return failed(format!("its reset failed: {}", done.said));
        }
        match shell.run(&reset.clean, within) {
            shown if shown.worked => Ok(()),
            shown => failed(format!(
                "after its reset the state is not clean (clean = {:?}): {}",
                reset.clean, shown.said
            )),
        }
    }

    /// Writes the script with which `tare clean` resets if this process cannot.
    fn write_reset(
        &self,
        procedure: &Procedure,
        reset: &Reset,
        shell: &Shell,
        round: u32,
        variant: usize,
    ) -> Result<Resource, StepsError> {
        let path = self.folder.join(format!("{round}-{variant}.reset"));
        let mut script = String::new();
        for (key, value) in &shell.env {
            script += &format!("export {key}={}\n", quoted(value));
        }
        script += &format!(
            "cd {} || exit 1\n{}\n",
            quoted(&shell.folder.display().to_string()),
            reset.run
        );
        std::fs::write(&path, script).map_err(|error| Failure::file("write", &path, error))?;
        let within = DurationNs::parse(&reset.within).unwrap_or(RESET_WITHIN);
        let made = Resource::from(ResetScript {
            path,
            procedure: procedure.name.clone(),
            within_ns: within.as_ns(),
        });
        self.journal.record_before_create(made.clone())?;
        Ok(made)
    }
}

const RESET_WITHIN: DurationNs = DurationNs::from_secs(120);
const UNDO_WITHIN: DurationNs = DurationNs::from_secs(120);

/// Quotes a word for /bin/sh.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Runs the undo scripts, the last step's first.
fn undo_all(shell: &Shell, undo: Vec<(String, String)>) -> Result<(), String> {
    let mut complaints = Vec::new();
    for (step, script) in undo.into_iter().rev() {
        let done = shell.run(&script, UNDO_WITHIN);
        if !done.worked {
            complaints.push(format!("step '{step}' was not taken back: {}", done.said));
        }
    }
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("; ")) }
}

enum Failed {
    Interrupted,
    Step { step: String, why: String, log: Option<PathBuf> },
}

/// Failure of one attempt.
struct AttemptError {
    why: String,
    /// Complete standard output and error output, if a command failed.
    printed: Option<[String; 2]>,
}

impl From<String> for AttemptError {
    fn from(why: String) -> Self {
        Self { why, printed: None }
    }
}

/// A repetition in progress.
struct RepetitionRun<'a> {
    desk: &'a Runner<'a>,
    procedure: &'a Procedure,
    shell: &'a mut Shell,
    began: Instant,
    done: Vec<Timed>,
    undo: Vec<(String, String)>,
}

impl RepetitionRun<'_> {
    fn all_steps(&mut self, variant: usize, observer: &mut dyn Observer) -> Result<(), Failed> {
        let mut is_before = self.desk.order.from.is_some();
        for step in &self.procedure.steps {
            is_before &= self.desk.order.from.as_ref() != Some(&step.name);
            if is_before && step.gives.is_none() {
                self.done.push(Timed::default());
                continue;
            }
            observer.step_begins(variant, step);
            let timed = self.step(step, observer)?;
            self.done.push(timed);
        }
        Ok(())
    }

    fn step(&mut self, step: &Step, observer: &mut dyn Observer) -> Result<Timed, Failed> {
        let started = monotonic_now();
        let started_ns = started.since(self.began).as_ns();
        if step.manual && !self.desk.order.by_hand {
            let took = step.took().ok().flatten().unwrap_or(DurationNs::ZERO);
            let took_ns = took.as_ns();
            return Ok(Timed { started_ns, took_ns, tries: 1, objects: 0, recorded: true });
        }
        let mut timed = Timed { started_ns, ..Timed::default() };
        if step.manual {
            let said = observer.by_hand(step);
            timed.tries = 1;
            self.store_value(step, &said).map_err(|why| {
                let step = step.name.clone();
                Failed::Step { step, why, log: None }
            })?;
        } else {
            // A step that fails halfway is undone too.
            self.undo.extend(step.undo.clone().map(|undo| (step.name.clone(), undo)));
            loop {
                timed.tries += 1;
                match self.try_step(step) {
                    Ok(objects) => {
                        timed.objects = objects;
                        break;
                    }
                    Err(_) if self.desk.is_stopped() => return Err(Failed::Interrupted),
                    Err(_) if timed.tries <= step.retries => {}
                    Err(failed) => {
                        let log = failed.printed.and_then(|text| keep_log(&step.name, &text));
                        return Err(Failed::Step { step: step.name.clone(), why: failed.why, log });
                    }
                }
            }
        }
        if self.desk.is_stopped() {
            return Err(Failed::Interrupted);
        }
        timed.took_ns = monotonic_now().since(started).as_ns();
        Ok(timed)
    }

    /// Tries a step once, and returns how many objects it created or changed.
    fn try_step(&mut self, step: &Step) -> Result<u32, AttemptError> {
        let within = step.within().map_err(|why| why.0)?;
        if let Some(edit) = &step.edit {
            let path = self.shell.folder.join(&edit.file);
            return Ok(self.write(&path, &edit.text).map(|()| 0)?);
        }
        if let Some(wait) = step.wait.as_ref().or(step.http.as_ref()) {
            let mut wait = wait.clone();
            for text in [&mut wait.url, &mut wait.host, &mut wait.body].into_iter().flatten() {
                *text = self.substitute(text);
            }
            let done = match step.http {
                Some(_) => wait::ask_once(&wait, self.shell),
                None => wait::wait(&wait, self.shell, within, self.desk.stop),
            };
            return Ok(done.map(|()| 0)?);
        }
        let done = self.shell.run(step.run.as_deref().unwrap_or_default(), within);
        if !done.worked {
            return Err(AttemptError {
                why: plain::short(&done.said, WHY_CHARS_MAX),
                printed: Some([done.out, done.err]),
            });
        }
        self.store_value(step, &done.out)?;
        Ok(objects(&done.out))
    }

    /// Stores the value that a step gives, for the steps after it.
    fn store_value(&mut self, step: &Step, said: &str) -> Result<(), String> {
        let Some(name) = &step.gives else { return Ok(()) };
        let value = said.trim();
        if value.is_empty() {
            let nothing = if step.manual { "nothing was said" } else { "printed nothing" };
            return Err(format!("it gives '{name}', and {nothing}"));
        }
        self.shell.env.insert(name.clone(), value.to_owned());
        Ok(())
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), String> {
        let above = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let done = above.and_then(|()| std::fs::write(path, self.substitute(text)));
        done.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Replaces each `{name}` with its value.
    fn substitute(&self, text: &str) -> String {
        let steps = self.procedure.steps.iter();
        steps.filter_map(|step| step.gives.as_ref()).fold(text.to_owned(), |text, name| match self
            .shell
            .env
            .get(name)
        {
            Some(value) => text.replace(&format!("{{{name}}}"), value),
            None => text,
        })
    }
}

const WHY_CHARS_MAX: usize = 400;

/// Writes the output to a log outside the run's folder, so that it outlives the run.
fn keep_log(step: &str, printed: &[String; 2]) -> Option<PathBuf> {
    let random = owned::random_name().ok()?;
    let path = std::env::temp_dir().join(format!("tare-steps-{random}.log"));
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path).ok()?;
    let [out, err] = printed;
    let text = format!("step '{step}'\n--- standard output\n{out}\n--- error output\n{err}\n");
    file.write_all(text.as_bytes()).ok()?;
    Some(path)
}
