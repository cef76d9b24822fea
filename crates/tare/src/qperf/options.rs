//! Parses qperf's arguments in order: a setting applies to the tests after it.

use std::net::IpAddr;

use tare_io::DurationNs;

use crate::net::sizes;

/// Parsed arguments.
#[derive(Debug, PartialEq)]
pub struct Options {
    /// Server to test; without a host, this process is the server.
    pub host: Option<String>,
    pub listen_port: u16,
    /// Listen address of the server; default: loopback.
    pub listen_address: Option<IpAddr>,
    /// Token that a client on another machine needs to end the server.
    pub token: Option<String>,
    pub tests: Vec<AskedTest>,
    /// Socket buffer size of the server.
    pub socket_buffer: Option<u32>,
    pub cpu: Option<usize>,
}

/// A test and the settings that apply to it.
#[derive(Clone, Debug, PartialEq)]
pub struct AskedTest {
    pub test: Test,
    pub with: Settings,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    TcpBw,
    TcpLat,
    UdpBw,
    UdpLat,
    Conf,
    Quit,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    pub msg_size: Option<u32>,
    pub ip_port: Option<u16>,
    pub time: Option<DurationNs>,
    pub timeout: Option<DurationNs>,
    pub socket_buffer: Option<u32>,
    pub cpu: Option<usize>,
    pub flip: bool,
    pub loops: Vec<Loop>,
    pub show: Show,
}

/// `-oo var:init:last:incr`: the values that a variable takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    pub variable: Variable,
    pub values: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variable {
    MsgSize,
    Time,
    SocketBuffer,
}

/// How results are shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Show {
    pub used: bool,
    pub statistics: bool,
    pub time: bool,
    pub configuration: bool,
    pub unify_units: bool,
    pub bits: bool,
    pub digits: usize,
}

impl Default for Show {
    fn default() -> Self {
        Self {
            used: false,
            statistics: false,
            time: false,
            configuration: false,
            unify_units: false,
            bits: false,
            digits: 3,
        }
    }
}

pub const LISTEN_PORT: u16 = 19_765;
pub const TIME: DurationNs = DurationNs::from_secs(2);

const TESTS: [(&str, Test); 6] = [
    ("tcp_bw", Test::TcpBw),
    ("tcp_lat", Test::TcpLat),
    ("udp_bw", Test::UdpBw),
    ("udp_lat", Test::UdpLat),
    ("conf", Test::Conf),
    ("quit", Test::Quit),
];

/// Prefixes of qperf's tests that are not supported.
const OTHER_TESTS: [&str; 9] =
    ["sctp_", "sdp_", "rds_", "rc_", "uc_", "ud_", "xrc_", "ver_", "tcp_v6"];

impl Test {
    pub fn name(self) -> &'static str {
        TESTS.iter().find(|(_, test)| *test == self).map_or("", |(name, _)| name)
    }
}

/// A flag: its names and what it does, with or without a value.
struct Flag {
    names: &'static [&'static str],
    takes: Takes,
}

enum Takes {
    Value(fn(&mut State, &str) -> Result<(), String>),
    Nothing(fn(&mut State)),
}

#[derive(Default)]
struct State {
    listen_port: Option<u16>,
    listen_address: Option<IpAddr>,
    token: Option<String>,
    host: Option<String>,
    with: Settings,
}

