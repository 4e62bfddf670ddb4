//! Who is refused, and what both sides say.

use super::*;

/// Both lines must have their words.
fn refused(client: &Credentials, server: &Credentials, name: Option<&str>, at_client: &str, at_server: &str) {
    let (mut c, mut s) = pair(client, server, name);
    let (from_client, from_server) = meet(&mut c, &mut s);
    let (from_client, from_server) = (line(from_client), line(from_server));
    assert!(from_client.contains(at_client), "the client says: {from_client}");
    assert!(from_server.contains(at_server), "the server says: {from_server}");
}

#[test]
fn friends_know_each_other_by_name_and_role() {
    let (node, borrower) = friends();
    for name in [None, Some("node-1")] {
        let (mut client, mut server) = pair(&borrower, &node, name);
        let (at_client, at_server) = meet(&mut client, &mut server);
        at_client.unwrap();
        at_server.unwrap();
        let (of_server, of_client) = (client.identity().unwrap(), server.identity().unwrap());
        assert!(of_server.name == "node-1" && of_server.is(Role::Node) && !of_server.is(Role::Borrower));
        assert!(of_client.name == "busy-1" && of_client.is(Role::Borrower) && !of_client.is(Role::Node));
    }
}

#[test]
fn certificates_of_another_authority() {
    let (node, _) = friends();
    let (_, stranger) = friends();
    // The client looks first, and says so to the server.
    refused(
        &stranger,
        &node,
        None,
        "authority that is not in our ca.pem",
        "does not know the authority of our",
    );
    // A client that believes the server's authority, with a certificate of another one.
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let node = credentials(&ours.issue("node-1", &[Role::Node], -1, 1), &[&ours]);
    let stranger = credentials(&theirs.issue("busy-1", &Role::ALL, -1, 1), &[&ours, &theirs]);
    refused(
        &stranger,
        &node,
        None,
        "does not know the authority of our",
        "authority that is not in our ca.pem",
    );
}

#[test]
fn an_authority_of_the_same_name_is_another_one() {
    let (ours, theirs) = (Authority::new("ca"), Authority::new("ca"));
    let node = credentials(&ours.issue("node-1", &[Role::Node], -1, 1), &[&ours]);
    let stranger = credentials(&theirs.issue("busy-1", &Role::ALL, -1, 1), &[&ours]);
    let (mut client, mut server) = pair(&stranger, &node, None);
    let (at_client, at_server) = meet(&mut client, &mut server);
    assert!(line(at_client).contains("does not know the authority"));
    assert!(line(at_server).contains("not in our ca.pem"));
}

#[test]
fn expired_certificates_and_those_of_tomorrow() {
    let ca = Authority::new("ca");
    let node = credentials(&ca.issue("node-1", &[Role::Node], -1, 1), &[&ca]);
    let borrower = credentials(&ca.issue("busy-1", &[Role::Borrower], -1, 1), &[&ca]);
    let old = credentials(&ca.issue("old", &Role::ALL, -9, -1), &[&ca]);
    let new = credentials(&ca.issue("new", &Role::ALL, 2, 9), &[&ca]);
    refused(&old, &node, None, "our certificate has expired", "its certificate has expired");
    refused(&borrower, &old, None, "its certificate has expired", "our certificate has expired");
    refused(&new, &node, None, "not valid yet by its clock", "its certificate is not valid yet");
    refused(&borrower, &new, None, "its certificate is not valid yet", "not valid yet by its clock");
}

#[test]
fn a_borrower_is_no_lender() {
    let (_, borrower) = friends();
    refused(&borrower, &borrower, None, "busy-1 (borrower), not of a node", "has not the name or the role");
}

#[test]
fn another_node_than_the_one_that_was_named() {
    let (node, borrower) = friends();
    refused(
        &borrower,
        &node,
        Some("node-2"),
        "that of node-1, not of node-2",
        "has not the name or the role",
    );
}

