//! Whom the command line names as a lender, and the credentials to meet it with.

use crate::failure::Failure;
use loam_wire::client::Target;
use loam_wire::tls::{Credentials, Role, Watched, check_name};
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// `ADDR:PORT`, or `NAME@ADDR:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LenderArg {
    name: Option<String>,
    addr: SocketAddr,
}

impl FromStr for LenderArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, addr) = match text.split_once('@') {
            Some((name, addr)) => (Some(name), addr),
            None => (None, text),
        };
        name.map_or(Ok(()), check_name)?;
        let addr = addr.parse().map_err(|_| format!("'{addr}' is no ADDR:PORT, as 10.0.0.7:7070"))?;
        Ok(Self { name: name.map(str::to_owned), addr })
    }
}

/// The lenders of a command line, with the credentials in `tls`, which must have these roles.
pub(crate) fn targets(
    lenders: &[LenderArg],
    tls: Option<&Path>,
    roles: &[Role],
) -> Result<Vec<Target>, Failure> {
    let credentials = tls.map(|dir| load(dir, roles)).transpose()?;
    lenders
        .iter()
        .map(|lender| {
            if let (Some(name), None) = (&lender.name, &credentials) {
                return Err(Failure::new(format!(
                    "--lender {name}@{}: only a certificate proves a name: give --tls DIR, or leave the name out",
                    lender.addr
                )));
            }
            let (name, credentials) = (lender.name.clone(), credentials.clone());
            Ok(Target { addr: lender.addr, name, credentials })
        })
        .collect()
}

/// The credentials in `tls`, which must have these roles, as they change while the program runs.
pub(crate) fn watched(tls: Option<&Path>, roles: &[Role]) -> Result<Option<Arc<Watched>>, Failure> {
    tls.map(|dir| Watched::load(dir, roles).map(Arc::new).map_err(Failure::new)).transpose()
}

fn load(dir: &Path, roles: &[Role]) -> Result<Arc<Credentials>, Failure> {
    let credentials = Credentials::load(dir).map_err(Failure::new)?;
    credentials.check(roles).map_err(Failure::new)?;
    Ok(Arc::new(credentials))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lender_may_be_given_with_its_name() {
        let plain: LenderArg = "10.0.0.7:7070".parse().expect("an address");
        let named: LenderArg = "node-7@10.0.0.7:7070".parse().expect("an address with a name");
        assert_eq!((plain.name, plain.addr), (None, named.addr));
        assert_eq!(named.name.as_deref(), Some("node-7"));
        for bad in ["node-7@", "@10.0.0.7:7070", "A@10.0.0.7:7070", "a@b@10.0.0.7:7070", "10.0.0.7", ""] {
            assert!(bad.parse::<LenderArg>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_without_credentials_proves_nothing() {
        let named: LenderArg = "node-7@10.0.0.7:7070".parse().expect("an address with a name");
        let line = targets(&[named], None, &[]).expect_err("no credentials").line();
        assert!(line.contains("--tls"), "{line}");
    }
}
