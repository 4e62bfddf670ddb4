//! Authorities and certificates for tests, of any validity. Not for other use.

use super::{CA_FILE, CERTIFICATE_FILE, KEY_FILE, Role};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use rustls::pki_types::CertificateDer;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

const DAY_S: i64 = 86_400;

/// An authority.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate.
    pub pem: String,
}

/// A certificate and its key.
#[derive(Debug)]
pub struct Issued {
    /// The certificate.
    pub certificate: CertificateDer<'static>,
    pem: String,
    key: String,
}

impl Authority {
    /// One of this name.
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate that is valid from `from_days` from now until `until_days` from now.
    pub fn issue(&self, name: &str, roles: &[Role], from_days: i64, until_days: i64) -> Issued {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.subject_alt_names.extend(roles.iter().map(|r| SanType::URI(r.uri().try_into().unwrap())));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
        let at = |days: i64| time::OffsetDateTime::from_unix_timestamp(now + days * DAY_S).unwrap();
        (params.not_before, params.not_after) = (at(from_days), at(until_days));
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued { certificate: certificate.der().clone(), pem: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Issued {
    /// Writes a folder for `--tls`, which trusts these authorities.
    pub fn write(&self, dir: &Path, authorities: &[&Authority]) {
        fs::create_dir_all(dir).unwrap();
        let pems: String = authorities.iter().map(|authority| authority.pem.as_str()).collect();
        fs::write(dir.join(CA_FILE), pems).unwrap();
        fs::write(dir.join(CERTIFICATE_FILE), &self.pem).unwrap();
        let _ = fs::remove_file(dir.join(KEY_FILE));
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(dir.join(KEY_FILE)).unwrap();
        file.write_all(self.key.as_bytes()).unwrap();
    }
}
