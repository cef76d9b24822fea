//! Lines of the protocol between tare and its agents, read by both sides: whatever comes, there is
//! an answer, and what is understood reads the same once it is written again.

use tare_lab::agent::protocol::{FromAgent, Message, ToAgent};
use tare_load::measured::Measured;

pub fn check(line: &[u8]) {
    if let Ok(message) = ToAgent::parse(line) {
        let again = serde_json::to_vec(&message).expect("what was read can be written");
        let parsed = ToAgent::parse(&again).expect("what was written can be read");
        assert_eq!(serde_json::to_vec(&parsed).expect("as before"), again);
    }
    if let Ok(FromAgent { message: Message::Done { value, .. }, .. }) = serde_json::from_slice(line)
        && let Ok(measured) = serde_json::from_value::<Measured>(value)
    {
        // Counters from outside may be anything; arithmetic on them must hold.
        let _ = measured.rate_and_mean();
        let again = serde_json::to_vec(&measured).expect("what was read can be written");
        assert!(serde_json::from_slice(&again).is_ok_and(|again: Measured| again == measured));
    }
}
