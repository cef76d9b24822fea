//! Runs the commands of a procedure: in its folder, with its values, within a time limit, and in a
//! control group of the run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use tare_io::DurationNs;
use tare_lab::machine::commands::{self, Outcome};
use tare_model::plain;

/// Folder, environment and control groups of commands.
#[derive(Clone, Debug, Default)]
pub struct Shell {
    /// Working folder of the repetition.
    pub folder: PathBuf,
    pub env: BTreeMap<String, String>,
    /// `cgroup.procs` files that commands enter first: what they leave running ends with the group.
    pub entrances: Vec<PathBuf>,
}

impl Shell {
    pub fn run(&self, script: &str, within: DurationNs) -> Outcome {
        // The arguments after the script are $0 and the groups; the script itself gets none.
        let enter = "for group; do echo $$ >\"$group\"; done; shift $#; ";
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("{enter}{script}"), "step"]).args(&self.entrances);
        command.current_dir(&self.folder).envs(&self.env);
        let mut outcome = commands::run_as(command, "it", within);
        if !outcome.worked && outcome.err.trim().is_empty() && !outcome.out.trim().is_empty() {
            outcome.said = plain::line(outcome.out.trim()).into_owned();
        }
        outcome
    }
}

/// Counts the objects that kubectl and istioctl report as created or changed.
pub fn objects(out: &str) -> u32 {
    const DONE: [&str; 7] = [
        "created",
        "configured",
        "serverside-applied",
        "patched",
        "labeled",
        "annotated",
        "scaled",
    ];
    let is_one = |line: &&str| {
        let mut words = line.split_whitespace();
        let (first, last) = (words.next().unwrap_or_default(), words.next_back());
        (first.contains('/') || first.contains('.')) && last.is_some_and(|l| DONE.contains(&l))
    };
    out.lines().filter(is_one).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_counted_by_what_tools_say() {
        let out = "namespace/shop created\ndeployment.apps/cart serverside-applied\n\
                   service/cart unchanged\nWarning: created\nsecret/x configured (dry run)\n\
                   namespace/shop labeled\n";
        assert_eq!(objects(out), 3);
    }

    #[test]
    fn commands_have_values_and_a_folder() {
        let folder = std::env::temp_dir();
        let env = [("word".to_owned(), "a b".to_owned())].into();
        let shell = Shell { folder, env, entrances: Vec::new() };
        let within = DurationNs::from_secs(10);
        let done = shell.run("printf '%s %s' \"$word\" $#; pwd", within);
        assert!(done.worked && done.out.starts_with("a b 0/"), "{done:?}");
        let failed = shell.run("echo why; exit 3", within);
        assert_eq!((failed.worked, failed.said.as_str()), (false, "why"));
    }
}
