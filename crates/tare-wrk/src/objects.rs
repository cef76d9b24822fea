//! Objects that scripts use: addresses, threads, statistics.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mlua::{
    AnyUserData, FromLua, Lua, MetaMethod, UserData, UserDataFields, UserDataMethods, Value,
};

use crate::statistics::Statistic;

/// `wrk.lookup`'s result: prints as `127.0.0.1:80`.
#[derive(Clone, Copy, Debug)]
pub struct Address(pub SocketAddr);

impl UserData for Address {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_meta_method(MetaMethod::ToString, |_, this, ()| Ok(this.0.to_string()));
    }
}

/// Long enough for a server on this machine or near it; wrk itself has no timeout here.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

pub fn lookup(host: &str, service: &Value) -> Vec<Address> {
    let port = match service {
        Value::Integer(port) => u16::try_from(*port).ok(),
        Value::Number(port) => Some(*port as u16),
        Value::String(name) => name.to_str().ok().and_then(|name| match &*name {
            "http" => Some(80),
            "https" => Some(443),
            port => port.parse().ok(),
        }),
        _ => None,
    };
    let found = port.and_then(|port| (host, port).to_socket_addrs().ok());
    found.map(|found| found.map(Address).collect()).unwrap_or_default()
}

pub fn connect(address: &Address) -> bool {
    TcpStream::connect_timeout(&address.0, CONNECT_TIMEOUT).is_ok()
}

/// A worker, as scripts see it. It has its own Lua state; values are copied in and out.
#[derive(Clone)]
pub struct Thread {
    pub lua: Lua,
    pub address: Arc<Mutex<Option<SocketAddr>>>,
    pub stop: Arc<AtomicBool>,
}

impl UserData for Thread {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        fields.add_field_method_get("addr", |lua, this| {
            match *this.address.lock().unwrap_or_else(|e| e.into_inner()) {
                Some(address) => Ok(Value::UserData(lua.create_userdata(Address(address))?)),
                None => Ok(Value::Nil),
            }
        });
        fields.add_field_method_set("addr", |_, this, address: AnyUserData| {
            let address = address.borrow::<Address>()?.0;
            *this.address.lock().unwrap_or_else(|e| e.into_inner()) = Some(address);
            Ok(())
        });
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("get", |lua, this, name: String| {
            copy(&this.lua.globals().get(name)?, lua, 0)
        });
        methods.add_method("set", |_, this, (name, value): (String, Value)| {
            this.lua.globals().set(name, copy(&value, &this.lua, 0)?)
        });
        methods.add_method("stop", |_, this, ()| {
            this.stop.store(true, Ordering::Relaxed);
            Ok(())
        });
    }
}

/// Nested tables are copied to this depth; deeper ones, and so cycles, are an error.
const COPY_DEPTH: u32 = 32;

/// Copies a value into another state, as wrk does: nil, booleans, numbers, strings and tables.
fn copy(value: &Value, into: &Lua, depth: u32) -> mlua::Result<Value> {
    Ok(match value {
        Value::Nil => Value::Nil,
        Value::Boolean(value) => Value::Boolean(*value),
        Value::Integer(value) => Value::Integer(*value),
        Value::Number(value) => Value::Number(*value),
        Value::String(value) => Value::String(into.create_string(value.as_bytes())?),
        Value::Table(table) if depth < COPY_DEPTH => {
            let copied = into.create_table()?;
            for pair in table.pairs::<Value, Value>() {
                let (key, value) = pair?;
                copied.set(copy(&key, into, depth + 1)?, copy(&value, into, depth + 1)?)?;
            }
            Value::Table(copied)
        }
        other => {
            let kind = other.type_name();
            return Err(mlua::Error::runtime(format!("cannot transfer '{kind}' to thread")));
        }
    })
}

/// The `latency` and `requests` arguments of `done`.
pub struct StatisticObject {
    pub statistic: Statistic,
    /// Whether indices are ranks among all values, as in wrk2; in wrk, among distinct values.
    pub wrk2: bool,
}

impl StatisticObject {
    fn entry(&self, at: usize) -> Option<(f64, u64)> {
        if !self.wrk2 {
            return self.statistic.entry(at);
        }
        let percent = at as f64 / self.statistic.count().max(1) as f64 * 100.0;
        (at >= 1 && at as u64 <= self.statistic.count())
            .then(|| (self.statistic.percentile(percent), 1))
    }
}

impl UserData for StatisticObject {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        fields.add_field_method_get("min", |_, this| Ok(this.statistic.min));
        fields.add_field_method_get("max", |_, this| Ok(this.statistic.max));
        fields.add_field_method_get("mean", |_, this| Ok(this.statistic.mean));
        fields.add_field_method_get("stdev", |_, this| Ok(this.statistic.stdev));
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("percentile", |_, this, percent: f64| {
            Ok(this.statistic.percentile(percent))
        });
        methods.add_meta_method(MetaMethod::Len, |_, this, ()| {
            Ok(if this.wrk2 { this.statistic.count() as usize } else { this.statistic.distinct() })
        });
        methods.add_meta_method(MetaMethod::Call, |_, this, at: usize| {
            Ok(match this.entry(at) {
                Some((value, n)) => (Some(value), Some(n)),
                None => (None, None),
            })
        });
        methods.add_meta_method(MetaMethod::Index, |lua, this, key: Value| {
            let at = usize::from_lua(key, lua).ok();
            Ok(at.and_then(|at| this.entry(at)).map(|(value, _)| value))
        });
    }
}
