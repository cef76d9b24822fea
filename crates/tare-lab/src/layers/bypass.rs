//! Bypasses TCP with BPF, for the connections of one variant's processes.

use std::sync::Arc;

use tare_bypass::{Bypass, Counts};
use tare_model::layers::{BypassSpec, LayerFacts};
use tare_model::samples::{Proof, Sent};

use super::{HopPosition, LayerKind, LayerProof, ProofContext};
use crate::lab::server::Server;
use crate::launch::Launched;
use crate::launch::hop::Hop;
use crate::places::need_root;
use tare_model::Failure;

impl LayerKind for BypassSpec {
    fn describe(&self) -> Result<String, Failure> {
        Ok("BPF programs (sockops, sk_msg) on a control group of its own processes".into())
    }

    fn check_machine(&self) -> Result<(), Failure> {
        if !tare_bypass::is_built_in() {
            let text = "bypass: this tare was built without clang, which compiles it";
            return Err(Failure::environment(text));
        }
        need_root("a bypass by BPF")
    }

    fn bypasses(&self) -> bool {
        true
    }

    fn begin_proof(
        &self,
        launched: &Launched,
        _: &[&Hop],
        _: &mut ProofContext<'_>,
    ) -> Result<Option<Box<dyn LayerProof>>, Failure> {
        let Some(bypass) = launched.bypass.clone() else {
            return Err(Failure::environment("the bypass is not attached"));
        };
        let before = bypass.counts();
        let sidecars = launched.all_hops().filter(|hop| hop.stand != HopPosition::Between).count();
        Ok(Some(Box::new(BypassProof { name: self.name(), bypass, before, sidecars })))
    }
}

#[derive(Debug)]
struct BypassProof {
    name: String,
    bypass: Arc<Bypass>,
    before: Option<Counts>,
    /// Number of sidecars; each has one local connection per client connection.
    sidecars: usize,
}

impl LayerProof for BypassProof {
    fn end(self: Box<Self>, _: &Server, sent: Sent) -> Proof {
        let counts = self.before.zip(self.bypass.counts());
        let counts = counts.map(|(before, now)| now.since(before));
        judge(self.name, counts, self.sidecars as u64, sent)
    }
}

/// Share of messages that may be in flight when counting begins or ends.
const STRAY_SHARE: f64 = 0.02;
/// Limit of messages that bypass TCP without sidecars: tare's queries of the server's counts.
const ASKED_MAX: u64 = 50;

/// Expects at least one message per request and per reply on every local connection.
fn judge(layer: String, counts: Option<Counts>, sidecars: u64, sent: Sent) -> Proof {
    let Some(counts) = counts else {
        return Proof { layer, held: false, text: "its counters cannot be read".into() };
    };
    let expected = 2 * sidecars * sent.requests;
    let held = match sidecars {
        0 => counts.redirected < ASKED_MAX && counts.passed > 0,
        _ => counts.redirected as f64 >= expected as f64 * (1.0 - STRAY_SHARE),
    };
    let a_request = counts.redirected as f64 / sent.requests.max(1) as f64;
    let Counts { paired, redirected, passed, refused } = counts;
    let mut text = format!(
        "{redirected} messages went past TCP, {a_request:.2} a request, {passed} through it, \
         {refused} found the other end gone; {paired} connections were paired"
    );
    if !held {
        let wanted = 2 * sidecars;
        text = match sidecars {
            0 => format!("it was to find nothing to do; {text}"),
            _ => format!("{wanted} or more a request were to go past TCP; {text}"),
        };
    }
    Proof { layer, held, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_messages_go_past_tcp_as_there_are_local_connections() {
        let of = |redirected: u64, passed: u64, sidecars: u64| {
            let counts = Counts { paired: 16, redirected, passed, refused: 0 };
            judge("bypass".into(), Some(counts), sidecars, Sent { requests: 100, unsure: 0 })
        };
        assert!(of(400, 200, 2).held && of(200, 200, 1).held && of(1000, 0, 2).held);
        let unpaired = of(0, 600, 2);
        assert!(!unpaired.held && unpaired.text.starts_with("4 or more a request"));
        assert!(!of(200, 400, 2).held, "one side is paired, the other is not");
        assert!(of(0, 200, 0).held && !of(100, 200, 0).held && !of(0, 0, 0).held);
        assert!(!judge("bypass".into(), None, 2, Sent { requests: 100, unsure: 0 }).held);
    }
}
