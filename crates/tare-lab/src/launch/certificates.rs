//! Certificates that tare makes for servers and for sidecars that authenticate each other. They are
//! made once per process, and exist only in its memory and in the folders of its launches.

use std::sync::OnceLock;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, RsaKeySize, SanType,
};
use tare_model::layers::KeyKind;

use tare_model::Failure;

/// A certificate and its key, in PEM.
#[derive(Debug)]
pub struct Certified {
    pub cert: String,
    pub key: String,
    /// `cert` in DER form.
    pub der: Vec<u8>,
}

/// The identity of all sidecars, as a mesh would name it.
const IDENTITY: &str = "spiffe://cluster.local/ns/default/sa/default";
/// The server name that a client's sidecar requests from the server's sidecar.
pub const SERVER_NAME: &str = "localhost";

/// Returns a self-signed certificate for localhost, which clients do not verify.
pub fn server_certificate() -> Result<&'static Certified, Failure> {
    static MADE: OnceLock<Result<Certified, String>> = OnceLock::new();
    unwrap_made(MADE.get_or_init(|| {
        let names = vec![SERVER_NAME.to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).map_err(|e| e.to_string())?;
        let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        Ok(Certified { cert, key, der: made.cert.der().to_vec() })
    }))
}

/// Returns the certificate of sidecars and gateways, signed by [`authority`].
pub fn layer_certificate(kind: KeyKind) -> Result<&'static Certified, Failure> {
    static MADE: [OnceLock<Result<Certified, String>>; 2] = [OnceLock::new(), OnceLock::new()];
    let authority = authority()?;
    unwrap_made(
        MADE[kind as usize].get_or_init(|| sign(authority, kind).map_err(|e| e.to_string())),
    )
}

/// Returns the authority that signs the layers' certificates.
pub fn authority() -> Result<&'static Certified, Failure> {
    static MADE: OnceLock<Result<Certified, String>> = OnceLock::new();
    unwrap_made(MADE.get_or_init(|| make_authority().map_err(|e| e.to_string())))
}

fn unwrap_made(made: &Result<Certified, String>) -> Result<&Certified, Failure> {
    made.as_ref().map_err(|why| Failure::environment(format!("cannot make a certificate: {why}")))
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "tare mesh");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn make_authority() -> Result<Certified, rcgen::Error> {
    let key = KeyPair::generate()?;
    let cert = authority_params().self_signed(&key)?;
    Ok(Certified { cert: cert.pem(), key: key.serialize_pem(), der: cert.der().to_vec() })
}

fn sign(authority: &Certified, kind: KeyKind) -> Result<Certified, rcgen::Error> {
    let issuer = Issuer::new(authority_params(), KeyPair::from_pem(&authority.key)?);
    let key = match kind {
        KeyKind::Rsa2048 => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048)?,
        KeyKind::EcdsaP256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?,
    };
    let mut params = CertificateParams::new(vec![SERVER_NAME.into(), "127.0.0.1".into()])?;
    params.distinguished_name.push(DnType::CommonName, SERVER_NAME);
    params.subject_alt_names.push(SanType::URI(IDENTITY.try_into()?));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let cert = params.signed_by(&key, &issuer)?;
    Ok(Certified { cert: cert.pem(), key: key.serialize_pem(), der: cert.der().to_vec() })
}
