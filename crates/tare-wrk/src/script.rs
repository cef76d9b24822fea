//! A wrk script: one Lua state for the program, one for each worker, and their hooks.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use mlua::{AnyUserData, Function, Lua, Table, Value};
use tare_io::DurationNs;
use tare_io::files::read_input;
use tare_load::Tally;
use tare_load::protocol::capture::{Budget, Capture, Wanted};
use tare_load::protocol::reply::Reply;
use tare_load::request::Requests;
use tare_load::source::{NextRequest, Source};

use crate::format::{socket_errors, status_errors};
use crate::objects::{Address, StatisticObject, Thread, connect, lookup};
use crate::statistics::Statistic;

/// Command-line options that scripts can see.
#[derive(Clone, Debug)]
pub struct ScriptOptions {
    pub path: Option<PathBuf>,
    pub scheme: &'static str,
    pub host: String,
    /// Port in the URL, if it is written there.
    pub port: Option<u16>,
    pub target: String,
    pub headers: Vec<(String, String)>,
    /// The URL, then the arguments after `--`.
    pub args: Vec<String>,
    /// The only entry of `wrk.addrs`: the address of the host that answers.
    pub address: Option<SocketAddr>,
    /// Most bytes of reply bodies kept for `response` at a time, over all connections.
    pub max_body_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error("cannot read the script {path}: {source}")]
    Unreadable { path: String, source: std::io::Error },
    #[error("script: {0}")]
    Lua(String),
    #[error("script: request() does not give a whole HTTP request: {0}")]
    Request(String),
}

impl From<mlua::Error> for ScriptError {
    fn from(error: mlua::Error) -> Self {
        // The first line has the error and its place; the rest is our own call stack.
        let text = error.to_string();
        Self::Lua(text.lines().next().unwrap_or_default().to_owned())
    }
}

/// A script with its threads set up.
pub struct Script {
    main: Lua,
    threads: Vec<Thread>,
    /// Requests that one call of `request()` makes.
    pipelined: u32,
    /// Memory for reply bodies that hooks read, over all connections.
    bodies: Arc<Budget>,
    errors: Arc<Mutex<Option<String>>>,
}

