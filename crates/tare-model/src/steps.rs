//! Procedures: the steps that put something in place, and the units in which their effort is
//! counted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;

use crate::Invalid;

/// A procedure, as a file describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Procedure {
    pub name: String,
    /// A command that succeeds if the procedure can be carried out; otherwise it prints the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<String>,
    /// Environment of all commands.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// How the initial state is made, and how it is verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset: Option<Reset>,
    /// Contexts of clusters; the images on their nodes are counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images_of: Vec<String>,
    #[serde(rename = "step")]
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reset {
    pub run: String,
    /// A command that succeeds only if nothing of the procedure is left.
    pub clean: String,
    #[serde(default = "two_minutes")]
    pub within: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<StepKind>,
    /// A command for /bin/sh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// A URL that is requested once and must answer as described.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<Wait>,
    /// A file that a person would write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edit: Option<Edit>,
    /// A condition to wait for before the step is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
    /// Name of the value that the step yields: its output, or a person's input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gives: Option<String>,
    /// Steps that must be done first; default: the step before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// How often a failed step is retried.
    #[serde(skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// A command that reverts the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
    /// Whether a person does the step elsewhere.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub manual: bool,
    /// For a manual step: the time that it once took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    Command,
    /// A value that somebody chooses or looks up, and carries over.
    Decision,
    Edit,
    Wait,
    Verify,
}

impl StepKind {
    pub const ALL: [Self; 5] =
        [Self::Command, Self::Decision, Self::Edit, Self::Wait, Self::Verify];

    pub fn word(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Decision => "decision",
            Self::Edit => "edit",
            Self::Wait => "wait",
            Self::Verify => "verify",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// Relative to the folder of the repetition.
    pub file: PathBuf,
    pub text: String,
}

/// Exactly one of `url`, `kubernetes` and `run`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Wait {
    /// A plain HTTP URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// With `url`: the expected status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// With `url`: text that the body must contain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// `deployment/NAME`, `statefulset/NAME`, `pod/NAME` or `job/NAME`, which must be fully ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// A command that must succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

fn two_minutes() -> String {
    "2m".into()
}

const WITHIN: DurationNs = DurationNs::from_secs(300);
const RETRIES_MAX: u32 = 100;
const STEPS_MAX: usize = 1000;

impl Step {
    pub fn kind(&self) -> StepKind {
        self.kind.unwrap_or(match self {
            _ if self.edit.is_some() => StepKind::Edit,
            _ if self.wait.is_some() => StepKind::Wait,
            _ if self.http.is_some() => StepKind::Verify,
            _ if self.gives.is_some() => StepKind::Decision,
            _ => StepKind::Command,
        })
    }

    /// Whether it only waits.
    pub fn is_waiting(&self) -> bool {
        self.wait.is_some() || (self.manual && self.kind() == StepKind::Wait)
    }

    pub fn within(&self) -> Result<DurationNs, Invalid> {
        self.within.as_deref().map_or(Ok(WITHIN), |text| duration("within", text))
    }

    pub fn took(&self) -> Result<Option<DurationNs>, Invalid> {
        self.took.as_deref().map(|text| duration("took", text)).transpose()
    }

