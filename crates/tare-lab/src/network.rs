//! What connections there are on this machine, and what stands in their way: who listens and who is
//! connected (`listening`, `peers`), what a port answers over TLS and without it (`tls_probe`),
//! and how connections are sent through a sidecar that neither end knows of ([`intercept`]).

pub mod intercept;
pub(crate) mod listening;
pub(crate) mod peers;
pub(crate) mod tls_probe;
