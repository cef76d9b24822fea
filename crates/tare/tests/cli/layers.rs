//! Layers that are processes: mistakes.

use crate::layered::{HEAD, layered, on_host, variant};
use crate::runs::{Desk, read};
use crate::util::{ran, str};

#[test]
fn what_no_layer_can_be_is_refused() {
    let desk = Desk::new("layers-mistakes");
    let proxy = "[{ proxy = \"haproxy\" }]";
    for (layers, more, complaint) in [
        ("[{ proxy = \"squid\" }]", "", "unknown word 'squid'"),
        ("[{ proxy = \"haproxy\", threads = 0 }]", "", "proxy haproxy: threads = 0: write 1 to 64"),
        ("[{ prxy = \"haproxy\" }]", "", "unknown key 'prxy'; did you mean 'proxy'?"),
        (proxy, "url = \"http://127.0.0.1:8080/\"", "leave out the port in url"),
        (proxy, "client = { ssh = \"h\" }", "its clients run on the host, or in netns, oci or vm"),
    ] {
        let file = desk.file("layers.toml", &layered(layers, more));
        desk.tare(&["run", str(&file)]).fails(2, complaint);
    }
}

#[test]
fn layers_that_cannot_be_are_refused() {
    let desk = Desk::new("sidecar-mistakes");
    let side = "{ proxy = \"envoy\", side = \"both\" }";
    let in_place = |layers: &str| HEAD.to_owned() + &variant("v", layers);
    let here = |layers: &str| HEAD.to_owned() + &on_host("v", layers);
    let gateway = "{ gateway = \"nginx\" }";
    for (text, complaint) in [
        (here(side), "a server's sidecar needs a server in place = \"netns\" or oci"),
        (in_place(&side.replace("both\"", "both\", key = \"rsa2048\"")), "leave it out"),
        (
            in_place("{ proxy = \"envoy\", side = \"server\", tls = \"mtls\" }"),
            "tls is between the sidecars of both sides",
        ),
        (
            in_place("{ proxy = \"nginx\", side = \"both\", mode = \"tcp\" }"),
            "nginx does not tell what passed in mode tcp",
        ),
        (here("{ proxy = \"envoy\", intercept = \"redirect\" }"), "give side, too"),
        (in_place(&format!("{side}, {{ proxy = \"nginx\", side = \"server\" }}")), "one layer of"),
        (
            here(gateway) + "client = { ssh = \"h\" }\n",
            "gateway nginx: its clients run on the host, or in netns, oci or vm",
        ),
        (here(&format!("{{ proxy = \"nginx\" }}, {gateway}")), "it comes first"),
        (
            in_place(&format!("{gateway}, {side}")),
            "what stands between the two goes with side = \"server\" alone",
        ),
        (
            here("{ gateway = \"nginx\", tls = { min = \"1.3\", max = \"1.2\" } }"),
            "tls: min is above max",
        ),
        (
            here("{ gateway = \"nginx\", tls = { provider = \"cryptomb\" } }"),
            "provider is of Envoy's",
        ),
        (here("{ mesh = \"istio\" }"), "it is a cluster's"),
        (here("{ bypass = \"sockmap\" }"), "it goes with place = \"netns\""),
        (here("{ crypto = \"no-such\" }"), "unknown word 'no-such'"),
    ] {
        let file = desk.file("mistake.toml", &(text + &on_host("other", "")));
        desk.tare(&["run", str(&file)]).fails(2, complaint);
    }
}

/// If a program is missing, the other variants are still measured.
#[test]
fn an_optional_variant_whose_program_is_missing_is_skipped() {
    let desk = Desk::new("layers-missing");
    let of =
        |name: &str, more: &str| format!("[[variant]]\nname = \"{name}\"\nserver = \"s\"\n{more}");
    let text = |optional: &str| {
        let head = "name = \"x\"\n[load]\nconnections = 2\n[stop]\nrounds = 1\n[slices]\nwindow = \"10ms\"\n\
                    cycles = 1\n[server.s]\ntarget = {}\n";
        let proxied = format!("layers = [{{ proxy = \"envoy\" }}]\n{optional}");
        head.to_owned() + &of("a", "") + &of("b", "") + &of("c", &proxied)
    };
    let run = |optional: &str, more: &[&str]| {
        let path = desk.file("missing.toml", &text(optional));
        let mut command = desk.command(&[&["run", str(&path)], more].concat());
        // Then only the folders of the system's servers are searched.
        ran(command.env("PATH", "/nowhere"))
    };
    run("", &["-q"]).fails(3, "envoy is not installed");
    let report = read(run("optional = true\n", &["--json", "-", "-q"]).measured());
    let [skipped] = report.skipped.as_slice() else { panic!("{:?}", report.skipped) };
    assert!(skipped.name == "c" && skipped.reason.contains("envoy is not installed"));
    let told = run("optional = true\n", &["--dry-run"]).success().stdout;
    assert!(told.contains("c: skipped: envoy is not installed"), "{told}");
}
