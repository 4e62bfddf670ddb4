//! A folder with an authority's certificates, a certificate and its key, and what rustls makes of them.

use super::verify::NodeVerifier;
use super::{ALPN, CredentialsError, Identity, Role};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, CipherSuite, ClientConfig, RootCertStore, ServerConfig, version::TLS13};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The authorities whose certificates are accepted: one, or two while one takes over from the other.
pub const CA_FILE: &str = "ca.pem";
/// The certificate.
pub const CERTIFICATE_FILE: &str = "node.pem";
/// Its key.
pub const KEY_FILE: &str = "node.key";

/// Bytes of one file at most.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// Permissions that nobody but the owner may have on a key.
const OTHERS: u32 = 0o077;

/// Credentials that can be used.
#[derive(Debug)]
pub struct Credentials {
    identity: Identity,
    dir: PathBuf,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: Arc<RootCertStore>,
    server: Arc<ServerConfig>,
}

/// AES-128 first: a page is to be there soon, and it is as far from being broken as AES-256 is.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider.cipher_suites.retain(|suite| suite.tls13().is_some());
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

impl Credentials {
    /// Reads `ca.pem`, `node.pem` and `node.key` in a folder. Whether others would accept the certificate now is told by
    /// [`Self::check`].
    ///
    /// # Errors
    /// [`CredentialsError`], among them a key that others can read.
    pub fn load(dir: &Path) -> Result<Self, CredentialsError> {
        let key = read_key(&dir.join(KEY_FILE))?;
        let chain = read_certificates(&dir.join(CERTIFICATE_FILE))?;
        let authorities = read_certificates(&dir.join(CA_FILE))?;
        let identity = Identity::of(&chain[0])?;
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority).map_err(|_| CredentialsError::Contents {
                path: dir.join(CA_FILE),
                what: "certificate of an authority",
            })?;
        }
        let roots = Arc::new(roots);
        let pair = |why| CredentialsError::Pair { dir: dir.to_owned(), why };
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider())
            .build()
            .map_err(|_| CredentialsError::Contents {
                path: dir.join(CA_FILE),
                what: "certificate of an authority",
            })?;
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(pair)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(pair)?;
        server.alpn_protocols = vec![ALPN.to_vec()];
        // Every connection shows its certificate: a ticket would outlive it.
        server.send_tls13_tickets = 0;
        server.enable_secret_extraction = true;
        Ok(Self { identity, dir: dir.to_owned(), chain, key, roots, server: Arc::new(server) })
    }

    /// Whose they are.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where they were read from.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether others accept the certificate at that time.
    fn accepted_at(&self, time: UnixTime) -> Result<(), rustls::Error> {
        rustls::client::verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(&self.chain[0])?,
            &self.roots,
            &self.chain[1..],
            time,
            provider().signature_verification_algorithms.all,
        )
    }

    /// They are accepted now, and not any more when so much time has passed: it is time to issue others.
    pub fn end_within(&self, time: Duration) -> bool {
        let now = UnixTime::now();
        let then = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs()).saturating_add(time));
        self.accepted_at(now).is_ok() && self.accepted_at(then).is_err()
    }

    /// Whether the certificate is valid now, of one of the authorities in `ca.pem`, and has a role.
    ///
    /// # Errors
    /// [`CredentialsError::Unaccepted`], [`CredentialsError::Role`].
    pub fn check(&self, wanted: &[Role]) -> Result<(), CredentialsError> {
        if let Err(error) = self.accepted_at(UnixTime::now()) {
            let why = match error {
                rustls::Error::InvalidCertificate(
                    CertificateError::Expired | CertificateError::ExpiredContext { .. },
                ) => "has expired: issue another with `loam ca issue`",
                rustls::Error::InvalidCertificate(
                    CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
                ) => "is not valid yet: is this machine's clock right?",
                _ => "is not of an authority in its ca.pem: copy the folder that `loam ca issue` made, whole",
            };
            let (name, dir) = (self.identity.name.clone(), self.dir.clone());
            return Err(CredentialsError::Unaccepted { name, dir, why });
        }
        match wanted.iter().find(|role| !self.identity.is(**role)) {
            None => Ok(()),
            Some(&wanted) => {
                let (identity, dir) = (self.identity.clone(), self.dir.clone());
                Err(CredentialsError::Role { identity, dir, wanted })
            }
        }
    }

    /// For the side that listens.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// For the side that connects, to a node of this name if one is given.
    pub(crate) fn client(&self, name: Option<&str>) -> Result<Arc<ClientConfig>, rustls::Error> {
        let provider = provider();
        let verifier = NodeVerifier::new(Arc::clone(&self.roots), &provider, name);
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())?;
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        client.enable_secret_extraction = true;
        Ok(Arc::new(client))
    }
}

fn read(path: &Path) -> Result<(Vec<u8>, std::fs::Metadata), CredentialsError> {
    let failed = |why| CredentialsError::Read { path: path.to_owned(), why };
    let file = File::open(path).map_err(failed)?;
    // Of the file that is open: the name may mean another one by now.
    let metadata = file.metadata().map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok((bytes, metadata))
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let (bytes, _) = read(path)?;
    let none = || CredentialsError::Contents { path: path.to_owned(), what: "certificate" };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|_| none())?;
    if found.is_empty() { Err(none()) } else { Ok(found) }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, CredentialsError> {
    let (mut bytes, metadata) = read(path)?;
    let mode = metadata.mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(CredentialsError::Readable { path: path.to_owned(), mode });
    }
    let (uid, us) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if uid != us && uid != 0 && us != 0 {
        return Err(CredentialsError::Owner { path: path.to_owned(), uid });
    }
    let key = PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|_| CredentialsError::Contents { path: path.to_owned(), what: "private key" });
    bytes.fill(0);
    key
}