const FLAGS: &[Flag] = &[
    Flag {
        names: &["-lp", "--listen_port"],
        takes: Takes::Value(|state, text| {
            state.listen_port = Some(port(text)?);
            Ok(())
        }),
    },
    Flag {
        names: &["-la", "--listen_address"],
        takes: Takes::Value(|state, text| {
            let address = text.parse().map_err(|_| "write an IP address, such as 0.0.0.0 or ::")?;
            state.listen_address = Some(address);
            Ok(())
        }),
    },
    Flag {
        names: &["--token"],
        takes: Takes::Value(|state, text| {
            state.token = Some(text.to_owned());
            Ok(())
        }),
    },
    Flag {
        names: &["-ip", "--ip_port"],
        takes: Takes::Value(|state, text| {
            state.with.ip_port = Some(port(text)?);
            Ok(())
        }),
    },
    Flag {
        names: &["-H", "--host"],
        takes: Takes::Value(|state, text| {
            state.host = Some(text.to_owned());
            Ok(())
        }),
    },
    Flag {
        names: &["-m", "--msg_size"],
        takes: Takes::Value(|state, text| {
            state.with.msg_size = Some(sizes::size(text)?);
            Ok(())
        }),
    },
    Flag {
        names: &["-t", "--time"],
        takes: Takes::Value(|state, text| {
            state.with.time = Some(time(text)?);
            Ok(())
        }),
    },
    Flag {
        names: &["-to", "--timeout", "-lto", "--loc_timeout"],
        takes: Takes::Value(|state, text| {
            state.with.timeout = Some(time(text)?);
            Ok(())
        }),
    },
    Flag {
        names: &["-sb", "--sock_buf_size", "-lsb", "--loc_sock_buf_size"],
        takes: Takes::Value(|state, text| {
            state.with.socket_buffer = Some(sizes::size(text)?);
            Ok(())
        }),
    },
    Flag {
        names: &["-ca", "--cpu_affinity", "-lca", "--loc_cpu_affinity"],
        takes: Takes::Value(|state, text| {
            state.with.cpu = match text {
                "any" => None,
                text => crate::args::words::cpu_list(text)?.first().copied(),
            };
            Ok(())
        }),
    },
    Flag {
        names: &["-oo", "--loop"],
        takes: Takes::Value(|state, text| {
            state.with.loops.push(looped(text)?);
            Ok(())
        }),
    },
    Flag {
        names: &["-e", "--precision"],
        takes: Takes::Value(|state, text| {
            let digits = text.parse().ok().filter(|digits| (1..=15).contains(digits));
            state.with.show.digits = digits.ok_or("write 1 to 15 digits")?;
            Ok(())
        }),
    },
    Flag {
        names: &["-f", "--flip"],
        takes: Takes::Value(|state, text| {
            state.with.flip = on_off(text)?;
            Ok(())
        }),
    },
    Flag { names: &["-f1"], takes: Takes::Nothing(|state| state.with.flip = true) },
    // -ar and -ar1 have no effect, because received data is always verified.
    Flag {
        names: &["-ar", "--access_recv"],
        takes: Takes::Value(|_, text| on_off(text).map(drop)),
    },
    Flag { names: &["-ar1"], takes: Takes::Nothing(|_| {}) },
    Flag {
        names: &["-uu", "--unify_units"],
        takes: Takes::Nothing(|state| state.with.show.unify_units = true),
    },
    Flag { names: &["-un", "--unify_nodes"], takes: Takes::Nothing(|_| {}) },
    Flag {
        names: &["-ub", "--use_bits_per_sec"],
        takes: Takes::Nothing(|state| state.with.show.bits = true),
    },
    Flag {
        names: &["-v", "--verbose"],
        takes: Takes::Nothing(|state| {
            let show = &mut state.with.show;
            (show.configuration, show.statistics, show.time, show.used) = (true, true, true, true);
        }),
    },
    Flag {
        names: &["-vv", "--verbose_more"],
        takes: Takes::Nothing(|state| {
            let show = &mut state.with.show;
            (show.configuration, show.statistics, show.time, show.used) = (true, true, true, true);
        }),
    },
    Flag {
        names: &["-vc", "--verbose_conf", "-vvc", "--verbose_more_conf"],
        takes: Takes::Nothing(|state| state.with.show.configuration = true),
    },
    Flag {
        names: &["-vs", "--verbose_stat", "-vvs", "--verbose_more_stat"],
        takes: Takes::Nothing(|state| state.with.show.statistics = true),
    },
    Flag {
        names: &["-vt", "--verbose_time", "-vvt", "--verbose_more_time"],
        takes: Takes::Nothing(|state| state.with.show.time = true),
    },
    Flag {
        names: &["-vu", "--verbose_used", "-vvu", "--verbose_more_used"],
        takes: Takes::Nothing(|state| state.with.show.used = true),
    },
];

