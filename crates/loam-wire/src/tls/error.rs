//! What can be wrong with credentials and with TLS connections. Each prints as one line, with what to do.

use super::{CA_FILE, CERTIFICATE_FILE, Identity, KEY_FILE, Role};
use rustls::{AlertDescription, CertificateError, OtherError};
use std::io;
use std::path::PathBuf;

/// Why credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A file cannot be read.
    #[error(
        "cannot read {path} ({why}): --tls names a folder with {CA_FILE}, {CERTIFICATE_FILE} and {KEY_FILE}, as \
         `loam ca issue NAME` makes it", path = .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// The system's answer.
        why: io::Error,
    },
    /// A file is larger than credentials are, or holds nothing of what it should.
    #[error("{path} holds no {what}: issue it again with `loam ca issue`", path = .path.display())]
    Contents {
        /// Which.
        path: PathBuf,
        /// What should be there.
        what: &'static str,
    },
    /// Others may know the key.
    #[error(
        "{path} can be read by others (mode {mode:04o}): chmod 600 it, and issue another if somebody may have read it", path = .path.display())]
    Readable {
        /// The key's file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The key's file belongs to somebody else.
    #[error("{path} belongs to user {uid}: give it to the user who runs this, or to root", path = .path.display())]
    Owner {
        /// The key's file.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// Certificate and key do not belong together, or rustls does not want them.
    #[error("the key and the certificate in {dir} cannot be used together ({why}): copy both again", dir = .dir.display())]
    Pair {
        /// The folder.
        dir: PathBuf,
        /// rustls's answer.
        why: rustls::Error,
    },
    /// The certificate is not one of Loam's.
    #[error("the certificate is not Loam's: {why}; issue one with `loam ca issue`")]
    Identity {
        /// What is missing.
        why: String,
    },
    /// Nobody would accept the certificate now.
    #[error("the certificate of {name} in {dir} {why}", dir = .dir.display())]
    Unaccepted {
        /// Its name.
        name: String,
        /// The folder.
        dir: PathBuf,
        /// What is wrong, and what to do.
        why: &'static str,
    },
    /// It is a certificate for something else.
    #[error(
        "the certificate of {identity} in {dir} has not the role {role}: issue one with \
         `loam ca issue {} --role {role}`, or with --role both", identity.name, role = wanted.word(), dir = .dir.display())]
    Role {
        /// Whose.
        identity: Identity,
        /// The folder.
        dir: PathBuf,
        /// What is needed.
        wanted: Role,
    },
}

/// Why a TLS connection is over. Inside an [`io::Error`], since it ends the connection as any other error of a socket does.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The client speaks plain TCP to a lender that has credentials.
    #[error("it speaks plain TCP, and TLS is wanted here: give it --tls DIR")]
    PlainClient,
    /// The server speaks something else.
    #[error("it does not speak TLS: start it with --tls DIR, or leave --tls out here")]
    NotTls,
    /// The client sent something else than TLS.
    #[error("what it sent is not TLS")]
    Garbage,
    /// The server's certificate has not the role of a node.
    #[error("its certificate is that of {0}, not of a node: issue one with `loam ca issue {n} --role node`", n = .0.name)]
    NotANode(Identity),
    /// The server is another than the one that was asked for.
    #[error("its certificate is that of {found}, not of {expected}: is the address right?", found = found.name)]
    OtherName {
        /// Who it is.
        found: Identity,
        /// Who was expected.
        expected: String,
    },
    /// The certificate is not one of Loam's.
    #[error("its certificate is refused: {0}")]
    Identity(String),
    /// The other side said why it goes.
    #[error("it refused: {}", alert_line(*.0))]
    Alert(AlertDescription),
    /// The peer broke TLS, or its certificate is refused.
    #[error("{}", rustls_line(.0))]
    Rustls(rustls::Error),
    /// The connection ended without a word.
    #[error("the connection ended before the end of TLS was told")]
    Truncated,
    /// The peer did after the handshake what no Loam does.
    #[error("it broke the protocol of TLS ({0})")]
    Protocol(&'static str),
}

impl TlsError {
    /// As the error of a socket.
    pub(crate) fn io(self) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, self)
    }

    /// What tells a peer of it whose handshake is done.
    pub(super) fn alert(&self) -> AlertDescription {
        match self {
            Self::Rustls(rustls::Error::NoApplicationProtocol) => AlertDescription::NoApplicationProtocol,
            _ => AlertDescription::CertificateUnknown,
        }
    }

    /// The TLS error inside of a socket's error.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// An alert of the peer's, in words for whoever started this side.
fn alert_line(alert: AlertDescription) -> String {
    let what = match alert {
        AlertDescription::CertificateRequired => "it wants a certificate: give --tls DIR",
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "it does not know the authority of our certificate: issue one with its authority (`loam ca issue`)"
        }
        AlertDescription::CertificateExpired => {
            "our certificate has expired, or is not valid yet by its clock: issue another (`loam ca issue`)"
        }
        AlertDescription::CertificateUnknown | AlertDescription::AccessDenied => {
            "our certificate has not the name or the role that it wants (`loam ca show`)"
        }
        AlertDescription::NoApplicationProtocol => "it is no Loam: is the address right?",
        AlertDescription::ProtocolVersion => "it does not speak TLS 1.3",
        _ => return format!("it ended the connection (TLS alert {alert:?})"),
    };
    what.to_owned()
}

/// An error of rustls's.
fn rustls_line(error: &rustls::Error) -> String {
    use rustls::Error;
    let what = match error {
        Error::NoCertificatesPresented => "it has no certificate: give it --tls DIR",
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "its certificate is of an authority that is not in our ca.pem: issue one with ours (`loam ca issue`)"
        }
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "its certificate has expired: issue another (`loam ca issue`)"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => "its certificate is not valid yet: are both clocks right?",
        Error::InvalidCertificate(CertificateError::Other(OtherError(why))) => return why.to_string(),
        Error::NoApplicationProtocol => "it is no Loam: it speaks another protocol over TLS",
        Error::PeerIncompatible(_) => "it does not speak TLS 1.3 as Loam does",
        other => return format!("TLS failed ({other})"),
    };
    what.to_owned()
}
