//! Tests how experiment files are read, and the errors for invalid ones.

use tare_model::calibration::Calibration;
use tare_model::places::{ContainerSpec, PlaceSpec};
use tare_model::plan::Plan;
use tare_model::servers::ServerSpec;

use tare_model::Fault;

use super::*;
use crate::run::machine::check_machine;

const GOOD: &str = r#"
name = "What does an access log cost?"
seed = 7

[load]
path = "/aaaa"
connections = 20
timeout = "3s"

[stop]
precision = "1%"
max_time = "5m"
metrics = ["throughput", "p99"]

[server.web]
nginx = { workers = 2, body_bytes = 100 }

[server.logging]
nginx = { access_log = true }

[server.own]
command = "./server --port {port}"
env = { A = "b" }

[server.up]
url = "http://127.0.0.1:8080/aaaa"

[[variant]]
name = "no log"
server = "web"

[[variant]]
name = "log"
server = "logging"
place = "host"
layers = []

[[variant]]
name = "mine"
server = "own"
headers = ["X-A: b"]
may_differ = ["body", "headers"]

[[variant]]
name = "other"
server = "up"
"#;

fn parse(text: &str) -> Result<Draft, Failure> {
    let source = Source { path: Path::new("x.toml"), text };
    let file: ExperimentFile = toml::from_str(text).map_err(|error| source.parse_error(&error))?;
    plans(file, &source).map(|mut plans| plans.remove(0))
}

#[test]
fn a_file_becomes_a_plan_without_gaps() {
    let plan = parse(GOOD).unwrap();
    assert_eq!((plan.seed, plan.load.connections, plan.stop.precision), (7, Some(20), 0.01));
    assert_eq!(plan.stop.tolerance, 0.01, "follows the precision");
    assert_eq!(plan.load.timeout, Some(DurationNs::from_secs(3)));
    assert_eq!(plan.stop.metrics, [Metric::Throughput, Metric::LatencyP99]);
    let [first, log, mine, other] = plan.variants.as_slice() else { panic!("{plan:?}") };
    assert!(first.baseline && !log.baseline, "the first, where none is named");
    assert_eq!(first.url, "http://127.0.0.1:{port}/aaaa");
    let ServerSpec::Nginx(spec) = &log.server else { panic!("{log:?}") };
    assert!(spec.access_log && spec.body_bytes == 612);
    assert_eq!(mine.headers, ["X-A: b"]);
    assert_eq!(mine.may_differ, [Difference::Body, Difference::Headers]);
    assert_eq!(other.server, ServerSpec::External);
    let again: Draft = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    assert_eq!(again, plan, "it is stored whole");
}

#[test]
fn stored_plans_are_plans_again_and_others_are_not() {
    let mut parts = parse(GOOD).unwrap();
    let warmup = DurationNs::from_secs(90);
    parts.slices.warmup = Some(warmup);
    let (window, ramp) = (DurationNs::from_ms(20), DurationNs::from_ms(2));
    let found = Calibration { window, ramp, warmup, warm: None };
    assert_eq!(found.check(&parts), Ok(()), "a warm-up as long as the run allows");
    let other = Calibration { warm: Some(Vec::new()), ..found.clone() };
    assert!(other.check(&parts).is_err(), "warm-ups of no variant");
    assert!(
        Calibration { window: warmup, ..found }.check(&parts).is_err(),
        "slices of a minute and more"
    );
    let shell = ContainerSpec { engine: "/bin/sh".into(), ..ContainerSpec::of_engine("podman") };
    let shell = ContainerSpec { image: "x".into(), ..shell };
    parts.variants[1].place = PlaceSpec::Container(shell);
    let error = Plan::try_from(parts).unwrap_err().to_string();
    assert!(error.contains("engine '/bin/sh' is not known"), "{error}");
}

#[test]
fn what_people_write_is_understood() {
    let rate = parse(&GOOD.replacen("path = \"/aaaa\"", "rate = \"2k\"", 1)).unwrap().load.rate;
    assert_eq!(rate, Some(2000.0));
    let place = |text: &str| {
        let text = GOOD.replacen("headers = [\"X-A: b\"]", &format!("place = {text}"), 1);
        parse(&text).unwrap().variants[2].place.clone()
    };
    let nested = place("{ oci = { runtime = \"runc\", cpus = 0.5 } }");
    assert_eq!(place("{ oci = \"runc\", cpus = 0.5 }"), nested);
    assert!(matches!(place("{ ssh = \"h\", options = [\"-p\", \"1\"] }"), PlaceSpec::Ssh(_)));
}

