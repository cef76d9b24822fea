//! Evidence that a layer's processes were in the path and did what was asked: their own counts, the
//! kernel's count of redirected connections, the server's peers, and probes of the listener.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};

use tare_model::layers::ProxyProgram;
use tare_model::samples::{Proof, Sent};

use super::proxies::{ProxyCounts, TlsTerms, program};
use super::{HopPosition, LayerProof};
use crate::lab::server::Server;
use crate::launch::certificates;
use crate::launch::hop::{Hop, Statistics};
use crate::network::intercept::{Namespace, SIDECAR};
use crate::network::tls_probe;
use tare_model::Failure;

/// Expected behaviour of a layer's processes.
#[derive(Debug)]
pub struct Expected {
    pub layer: String,
    pub is_http: bool,
    /// TLS that the server's sidecar, or the proxy between client and server, must accept.
    pub tls: Option<TlsTerms>,
}

#[derive(Debug)]
pub struct HopsProof {
    expected: Expected,
    processes: Vec<Process>,
    /// Complaints and observations so far.
    wrong: Vec<String>,
    seen: Vec<String>,
}

/// Reads what one process counted.
pub trait Counting: Debug {
    fn passed(&self) -> Option<ProxyCounts>;

    /// Whether the process counts the query for its statistics.
    fn counts_asking(&self) -> bool {
        false
    }

    /// Whether the process's connections outlast launches; then all its handshakes are counted.
    fn outlasts(&self) -> bool {
        false
    }
}

/// A program's own page of statistics.
#[derive(Debug)]
pub struct ProgramCounting {
    pub program: ProxyProgram,
    pub statistics: Statistics,
    pub is_http: bool,
}

impl ProgramCounting {
    pub fn for_hop(program: ProxyProgram, is_http: bool, hop: &Hop) -> Box<dyn Counting> {
        let statistics = hop.statistics();
        Box::new(Self { program, statistics, is_http })
    }
}

impl Counting for ProgramCounting {
    fn passed(&self) -> Option<ProxyCounts> {
        program(self.program).passed(&self.statistics, self.is_http)
    }

    fn counts_asking(&self) -> bool {
        program(self.program).counts_asking()
    }
}

/// One process of the layer, as it was before load.
#[derive(Debug)]
struct Process {
    stand: HopPosition,
    /// The address from which the process may connect to the server.
    own: IpAddr,
    counting: Box<dyn Counting>,
    /// The namespace in which its connections are intercepted.
    namespace: Option<Namespace>,
    before: Counts,
}

/// Counts by a process and by the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: Option<ProxyCounts>,
    redirected: Option<u64>,
}

impl HopsProof {
    pub fn begin(
        expected: Expected,
        hops: &[&Hop],
        counting: &dyn Fn(&Hop) -> Box<dyn Counting>,
    ) -> Result<Self, Failure> {
        let (processes, wrong, seen) = (Vec::new(), Vec::new(), Vec::new());
        let mut proof = Self { expected, processes, wrong, seen };
        if let Some(hop) = hops.iter().find(|hop| hop.stand != HopPosition::BesideClient)
            && let Some(terms) = proof.expected.tls
        {
            let at = if hop.intercepts { hop.to } else { hop.launch_spec.address };
            match &hop.injected {
                None => proof.probe_listener(at, terms)?,
                Some(sidecar) => {
                    proof.expect_refused(sidecar.serves_strangers(at), "a request in plain text");
                }
            }
        }
        for hop in hops {
            // The next hop must refuse plain text.
            if hop.makes_tls && hop.stand == HopPosition::Between {
                let served = tls_probe::serves_plain_text(hop.to);
                proof.expect_refused(served, "a request in plain text behind it");
            }
            let mut process = Process {
                stand: hop.stand,
                own: hop.statistics().address.ip(),
                counting: counting(hop),
                namespace: hop.namespace.clone().filter(|_| hop.intercepts),
                before: Counts::default(),
            };
            process.before = process.counts();
            proof.processes.push(process);
        }
        Ok(proof)
    }

    pub fn add_observation(&mut self, text: String) {
        self.seen.push(text);
    }

    /// Probes the listener as an unknown client would.
    fn probe_listener(&mut self, at: SocketAddr, terms: TlsTerms) -> Result<(), Failure> {
        self.expect_refused(tls_probe::serves_plain_text(at), "a request in plain text");
        if terms.is_mutual {
            self.expect_refused(tls_probe::serves_unknown(at), "a client without a certificate");
        }
        let (own, key) = (certificates::layer_certificate(terms.key)?, terms.key.word());
        match tls_probe::probe(at, own) {
            Err(why) => self.wrong.push(format!("no TLS at {at}: {why}")),
            Ok(seen) if seen.certificate != own.der => {
                self.wrong.push(format!("its certificate is not the {key} one that was made"));
            }
            Ok(seen) if seen.version != Some(terms.max) => {
                self.wrong.push(format!("it speaks {}, not {}", seen.word(), terms.max.word()));
            }
            // Whether sidecars resume sessions with each other is not checked.
            Ok(seen) if seen.resumes != terms.resumes && !terms.is_mutual => {
                let does = if seen.resumes { "takes sessions up again" } else { "resumes none" };
                self.wrong.push(format!("it {does}, which was not asked"));
            }
            Ok(seen) => self.seen.push(format!("{} by its {key} certificate", seen.word())),
        }
        Ok(())
    }

