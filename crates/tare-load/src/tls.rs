//! TLS for the client: rustls, bytes in and bytes out, no sockets.

use std::fmt;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct,
    HandshakeKind, RootCertStore, SignatureScheme, SupportedProtocolVersion,
};
use serde::{Deserialize, Serialize};
use tare_io::files::read_input;
use tare_model::layers::TlsVersion;

use crate::protocol::http2;

/// The user's TLS options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsOptions {
    /// The name in the certificate and in SNI.
    pub name: String,
    pub insecure: bool,
    /// Trusted certificate authorities; `None` trusts those of the client's machine.
    pub authorities: Option<Pem>,
    /// The client's certificate.
    pub certificate: Option<Pem>,
    /// The private key of `certificate`.
    pub key: Option<Pem>,
    pub version: Option<TlsVersion>,
    /// Cipher suites by IANA name; empty means the library's default.
    pub ciphers: Vec<String>,
    pub resume: bool,
    /// Offer HTTP/2 before HTTP/1.1 (ALPN).
    #[serde(default)]
    pub http2: bool,
}

/// A PEM file's text, read on this machine and used on the client's.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pem {
    /// The file that it was read from, for error messages.
    pub path: PathBuf,
    pub text: String,
}

/// Shows only the path: a private key must not get into a log.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pem({})", self.path.display())
    }
}

impl Pem {
    /// Reads a file that should hold `what`. Text outside the PEM blocks may have any encoding.
    pub fn read(path: &Path, what: &str) -> Result<Self, TlsOptionsError> {
        let bytes = read_pem(path).map_err(|error| cannot_read(what, path, &error))?;
        Ok(Self { path: path.to_owned(), text: String::from_utf8_lossy(&bytes).into_owned() })
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsOptionsError> {
        let cannot = |error: &dyn fmt::Display| cannot_read("certificates", &self.path, error);
        let found = CertificateDer::pem_slice_iter(self.text.as_bytes());
        let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|e| cannot(&e))?;
        if found.is_empty() { Err(cannot(&"there is none in the file")) } else { Ok(found) }
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, TlsOptionsError> {
        let key = PrivateKeyDer::from_pem_slice(self.text.as_bytes());
        key.map_err(|error| cannot_read("a private key", &self.path, &error))
    }
}

fn cannot_read(what: &str, path: &Path, why: &dyn fmt::Display) -> TlsOptionsError {
    TlsOptionsError(format!("cannot read {what} (PEM) from {}: {why}", path.display()))
}

/// Why TLS options are invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsOptionsError(String);

/// A checked configuration, from which each worker makes its own sessions.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "TlsOptions", into = "TlsOptions")]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    options: Arc<TlsOptions>,
}

impl TryFrom<TlsOptions> for TlsClient {
    type Error = TlsOptionsError;

    fn try_from(options: TlsOptions) -> Result<Self, TlsOptionsError> {
        Self::new(&options)
    }
}

impl From<TlsClient> for TlsOptions {
    fn from(client: TlsClient) -> Self {
        Self::clone(&client.options)
    }
}

impl TlsClient {
    pub fn new(options: &TlsOptions) -> Result<Self, TlsOptionsError> {
        let bad = |text: String| TlsOptionsError(text);
        let name = ServerName::try_from(options.name.clone()).map_err(|_| {
            bad(format!("'{}' is not a host name for TLS; use --sni", options.name))
        })?;
        let provider = Arc::new(provider(&options.ciphers)?);
        let versions: &[&SupportedProtocolVersion] = match options.version {
            Some(TlsVersion::V1_2) => &[&rustls::version::TLS12],
            Some(TlsVersion::V1_3) => &[&rustls::version::TLS13],
            None => rustls::ALL_VERSIONS,
        };
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(|error| bad(format!("--ciphers and --tls-version do not fit: {error}")))?;
        let builder = if options.insecure {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider)))
        } else {
            let roots = Arc::new(roots(options.authorities.as_ref())?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider)
                .build()
                .map_err(|error| bad(format!("no certificate authority to trust: {error}")))?;
            builder.with_webpki_verifier(verifier)
        };
        let mut config = match (&options.certificate, &options.key) {
            (Some(cert), Some(key)) => builder
                .with_client_auth_cert(cert.certificates()?, key.private_key()?)
                .map_err(|error| bad(format!("--cert {}: {error}", cert.path.display())))?,
            (None, None) => builder.with_no_client_auth(),
            _ => return Err(bad("--cert and --key belong together; give both".into())),
        };
        config.resumption = Resumption::disabled();
        // A server without HTTP/2 then chooses HTTP/1.1, instead of ending the handshake.
        let offered: &[&[u8]] = if options.http2 { &[http2::ALPN, HTTP_1] } else { &[HTTP_1] };
        config.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
        let client = Self { config: Arc::new(config), name, options: Arc::new(options.clone()) };
        Ok(client.for_worker())
    }

    pub fn resumes(&self) -> bool {
        self.options.resume
    }

    /// A copy for one worker, with its own session cache, so that workers do not share a lock.
    pub fn for_worker(&self) -> Self {
        let mut client = self.clone();
        if self.resumes() {
            let mut config = (*client.config).clone();
            config.resumption = Resumption::in_memory_sessions(SESSIONS);
            client.config = Arc::new(config);
        }
        client
    }

    /// A copy that does a full handshake for every connection.
    pub fn never_resuming(&self) -> Self {
        let mut client = self.clone();
        let mut config = (*client.config).clone();
        config.resumption = Resumption::disabled();
        client.config = Arc::new(config);
        client.options = Arc::new(TlsOptions { resume: false, ..(*self.options).clone() });
        client
    }

    pub fn session(&self) -> Result<TlsSession, String> {
        let connection = ClientConnection::new(self.config.clone(), self.name.clone())
            .map_err(|error| error.to_string())?;
        Ok(TlsSession::new(connection.into()))
    }
}