#[test]
fn a_path_is_asked_for_where_the_url_names_none() {
    for url in ["http://127.0.0.1:8080/", "http://127.0.0.1:8080"] {
        let text = GOOD.replacen("http://127.0.0.1:8080/aaaa", url, 1);
        let plan = parse(&text).unwrap();
        assert_eq!(plan.variants[3].url, "http://127.0.0.1:8080/aaaa", "{url}");
    }
}

#[test]
fn settings_without_effect_are_refused() {
    for (from, to, complaint) in [
        ("path = \"/aaaa\"", "paths = [\"/\"]\npath = \"/aaaa\"", "path and paths: choose one"),
        ("path = \"/aaaa\"", "tls_resume = true", "tls_resume goes with TLS: no URL begins"),
        ("path = \"/aaaa\"", "sni = \"a\"", "sni goes with TLS"),
        ("path = \"/aaaa\"", "spin = \"1ms\"", "spin needs an open loop: give a rate"),
        (
            "path = \"/aaaa\"",
            "test = \"tcp_rr\"\nmethod = \"PUT\"",
            "method goes with HTTP, not with load.test and load.call",
        ),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let text = GOOD.replacen(from, to, 1);
        let error = parse(&text).and_then(|parts| Ok(Plan::try_from(parts)?)).unwrap_err();
        assert!(error.to_string().contains(complaint), "{to}: {error}");
    }
}