    fn expect_refused(&mut self, served: Result<bool, String>, what: &str) {
        match served {
            Ok(false) => self.seen.push(format!("{what} is refused")),
            Ok(true) => self.wrong.push(format!("{what} is served")),
            Err(why) => self.wrong.push(format!("{what} could not be tried: {why}")),
        }
    }
}

impl Process {
    fn counts(&self) -> Counts {
        Counts {
            passed: self.counting.passed(),
            redirected: self.namespace.as_ref().and_then(Namespace::intercepted),
        }
    }
}

impl LayerProof for HopsProof {
    fn end(mut self: Box<Self>, server: &Server, sent: Sent) -> Proof {
        let processes = std::mem::take(&mut self.processes);
        for process in &processes {
            let after = process.counts();
            self.judge(process, after, sent);
        }
        if let Some(process) = processes.iter().find(|p| p.stand == HopPosition::BesideServer) {
            self.judge_peers(&server.peers(), process.own);
        }
        let text = self.wrong.into_iter().chain(self.seen.clone()).collect::<Vec<_>>();
        let held = text.len() == self.seen.len();
        Proof { layer: self.expected.layer, held, text: text.join("; ") }
    }
}

impl HopsProof {
    /// Compares what one process counted with what was sent.
    fn judge(&mut self, process: &Process, after: Counts, sent: Sent) {
        let who = match process.stand {
            HopPosition::Between => "it",
            stand => stand.word(),
        };
        let Some((before, after_passed)) = process.before.passed.zip(after.passed) else {
            self.wrong.push(format!("the statistics of {who} do not answer"));
            return;
        };
        let own = u64::from(process.counting.counts_asking());
        let passed = after_passed.since(before, own);
        if self.expected.is_http {
            let requests = passed.requests.unwrap_or(0);
            let text = format!("of {sent} requests {requests} passed through {who}");
            let fits = sent.fits(requests);
            if fits { &mut self.seen } else { &mut self.wrong }.push(text);
        } else {
            let connections = passed.connections.unwrap_or(0);
            let text = format!("{connections} connections passed through {who}");
            let fits = sent.requests == 0 || connections > 0;
            if fits { &mut self.seen } else { &mut self.wrong }.push(text);
        }
        self.judge_redirection(process, after, sent, passed.connections);
        if process.counting.outlasts() {
            if self.expected.tls.is_some() && after_passed.connections == Some(0) {
                self.wrong.push(format!("{who} tells of no connection"));
            }
            self.judge_tls(after_passed);
        } else if process.stand != HopPosition::BesideClient {
            self.judge_tls(passed);
        }
    }

    /// `new` is the number of connections that the process accepted meanwhile, if it counts them.
    fn judge_redirection(
        &mut self,
        process: &Process,
        after: Counts,
        sent: Sent,
        new: Option<u64>,
    ) {
        if process.namespace.is_none() {
            return;
        }
        let who = process.stand.word();
        match process.before.redirected.zip(after.redirected) {
            None => self.wrong.push(format!("the rules of {who} cannot be read")),
            // Sidecars keep connections to each other, also from one load of a launch to the next.
            Some((before, now)) if now == before && before > 0 && new == Some(0) => {
                self.seen.push(format!("all came by connections that were redirected to {who}"));
            }
            // A rule that was recreated in between counts from zero.
            Some((before, now)) if now <= before && sent.requests > 0 => {
                self.wrong.push(format!("no connection was redirected to {who}"));
            }
            Some((before, now)) => {
                let n = now.saturating_sub(before);
                self.seen.push(format!("{n} connections were redirected to {who}"));
            }
        }
    }

    /// Checks that all accepted connections had a handshake, or none if TLS is not expected.
    fn judge_tls(&mut self, passed: ProxyCounts) {
        let Some((handshakes, connections)) = passed.handshakes.zip(passed.connections) else {
            return;
        };
        let text = format!("{handshakes} TLS handshakes for {connections} connections");
        let tls = self.expected.tls;
        let fits = if tls.is_some() { handshakes == connections } else { handshakes == 0 };
        if fits { &mut self.seen } else { &mut self.wrong }.push(text);
        let of = |n: Option<u64>| n.filter(|n| *n > 0);
        if tls.is_some_and(|tls| tls.is_mutual)
            && let Some(n) = of(passed.without_certificate)
        {
            self.wrong.push(format!("{n} connections without a client's certificate"));
        }
        if let Some(n) = of(passed.resumed) {
            let text = format!("{n} of these took up an earlier session");
            let fits = tls.is_some_and(|tls| tls.resumes);
            if fits { &mut self.seen } else { &mut self.wrong }.push(text);
        }
    }

