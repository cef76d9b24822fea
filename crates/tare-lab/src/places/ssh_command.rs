//! Command lines of ssh.

/// Returns a command line that runs `remote` on the host and never prompts.
pub fn command_line(host: &str, options: &[String], remote: &str) -> Vec<String> {
    // A multiplexed connection would outlive this one.
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
