//! Checks a visit: all eleven services must answer, each to its caller and in its cluster.

use crate::client::Client;
use crate::graph::{SHOP, Service};
use crate::settings::Callee;

/// Requirements on an answer, besides the call graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// The services must be in their two clusters; otherwise all are in cluster 0.
    pub split: bool,
    /// Each service must have been called over mutual TLS by its caller's account in this
    /// namespace.
    pub mtls: Option<&'a str>,
}

/// Visits the shop `times` times; stops at the first wrong answer.
pub fn visit(host: &str, times: u64, wanted: Wanted<'_>) -> Result<(), String> {
    let front = Callee { name: "frontend".into(), host: host.to_owned() };
    let mut client = Client::default();
    (1..=times).try_for_each(|number| {
        let answer = client.call(&front)?;
        check(answer.trim(), wanted).map_err(|why| format!("visit {number}: {why}"))
    })
}

fn check(answer: &str, wanted: Wanted<'_>) -> Result<(), String> {
    let expected = expected(&SHOP[0], "", wanted);
    let seen = identities(answer, wanted.mtls.is_some());
    let mut hops = seen.split('{').zip(expected.split('{'));
    match hops.find(|(seen, expected)| seen != expected) {
        None if seen.len() == expected.len() => Ok(()),
        None => Err(format!("{} characters, not {}", seen.len(), expected.len())),
        Some((seen, expected)) => Err(format!("{{{}, not {{{}", seen.trim(), expected.trim())),
    }
}

fn expected(service: &Service, caller: &str, wanted: Wanted<'_>) -> String {
    let of = |name: &&str| SHOP.iter().find(|service| service.name == *name);
    let called = service.calls.iter().filter_map(of);
    let calls: Vec<String> = called.map(|callee| expected(callee, service.name, wanted)).collect();
    let cluster = if wanted.split { service.cluster } else { 0 };
    let identity = |space: &str| format!("spiffe://cluster.local/ns/{space}/sa/{caller}");
    let asked_by = wanted.mtls.filter(|_| !caller.is_empty()).map(identity).unwrap_or_default();
    format!(
        "{{\"service\": \"{}\", \"cluster\": \"{cluster}\", \"asked_by\": \"{asked_by}\", \"calls\": [{}]}}",
        service.name,
        calls.join(", ")
    )
}

/// Removes the identity of the first caller, which is outside the shop; without `mtls`, removes
/// all identities.
fn identities(answer: &str, mtls: bool) -> String {
    const KEY: &str = "\"asked_by\": \"";
    let mut parts = answer.split(KEY);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for (hop, part) in parts.enumerate() {
        let (uri, rest) = part.split_once('"').unwrap_or((part, ""));
        let shown = if mtls && hop > 0 { uri } else { "" };
        text += &format!("{KEY}{shown}\"{rest}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Wanted<'_> = Wanted { split: true, mtls: Some("shop") };

    /// An answer of services behind sidecars, called by a gateway.
    fn answer() -> String {
        let gateway = "\"asked_by\": \"spiffe://cluster.local/ns/istio-system/sa/gateway\"";
        expected(&SHOP[0], "", BOTH).replacen("\"asked_by\": \"\"", gateway, 1)
    }

    #[test]
    fn a_whole_visit_is_right() {
        assert_eq!(check(&answer(), BOTH), Ok(()));
        assert_eq!(answer().matches("/sa/").count(), 17);
        assert_eq!(check(&answer(), Wanted { mtls: None, ..BOTH }), Ok(()));
        let alone = Wanted::default();
        assert_eq!(check(&expected(&SHOP[0], "", alone), alone), Ok(()));
    }

    #[test]
    fn what_is_wrong_with_a_visit_is_named() {
        let wrong = |text: &str, wanted| check(text, wanted).unwrap_err();
        let elsewhere = answer().replacen("\"cluster\": \"2\"", "\"cluster\": \"1\"", 1);
        let told = wrong(&elsewhere, BOTH);
        assert!(told.starts_with("{\"service\": \"productcatalog\", \"cluster\": \"1\""), "{told}");
        for other in ["", "spiffe://cluster.local/ns/evil/sa/checkout", "spiffe://shop/sa/checkout"]
        {
            let text = answer().replace("spiffe://cluster.local/ns/shop/sa/checkout", other);
            let told = wrong(&text, BOTH);
            assert!(told.contains(&format!("\"asked_by\": \"{other}\"")), "{told}");
        }
        let other = answer().replacen("sa/frontend", "sa/ad", 1);
        assert!(wrong(&other, BOTH).contains("shop/sa/ad\""));
        wrong("", BOTH);
        wrong("frontend: cart: status 502", BOTH);
        wrong(&(answer() + " "), BOTH);
        let short = answer();
        wrong(&short[..short.len() - 1], BOTH);
    }
}