    fn check(&self, before: &[Step]) -> Result<(), Invalid> {
        if self.name.is_empty() || self.name.chars().any(char::is_control) {
            return Err("every step wants a name of one line".into());
        }
        let own = |text: &str| Err(Invalid(format!("step '{}': {text}", self.name)));
        if before.iter().any(|step| step.name == self.name) {
            return own("another step has this name");
        }
        let (run, http) = (self.run.is_some(), self.http.is_some());
        let given = [run, http, self.edit.is_some(), self.wait.is_some()];
        let n = given.into_iter().filter(|given| *given).count();
        if self.manual {
            if n > 0 || self.undo.is_some() {
                return own("what a person does elsewhere has no run, edit, http, wait or undo");
            }
            if self.kind == Some(StepKind::Verify) {
                return own("a proof is not made by hand");
            }
        } else if n != 1 {
            return own("give one of run = \"…\", edit = { … }, http = { … }, wait = { … }, or \
                        manual = true");
        }
        if self.took.is_some() && !self.manual {
            return own("took is of what a person does (manual = true): others are timed");
        }
        if self.gives.is_some() && self.run.is_none() && !self.manual {
            return own("gives is what run prints, or a person finds: write run or manual");
        }
        if let Some(name) = &self.gives
            && !is_name(name)
        {
            return own(&format!("gives = {name:?}: write letters, digits and _"));
        }
        if self.retries > RETRIES_MAX {
            return own(&format!("retries = {}: write 0 to {RETRIES_MAX}", self.retries));
        }
        for name in self.after.iter().flatten() {
            if !before.iter().any(|step| step.name == *name) {
                return own(&format!("after = '{name}': no step before it has this name"));
            }
        }
        let checked = self.within().and_then(|_| self.took().map(drop));
        checked.or_else(|why| own(&why.0))?;
        self.edit.as_ref().map_or(Ok(()), Edit::check).or_else(|why| own(&why.0))?;
        if self.http.as_ref().is_some_and(|http| http.url.is_none()) {
            return own("http: give url");
        }
        self.http.as_ref().map_or(Ok(()), Wait::check).or_else(|why| own(&why.0))?;
        self.wait.as_ref().map_or(Ok(()), Wait::check).or_else(|why| own(&why.0))
    }
}

impl Edit {
    fn check(&self) -> Result<(), Invalid> {
        let is_within =
            self.file.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        match is_within && self.file.components().next().is_some() {
            true => Ok(()),
            false => Err(Invalid(format!(
                "edit: file = {:?}: write a path within the folder of the repetition",
                self.file
            ))),
        }
    }
}

impl Wait {
    fn check(&self) -> Result<(), Invalid> {
        let ways = [self.url.is_some(), self.kubernetes.is_some(), self.run.is_some()];
        if ways.into_iter().filter(|given| *given).count() != 1 {
            return Err("wait: give one of url, kubernetes and run".into());
        }
        let of_url = self.status.is_some() || self.body.is_some() || self.host.is_some();
        if of_url && self.url.is_none() {
            return Err("wait: status, body and host go with url".into());
        }
        if (self.namespace.is_some() || self.context.is_some()) && self.kubernetes.is_none() {
            return Err("wait: namespace and context go with kubernetes".into());
        }
        if let Some(text) = &self.kubernetes {
            parse_object(text)?;
        }
        Ok(())
    }

    /// Kind and name of the Kubernetes object to wait for.
    pub fn object(&self) -> Option<(ObjectKind, &str)> {
        parse_object(self.kubernetes.as_deref()?).ok()
    }
}

/// Kinds of Kubernetes objects to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    Deployment,
    StatefulSet,
    Pod,
    Job,
}

fn parse_object(text: &str) -> Result<(ObjectKind, &str), Invalid> {
    let wrong = || {
        Invalid(format!(
            "wait: kubernetes = {text:?}: write deployment/NAME, statefulset/NAME, pod/NAME or \
             job/NAME"
        ))
    };
    let (kind, name) = text.split_once('/').ok_or_else(wrong)?;
    let kind = match kind {
        "deployment" => ObjectKind::Deployment,
        "statefulset" => ObjectKind::StatefulSet,
        "pod" => ObjectKind::Pod,
        "job" => ObjectKind::Job,
        _ => return Err(wrong()),
    };
    if name.is_empty() { Err(wrong()) } else { Ok((kind, name)) }
}

fn is_name(name: &str) -> bool {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    plain && name.chars().next().is_some_and(|c| !c.is_ascii_digit())
}

fn duration(key: &str, text: &str) -> Result<DurationNs, Invalid> {
    let parsed = DurationNs::parse(text);
    let parsed = parsed.map_err(|why| Invalid(format!("{key} = \"{text}\": {why}")))?;
    match parsed > DurationNs::ZERO && parsed <= DurationNs::from_secs(24 * 3600) {
        true => Ok(parsed),
        false => Err(Invalid(format!("{key} = \"{text}\": write more than 0 and at most 24h"))),
    }
}