#[test]
fn certificates_without_a_role() {
    let ca = Authority::new("ca");
    let node = credentials(&ca.issue("node-1", &[Role::Node], -1, 1), &[&ca]);
    let nobody = credentials_unchecked(&ca);
    let (c, s) = sockets();
    let mut client = raw_client(c, &nobody);
    let mut server = TlsStream::server(s, &node).unwrap();
    let (at_client, at_server) = meet(&mut client, &mut server);
    assert!(line(at_client).contains("has not the name or the role"));
    assert!(line(at_server).contains("has no role"));
}

#[test]
fn a_client_without_a_certificate() {
    let (node, _) = friends();
    let (c, s) = sockets();
    let mut client = raw_client(c, &Anonymous);
    let mut server = TlsStream::server(s, &node).unwrap();
    let (at_client, at_server) = meet(&mut client, &mut server);
    assert!(line(at_client).contains("it wants a certificate"));
    assert!(line(at_server).contains("it has no certificate"));
}

/// A program of the same authority that speaks something else. One that did not say what it speaks was let in.
#[test]
fn a_client_that_does_not_say_that_it_speaks_loam() {
    let (ca, folder) = (Authority::new("ca"), Folder::new());
    let node = credentials(&ca.issue("node-1", &[Role::Node], -1, 1), &[&ca]);
    let issued = ca.issue("busy-1", &[Role::Borrower], -1, 1);
    issued.write(&folder.0, &[&ca]);
    let borrower = unchecked(issued, &folder);
    let (c, s) = sockets();
    let mut client = raw_client_of(c, &borrower, &[]);
    let mut server = TlsStream::server(s, &node).unwrap();
    let (at_client, at_server) = meet(&mut client, &mut server);
    let (at_client, at_server) = (line(at_client), line(at_server));
    assert!(at_client.contains("it is no Loam"), "{at_client}");
    assert!(at_server.contains("it is no Loam"), "{at_server}");
}

/// Clients that our own code would not make.
trait RawClient {
    fn config(&self) -> rustls::ClientConfig;
}

struct Anonymous;

/// A certificate and key that [`Credentials::load`] refuses.
struct Nobody(rustls::pki_types::CertificateDer<'static>, rustls::pki_types::PrivateKeyDer<'static>);

fn credentials_unchecked(ca: &Authority) -> Nobody {
    let folder = Folder::new();
    let issued = ca.issue("nobody", &[], -1, 1);
    issued.write(&folder.0, &[ca]);
    let line = Credentials::load(&folder.0).unwrap_err().to_string();
    assert!(line.contains("no role"), "{line}");
    unchecked(issued, &folder)
}

/// What was written there.
fn unchecked(issued: Issued, folder: &Folder) -> Nobody {
    use rustls::pki_types::pem::PemObject;
    let key = rustls::pki_types::PrivateKeyDer::from_pem_file(folder.0.join(super::super::KEY_FILE));
    Nobody(issued.certificate, key.unwrap())
}

fn unverified() -> rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert> {
    rustls::ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(std::sync::Arc::new(Believer))
}

impl RawClient for Anonymous {
    fn config(&self) -> rustls::ClientConfig {
        unverified().with_no_client_auth()
    }
}

impl RawClient for Nobody {
    fn config(&self) -> rustls::ClientConfig {
        unverified().with_client_auth_cert(vec![self.0.clone()], self.1.clone_key()).unwrap()
    }
}

fn raw_client(socket: TcpStream, client: &impl RawClient) -> TlsStream {
    raw_client_of(socket, client, &[super::super::ALPN])
}

/// One that speaks these protocols.
fn raw_client_of(socket: TcpStream, client: &impl RawClient, protocols: &[&[u8]]) -> TlsStream {
    let mut config = client.config();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    config.enable_secret_extraction = true;
    TlsStream::client_with(socket, std::sync::Arc::new(config)).unwrap()
}

/// Believes every server: the test is of the other side.
#[derive(Debug)]
struct Believer;

impl rustls::client::danger::ServerCertVerifier for Believer {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        vec![rustls::SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}
