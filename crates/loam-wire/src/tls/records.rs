//! The protection of records once the handshake is done (RFC 8446, section 5).
//!
//! A record is a header of five bytes and at most 16 KiB of protected contents. Each side numbers its records and never sends the number; so
//! a record that is lost, doubled or out of order does not open. The ciphers are rustls's own; they open a record where
//! it lies, and gather what they seal from where it lies.

use super::TlsError;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, Iv, MessageDecrypter, MessageEncrypter, OutboundChunks,
    OutboundPlainMessage, Tls13AeadAlgorithm,
};
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, Error, ExtractedSecrets, ProtocolVersion,
};
use std::fmt;

/// Bytes of a record's header.
pub(super) const HEADER_BYTES: usize = 5;
/// Bytes of contents that one record may carry.
pub(super) const CONTENTS_BYTES_MAX: usize = 1 << 14;
/// Bytes of a record that is protected: contents, their kind, padding and tag.
pub(super) const RECORD_BYTES_MAX: usize = HEADER_BYTES + CONTENTS_BYTES_MAX + 256;
/// Records that one key protects. Standards allow AES-GCM some 2^24 full ones; it is half of that.
const RECORDS_PER_KEY: u64 = 1 << 23;
/// The message that a side sends before it changes its key, without the wish that the other does so too.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// What a record was.
pub(super) enum Opened<'a> {
    /// Bytes for whoever reads the stream.
    Data(&'a [u8]),
    /// A matter of TLS's own.
    Nothing,
    /// The peer wants that we change our key, too.
    KeyWanted,
    /// The peer sends no more.
    End,
}

/// What rustls keeps of a connection: how keys follow from each other.
enum Keys {
    Client(Box<KernelConnection<ClientConnectionData>>),
    Server(Box<KernelConnection<ServerConnectionData>>),
}

/// Both directions of a connection.
pub(super) struct Records {
    keys: Keys,
    aead: &'static dyn Tls13AeadAlgorithm,
    opener: Box<dyn MessageDecrypter>,
    opened: u64,
    sealer: Box<dyn MessageEncrypter>,
    sealed: u64,
    records_per_key: u64,
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys are nobody's business.
        write!(f, "Records {{ opened: {}, sealed: {} }}", self.opened, self.sealed)
    }
}

fn key_and_iv(secrets: ConnectionTrafficSecrets) -> Result<(AeadKey, Iv), Error> {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => Ok((key, iv)),
        _ => Err(Error::General("a cipher that Loam does not know".into())),
    }
}

impl Records {
    /// Of a client whose handshake is done.
    pub(super) fn of_client(connection: UnbufferedClientConnection) -> Result<Self, Error> {
        let (secrets, keys) = connection.dangerous_into_kernel_connection()?;
        let suite = keys.negotiated_cipher_suite();
        Self::new(Keys::Client(Box::new(keys)), suite, secrets)
    }

    /// Of a server whose handshake is done.
    pub(super) fn of_server(connection: UnbufferedServerConnection) -> Result<Self, Error> {
        let (secrets, keys) = connection.dangerous_into_kernel_connection()?;
        let suite = keys.negotiated_cipher_suite();
        Self::new(Keys::Server(Box::new(keys)), suite, secrets)
    }

    fn new(
        keys: Keys,
        suite: rustls::SupportedCipherSuite,
        secrets: ExtractedSecrets,
    ) -> Result<Self, Error> {
        let aead = suite.tls13().ok_or(Error::HandshakeNotComplete)?.aead_alg;
        let (opened, (key, iv)) = (secrets.rx.0, key_and_iv(secrets.rx.1)?);
        let opener = aead.decrypter(key, iv);
        let (sealed, (key, iv)) = (secrets.tx.0, key_and_iv(secrets.tx.1)?);
        let sealer = aead.encrypter(key, iv);
        Ok(Self { keys, aead, opener, opened, sealer, sealed, records_per_key: RECORDS_PER_KEY })
    }

    /// Changes keys after so many records: so that a test need not send 128 GiB.
    #[cfg(test)]
    pub(super) fn set_records_per_key(&mut self, records: u64) {
        self.records_per_key = records;
    }