impl Procedure {
    /// Checks that the procedure does not contradict itself; the error is one line.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.name.is_empty() || self.name.chars().any(char::is_control) {
            return Err("name: write one line".into());
        }
        if self.steps.is_empty() || self.steps.len() > STEPS_MAX {
            return Err(Invalid(format!(
                "a procedure has 1 to {STEPS_MAX} steps ([[step]]); this one has {}",
                self.steps.len()
            )));
        }
        if let Some(key) = self.env.keys().find(|key| !is_name(key)) {
            return Err(Invalid(format!("env: {key:?}: write letters, digits and _")));
        }
        for (n, step) in self.steps.iter().enumerate() {
            step.check(&self.steps[..n])?;
        }
        let mut given = BTreeSet::new();
        if let Some(name) = self.gives().find(|name| !given.insert(*name)) {
            return Err(Invalid(format!("two steps give '{name}'")));
        }
        if let Some(reset) = &self.reset {
            duration("within", &reset.within).map_err(|why| why.named("reset"))?;
        }
        if !self.steps.iter().any(|step| step.kind() == StepKind::Verify) {
            return Err("no step shows that it worked: give one kind = \"verify\"".into());
        }
        Ok(())
    }

    fn gives(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter_map(|step| step.gives.as_deref())
    }

    /// The indices of the steps that must be done before each step.
    pub fn dependencies(&self) -> Vec<Vec<usize>> {
        let at = |name: &String| self.steps.iter().position(|step| step.name == *name);
        let of = |(n, step): (usize, &Step)| match &step.after {
            Some(names) => names.iter().filter_map(at).collect(),
            None => n.checked_sub(1).into_iter().collect(),
        };
        self.steps.iter().enumerate().map(of).collect()
    }

    /// Counts the units in the file, before anything runs.
    pub fn units(&self) -> Units {
        let mut units = Units::default();
        for (n, step) in self.steps.iter().enumerate() {
            *units.steps.entry(step.kind().word().to_owned()).or_default() += 1;
            units.manual += u32::from(step.manual);
            units.commands += step.run.as_deref().map_or(0, commands);
            let text = step.edit.as_ref().map_or("", |edit| edit.text.as_str());
            units.lines += text.lines().filter(|line| !line.trim().is_empty()).count() as u32;
            let earlier = self.steps[..n].iter().filter_map(|step| step.gives.as_deref());
            units.values += earlier.filter(|name| step.uses(name)).count() as u32;
        }
        units
    }
}

impl Step {
    /// Whether it uses a value: `$name` or `${name}` in commands, `{name}` elsewhere.
    fn uses(&self, name: &str) -> bool {
        let wait = self.wait.as_ref().or(self.http.as_ref());
        let commands = [self.run.as_deref(), wait.and_then(|wait| wait.run.as_deref())];
        let in_shell = commands.into_iter().flatten().any(|text| {
            let ends = |rest: &str| {
                !rest.chars().next().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
            };
            let plain = format!("${name}");
            text.match_indices(&plain).any(|(at, _)| ends(&text[at + plain.len()..]))
                || text.contains(&format!("${{{name}}}"))
        });
        let edit = self.edit.as_ref().map(|edit| edit.text.as_str());
        let texts = [
            edit,
            wait.and_then(|wait| wait.url.as_deref()),
            wait.and_then(|wait| wait.host.as_deref()),
            wait.and_then(|wait| wait.body.as_deref()),
        ];
        in_shell || texts.into_iter().flatten().any(|text| text.contains(&format!("{{{name}}}")))
    }
}

/// Counts the commands in shell text: lines (continued after a backslash) and the parts between
/// `&&` and `;`. A pipeline counts as one.
fn commands(text: &str) -> u32 {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let parts = lines.flat_map(|line| line.split("&&").flat_map(|part| part.split(';')));
    parts.filter(|part| !part.trim().is_empty()).count() as u32
}

/// The effort that a procedure takes to follow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Units {
    /// Steps by kind.
    pub steps: BTreeMap<String, u32>,
    /// Steps done by a person elsewhere.
    pub manual: u32,
    pub commands: u32,
    /// Lines of configuration written by hand.
    pub lines: u32,
    /// Values carried from one step to another.
    pub values: u32,
}

impl Units {
    pub fn all_steps(&self) -> u32 {
        self.steps.values().sum()
    }
}

/// One execution of a procedure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repetition {
    pub variant: u32,
    pub round: u32,
    pub started_unix_ms: u64,
    pub steps: Vec<Timed>,
    /// CPU time of the whole machine during its steps.
    pub cpu_ns: u64,
    /// Set only where images are counted.
    #[serde(default)]
    pub images: Option<Images>,
}

/// Images from which cluster nodes started containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Images {
    /// Distinct images.
    pub used: u32,
    /// Pulls by all nodes together.
    pub pulled: u32,
    /// Size of the pulls; `None` if a node does not report the size of one.
    pub pulled_bytes: Option<u64>,
}