/// Unsupported flags of qperf, and what to do instead.
const UNSUPPORTED: [(&[&str], &str); 5] = [
    (&["-n", "--no_msgs"], "tests of sockets do not heed it in qperf either; use -t"),
    (&["-rsb", "--rem_sock_buf_size"], "start the server with -sb"),
    (&["-rca", "--rem_cpu_affinity"], "start the server with -ca"),
    (&["-rto", "--rem_timeout"], "use -to"),
    (
        &[
            "-i",
            "--id",
            "-li",
            "-ri",
            "-ap",
            "--alt_port",
            "-mt",
            "--mtu_size",
            "-cp",
            "--cq_poll",
            "-nr",
            "--rd_atomic",
            "-sl",
            "--service_level",
            "-sr",
            "--static_rate",
            "-cm",
            "--use_cm",
            "-sp",
            "--src_path_bits",
            "-cp1",
            "-cm1",
        ],
        "it is of RDMA, and only TCP and UDP are supported",
    ),
];

/// Reads the words after the program's name.
pub fn parse(words: &[String]) -> Result<Options, String> {
    let mut state = State::default();
    let mut tests = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            match test(word) {
                // The first word that is not a flag is the server's name.
                _ if state.host.is_none() => state.host = Some(word.clone()),
                Ok(test) => tests.push(AskedTest { test, with: state.with.clone() }),
                Err(why) => return Err(why),
            }
            continue;
        }
        let Some(flag) = FLAGS.iter().find(|flag| flag.names.contains(&word.as_str())) else {
            return Err(unknown(word));
        };
        match flag.takes {
            Takes::Nothing(put) => put(&mut state),
            Takes::Value(put) => {
                let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
                put(&mut state, value).map_err(|why| format!("{word} '{value}': {why}"))?;
            }
        }
    }
    if state.host.is_some() && tests.is_empty() {
        return Err(format!("say which tests: {}", TESTS.map(|(name, _)| name).join(", ")));
    }
    Ok(Options {
        host: state.host,
        listen_port: state.listen_port.unwrap_or(LISTEN_PORT),
        listen_address: state.listen_address,
        token: state.token,
        tests,
        socket_buffer: state.with.socket_buffer,
        cpu: state.with.cpu,
    })
}

fn unknown(word: &str) -> String {
    if let Some((_, instead)) = UNSUPPORTED.iter().find(|(names, _)| names.contains(&word)) {
        return format!("{word} is not supported: {instead}");
    }
    let names: Vec<&str> = FLAGS.iter().map(|flag| flag.names[0]).collect();
    format!("{word} is not a flag of qperf; supported are {}", names.join(", "))
}

fn test(word: &str) -> Result<Test, String> {
    let names = TESTS.map(|(name, _)| name).join(", ");
    match TESTS.iter().find(|(name, _)| *name == word) {
        Some((_, test)) => Ok(*test),
        None if OTHER_TESTS.iter().any(|family| word.starts_with(family)) => {
            Err(format!("{word} is not supported: only {names} are"))
        }
        None => Err(format!("{word} is not a test; choose among {names}")),
    }
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().ok().filter(|port| *port > 0).ok_or_else(|| "write a port, 1 to 65535".to_owned())
}

/// Parses seconds, or a number with a trailing s, m, h or d.
fn time(text: &str) -> Result<DurationNs, String> {
    let (digits, scale) = match text.strip_suffix(['s', 'm', 'h', 'd']) {
        None => (text, 1.0),
        Some(digits) => match text.as_bytes().last() {
            Some(b'm') => (digits, 60.0),
            Some(b'h') => (digits, 3600.0),
            Some(b'd') => (digits, 86_400.0),
            _ => (digits, 1.0),
        },
    };
    match digits.parse::<f64>().map(|number| number * scale) {
        Ok(seconds) if (0.05..=7.0 * 86_400.0).contains(&seconds) => {
            Ok(DurationNs::from_secs_f64(seconds))
        }
        _ => Err("write seconds, or a number with m, h or d".into()),
    }
}

fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("write 0 or 1".into()),
    }
}

/// Parses `msg_size:1:256K:*64`; the name is optional.
fn looped(text: &str) -> Result<Loop, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let (name, values) = match parts.as_slice() {
        [_, _, _] => ("msg_size", text),
        [name, _, _, _] => (*name, &text[name.len() + 1..]),
        _ => return Err("write var:init:last:incr, as msg_size:1:256K:*64".into()),
    };
    let variable = match name {
        "msg_size" | "m" | "" => Variable::MsgSize,
        "time" | "t" => Variable::Time,
        "sock_buf_size" | "sb" => Variable::SocketBuffer,
        _ => return Err(format!("'{name}' cannot loop; msg_size, time and sock_buf_size can")),
    };
    Ok(Loop { variable, values: sizes::sizes(values)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Options, String> {
        parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_published_commands_are_understood() {
        let asked = parsed(
            "10.0.0.2 -lp 4000 -ip 4001 -oo msg_size:1:256K:*64 -vu tcp_bw tcp_lat udp_bw udp_lat \
             conf quit",
        )
        .unwrap();
        assert_eq!((asked.host.as_deref(), asked.listen_port), (Some("10.0.0.2"), 4000));
        let tests: Vec<&str> = asked.tests.iter().map(|asked| asked.test.name()).collect();
        assert_eq!(tests, ["tcp_bw", "tcp_lat", "udp_bw", "udp_lat", "conf", "quit"]);
        let with = &asked.tests[0].with;
        assert_eq!(with.ip_port, Some(4001));
        assert_eq!(with.loops[0].values, [1, 64, 4096, 262_144]);
        assert!(with.show.used && !with.show.bits);
    }

    #[test]
    fn a_flag_holds_for_the_tests_after_it() {
        let asked = parsed("h -m 1 tcp_bw -m 4K -t 1 -e 5 -uu tcp_lat").unwrap();
        assert_eq!(asked.tests[0].with.msg_size, Some(1));
        assert_eq!(asked.tests[1].with.msg_size, Some(4096));
        assert_eq!(asked.tests[0].with.time, None);
        assert_eq!(asked.tests[1].with.time, Some(DurationNs::from_secs(1)));
        assert_eq!(parsed("-lp 4000").unwrap().host, None);
    }

    #[test]
    fn mistakes_name_the_flag_and_say_what_is_supported() {
        for (text, complaint) in [
            ("h -xx tcp_bw", "-xx is not a flag of qperf; supported are -lp, -la"),
            ("h -n 5 tcp_bw", "-n is not supported: tests of sockets do not heed it"),
            ("h -cp 1 tcp_bw", "-cp is not supported: it is of RDMA"),
            ("h rc_bw", "rc_bw is not supported: only tcp_bw, tcp_lat"),
            ("h tcp_bandwidth", "tcp_bandwidth is not a test; choose among tcp_bw"),
            ("h -lp", "-lp needs a value"),
            ("h -lp 0 tcp_bw", "-lp '0': write a port"),
            ("-la everywhere", "-la 'everywhere': write an IP address"),
            ("h -oo msg_size:1:2 tcp_bw", "-oo 'msg_size:1:2': "),
            ("h -oo port:1:2:1 tcp_bw", "-oo 'port:1:2:1': 'port' cannot loop; msg_size"),
            ("h -t 0 tcp_bw", "-t '0': write seconds"),
            ("h -e 0 tcp_bw", "-e '0': write 1 to 15 digits"),
            ("h -f x tcp_bw", "-f 'x': write 0 or 1"),
            ("h", "say which tests: tcp_bw"),
        ] {
            let found = parsed(text).unwrap_err();
            assert!(found.starts_with(complaint), "{text}: {found}");
        }
    }
}
