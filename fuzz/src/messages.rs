//! Lines of the protocol between tare and its agents, read by both sides: whatever comes, there is
//! an answer, and what is understood reads the same once it is written again.

use tare_lab::agent::protocol::{FromAgent, Message, Request, ToAgent};
use tare_load::measured::MeasuredMessage;

pub fn check(line: &[u8]) {
    if let Ok(message) = ToAgent::parse(line) {
        let again = serde_json::to_vec(&message).expect("what was read can be written");
        assert_eq!(ToAgent::parse(&again).as_ref(), Ok(&message));
        if let Request::Probe { order } = message.request
            && order.tls.is_none()
            && order.request.len() < 1000
        {
            let _ = order.plan();
        }
    }
    if let Ok(FromAgent { message: Message::Done { value, .. }, .. }) = serde_json::from_slice(line)
        && let Ok(message) = serde_json::from_value::<MeasuredMessage>(value)
        && let Some(measured) = message.measured()
    {
        // Counters from outside may be anything; arithmetic on them must hold.
        let _ = measured.rate_and_mean();
        assert!(measured.message().measured().is_some_and(|again| again == measured));
    }
}
