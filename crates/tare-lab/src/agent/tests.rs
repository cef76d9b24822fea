use std::sync::mpsc::channel;

use super::*;
use crate::executor::requests::Lines;
use crate::halt::HaltReason;

/// Starts an agent that greets as ours do, and then runs this script.
fn agent(script: &str, halt: &Halt) -> (Result<Agent, Failure>, Receiver<Event>) {
    let hello = format!(r#"{{"tare":{PROTOCOL},"hello":{{"version":"{VERSION}"}}}}"#);
    place(&format!("echo '{hello}'; {script}"), halt)
}

/// Starts a place with this script as its command.
fn place(script: &str, halt: &Halt) -> (Result<Agent, Failure>, Receiver<Event>) {
    let argv: Vec<String> = ["sh", "-c", script].map(str::to_owned).to_vec();
    let (events, heard) = channel();
    let start = Start {
        who: "strange",
        argv: &argv,
        env: &[],
        cpus: &[],
        journal: None,
        entrances: &[],
        events: &events,
        talks: true,
    };
    (Agent::start(&start, DurationNs::from_secs(10), halt), heard)
}

/// Sends any request; the script determines the answer.
fn ask(agent: &Agent) -> Result<Option<u64>, Failure> {
    agent.ask(Lines { path: "/".into() }, TIMEOUT)
}

/// Returns an agent's line that contains `what`.
fn said(what: &str) -> String {
    format!(r#"{{"tare":{PROTOCOL},{what}}}"#)
}

#[test]
fn answers_of_another_protocol_than_its_greeting_are_not_taken() {
    let other = PROTOCOL + 1;
    for what in [
        r#""done":{"id":1,"value":7}"#,
        r#""failed":{"id":1,"failed":{"fault":"target","text":"no"}}"#,
    ] {
        let script = format!(r#"read -r line; echo '{{"tare":{other},{what}}}'; cat"#);
        let (agent, _heard) = agent(&script, &Halt::default());
        let agent = agent.unwrap();
        let error = ask(&agent).unwrap_err().to_string();
        let told = format!("its agent greeted in protocol {PROTOCOL} and now speaks {other}");
        assert!(error.contains(&told), "{error}");
        assert!(agent.loss_within(DurationNs::ZERO).is_some(), "it is asked nothing more");
    }
}

#[test]
fn events_without_end_are_not_kept() {
    let event = said(r#""event":{"unix_ms":1,"who":"x","text":"\u001b[31m"}"#);
    let answer = said(r#""done":{"id":1,"value":7}"#);
    let script = format!(
        "yes '{event}' | head -n 100000; read -r line; echo '{answer}'; yes '{event}' | head -n 9999"
    );
    let (agent, heard) = agent(&script, &Halt::default());
    let agent = agent.unwrap();
    assert_eq!(ask(&agent), Ok(Some(7)));
    agent.end();
    let heard: Vec<Event> = heard.try_iter().collect();
    assert_eq!(heard.len() as u64, EVENTS_A_LAUNCH);
    assert_eq!(heard[0].text, "\\u{1b}[31m");
    assert_eq!(heard[0].who, "strange");
    assert_eq!(heard.last().unwrap().text, "(further events of this launch are not kept)");
}

#[test]
fn answers_that_nobody_asked_for_do_not_hide_the_time_limit_nor_a_stop() {
    let stray = said(r#""done":{"id":99,"value":[]}"#);
    let halt = Halt::default();
    let (strange, _heard) = agent(&format!("yes '{stray}'"), &halt);
    let error = ask(&strange.unwrap()).unwrap_err().to_string();
    assert!(error.contains("the place is gone"), "{error}");
    // A slow but endless series of answers to other requests.
    let (strange, _heard) = agent(&format!("while sleep 0.01; do echo '{stray}'; done"), &halt);
    let asked = strange.unwrap();
    let error = asked.ask(Lines { path: "/".into() }, DurationNs::from_ms(200)).unwrap_err();
    assert!(error.to_string().contains("did not answer within 200ms"), "{error}");
}

#[test]
fn its_errors_cannot_write_to_the_terminal() {
    let failed =
        said(r#""failed":{"id":1,"failed":{"fault":"gate","text":"\u001b]0;x\u0007\nno"}}"#);
    let (agent, _heard) =
        agent(&format!("read -r line; printf '%s\\n' '{failed}'; cat"), &Halt::default());
    let error = ask(&agent.unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "\\u{1b}]0;x\\u{7}\n    no");
    assert_eq!(error.fault, Fault::Environment, "an agent concludes nothing");
}

#[test]
fn only_an_agent_that_greeted_ends_the_run_by_its_end() {
    // A place that did not start may be tried in another way.
    let halt = Halt::default();
    assert!(place("echo no agent", &halt).0.is_err());
    assert_eq!(halt.reason(), None);
    // An agent that tare ends does not stop the run; one that ends by itself does.
    let (ended, _heard) = agent("cat >/dev/null", &halt);
    ended.unwrap().end();
    assert_eq!(halt.reason(), None);
    let (_gone, _heard) = agent("exit 3", &halt);
    while halt.reason().is_none() {
        std::thread::yield_now();
    }
    assert_eq!(halt.reason(), Some(HaltReason::ServerEnded));
}

#[test]
fn an_answer_without_end_is_not_taken_in() {
    let begin = said(r#""done":{"id":1,"value":["#);
    let begin = begin.trim_end_matches('}');
    let script = format!("read -r line; printf '{begin}'; yes 0, | tr -d '\\n'");
    let (agent, _heard) = agent(&script, &Halt::default());
    let asked = agent.unwrap();
    let error = ask(&asked).unwrap_err().to_string();
    assert!(error.contains("its agent sent a line of more than 16 MiB"), "{error}");
}