/// The name of HTTP/1.1 in ALPN.
const HTTP_1: &[u8] = b"http/1.1";

/// Session tickets kept for one server; TLS 1.3 uses each once.
const SESSIONS: usize = 256;

/// One connection's TLS state, as client or server.
#[derive(Debug)]
pub struct TlsSession {
    connection: Connection,
    said_goodbye: bool,
    goodbye_sent: bool,
}

const WHY_CHARS_MAX: usize = 500;

impl TlsSession {
    pub fn new(connection: Connection) -> Self {
        Self { connection, said_goodbye: false, goodbye_sent: false }
    }

    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the peer has ended the stream with close_notify.
    pub fn peer_closed(&self) -> bool {
        self.said_goodbye
    }

    /// Version and cipher, such as `TLSv1.3 TLS13_AES_256_GCM_SHA384`.
    pub fn negotiated(&self) -> String {
        let version = self.connection.protocol_version();
        let cipher = self.connection.negotiated_cipher_suite();
        let version = version.map_or(String::new(), |version| format!("{version:?}"));
        let cipher = cipher.map_or(String::new(), |cipher| format!("{:?}", cipher.suite()));
        format!("{} {cipher}", version.replace("v1_", "v1."))
    }

    /// The negotiated application protocol.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    pub fn was_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Takes ciphertext off the front of `input`: as much as one round of decryption takes.
    pub fn take_ciphertext(&mut self, input: &mut &[u8]) -> Result<(), String> {
        let read = self.connection.read_tls(input).map_err(|error| error.to_string())?;
        let state = self.connection.process_new_packets().map_err(|error| {
            // The text may list all names of a certificate, however many there are.
            tare_model::plain::short(&why_refused(&error), WHY_CHARS_MAX)
        })?;
        self.said_goodbye |= state.peer_has_closed();
        if read == 0 && !input.is_empty() && !self.said_goodbye {
            return Err("the peer sends more than fits a TLS record".into());
        }
        if self.said_goodbye {
            // RFC 8446: data after close_notify is ignored.
            *input = &[];
        }
        Ok(())
    }

    /// Decrypted bytes that are available now; may be empty.
    pub fn plaintext(&mut self) -> &[u8] {
        self.connection.reader().into_first_chunk().unwrap_or_default()
    }

    pub fn consume_plaintext(&mut self, n: usize) {
        self.connection.reader().consume(n);
    }

    pub fn encrypt(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let n = self.connection.writer().write(rest).map_err(|error| error.to_string())?;
            rest = &rest[n..];
            self.take_outgoing(out)?;
        }
        Ok(())
    }

    /// Ends our side of the stream with close_notify.
    pub fn send_close_notify(&mut self, out: &mut Vec<u8>) {
        self.goodbye_sent = true;
        self.connection.send_close_notify();
        // Nothing to do about an error: the connection ends here either way.
        let _ = self.take_outgoing(out);
    }

    pub fn goodbye_sent(&self) -> bool {
        self.goodbye_sent
    }

    /// Appends what TLS wants to send to `out`.
    pub fn take_outgoing(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        while self.connection.wants_write() {
            self.connection.write_tls(out).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

fn provider(ciphers: &[String]) -> Result<CryptoProvider, TlsOptionsError> {
    let mut provider = aws_lc_rs::default_provider();
    if ciphers.is_empty() {
        return Ok(provider);
    }
    let name = |suite: &rustls::SupportedCipherSuite| {
        suite.suite().as_str().unwrap_or_default().replace("TLS13_", "TLS_")
    };
    let known: Vec<String> = provider.cipher_suites.iter().map(name).collect();
    for cipher in ciphers {
        if !known.contains(cipher) {
            return Err(TlsOptionsError(format!(
                "--ciphers: '{cipher}' is not known; choose among {}",
                known.join(", ")
            )));
        }
    }
    provider.cipher_suites.retain(|suite| ciphers.contains(&name(suite)));
    Ok(provider)
}

fn roots(authorities: Option<&Pem>) -> Result<RootCertStore, TlsOptionsError> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(pem) => {
            for certificate in pem.certificates()? {
                roots.add(certificate).map_err(|error| {
                    TlsOptionsError(format!("--cacert {}: {error}", pem.path.display()))
                })?;
            }
        }
        // Uses the machine's own authorities, or those of SSL_CERT_FILE. A few unreadable ones are
        // common and harmless; if there are none at all, building the verifier fails.
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(roots)
}

/// Describes why a handshake failed, with a hint if it is the certificate.
fn why_refused(error: &rustls::Error) -> String {
    let rustls::Error::InvalidCertificate(why) = error else { return error.to_string() };
    match why {
        CertificateError::UnknownIssuer => {
            "the server's certificate is signed by an authority that is not trusted: --cacert FILE \
             names it, --insecure accepts any"
                .into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("{why}: --sni NAME asks for another name")
        }
        CertificateError::Other(why) if why.to_string().contains("CaUsedAsEndEntity") => {
            "the server's certificate is self-signed, and an authority's: --insecure accepts any, \
             --cacert with it does not"
                .into()
        }
        why => format!("the server's certificate is not accepted: {why}"),
    }
}

/// Reads a PEM file, up to a sensible size.
pub fn read_pem(path: &Path) -> std::io::Result<Vec<u8>> {
    read_input(path, PEM_MAX_BYTES)
}

const PEM_MAX_BYTES: u64 = 16 << 20;

/// `--insecure`: accepts any certificate, but still checks the handshake's signatures.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
