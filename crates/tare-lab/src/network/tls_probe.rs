//! Probes a port with and without TLS.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, ProtocolVersion, SignatureScheme,
    StreamOwned,
};
use tare_model::layers::TlsVersion;

use crate::launch::certificates::{Certified, SERVER_NAME};

/// The TLS server that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsAnswer {
    /// Its certificate, in DER.
    pub certificate: Vec<u8>,
    pub version: Option<TlsVersion>,
    /// Whether a second connection resumed the first one's session.
    pub resumes: bool,
}

impl TlsAnswer {
    /// Returns the version in words, such as `TLSv1.3`.
    pub fn word(&self) -> &'static str {
        self.version.map_or("another version", TlsVersion::word)
    }
}

fn version(connection: &ClientConnection) -> Option<TlsVersion> {
    match connection.protocol_version()? {
        ProtocolVersion::TLSv1_2 => Some(TlsVersion::V1_2),
        ProtocolVersion::TLSv1_3 => Some(TlsVersion::V1_3),
        _ => None,
    }
}

const TIMEOUT: Duration = Duration::from_secs(3);
/// An invalid request. A proxy rejects it, so that the server behind the proxy counts nothing.
const NONSENSE: &[u8] = b"WHO\r\n\r\n";
/// Number of first bytes that show whether something is a reply.
const LOOKED_AT: usize = 5;

fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(|e| e.to_string())?;
    let limited = stream.set_read_timeout(Some(TIMEOUT));
    limited.and_then(|()| stream.set_write_timeout(Some(TIMEOUT))).map_err(|e| e.to_string())?;
    Ok(stream)
}

/// Returns whether the server at this address serves an unencrypted request.
pub fn serves_plain_text(address: SocketAddr) -> Result<bool, String> {
    let mut stream = connect(address)?;
    Ok(is_served(&mut stream, address))
}

/// Returns whether it serves a TLS request from a client without a certificate.
pub fn serves_unknown(address: SocketAddr) -> Result<bool, String> {
    let mut stream = begin(address, &Arc::new(config(None)?))?;
    Ok(is_served(&mut stream, address))
}

fn is_served(stream: &mut (impl Read + Write), address: SocketAddr) -> bool {
    let asked = write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let mut head = [0; b"HTTP/1.1 400".len()];
    // A closed connection means that the request was refused; nginx replies 400 instead.
    let answered = asked.and_then(|()| stream.read_exact(&mut head));
    answered.is_ok() && head.starts_with(b"HTTP/1.") && !head.ends_with(b" 400")
}

/// Probes the server as a client with this certificate.
pub fn probe(address: SocketAddr, own: &Certified) -> Result<TlsAnswer, String> {
    let config = Arc::new(config(Some(own))?);
    let (certificate, version, _) = ask(address, &config)?;
    let (_, _, resumes) = ask(address, &config)?;
    Ok(TlsAnswer { certificate, version, resumes })
}

fn config(own: Option<&Certified>) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider)));
    let Some(own) = own else { return Ok(builder.with_no_client_auth()) };
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).map_err(|e| e.to_string())?;
    let chain = vec![CertificateDer::from(own.der.clone())];
    builder.with_client_auth_cert(chain, key).map_err(|e| e.to_string())
}

fn begin(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
) -> Result<StreamOwned<ClientConnection, TcpStream>, String> {
    let name = ServerName::try_from(SERVER_NAME).map_err(|e| e.to_string())?;
    let connection = ClientConnection::new(config.clone(), name).map_err(|e| e.to_string())?;
    Ok(StreamOwned::new(connection, connect(address)?))
}

type Answer = (Vec<u8>, Option<TlsVersion>, bool);

fn ask(address: SocketAddr, config: &Arc<ClientConfig>) -> Result<Answer, String> {
    let mut stream = begin(address, config)?;
    let said = stream.write_all(NONSENSE);
    let mut head = [0; LOOKED_AT];
    said.and_then(|()| stream.read_exact(&mut head)).map_err(|e| e.to_string())?;
    let connection = &stream.conn;
    let leaf = connection.peer_certificates().and_then(<[_]>::first);
    let resumed = connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
    let leaf = leaf.map(|leaf| leaf.to_vec()).ok_or("it showed no certificate")?;
    Ok((leaf, version(connection), resumed))
}

/// Accepts any certificate: the caller compares it with the one that tare made.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