    /// Bytes of the whole record at the front, if its header has come.
    pub(super) fn length(front: &[u8]) -> Result<Option<usize>, TlsError> {
        let Some(&[kind, major, _, high, low]) = front.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let bytes = HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
        if kind != u8::from(ContentType::ApplicationData) || major != 3 || bytes > RECORD_BYTES_MAX {
            return Err(TlsError::Protocol("a record that is not protected, or too long"));
        }
        Ok(Some(bytes))
    }

    /// Opens one whole record, in its place.
    pub(super) fn open<'a>(&mut self, record: &'a mut [u8]) -> Result<Opened<'a>, TlsError> {
        let body = &mut record[HEADER_BYTES..];
        let message = InboundOpaqueMessage::new(ContentType::ApplicationData, ProtocolVersion::TLSv1_2, body);
        let opened = self.opener.decrypt(message, self.opened).map_err(TlsError::Rustls)?;
        self.opened = self.opened.checked_add(1).expect("keys change long before");
        match (opened.typ, opened.payload) {
            (ContentType::ApplicationData, data) => Ok(Opened::Data(data)),
            (ContentType::Alert, &[_, alert]) => match AlertDescription::from(alert) {
                AlertDescription::CloseNotify => Ok(Opened::End),
                AlertDescription::UserCanceled => Ok(Opened::Nothing),
                alert => Err(TlsError::Alert(alert)),
            },
            (ContentType::Handshake, &[24, 0, 0, 1, wanted @ 0..=1]) => {
                let secrets = match &mut self.keys {
                    Keys::Client(keys) => keys.update_rx_secret(),
                    Keys::Server(keys) => keys.update_rx_secret(),
                };
                let (opened, secrets) = secrets.map_err(TlsError::Rustls)?;
                let (key, iv) = key_and_iv(secrets).map_err(TlsError::Rustls)?;
                (self.opener, self.opened) = (self.aead.decrypter(key, iv), opened);
                Ok(if wanted == 1 { Opened::KeyWanted } else { Opened::Nothing })
            }
            _ => Err(TlsError::Protocol("a message that Loam does not send")),
        }
    }

    /// Seals one record of at most [`CONTENTS_BYTES_MAX`] bytes; before it, a change of keys if one is due.
    pub(super) fn seal(&mut self, pieces: &[&[u8]], mut out: impl FnMut(Vec<u8>)) -> Result<(), TlsError> {
        if self.sealed >= self.records_per_key {
            self.change_key(&mut out)?;
        }
        out(self.seal_as(ContentType::ApplicationData, pieces)?);
        Ok(())
    }

    /// Tells the peer that our key changes, and changes it.
    pub(super) fn change_key(&mut self, mut out: impl FnMut(Vec<u8>)) -> Result<(), TlsError> {
        out(self.seal_as(ContentType::Handshake, &[&KEY_UPDATE])?);
        let secrets = match &mut self.keys {
            Keys::Client(keys) => keys.update_tx_secret(),
            Keys::Server(keys) => keys.update_tx_secret(),
        };
        let (sealed, secrets) = secrets.map_err(TlsError::Rustls)?;
        let (key, iv) = key_and_iv(secrets).map_err(TlsError::Rustls)?;
        (self.sealer, self.sealed) = (self.aead.encrypter(key, iv), sealed);
        Ok(())
    }

    /// The record that says that no more is sent.
    pub(super) fn seal_end(&mut self) -> Result<Vec<u8>, TlsError> {
        const WARNING: u8 = 1;
        self.seal_as(ContentType::Alert, &[&[WARNING, AlertDescription::CloseNotify.into()]])
    }

    /// The record that says why a peer whose handshake is done does not do.
    pub(super) fn seal_refusal(&mut self, alert: AlertDescription) -> Result<Vec<u8>, TlsError> {
        const FATAL: u8 = 2;
        self.seal_as(ContentType::Alert, &[&[FATAL, alert.into()]])
    }

    fn seal_as(&mut self, typ: ContentType, pieces: &[&[u8]]) -> Result<Vec<u8>, TlsError> {
        let payload = OutboundChunks::new(pieces);
        assert!(payload.len() <= CONTENTS_BYTES_MAX, "a record has room for 16 KiB");
        let message = OutboundPlainMessage { typ, version: ProtocolVersion::TLSv1_3, payload };
        let record = self.sealer.encrypt(message, self.sealed).map_err(TlsError::Rustls)?;
        self.sealed = self.sealed.checked_add(1).expect("keys change long before");
        Ok(record.encode())
    }
}
