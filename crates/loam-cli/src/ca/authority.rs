//! Making an authority, and issuing with it.

use super::args::{InitArgs, IssueArgs};
use super::files::{self, PUBLIC, SECRET};
use super::show::{Certificate, date};
use crate::failure::Failure;
use loam_wire::tls::{CA_FILE, CERTIFICATE_FILE, KEY_FILE, Role, check_name};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use std::path::Path;
use std::process::ExitCode;
use time::{Duration, OffsetDateTime};

/// The authority's key, in the authority's folder.
const CA_KEY_FILE: &str = "ca.key";
/// Machines whose clocks are behind may use a certificate at once.
const CLOCKS_APART: Duration = Duration::hours(1);
/// What to do if the authority cannot be read.
const NO_AUTHORITY: &str = "make an authority with `loam ca init`, or name its folder with --dir";

/// Whatever rcgen cannot do.
fn failed(error: rcgen::Error) -> Failure {
    Failure::new(format!("cannot make a certificate ({error}): {NO_AUTHORITY}"))
}

/// A certificate and its key, as PEM.
struct Pair {
    certificate: String,
    key: String,
}

fn params(name: &str, days: i64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = OffsetDateTime::now_utc();
    (params.not_before, params.not_after) = (now - CLOCKS_APART, now + Duration::days(days));
    params
}

/// An authority with a name of its own: two of the same name could not be told apart.
fn new_authority(days: i64) -> Result<Pair, Failure> {
    let key = KeyPair::generate().map_err(failed)?;
    let mut number = [0; 4];
    rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Failure::new(format!("cannot get random bytes ({error}): try again")))?;
    let mut params = params(&format!("Loam authority {:08x}", u32::from_ne_bytes(number)), days);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key).map_err(failed)?.pem();
    Ok(Pair { certificate, key: key.serialize_pem() })
}

fn new_certificate(ca: &Pair, name: &str, roles: &[Role], days: i64) -> Result<Pair, Failure> {
    let ca_key = KeyPair::from_pem(&ca.key).map_err(failed)?;
    let issuer = Issuer::from_ca_cert_pem(&ca.certificate, ca_key).map_err(failed)?;
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = params(name, days);
    let authority = Certificate::first(&ca.certificate)?;
    params.not_after = params.not_after.min(authority.until);
    let text = |text: String| text.try_into().map_err(failed);
    params.subject_alt_names.push(SanType::DnsName(text(name.to_owned())?));
    for role in roles {
        params.subject_alt_names.push(SanType::URI(text(role.uri())?));
    }
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // Roles are told by names, not by these: nodes talk to each other both ways.
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &issuer).map_err(failed)?.pem();
    Ok(Pair { certificate, key: key.serialize_pem() })
}

/// `loam ca init`.
pub(super) fn init(args: &InitArgs) -> Result<ExitCode, Failure> {
    let dir = &args.dir;
    files::private_dir(dir)?;
    files::free(dir, &[CA_FILE, CA_KEY_FILE], args.force)?;
    let pair = new_authority(args.days)?;
    files::write(&dir.join(CA_KEY_FILE), &pair.key, SECRET, args.force)?;
    files::write(&dir.join(CA_FILE), &pair.certificate, PUBLIC, args.force)?;
    let until = date(Certificate::first(&pair.certificate)?.until);
    println!("made an authority in {}, valid until {until}; keep {CA_KEY_FILE} to yourself", dir.display());
    Ok(ExitCode::SUCCESS)
}

/// `loam ca issue`.
pub(super) fn issue(args: &IssueArgs) -> Result<ExitCode, Failure> {
    check_name(&args.name).map_err(Failure::new)?;
    let out = args.out.as_deref().unwrap_or(Path::new(&args.name));
    let ca = Pair {
        certificate: files::read(&args.dir.join(CA_FILE), NO_AUTHORITY)?,
        key: files::read_key(&args.dir.join(CA_KEY_FILE), NO_AUTHORITY)?,
    };
    let mut trusted = ca.certificate.clone();
    for file in &args.trust {
        let more = files::read(file, "--trust names a file with an authority's certificate")?;
        Certificate::first(&more)?;
        trusted.push_str(&more);
    }
    let pair = new_certificate(&ca, &args.name, args.role.roles(), args.days)?;
    files::private_dir(out)?;
    files::free(out, &[CA_FILE, CERTIFICATE_FILE, KEY_FILE], args.force)?;
    write(out, &trusted, &pair, args.force)?;
    let issued = Certificate::first(&pair.certificate)?;
    println!("{issued}; in {}, to be copied to {} as it is", out.display(), args.name);
    Ok(ExitCode::SUCCESS)
}

fn write(out: &Path, trusted: &str, pair: &Pair, force: bool) -> Result<(), Failure> {
    files::write(&out.join(KEY_FILE), &pair.key, SECRET, force)?;
    files::write(&out.join(CERTIFICATE_FILE), &pair.certificate, PUBLIC, force)?;
    files::write(&out.join(CA_FILE), trusted, PUBLIC, force)
}

/// Days that credentials for a measurement are good for: so many that nobody warns of their end.
const THROWAWAY_DAYS: i64 = 90;

/// Credentials for one measurement on this machine: both roles, of an authority whose key is forgotten at once.
pub(crate) fn throwaway(out: &Path) -> Result<(), Failure> {
    let ca = new_authority(THROWAWAY_DAYS)?;
    let pair = new_certificate(&ca, "bench", &Role::ALL, THROWAWAY_DAYS)?;
    files::private_dir(out)?;
    write(out, &ca.certificate, &pair, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use loam_wire::tls::Credentials;

    #[test]
    fn nobody_warns_of_what_is_issued_for_a_measurement() {
        let dir = std::env::temp_dir().join(format!("loam-ca-throwaway-{}", std::process::id()));
        throwaway(&dir).expect("a temporary folder can be made");
        let credentials = Credentials::load(&dir).expect("just written");
        credentials.check(&Role::ALL).expect("valid now");
        assert!(!credentials.end_within(crate::doctor::credentials::ENDS_SOON));
        std::fs::remove_dir_all(&dir).expect("ours");
    }

    #[test]
    fn what_is_issued_can_be_used_and_does_not_outlive_its_authority() {
        let dir = std::env::temp_dir().join(format!("loam-ca-issue-{}", std::process::id()));
        let ca = new_authority(10).expect("rcgen can");
        let pair = new_certificate(&ca, "n1", &[Role::Node], 400).expect("rcgen can");
        let authority = Certificate::first(&ca.certificate).expect("just made");
        let issued = Certificate::first(&pair.certificate).expect("just made");
        assert_eq!(issued.until, authority.until);
        files::private_dir(&dir).expect("a temporary folder can be made");
        write(&dir, &ca.certificate, &pair, false).expect("it is empty");
        let credentials = Credentials::load(&dir).expect("just written");
        credentials.check(&[Role::Node]).expect("of this authority, and valid now");
        assert!(credentials.check(&[Role::Borrower]).is_err());
        let other = new_authority(10).expect("rcgen can");
        files::write(&dir.join(CA_FILE), &other.certificate, PUBLIC, true).expect("ours");
        let credentials = Credentials::load(&dir).expect("they belong together");
        let line = credentials.check(&[Role::Node]).expect_err("of another authority").to_string();
        assert!(line.contains("ca.pem"), "{line}");
        std::fs::remove_dir_all(&dir).expect("ours");
    }
}
