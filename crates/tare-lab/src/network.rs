//! Connections on this machine. `listening` and `peers` read listening ports and connected peers from
//! the kernel's tables, `tls_probe` checks what a port answers with and without TLS, and [`intercept`]
//! redirects connections through a sidecar.

pub mod intercept;
pub(crate) mod listening;
pub(crate) mod peers;
pub(crate) mod tls_probe;