impl Script {
    /// Loads the script for the program and every worker, and runs `setup` and `init`.
    pub fn load(options: &ScriptOptions, threads: u32) -> Result<Self, ScriptError> {
        let text = options.path.as_deref().map(read_script).transpose()?;
        let main = state(options, text.as_deref())?;
        let threads = (0..threads)
            .map(|_| -> Result<Thread, ScriptError> {
                let lua = state(options, text.as_deref())?;
                let address = Arc::new(Mutex::new(options.address));
                Ok(Thread { lua, address, stop: Arc::new(AtomicBool::new(false)) })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let setup: Function = wrk(&main)?.get("setup")?;
        for thread in &threads {
            wrk(&thread.lua)?.set("thread", thread.clone())?;
            setup.call::<()>(thread.clone())?;
        }
        for thread in &threads {
            let args = thread.lua.create_table()?;
            for (at, arg) in options.args.iter().enumerate() {
                args.set(at, arg.as_str())?;
            }
            wrk(&thread.lua)?.get::<Function>("init")?.call::<()>(args)?;
        }
        let bodies = Budget::new(options.max_body_bytes);
        let mut script = Self { main, threads, pipelined: 1, bodies, errors: Arc::default() };
        // `request` is called once, as in wrk, to learn how many replies to expect per call.
        let first = request_function(&script.threads[0].lua)?.call::<mlua::String>(())?;
        script.pipelined = requests_in(&first.as_bytes()).map_err(ScriptError::Request)?;
        Ok(script)
    }

    /// Returns the address that each worker connects to.
    pub fn addresses(&self) -> Vec<Option<SocketAddr>> {
        let address = |thread: &Thread| *thread.address.lock().unwrap_or_else(|e| e.into_inner());
        self.threads.iter().map(address).collect()
    }

    pub fn is_pipelined(&self) -> bool {
        self.pipelined > 1
    }

    /// Returns each thread's fixed requests; empty for a thread with its own `request`.
    pub fn requests(&self) -> Result<Requests, ScriptError> {
        let each = self.threads.iter().map(|thread| {
            if thread.lua.globals().get::<Option<Function>>("request")?.is_some() {
                return Ok(Vec::new());
            }
            let request: Function = wrk(&thread.lua)?.get("request")?;
            Ok(request.call::<mlua::String>(())?.as_bytes().to_vec())
        });
        let each = each.collect::<mlua::Result<_>>()?;
        Ok(Requests::Written { each, requests: self.pipelined })
    }

    /// Returns the source of one worker's requests.
    pub fn source(&self, worker: u32) -> Box<dyn Source> {
        let at = worker as usize % self.threads.len();
        let thread = &self.threads[at];
        let globals = thread.lua.globals();
        let hook = |name: &str| globals.get::<Option<Function>>(name).ok().flatten();
        Box::new(ScriptSource {
            request: hook("request"),
            fixed: at as u32,
            response: hook("response"),
            delay: hook("delay"),
            pipelined: self.pipelined,
            thread: thread.clone(),
            bodies: self.bodies.clone(),
            errors: self.errors.clone(),
        })
    }

    /// Returns the first error that a hook raised during the run.
    pub fn error(&self) -> Option<String> {
        self.errors.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Calls the script's `done`, if it has one.
    pub fn done(
        &self,
        total: &Tally,
        latency: Statistic,
        requests: Statistic,
        wrk2: bool,
    ) -> Result<(), ScriptError> {
        let Some(done) = self.main.globals().get::<Option<Function>>("done")? else {
            return Ok(());
        };
        let summary = self.main.create_table()?;
        summary.set("duration", total.elapsed().as_ns() / 1000)?;
        summary.set("requests", total.counts.completed)?;
        summary.set("bytes", total.counts.received_bytes)?;
        let errors = self.main.create_table()?;
        let socket = socket_errors(total);
        errors.set("connect", socket.connect)?;
        errors.set("read", socket.read)?;
        errors.set("write", socket.write)?;
        errors.set("timeout", socket.timeout)?;
        errors.set("status", status_errors(total))?;
        summary.set("errors", errors)?;
        let latency = StatisticObject { statistic: latency, wrk2 };
        let requests = StatisticObject { statistic: requests, wrk2 };
        Ok(done.call::<()>((summary, latency, requests))?)
    }
}

fn wrk(lua: &Lua) -> mlua::Result<Table> {
    lua.globals().get("wrk")
}

/// Returns the script's own `request`, or the fixed one.
fn request_function(lua: &Lua) -> mlua::Result<Function> {
    match lua.globals().get::<Option<Function>>("request")? {
        Some(request) => Ok(request),
        None => wrk(lua)?.get("request"),
    }
}

fn state(options: &ScriptOptions, script: Option<&[u8]>) -> Result<Lua, ScriptError> {
    let lua = Lua::new();
    lua.load(include_str!("wrk.lua")).set_name("=wrk.lua").exec()?;
    let wrk = wrk(&lua)?;
    wrk.set("scheme", options.scheme)?;
    wrk.set("host", options.host.as_str())?;
    wrk.set("port", options.port.map(|port| port.to_string()))?;
    wrk.set("path", options.target.as_str())?;
    let headers: Table = wrk.get("headers")?;
    for (name, value) in &options.headers {
        headers.set(name.as_str(), value.as_str())?;
    }
    wrk.set("addrs", options.address.map(|address| vec![Address(address)]).unwrap_or_default())?;
    let look =
        lua.create_function(|_, (host, service): (String, Value)| Ok(lookup(&host, &service)))?;
    wrk.set("lookup", look)?;
    let try_connect =
        lua.create_function(|_, address: AnyUserData| Ok(connect(&*address.borrow::<Address>()?)))?;
    wrk.set("connect", try_connect)?;
    let time_us =
        lua.create_function(|_, ()| Ok(tare_io::time::monotonic_now().as_ns() as f64 / 1e3))?;
    wrk.set("time_us", time_us)?;
    if let (Some(path), Some(text)) = (&options.path, script) {
        lua.load(text).set_name(format!("@{}", shown(path))).exec()?;
    }
    Ok(lua)
}

const SCRIPT_MAX_BYTES: u64 = 16 << 20;

/// Reads the script once for all threads: a pipe cannot be read twice.
fn read_script(path: &Path) -> Result<Vec<u8>, ScriptError> {
    read_input(path, SCRIPT_MAX_BYTES)
        .map_err(|source| ScriptError::Unreadable { path: shown(path), source })
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Counts the requests in `bytes`, which must all be whole.
fn requests_in(bytes: &[u8]) -> Result<u32, String> {
    let mut rest = bytes;
    let mut requests = 0;
    while !rest.is_empty() {
        let mut headers = [httparse::EMPTY_HEADER; 128];
        let mut request = httparse::Request::new(&mut headers);
        let used = match request.parse(rest).map_err(|error| error.to_string())? {
            httparse::Status::Complete(used) => used,
            httparse::Status::Partial => return Err("the head has no end".into()),
        };
        let mut body = 0;
        for header in request.headers.iter() {
            if header.name.eq_ignore_ascii_case("content-length") {
                let text = String::from_utf8_lossy(header.value);
                body = text.trim().parse().map_err(|_| format!("content-length '{text}'"))?;
            }
        }
        let after: &[u8] = &rest[used..];
        rest = after.get(body..).ok_or("the body is shorter than its content-length")?;
        requests += 1;
    }
    if requests == 0 { Err("it is empty".into()) } else { Ok(requests) }
}

const LARGE_BODY_BYTES: usize = 1 << 20;

struct ScriptSource {
    request: Option<Function>,
    /// Index into [`Script::requests`], used if the script has no `request`.
    fixed: u32,
    response: Option<Function>,
    delay: Option<Function>,
    pipelined: u32,
    thread: Thread,
    bodies: Arc<Budget>,
    errors: Arc<Mutex<Option<String>>>,
}

impl ScriptSource {
    /// Keeps the first error of a hook for the end, and stops this worker.
    fn fail(&self, error: mlua::Error) {
        let mut first = self.errors.lock().unwrap_or_else(|e| e.into_inner());
        first.get_or_insert(ScriptError::from(error).to_string());
        self.thread.stop.store(true, Ordering::Relaxed);
    }

    fn call_response(
        &self,
        response: &Function,
        reply: &Reply,
        capture: &Capture,
    ) -> mlua::Result<()> {
        let lua = &self.thread.lua;
        let headers = lua.create_table()?;
        for (name, value) in capture.headers() {
            headers.set(lua.create_string(name)?, lua.create_string(value)?)?;
        }
        response.call::<()>((reply.status, headers, lua.create_string(capture.body())?))?;
        if capture.body().len() >= LARGE_BODY_BYTES {
            // Collect now: the incremental collector would let large bodies pile up.
            lua.gc_collect()?;
        }
        Ok(())
    }
}

impl Source for ScriptSource {
    fn next(&mut self, scratch: &mut Vec<u8>) -> NextRequest {
        let Some(request) = &self.request else { return NextRequest::Listed(self.fixed) };
        match request.call::<mlua::String>(()) {
            Ok(bytes) => scratch.extend_from_slice(&bytes.as_bytes()),
            Err(error) => {
                self.fail(error);
                // Something must be sent; the worker stops before the next request.
                scratch.extend_from_slice(b"GET / HTTP/1.1\r\nHost: script-failed\r\n\r\n");
            }
        }
        let to_head = scratch.starts_with(b"HEAD ");
        NextRequest::Written { requests: self.pipelined, to_head }
    }

    fn wanted(&self) -> Wanted {
        match self.response {
            Some(_) => Wanted::Bodies(self.bodies.clone()),
            None => Wanted::Nothing,
        }
    }

    fn on_reply(&mut self, reply: &Reply, capture: &Capture) {
        if let Some(response) = &self.response
            && let Err(error) = self.call_response(response, reply, capture)
        {
            self.fail(error);
        }
    }

    fn wants_stop(&self) -> bool {
        self.thread.stop.load(Ordering::Relaxed)
    }

    fn rest(&mut self) -> DurationNs {
        let Some(delay) = &self.delay else { return DurationNs::ZERO };
        match delay.call::<f64>(()) {
            Ok(ms) => DurationNs::from_secs_f64(ms / 1000.0),
            Err(error) => {
                self.fail(error);
                DurationNs::ZERO
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipelined_requests_are_counted() {
        let get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        let post = "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(requests_in(get.as_bytes()), Ok(1));
        assert_eq!(requests_in(format!("{get}{post}{get}").as_bytes()), Ok(3));
        assert_eq!(requests_in(b""), Err("it is empty".into()));
        assert_eq!(requests_in(b"GET / HTTP/1.1\r\n"), Err("the head has no end".into()));
        let cut = "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc";
        assert_eq!(
            requests_in(cut.as_bytes()),
            Err("the body is shorter than its content-length".into())
        );
    }
}
