//! TLS for the target: the user's certificate, or one made on the spot.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::{ServerConfig, ServerConnection};
use tare_load::tls::{TlsSession, read_pem};

#[derive(Clone, Debug)]
pub struct TlsServer {
    config: Arc<ServerConfig>,
    /// The self-signed certificate in PEM, for clients that verify it.
    pub certificate_pem: Option<String>,
}

#[derive(Debug, thiserror::Error)]
#[error("TLS of the target: {0}")]
pub struct TlsServerError(String);

impl TlsServer {
    /// Makes a self-signed certificate for `localhost` and the loopback addresses, with an ECDSA
    /// P-256 key.
    pub fn self_signed() -> Result<Self, TlsServerError> {
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let made = rcgen::generate_simple_self_signed(names)
            .map_err(|error| TlsServerError(error.to_string()))?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())
            .map_err(|error| TlsServerError(error.to_owned()))?;
        let mut server = Self::with(vec![made.cert.der().clone()], key)?;
        server.certificate_pem = Some(made.cert.pem());
        Ok(server)
    }

    pub fn from_files(cert: &Path, key: &Path) -> Result<Self, TlsServerError> {
        let error = |path: &Path, error: &dyn std::fmt::Display| {
            TlsServerError(format!("cannot read {} as PEM: {error}", path.display()))
        };
        let text = read_pem(cert).map_err(|e| error(cert, &e))?;
        let chain = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| error(cert, &e))?;
        let text = read_pem(key).map_err(|e| error(key, &e))?;
        Self::with(chain, PrivateKeyDer::from_pem_slice(&text).map_err(|e| error(key, &e))?)
    }

    fn with(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, TlsServerError> {
        let error = |error: rustls::Error| TlsServerError(error.to_string());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(rustls::ALL_VERSIONS)
            .map_err(error)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(error)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Resumption must be possible, so that the counters show whether a client uses it.
        config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().map_err(error)?;
        Ok(Self { config: Arc::new(config), certificate_pem: None })
    }

    /// Accepts only this protocol from clients that offer any (ALPN).
    pub fn with_alpn(&self, protocol: &[u8]) -> Self {
        let mut config = (*self.config).clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        Self { config: Arc::new(config), ..self.clone() }
    }

    pub fn session(&self) -> Result<TlsSession, String> {
        let connection =
            ServerConnection::new(self.config.clone()).map_err(|error| error.to_string())?;
        Ok(TlsSession::new(connection.into()))
    }
}