    /// Checks that the server saw only its own sidecar, at 127.0.0.6 or at the address they share.
    fn judge_peers(&mut self, peers: &BTreeMap<IpAddr, u64>, own: IpAddr) {
        match peers.keys().find(|ip| **ip != SIDECAR && **ip != own) {
            Some(other) => self.wrong.push(format!("the server was asked by {other}")),
            None => {
                let from = peers.keys().next();
                let text = from.map(|from| format!("the server was asked by its sidecar ({from})"));
                self.seen.extend(text);
            }
        }
    }
}

impl ProxyCounts {
    /// Returns the increase since `before`, without tare's `own` queries.
    fn since(self, before: Self, own: u64) -> Self {
        let added = |now: Option<u64>, then: Option<u64>, own: u64| {
            now.zip(then).map(|(now, then)| now.saturating_sub(then + own))
        };
        Self {
            requests: added(self.requests, before.requests, own),
            connections: added(self.connections, before.connections, own),
            handshakes: added(self.handshakes, before.handshakes, 0),
            resumed: added(self.resumed, before.resumed, 0),
            without_certificate: added(self.without_certificate, before.without_certificate, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use tare_model::layers::{KeyKind, TlsVersion};

    use super::*;

    fn proof(tls: Option<TlsTerms>) -> HopsProof {
        let layer = "sidecar envoy".into();
        let expected = Expected { layer, is_http: true, tls };
        HopsProof { expected, processes: Vec::new(), wrong: Vec::new(), seen: Vec::new() }
    }

    const MTLS: Option<TlsTerms> = Some(TlsTerms {
        key: KeyKind::Rsa2048,
        is_mutual: true,
        min: TlsVersion::V1_2,
        max: TlsVersion::V1_3,
        resumes: false,
    });
    const PLAIN: Option<TlsTerms> = None;

    /// Never read: these tests supply the counts themselves.
    #[derive(Debug)]
    struct Silent;

    impl Counting for Silent {
        fn passed(&self) -> Option<ProxyCounts> {
            None
        }
    }

    fn process() -> Process {
        let namespace = Namespace { name: "tare-x".into(), address: "10.213.0.2".parse().unwrap() };
        let own = namespace.address;
        let counting = Box::new(Silent);
        let before = counts(100, 10, 10, 5);
        let stand = HopPosition::BesideServer;
        Process { stand, own, counting, namespace: Some(namespace), before }
    }

    fn counts(requests: u64, connections: u64, handshakes: u64, redirected: u64) -> Counts {
        let passed = ProxyCounts {
            requests: Some(requests),
            connections: Some(connections),
            handshakes: Some(handshakes),
            resumed: Some(0),
            without_certificate: Some(0),
        };
        Counts { passed: Some(passed), redirected: Some(redirected) }
    }

    fn wrong(tls: Option<TlsTerms>, after: Counts) -> Vec<String> {
        let mut proof = proof(tls);
        proof.judge(&process(), after, Sent { requests: 50, unsure: 0 });
        proof.wrong
    }

    #[test]
    fn what_passed_must_be_what_was_sent_and_came_by_the_rules() {
        assert!(wrong(MTLS, counts(150, 14, 14, 9)).is_empty());
        assert!(wrong(PLAIN, counts(150, 14, 10, 9)).is_empty());
        assert_eq!(
            wrong(MTLS, counts(149, 14, 14, 9)),
            ["of 50 requests 49 passed through the server's"]
        );
        assert_eq!(
            wrong(MTLS, counts(150, 14, 14, 5)),
            ["no connection was redirected to the server's"]
        );
        // No rule counts connections that existed already; they were redirected earlier.
        assert!(wrong(MTLS, counts(150, 10, 10, 5)).is_empty());
        let silent = Counts { passed: None, redirected: Some(9) };
        assert_eq!(wrong(MTLS, silent), ["the statistics of the server's do not answer"]);
    }

    #[test]
    fn handshakes_are_as_many_as_connections_or_none() {
        assert_eq!(wrong(MTLS, counts(150, 14, 10, 9)), ["0 TLS handshakes for 4 connections"]);
        assert_eq!(wrong(PLAIN, counts(150, 14, 11, 9)), ["1 TLS handshakes for 4 connections"]);
        let mut unknown = counts(150, 14, 14, 9);
        unknown.passed.as_mut().unwrap().without_certificate = Some(2);
        assert_eq!(wrong(MTLS, unknown), ["2 connections without a client's certificate"]);
        let mut resumed = counts(150, 14, 14, 9);
        resumed.passed.as_mut().unwrap().resumed = Some(3);
        assert_eq!(wrong(MTLS, resumed), ["3 of these took up an earlier session"]);
    }

    #[test]
    fn a_server_is_asked_by_its_sidecar_alone() {
        let of = |peers: &[&str]| {
            let mut proof = proof(PLAIN);
            let peers = peers.iter().map(|ip| (ip.parse().unwrap(), 1)).collect();
            proof.judge_peers(&peers, "10.213.0.2".parse().unwrap());
            proof.wrong
        };
        assert!(of(&["127.0.0.6"]).is_empty() && of(&["10.213.0.2"]).is_empty());
        assert!(of(&[]).is_empty());
        assert_eq!(of(&["127.0.0.6", "10.213.0.3"]), ["the server was asked by 10.213.0.3"]);
    }
}
