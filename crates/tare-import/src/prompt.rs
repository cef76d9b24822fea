//! The host name in a shell prompt at the start of a line.

/// Returns "node1" for `[root@node1 ~]# …`, `user@node1:~$ …`, `(env) user@node1 ~ % …` and
/// `node1:~ # …`.
pub fn host(line: &str) -> Option<&str> {
    const LONGEST: usize = 120;
    let line = line.trim();
    let end = line.match_indices(['#', '$', '%', '>']).find_map(|(at, _)| {
        let after = &line[at + 1..];
        (after.is_empty() || after.starts_with(' ')).then_some(at)
    })?;
    let before = line[..end].trim();
    if before.is_empty() || before.len() > LONGEST {
        return None;
    }
    let inner = match before.strip_prefix('[').and_then(|b| b.strip_suffix(']')) {
        Some(inner) => inner,
        None => before.rsplit_once(") ").map_or(before, |(_, rest)| rest),
    };
    let of_shell = match inner.split_once('@') {
        Some((user, rest)) if is_word(user) => rest.split([':', ' ']).next(),
        Some(_) => None,
        // "node1:~ #"
        None => inner.split_once(':').filter(|(_, path)| path.starts_with(['~', '/'])).map(|p| p.0),
    };
    of_shell.filter(|host| is_word(host))
}

fn is_word(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.len() <= 64 && text.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_name_hosts() {
        for line in [
            "[root@node1 ~]# qperf 10.0.0.1 tcp_lat",
            "root@node1:~# qperf",
            "user@node1:/srv/a$ wrk -t4 http://h/",
            "(venv) user@node1:~$ wrk",
            "me@node1 ~ % wrk",
            "node1:~ # wrk",
            "[root@node1 bench]$",
        ] {
            assert_eq!(host(line), Some("node1"), "{line}");
        }
        for line in
            ["$ wrk", "# Host", "mail me@x.org for 5 % more", "bash-5.1# wrk", "C# code", "100 %"]
        {
            assert_eq!(host(line), None, "{line}");
        }
    }
}
