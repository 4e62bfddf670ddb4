//! The handshake, step by step as bytes come: rustls decides, this carries bytes.

use super::records::Records;
use super::{ALPN, Identity, TlsError};
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{CommonState, Error};
use std::fmt;

/// One side of a handshake.
pub(super) enum Handshake {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client(_) => "Handshake::Client",
            Self::Server(_) => "Handshake::Server",
        })
    }
}

/// What came of bytes.
#[derive(Default)]
pub(super) struct Taken {
    /// Bytes at the front that are dealt with.
    pub(super) consumed: usize,
    /// What is to be sent.
    pub(super) out: Vec<Vec<u8>>,
    /// Bytes for whoever reads the stream, which have come right behind the handshake.
    pub(super) data: Vec<u8>,
    /// The handshake is done.
    pub(super) done: bool,
}

/// What a step came to.
enum Step {
    Again,
    Blocked,
    Done,
}

fn step<Side>(status: UnbufferedStatus<'_, '_, Side>, taken: &mut Taken) -> Result<Step, Error> {
    taken.consumed += status.discard;
    match status.state? {
        ConnectionState::EncodeTlsData(mut encode) => {
            let mut record = vec![0; 4096];
            let bytes = match encode.encode(&mut record) {
                Err(EncodeError::InsufficientSize(size)) => {
                    record.resize(size.required_size, 0);
                    encode.encode(&mut record).map_err(|why| Error::General(why.to_string()))?
                }
                other => other.map_err(|why| Error::General(why.to_string()))?,
            };
            record.truncate(bytes);
            taken.out.push(record);
            Ok(Step::Again)
        }
        ConnectionState::TransmitTlsData(transmit) => {
            transmit.done();
            Ok(Step::Again)
        }
        ConnectionState::ReadTraffic(mut read) => {
            while let Some(record) = read.next_record() {
                taken.data.extend_from_slice(record?.payload);
            }
            Ok(Step::Again)
        }
        ConnectionState::BlockedHandshake => Ok(Step::Blocked),
        ConnectionState::WriteTraffic(_) => Ok(Step::Done),
        _ => Err(Error::HandshakeNotComplete),
    }
}

impl Handshake {
    fn state(&self) -> &CommonState {
        match self {
            Self::Client(connection) => connection,
            Self::Server(connection) => connection,
        }
    }

    fn step(&mut self, received: &mut [u8], taken: &mut Taken) -> Result<Step, Error> {
        let rest = &mut received[taken.consumed..];
        match self {
            Self::Client(connection) => step(connection.process_tls_records(rest), taken),
            Self::Server(connection) => step(connection.process_tls_records(rest), taken),
        }
    }

    /// Goes on as far as `received` reaches. After an error `taken.out` has what tells the peer why.
    pub(super) fn take(&mut self, received: &mut [u8], taken: &mut Taken) -> Result<(), TlsError> {
        let result = loop {
            match self.step(received, taken) {
                Ok(Step::Again) => {}
                Ok(Step::Blocked) => break Ok(()),
                Ok(Step::Done) => {
                    taken.done = true;
                    break Ok(());
                }
                Err(error) => break Err(error),
            }
        };
        let Err(error) = result else { return Ok(()) };
        // One step more gives out the alert that tells the peer. Not another one: rustls would read what it has refused again, and must
        // not refuse it twice.
        if !matches!(error, Error::AlertReceived(_)) {
            let _ = self.step(received, taken);
        }
        Err(match error {
            Error::AlertReceived(alert) => TlsError::Alert(alert),
            Error::InvalidMessage(_) if !self.has_begun() => TlsError::Garbage,
            other => TlsError::Rustls(other),
        })
    }

    /// Something of the peer's has been understood.
    fn has_begun(&self) -> bool {
        self.state().protocol_version().is_some()
    }

    /// Who the peer is, if its certificate says so, and the protection of what follows.
    pub(super) fn finish(self) -> Result<(Result<Identity, TlsError>, Records), TlsError> {
        let leaf = self.state().peer_certificates().and_then(<[_]>::first);
        let leaf = leaf.ok_or(TlsError::Rustls(Error::NoCertificatesPresented))?;
        // rustls refuses who names other protocols, and not who names none.
        let identity = if self.state().alpn_protocol() == Some(ALPN) {
            Identity::of(leaf).map_err(|why| TlsError::Identity(why.to_string()))
        } else {
            Err(TlsError::Rustls(Error::NoApplicationProtocol))
        };
        let records = match self {
            Self::Client(connection) => Records::of_client(*connection),
            Self::Server(connection) => Records::of_server(*connection),
        };
        Ok((identity, records.map_err(TlsError::Rustls)?))
    }
}
