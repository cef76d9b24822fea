//! How another machine is asked.

/// A command line that runs `remote` there and asks nobody anything.
pub fn command_line(host: &str, options: &[String], remote: &str) -> Vec<String> {
    // A connection shared with others would outlive this one.
    let fixed = [
        "ssh",
        "-T",
        "-o",
        "BatchMode=yes",
        "-o",
        "ConnectTimeout=10",
        "-o",
        "ControlMaster=no",
        "-o",
        "ControlPath=none",
        "-o",
        "ServerAliveInterval=5",
    ];
    let mut argv: Vec<String> = fixed.map(str::to_owned).to_vec();
    argv.extend(options.iter().cloned());
    argv.extend(["--".to_owned(), host.to_owned(), remote.to_owned()]);
    argv
}
