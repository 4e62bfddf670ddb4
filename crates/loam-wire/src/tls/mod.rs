//! Mutual TLS between nodes, and between borrower and lender.
//!
//! TLS 1.3 only, and both sides show a certificate of the same authority. rustls makes the handshake and checks the certificates
//! ([`Credentials`]); what a certificate says of its holder is an [`Identity`]: a name, and roles, which are URIs among
//! its alternative names. Who may do what is decided by roles: a borrower talks to a *node* only, and a node lends
//! to a *borrower* only.
//!
//! After the handshake the keys are handed to [`records`], which protects one record at a time with rustls's own
//! ciphers, from where the bytes lie and to where they are wanted. rustls's buffered connection would copy each byte four
//! times more, and a page is fetched in a time in which that shows. What is ours then is the
//! framing of records, their numbering, alerts and the change of keys.

mod credentials;
mod error;
mod handshake;
mod identity;
mod records;
mod stream;
#[cfg(any(test, feature = "test-credentials"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod verify;
mod watch;

pub use credentials::{CA_FILE, CERTIFICATE_FILE, Credentials, KEY_FILE};
pub use error::{CredentialsError, TlsError};
pub use identity::{Identity, NAME_BYTES_MAX, Role, check_name};
pub use stream::{INBOX_BYTES_MAX, TlsStream};
pub use watch::Watched;

/// What is spoken inside, negotiated by ALPN: a certificate that also serves another protocol is of no use here.
pub(crate) const ALPN: &[u8] = b"loam";