#[test]
fn mistakes_name_their_line_and_what_is_allowed() {
    for (from, to, complaint) in [
        (
            "connections = 20",
            "conections = 20",
            "x.toml:7: unknown key 'conections'; did you mean 'connections'? (others are ",
        ),
        ("workers = 2", "wrokers = 2", "x.toml:16: unknown key 'wrokers'; did you mean 'workers'?"),
        ("[stop]", "[stpo]", "x.toml:10: unknown key 'stpo'; did you mean 'stop'?"),
        ("\"1%\"", "\"1\"", "x.toml:11: '1' is not a percentage; write 2% or 0.5%"),
        ("\"5m\"", "\"5\"", "x.toml:12: '5' is not a duration; write a number and ns, us"),
        ("\"p99\"]", "\"p98\"]", "x.toml:13: 'p98' is not a metric; choose among throughput"),
        (
            "server = \"up\"",
            "server = \"down\"",
            "x.toml:46: there is no server 'down'; there are: logging, own, up, web",
        ),
        (
            "connections = 20",
            "connections = \"many\"",
            "x.toml:7: invalid type: string \"many\", expected u32",
        ),
        (
            "place = \"host\"",
            "place = { ocy = \"runc\" }",
            "x.toml:35: place: 'ocy' is not a kind of place; there are host, netns, oci",
        ),
        ("place = \"host\"", "place = \"oci\"", "x.toml:35: place: oci needs its runtime: { oci"),
        (
            "place = \"host\"",
            "place = { netns = { rat = \"1gbit\" } }",
            "x.toml:35: place: netns: unknown key 'rat'; did you mean 'rate'?",
        ),
        ("place = \"host\"", "place = { vm = 3 }", "x.toml:35: place: write \"vm\", or { vm ="),
        (
            "place = \"host\"",
            "place = { host = { memory = \"2X\" } }",
            "memory '2X': write 512M, 2G",
        ),
        (
            "place = \"host\"",
            "place = { netns = {}, vm = {} }",
            "x.toml:35: place: write a word, as \"netns\", or one kind",
        ),
        (
            "layers = []",
            "layers = [{ filtr = \"wasm\" }]",
            "x.toml:36: unknown key 'filtr'; did you mean 'filter'?",
        ),
        (
            "command = ",
            "target = {}\ncommand = ",
            "x.toml:21: server 'own' is of two kinds; choose one",
        ),
        (
            "command = \"./server --port {port}\"\nenv = { A = \"b\" }",
            "",
            "x.toml:21: server 'own' needs one of command, nginx, httpd, caddy, haproxy",
        ),
        ("path = \"/aaaa\"", "rate = \"2x\"", "x.toml:6: '2x' is not a number; write 5000, 10k"),
        (
            "may_differ = [\"body\"",
            "place = \"docker\"\nmay_differ = [\"body\"",
            "for an image: { container = \"IMAGE\", engine = \"docker\" }",
        ),
        (
            "may_differ = [\"body\"",
            "may_differ = [\"certificate\"",
            "unknown word 'certificate'; known are body, connection, headers",
        ),
        (
            "may_differ = [\"body\"",
            "place = { docker = \"nginx\", memory = \"1G\" }\nmay_differ = [\"body\"",
            "'docker' is not a kind of place",
        ),
        (
            "may_differ = [\"body\"",
            "place = { ssh = \"web1\", host = \"web2\" }\nmay_differ = [\"body\"",
            "place: ssh: host is given twice",
        ),
        ("seed = 7", "seed = 7\nslices = { window = \"0s\" }", "x.toml:4: '0s' must be longer"),
        ("path = \"/aaaa\"", "path = \"aaaa\"", "load.path aaaa: must begin with /"),
        (
            "8080/aaaa",
            "8080/other",
            "x.toml:46: variant 'other': its URL asks for /other, and the load's path is /aaaa: \
             write one",
        ),
        (
            "server = \"up\"",
            "server = \"own\"",
            "no variant uses server 'up': name it in one, or leave it out",
        ),
        ("name = \"What does an access log cost?\"", "", "x.toml:1: missing field `name`"),
        (
            "may_differ = [\"body\"",
            "may_differ = [\"bdy\"",
            "unknown word 'bdy'; did you mean 'body'? (others are connection, headers, status, tls)",
        ),
        ("seed = 7", "seed = ", "x.toml:3: "),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let error = parse(&GOOD.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.contains(complaint), "{from} -> {to}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn values_out_of_range_are_refused_before_anything_starts() {
    for (from, to, complaint) in [
        ("connections = 20", "connections = 0", "connections = 0: write 1 to"),
        ("path = \"/aaaa\"", "path = \"/aaaa\"\nrate = -5.0", "rate = -5: write a number above 0"),
        ("seed = 7", "seed = 7\nslices = { window = \"10h\" }", "write 1ms to 60s"),
        ("seed = 7", "seed = 7\nslices = { cycles = 0 }", "cycles = 0: write 1 to 10000"),
        ("seed = 7", "seed = 7\nslices = { warmup = \"99h\" }", "longer than the time for the run"),
        ("name = \"What does", "name = \"a\\u001b", "write printable characters"),
        ("seed = 7", "seed = 7\ncpus = { load = [9999] }", "cpus: 9999 is not one that"),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let text = GOOD.replacen(from, to, 1);
        let whole = parse(&text).and_then(|parts| Ok(Plan::try_from(parts)?));
        let error = whole.and_then(|plan| check_machine(&plan)).unwrap_err().to_string();
        assert!(error.contains(complaint), "{to}: {error}");
    }
}

/// Returns a plan in which the second variant has these layers and further settings.
fn with_layers(layers: &str, more: &str) -> Result<Plan, Failure> {
    let tls = match more.contains("server = \"tls\"") {
        true => "[server.tls]\nnginx = { tls = true }\n",
        false => "",
    };
    let text = format!(
        "name = \"x\"\n[load]\nconnections = 8\n[server.web]\nnginx = {{}}\n{tls}\
         [[variant]]\nname = \"a\"\nserver = \"web\"\nbaseline = true\n\
         [[variant]]\nname = \"b\"\nlayers = [{layers}]\n{more}\n"
    );
    Ok(Plan::try_from(parse(&text)?)?)
}

#[test]
fn a_hop_says_where_it_runs_and_what_it_may_use() {
    let url = |layers: &str, server: &str| {
        let plan = with_layers(layers, &format!("server = \"{server}\"")).unwrap();
        plan.variants[1].url.clone()
    };
    let https = "https://127.0.0.1:{port}/";
    let http = "http://127.0.0.1:{port}/";
    assert_eq!(url("{ proxy = \"nginx\", tls = \"tls\", place = \"netns\" }", "web"), https);
    assert_eq!(url("{ proxy = \"nginx\" }", "tls"), http);
    assert_eq!(url("{ proxy = \"haproxy\", mode = \"tcp\" }", "tls"), https);
    assert_eq!(url("{ gateway = \"nginx\", place = { oci = \"runc\", cpus = 1 } }", "tls"), https);
    let web = "server = \"web\"";
    for (layers, more, part) in [
        ("{ proxy = \"nginx\", place = \"nets\" }", web, "'nets' is not a kind of place"),
        ("{ proxy = \"nginx\", place = { ssh = \"h\" } }", web, "its place can be host, netns"),
        (
            "{ proxy = \"nginx\", cpus = 1, place = \"netns\" }",
            web,
            "its place has the limits, too",
        ),
        ("{ proxy = \"nginx\", cpus = 0 }", web, "cpus = 0: write 0.01 to 1024"),
        ("{ proxy = \"nginx\", tls = \"mtls\" }", web, "clients show no certificate"),
        ("{ proxy = \"envoy\", mode = \"tcp\", tls = \"tls\" }", web, "passes TLS on as it is"),
        (
            "{ proxy = \"nginx\" }",
            "server = \"web\"\nclient = { ssh = \"h\" }",
            "its clients run on the host, or in netns, oci or vm",
        ),
        (
            "{ proxy = \"nginx\" }",
            "server = \"web\"\nurl = \"https://127.0.0.1:{port}/\"",
            "clients come to it by http: leave out url",
        ),
        (
            "{ proxy = \"nginx\", place = \"netns\" }",
            "server = \"web\"\nplace = { container = \"x\" }",
            "in netns it cannot reach what is in",
        ),
        (
            "{ proxy = \"nginx\", side = \"server\", place = \"netns\" }",
            "server = \"web\"\nplace = \"netns\"\nclient = \"netns\"",
            "a sidecar runs where its client or server does: leave out place",
        ),
    ] {
        let Err(Failure { fault: Fault::Usage, text: said }) = with_layers(layers, more) else {
            panic!("{layers}")
        };
        assert!(said.contains(part), "{layers}: {said}");
    }
}

/// Returns a plan in which the second variant has these clients.
fn with_client(written: &str) -> Result<Plan, Failure> {
    let text = format!(
        "name = \"x\"\n[load]\nconnections = 8\n[server.web]\nnginx = {{}}\n\
         [[variant]]\nname = \"a\"\nserver = \"web\"\nbaseline = true\n\
         [[variant]]\nname = \"b\"\nserver = \"web\"\nclient = {written}\n"
    );
    Ok(Plan::try_from(parse(&text)?)?)
}

#[test]
fn a_variant_has_one_client_or_several() {
    let name = |written: &str| with_client(written).unwrap().variants[1].clients.name();
    assert_eq!(name("\"netns\""), "netns");
    assert_eq!(name("{ netns = {}, count = 4 }"), "4 × netns");
    assert_eq!(name("{ netns = { count = 4 } }"), "4 × netns");
    assert_eq!(
        name("[\"host\", { oci = \"runc\", count = 2 }, \"netns\"]"),
        "host, 2 × runc, netns"
    );
    for (written, part) in [
        ("[]", "client: 0 clients; a variant has 1 to 64"),
        ("{ netns = {}, count = 0 }", "client: count: write 1 to 64"),
        ("{ netns = {}, count = \"all\" }", "client: count: write 1 to 64"),
        ("[{ netns = {}, count = 60 }, { oci = \"runc\", count = 5 }]", "65 clients"),
        ("{ host = {}, count = 2 }", "on the host one client makes all of the load"),
        ("[\"netns\", \"nets\"]", "'nets' is not a kind of place"),
        ("\"same_as_server\"", "same_as_server needs a place"),
        ("[\"netns\", { kubernetes = { pods = 2 } }]", "unknown key 'pods'"),
    ] {
        let Err(Failure { fault: Fault::Usage, text: said }) = with_client(written) else {
            panic!("{written}")
        };
        assert!(said.contains(part), "{written}: {said}");
    }
}
