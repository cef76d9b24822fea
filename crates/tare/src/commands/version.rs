//! What `--version` says: where this program comes from, and what it can do here.

use tare_io::uring::UringReactor;

/// The version, and the commit if the build knew it.
pub const SHORT: &str = env!("TARE_VERSION");

pub fn long() -> String {
    let linked = match cfg!(target_feature = "crt-static") {
        true => "static: runs without the system's libraries, and loads no filter libraries",
        false => "dynamic: uses the system's C library",
    };
    let reactor = match UringReactor::new(64) {
        Ok(_) => "io_uring".to_owned(),
        Err(error) => format!("epoll, at about twice the CPU (io_uring: {error})"),
    };
    let experiments = crate::shipped::all().count();
    format!(
        "{}\nbuild:   {}, {linked}\nreactor: {reactor}\ncontent: {experiments} ready-made \
         experiments, Lua scripts for tare wrk",
        SHORT,
        env!("TARE_TARGET"),
    )
}
