//! Load on an endpoint of `tare net`: the words of a [`LoadSpec`] that are not about HTTP.

use tare_io::{DurationNs, Endpoint, SocketOptions};
use tare_load::net::{NetTest, Protocol};
use tare_load::{EngineConfig, Lifetime, LoadPlan, PlannedSource};

use super::spec::LoadSpec;
use crate::failure::Failure;

/// A datagram that has not come back by then is lost, where the user says nothing else.
const LOST_AFTER: DurationNs = DurationNs::from_secs(1);

impl LoadSpec {
    pub fn message_bytes(&self) -> u32 {
        self.message_bytes.unwrap_or(1)
    }

    pub fn reply_bytes(&self) -> u32 {
        self.reply_bytes.unwrap_or(self.message_bytes())
    }

    pub fn protocol(&self) -> Protocol {
        match (self.test, self.call) {
            (Some(test), _) => test.protocol(self.message_bytes(), self.reply_bytes()),
            (None, Some(call)) => Protocol::Calls { call },
            (None, None) => Protocol::Http,
        }
    }

    pub fn sockets(&self) -> SocketOptions {
        let own = self.test.is_none_or(NetTest::nodelay);
        SocketOptions { nodelay: self.nodelay.unwrap_or(own), buffer_bytes: self.socket_buffer }
    }

    /// What does not go together.
    pub fn check_test(&self) -> Result<(), Failure> {
        let usage = |text: String| Err(Failure::Usage(text));
        let of_tests = [
            ("message_bytes", self.message_bytes.is_some()),
            ("reply_bytes", self.reply_bytes.is_some()),
            ("nodelay", self.nodelay.is_some()),
            ("socket_buffer", self.socket_buffer.is_some()),
        ];
        let Some(test) = self.test else {
            return match of_tests.iter().find(|(_, given)| *given) {
                Some((key, _)) => usage(format!("{key} goes with a test of the network")),
                None => Ok(()),
            };
        };
        let (name, most) = (test.name(), test.message_bytes_max());
        for bytes in [self.message_bytes(), self.reply_bytes()] {
            if !(1..=most).contains(&bytes) {
                return usage(format!(
                    "{name}: messages of {bytes} bytes: 1 to {most} are allowed"
                ));
            }
        }
        if self.reply_bytes.is_some_and(|reply| reply != self.message_bytes()) {
            if test.is_udp() {
                return usage(format!(
                    "{name}: datagrams come back as they are: leave out the reply"
                ));
            }
            if test.is_stream() {
                return usage(format!("{name}: a stream has no replies: leave out their size"));
            }
        }
        if test == NetTest::TcpStreamReverse && self.rate.is_some() {
            return usage(format!("{name}: the endpoint sends as fast as it can: leave out rate"));
        }
        if self.call.is_some() {
            return usage(format!("{name} and a call: choose one"));
        }
        if self.new_connections {
            return usage(format!("{name}: for new connections there is tcp_crr"));
        }
        Ok(())
    }

    /// The plan of load on an endpoint; over UDP it has the same port.
    pub fn endpoint_plan(&self, endpoint: Endpoint, seed: u64) -> Result<LoadPlan, Failure> {
        let is_udp = self.test.is_some_and(NetTest::is_udp);
        let endpoint = match endpoint {
            Endpoint::Tcp(address) if is_udp => Endpoint::Udp(address),
            endpoint => endpoint,
        };
        let mut plan = self.plan_of(endpoint, PlannedSource::Messages, seed)?;
        let engine = &mut plan.engine;
        engine.protocol = self.protocol();
        engine.sockets = self.sockets();
        if self.test == Some(NetTest::TcpCrr) {
            engine.lifetime = Lifetime::PerRequest;
        }
        if is_udp {
            let own = self.timeout != LoadSpec::default().timeout;
            let limit = if own { self.timeout } else { LOST_AFTER };
            engine.timeout = self.lost_after.unwrap_or(limit);
        }
        if matches!(engine.protocol, Protocol::Calls { .. }) {
            *engine = EngineConfig { connections: 1, max_connections: 1, ..engine.clone() };
        }
        Ok(plan)
    }
}
