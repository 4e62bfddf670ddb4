//! What a certificate says of who holds it.

use super::CredentialsError;
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::str::FromStr;

/// Bytes of a name at most.
pub const NAME_BYTES_MAX: usize = 64;
/// What the URI of a role begins with.
const ROLE_URI: &str = "loam:role/";

/// What the holder of a certificate may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It lends, and speaks for its machine: `loam lend`.
    Node,
    /// It borrows: `loam run`.
    Borrower,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 2] = [Self::Node, Self::Borrower];

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Borrower => "borrower",
        }
    }

    /// The URI that stands for it among a certificate's alternative names.
    pub fn uri(self) -> String {
        format!("{ROLE_URI}{}", self.word())
    }
}

/// A name and roles, as a certificate has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its first DNS name.
    pub name: String,
    node: bool,
    borrower: bool,
}

impl Identity {
    /// Reads them off a certificate. Proves nothing: that is the chain's business.
    ///
    /// # Errors
    /// [`CredentialsError::Identity`] if it is no certificate, or none of Loam's.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, CredentialsError> {
        let parsed = webpki::EndEntityCert::try_from(certificate)
            .map_err(|why| CredentialsError::Identity { why: format!("it cannot be read ({why})") })?;
        let name = parsed.valid_dns_names().next().map(str::to_owned);
        let name = name.ok_or_else(|| CredentialsError::Identity { why: "it has no DNS name".to_owned() })?;
        check_name(&name).map_err(|why| CredentialsError::Identity { why })?;
        let has = |role: Role| parsed.valid_uri_names().any(|uri| uri == role.uri());
        let identity = Self { name, node: has(Role::Node), borrower: has(Role::Borrower) };
        if !(identity.node || identity.borrower) {
            return Err(CredentialsError::Identity { why: format!("it has no role ({ROLE_URI}...)") });
        }
        Ok(identity)
    }

    /// Whether it has a role.
    pub fn is(&self, role: Role) -> bool {
        match role {
            Role::Node => self.node,
            Role::Borrower => self.borrower,
        }
    }

    /// Its roles in words.
    pub fn roles(&self) -> String {
        let words: Vec<&str> = Role::ALL.into_iter().filter(|role| self.is(*role)).map(Role::word).collect();
        words.join(" and ")
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.roles())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|role| role.word() == text)
            .ok_or_else(|| format!("{text} is no role: node or borrower"))
    }
}

/// Whether a text can be the name of a node: labels of small letters, digits and `-`, with dots between them.
///
/// # Errors
/// A line that says what is wrong.
pub fn check_name(name: &str) -> Result<(), String> {
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    if name.len() <= NAME_BYTES_MAX && name.split('.').all(label) {
        return Ok(());
    }
    let shown: String = name.chars().filter(|c| !c.is_control()).take(NAME_BYTES_MAX).collect();
    Err(format!(
        "'{shown}' cannot be a name: use up to {NAME_BYTES_MAX} small letters, digits, '-' and '.', as in host names"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::testing::Authority;

    #[test]
    fn names_are_those_of_hosts() {
        for good in ["a", "node-7", "n1.rack-2.example", "0"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for bad in ["", "-a", "a-", "A", "a..b", ".", "a b", "a/b", "../x", "\u{e9}", "a\nb", &long] {
            let line = check_name(bad).expect_err(bad);
            assert!(!line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn a_certificate_says_name_and_roles() {
        let ca = Authority::new("ca");
        for roles in [&[Role::Node][..], &[Role::Borrower], &Role::ALL] {
            let issued = ca.issue("n1.example", roles, -1, 1);
            let identity = Identity::of(&issued.certificate).unwrap();
            assert_eq!(identity.name, "n1.example");
            for role in Role::ALL {
                assert_eq!(identity.is(role), roles.contains(&role));
            }
        }
        let none = ca.issue("n1.example", &[], -1, 1);
        assert!(Identity::of(&none.certificate).unwrap_err().to_string().contains("no role"));
        assert!(Identity::of(&CertificateDer::from(vec![1, 2, 3])).is_err());
    }
}
