//! What a certificate says.

use super::files;
use crate::failure::Failure;
use loam_wire::tls::Identity;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

/// One certificate.
pub(super) struct Certificate {
    name: String,
    roles: String,
    from: OffsetDateTime,
    pub(super) until: OffsetDateTime,
}

impl Certificate {
    fn read(der: &CertificateDer<'_>) -> Result<Self, Failure> {
        let bad = |why: String| Failure::new(format!("a certificate cannot be read ({why}): issue it again"));
        let (_, parsed) = X509Certificate::from_der(der).map_err(|why| bad(why.to_string()))?;
        let validity = parsed.validity();
        let (from, until) = (validity.not_before.to_datetime(), validity.not_after.to_datetime());
        let (name, roles) = if parsed.is_ca() {
            let names = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok());
            (names.collect::<Vec<_>>().join(", "), "authority".to_owned())
        } else {
            let identity = Identity::of(der).map_err(Failure::new)?;
            (identity.name.clone(), identity.roles())
        };
        Ok(Self { name: crate::text::printable(&name, 80), roles, from, until })
    }

    fn all(pem: &str) -> Result<Vec<Self>, Failure> {
        let ders: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let ders =
            ders.map_err(|why| Failure::new(format!("a certificate is damaged ({why}): copy it again")))?;
        if ders.is_empty() {
            return Err(Failure::new("no certificate is in it: give ca.pem or node.pem"));
        }
        ders.iter().map(Self::read).collect()
    }

    /// The first of a text.
    pub(super) fn first(pem: &str) -> Result<Self, Failure> {
        Ok(Self::all(pem)?.swap_remove(0))
    }
}

impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = OffsetDateTime::now_utc();
        write!(f, "{}  role {}  valid {} to {}", self.name, self.roles, date(self.from), date(self.until))?;
        if now < self.from {
            f.write_str(" (NOT YET VALID)")
        } else if now > self.until {
            f.write_str(" (EXPIRED)")
        } else {
            write!(f, " ({} days left)", (self.until - now).whole_days())
        }
    }
}

/// A day of UTC, as 2026-11-21.
pub(super) fn date(time: OffsetDateTime) -> String {
    format!("{:04}-{:02}-{:02}", time.year(), u8::from(time.month()), time.day())
}

/// `loam ca show`.
pub(super) fn show(file: &Path) -> Result<ExitCode, Failure> {
    let text = files::read(file, "give ca.pem or node.pem of a folder that `loam ca` made")?;
    let found = Certificate::all(&text)
        .map_err(|failure| Failure::new(format!("{}: {}", file.display(), failure.line())))?;
    for certificate in found {
        println!("{certificate}");
    }
    Ok(ExitCode::SUCCESS)
}
