//! What the side that connects wants of the certificate of the side that listens.

use super::{Identity, Role, TlsError};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// The chain as rustls checks it, and then the role, and the name if one is expected. Not the address: nodes
/// are reached by addresses that no certificate knows.
#[derive(Debug)]
pub(super) struct NodeVerifier {
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
    name: Option<String>,
}

impl NodeVerifier {
    pub(super) fn new(roots: Arc<RootCertStore>, provider: &CryptoProvider, name: Option<&str>) -> Self {
        let algorithms = provider.signature_verification_algorithms;
        Self { roots, algorithms, name: name.map(str::to_owned) }
    }
}

/// Comes out of the handshake as it went in, and reaches the peer as `certificate_unknown`.
fn refusal(why: TlsError) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(why))))
}

impl ServerCertVerifier for NodeVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots,
            intermediates,
            now,
            self.algorithms.all,
        )?;
        let identity =
            Identity::of(end_entity).map_err(|why| refusal(TlsError::Identity(why.to_string())))?;
        if !identity.is(Role::Node) {
            return Err(refusal(TlsError::NotANode(identity)));
        }
        match &self.name {
            Some(expected) if *expected != identity.name => {
                Err(refusal(TlsError::OtherName { found: identity, expected: expected.clone() }))
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
