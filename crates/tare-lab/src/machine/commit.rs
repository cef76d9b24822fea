//! The commit of the repository that a command is run in, read from git's files.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Folders above the current one that may hold the repository.
const LEVELS: usize = 32;
/// Most bytes read of a file: a large repository has some megabytes of packed references.
const BYTES_MAX: u64 = 16 << 20;

/// Returns the commit that is checked out in the folder's repository; `None` outside of one.
pub fn commit_in(folder: &Path) -> Option<String> {
    let found = folder.ancestors().take(LEVELS).map(|folder| folder.join(".git"));
    let git = found.into_iter().find(|path| path.exists())?;
    let git = match git.is_dir() {
        true => git,
        // A worktree's folder is elsewhere.
        false => resolved(git.parent()?, read(&git)?.strip_prefix("gitdir: ")?),
    };
    let head = read(&git.join("HEAD"))?;
    let Some(reference) = head.strip_prefix("ref: ") else { return checked(&head) };
    // Worktrees share their references.
    let shared = read(&git.join("commondir")).map(|path| resolved(&git, &path));
    let shared = shared.unwrap_or_else(|| git.clone());
    let own = [&git, &shared].into_iter().find_map(|folder| read(&folder.join(reference)));
    own.or_else(|| {
        let packed = read(&shared.join("packed-refs"))?;
        let mut lines = packed.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(_, name)| *name == reference).map(|(commit, _)| commit.to_owned())
    })
    .and_then(|commit| checked(&commit))
}

fn resolved(folder: &Path, path: &str) -> PathBuf {
    folder.join(path)
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text.trim_end().to_owned())
}

/// SHA-1 or SHA-256.
fn checked(commit: &str) -> Option<String> {
    let is_hash = [40, 64].contains(&commit.len()) && commit.bytes().all(|b| b.is_ascii_hexdigit());
    is_hash.then(|| commit.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_is_found_as_git_keeps_it() {
        let folder = std::env::temp_dir().join(format!("tare-commit-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let [a, b, c] = ["a", "b", "c"].map(|digit| digit.repeat(40));
        write("in/side/file", "");
        assert_eq!(commit_in(&folder.join("in/side")), None);
        write("in/.git/HEAD", &format!("{a}\n"));
        assert_eq!(commit_in(&folder.join("in/side")), Some(a));
        write("in/.git/HEAD", "ref: refs/heads/main\n");
        write(
            "in/.git/packed-refs",
            &format!("# pack-refs\n{b} refs/heads/main\n{c} refs/heads/x\n"),
        );
        assert_eq!(commit_in(&folder.join("in/side")), Some(b));
        write("in/.git/refs/heads/main", &format!("{c}\n"));
        assert_eq!(commit_in(&folder.join("in/side")), Some(c.clone()));
        let worktree = folder.join("in/.git/worktrees/w");
        write("w/.git", &format!("gitdir: {}\n", worktree.display()));
        write("in/.git/worktrees/w/HEAD", "ref: refs/heads/main\n");
        write("in/.git/worktrees/w/commondir", "../..\n");
        assert_eq!(commit_in(&folder.join("w")), Some(c));
        write("in/.git/refs/heads/main", "../../etc/passwd\n");
        assert_eq!(commit_in(&folder.join("in/side")), None, "no hash");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