/// Timing of one step; steps are in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timed {
    /// Time since the repetition began; a recorded step takes no time here.
    pub started_ns: u64,
    pub took_ns: u64,
    /// 1, plus the number of retries.
    pub tries: u32,
    /// Objects that tools reported as made or changed.
    pub objects: u32,
    /// Whether a person did it elsewhere, at another time.
    pub recorded: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str) -> Step {
        Step { name: name.into(), run: Some("true".into()), ..Step::default() }
    }

    fn verify() -> Step {
        Step { kind: Some(StepKind::Verify), ..step("it works") }
    }

    fn of(steps: Vec<Step>) -> Procedure {
        let (needs, env, reset, images_of) = (None, BTreeMap::new(), None, Vec::new());
        Procedure { name: "p".into(), needs, env, reset, images_of, steps }
    }

    #[test]
    fn commands_are_counted_as_a_person_types_them() {
        assert_eq!(commands("kubectl apply -f a.yaml"), 1);
        assert_eq!(commands("a && b; c\n\n# not this\nd | e \\\n  --more"), 4);
        assert_eq!(commands(" ; "), 0);
    }

    #[test]
    fn units_are_counted_in_the_file() {
        let address = Step { gives: Some("ip".into()), ..step("look it up") };
        let edit = Edit { file: "v.yaml".into(), text: "a: {ip}\n\nb: 2\n".into() };
        let write = Step { name: "write".into(), edit: Some(edit), ..Step::default() };
        let apply = Step { run: Some("apply $ip && apply ${ip}x $ipx".into()), ..step("apply") };
        let other = Step { run: Some("apply $ipx".into()), ..step("other") };
        let console = Step {
            name: "console".into(),
            manual: true,
            took: Some("90s".into()),
            ..Step::default()
        };
        let procedure = of(vec![address, write, apply, other, console, verify()]);
        procedure.check().unwrap();
        let units = procedure.units();
        assert_eq!((units.commands, units.lines, units.values, units.manual), (5, 2, 2, 1));
        assert_eq!(units.steps["decision"], 1);
        assert_eq!((units.steps["edit"], units.steps["command"]), (1, 3));
        assert_eq!(units.all_steps(), 6);
    }

    #[test]
    fn steps_follow_each_other_unless_they_say_otherwise() {
        let free = Step { after: Some(Vec::new()), ..step("b") };
        let both = Step { after: Some(vec!["a".into(), "b".into()]), ..verify() };
        let found = of(vec![step("a"), free, both]).dependencies();
        assert_eq!(found, [vec![], vec![], vec![0, 1]]);
        assert_eq!(of(vec![step("a"), verify()]).dependencies(), [vec![], vec![0]]);
    }

    #[test]
    fn what_cannot_be_is_refused_in_one_line() {
        let twice = of(vec![step("a"), step("a"), verify()]);
        let nothing = of(vec![Step { name: "a".into(), ..Step::default() }, verify()]);
        let later = Step { after: Some(vec!["it works".into()]), ..step("a") };
        let by_hand = Step { manual: true, ..step("a") };
        let took = Step { took: Some("1s".into()), ..step("a") };
        let out = Edit { file: "../x".into(), text: String::new() };
        let out = Step { name: "a".into(), edit: Some(out), ..Step::default() };
        let wait = |wait| Step { name: "a".into(), wait: Some(wait), ..Step::default() };
        let none = wait(Wait::default());
        let asked = Wait { run: Some("x".into()), ..Wait::default() };
        let asked = Step { name: "a".into(), http: Some(asked), ..Step::default() };
        let odd = wait(Wait { kubernetes: Some("node/x".into()), ..Wait::default() });
        let short = Step { within: Some("soon".into()), ..step("a") };
        for (procedure, told) in [
            (twice, "another step has this name"),
            (nothing, "give one of run"),
            (of(vec![later, verify()]), "no step before it has this name"),
            (of(vec![by_hand, verify()]), "has no run"),
            (of(vec![took, verify()]), "others are timed"),
            (of(vec![out, verify()]), "within the folder"),
            (of(vec![none, verify()]), "give one of url"),
            (of(vec![odd, verify()]), "write deployment/NAME"),
            (of(vec![asked, verify()]), "http: give url"),
            (of(vec![short, verify()]), "within = \"soon\""),
            (of(vec![step("a")]), "no step shows that it worked"),
            (of(Vec::new()), "1 to 1000 steps"),
        ] {
            let why = procedure.check().unwrap_err().0;
            assert!(why.contains(told), "{why}");
        }
    }
}
