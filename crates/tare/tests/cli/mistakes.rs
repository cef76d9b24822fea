//! Every mistake gives one line: the flag, the value, and what is allowed.

use tare_target::behaviour::Behaviour;
use tare_tidy::skips::not_run;

use crate::runs::Desk;
use crate::util::{Server, command, ran, str, tare};

#[test]
fn the_users_words() {
    for (args, message) in [
        (&[][..], "no command given; try 'tare --help'"),
        (&["frob"], "unrecognized subcommand 'frob'"),
        (&["load"], "the following required arguments were not provided: <URL>"),
        (
            &["load", "--ratee", "5", "x"],
            "unexpected argument '--ratee' found; tip: a similar argument exists: '--rate'",
        ),
        (
            &["load", "x", "-c", "0"],
            "invalid value '0' for '--connections <N>': 0 is not in 1..=1000000",
        ),
        (
            &["load", "x", "-d", "5"],
            "invalid value '5' for '--duration <DURATION>': '5' is not a duration; write a number and ns, us, ms, s, m or h, for example 250ms",
        ),
        (&["load", "x", "-d", "0s"], "for '--duration <DURATION>': must be longer than 0"),
        (&["load", "x", "--rate", "5x"], "'5x' is not a number; write 5000, 10k or 1.5M"),
        (
            &["load", "x", "-n", "0"],
            "'0' is not a count; write a whole number from 1, as 5000 or 10k",
        ),
        (
            &["load", "localhost:1", "--rate", "0"],
            "rate = 0: write a number above 0, up to 10000000",
        ),
        (
            &["load", "localhost:1", "--stages", "1s"],
            "--stages: '1s' is not a rate; write requests per second",
        ),
        (&["load", "localhost:1", "--poisson"], "poisson needs an open loop: give a rate"),
        (
            &["load", "localhost:1", "--rate", "5", "--linger", "50us"],
            "linger goes with a closed loop: at a rate nothing waits",
        ),
        (
            &["load", "localhost:1", "--idle", "poll", "--linger", "50us"],
            "linger goes with idle = sleep: a thread that polls takes each reply at once",
        ),
        (&["load", "localhost:1", "--idle", "nap"], "write poll or sleep"),
        (
            &["load", "localhost:1", "--reactor", "epoll", "--linger", "50us"],
            "linger goes with io_uring: epoll reports at once what is there",
        ),
        (
            &[
                "compare",
                "localhost:1",
                "localhost:2",
                "--new-connections",
                "--reconnect-each",
                "slice",
            ],
            "reconnect_each (--reconnect-each) needs kept connections",
        ),
        (
            &["compare", "localhost:1", "localhost:2", "--reconnect-each", "round"],
            "invalid value 'round' for '--reconnect-each <launch|slice>': write launch or slice",
        ),
        (&["target", "--sticky"], "required arguments were not provided: --service-time"),
        (&["load", "ftp://x"], "URL 'ftp://x': scheme 'ftp' is not supported; use http or https"),
        (
            &["load", "127.0.0.1:1", "-H", "bad"],
            "headers: header 'bad' is not of the form 'Name: value'",
        ),
        (
            &["load", "127.0.0.1:1", "-X", "GE T"],
            "method 'GE T' has a character that is not allowed",
        ),
        (
            &["load", "127.0.0.1:1", "--rate", "5", "--max-connections", "3"],
            "max_connections = 3: must be at least connections, 10",
        ),
        (&["load", "127.0.0.1:1", "--body-file", "/no/such"], "body_file /no/such: No such file"),
        (&["load", "127.0.0.1:1", "--urls", "/no/such"], "--urls /no/such: No such file"),
        (&["load", "127.0.0.1:1", "--bind", "::1"], "bind ::1: cannot be a source for 127.0.0.1:1"),
        (&["load", "127.0.0.1:1", "--json", "-", "--csv", "-"], "only one of them can be -"),
        (
            &["load", "https://127.0.0.1:1", "--cacert", "/no/such"],
            "cannot read certificates (PEM) from /no/such",
        ),
        (
            &["load", "https://127.0.0.1:1", "-k", "--ciphers", "RC4"],
            "--ciphers: 'RC4' is not known; choose among",
        ),
        (&["load", "x", "--expect-status", "2x"], "write 200, 2xx, 200-399, or a list of these"),
        (&["load", "x", "--reactor", "kqueue"], "choose io_uring or epoll"),
        (&["load", "x", "--interval", "1ms"], "must be at least 10ms"),
        (
            &["target", "--listen", "nowhere"],
            "--listen nowhere: not an address; write 127.0.0.1:8080",
        ),
        (
            &["target", "--listen", "unix:/tmp/x", "-t", "2"],
            "--threads 2: a unix socket has one queue; use -t 1",
        ),
        (&["target", "--defect", "x"], "choose among cut-head, cut-body"),
        (
            &["target", "--stall", "2s", "--every", "1s"],
            "--stall 2s: must be shorter than --every 1s",
        ),
        (&["target", "--delay", "x"], "--delay: 'x' is not a delay; write 5ms, exp:5ms"),
        (&["target", "--error-rate", "2"], "write a share from 0 to 1"),
        (
            &["wrk", "-t4", "-c2", "http://127.0.0.1:1"],
            "-c 2: must be at least the number of threads, 4",
        ),
        (
            &["wrk", "-d", "x", "http://127.0.0.1:1"],
            "write seconds, or a number and s, m or h, as 30 or 2m",
        ),
        (
            &["wrk", "-s", "/no/such.lua", "http://127.0.0.1:1"],
            "cannot read the script /no/such.lua",
        ),
    ] {
        tare(args).fails(2, message);
    }
}

#[test]
fn the_environment_and_the_target() {
    let server = Server::start(Behaviour::default());
    let taken = server.address().to_string();
    tare(&["target", "--listen", &taken])
        .fails(3, "another program has this address: choose another port");
    tare(&["load", &server.url(), "--json", "/no/such/folder/x"])
        .fails(3, "--json: cannot write /no/such/folder/x");
    drop(server);
    tare(&["load", &taken]).fails(4, &format!("cannot connect to {taken}: connection refused"));
    tare(&["wrk", "-d1", &taken])
        .fails(4, &format!("cannot connect to {taken}: connection refused"));
    tare(&["load", "http://name.invalid/"]).fails(4, "cannot resolve name.invalid: ");
    tare(&["load", "http://x/", "--unix-socket", "/no/such.sock"])
        .fails(4, "cannot connect to unix:/no/such.sock: no such file or directory");
}

#[test]
fn too_few_files_are_said_before_the_load() {
    let program = env!("CARGO_BIN_EXE_tare");
    let script = format!(
        "ulimit -Sn 100; ulimit -Hn 100; exec setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource -- {program} load http://127.0.0.1:1/ -c 5000"
    );
    ran(command("sh").args(["-c", &script]))
        .fails(3, "5000 connections need 5064 open files, and this process may have 100; raise the limit (ulimit -n 5064)");
}

#[test]
fn help_has_an_example_for_every_command() {
    for command in ["load", "target", "wrk"] {
        let ran = tare(&[command, "--help"]).success();
        assert!(ran.stdout.contains(&format!("Example: tare {command} ")), "{}", ran.story());
        let widest = ran.stdout.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100), "{widest:?}");
    }
}

#[test]
fn local_ports_that_run_out_are_explained() {
    // In a separate network with ten local ports, so that the machine's ports are not used up.
    let tare = env!("CARGO_BIN_EXE_tare");
    let script = format!(
        "ip link set lo up && echo 40000 40009 > /proc/sys/net/ipv4/ip_local_port_range && \
         {{ {tare} target --listen 127.0.0.1:8080 2>/dev/null >/dev/null & }} && target=$! && \
         for try in $(seq 100); do {tare} load http://127.0.0.1:8080/ -c 1 -n 1 >/dev/null \
         2>&1 && break; done; \
         {tare} load http://127.0.0.1:8080/ -c 20 -t 1 -d 300ms; kill $target"
    );
    let ran = ran(command("unshare").args(["--net", "sh", "-c", &script]));
    if ran.stderr.contains("unshare failed: Operation not permitted") {
        // Only root may create a network; CI is root, and checks that this ran.
        assert!(std::env::var_os("CI").is_none(), "CI runs as root: {}", ran.story());
        not_run("a network namespace needs root");
        return;
    }
    for part in [
        " no local port: ",
        "the local ports for this destination are used up",
        "widen net.ipv4.ip_local_port_range, add source addresses with --bind",
        "VOID ports: ",
    ] {
        assert!(ran.stdout.contains(part), "{part:?} is missing: {}", ran.story());
    }
}

#[test]
fn a_run_that_fails_keeps_the_last_report_and_says_why() {
    let desk = Desk::new("fails");
    let (kept, new) = (desk.file("kept.html", "yesterday's"), desk.folder.file("new.html"));
    let gone = ["--launch=a=exec /bin/false {port}", "--launch=b=exec /bin/false {port}"];
    for page in [&kept, &new] {
        let args = ["compare", gone[0], gone[1], "-q", "--html", str(page)];
        desk.tare(&args).fails(4, ": the server ended before it was ready");
    }
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "yesterday's");
    assert!(!new.exists(), "nothing is left where nothing was");
    let events = desk.tare(&["runs", "--events", "1"]).success().stdout;
    assert!(
        events.contains("tare: failed: ") && events.contains("server ended before"),
        "{events}"
    );
    let report = desk.tare(&["report", "1"]).success().stdout;
    assert!(report.starts_with("run 1 measured nothing: "), "{report}");
    // A shorter report does not keep the end of a longer one.
    let long = desk.file("long.json", &"x".repeat(100_000));
    desk.tare(&["report", "1", "--json", str(&long)]).success();
    assert!(std::fs::read_to_string(&long).unwrap().ends_with("}\n"));
}
