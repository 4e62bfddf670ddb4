//! One connection to the node.

use super::{Info, List, RegionError};
use loam_wire::{Decoded, Frame, RegionAsk, RegionCall, RegionSpan, decode, encode};
use rustix::fd::OwnedFd;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
use rustix::process::{Pid, getpid};
use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long the node may take to take what is sent, to greet, and to list. Calls that make memory, or wait for who makes some, have no limit: a second for
/// each gigabyte of everybody in front. A node that dies closes the connection.
const PATIENCE: Duration = if cfg!(test) { Duration::from_secs(1) } else { Duration::from_secs(300) };
const RECEIVE_BYTES: usize = 16 * 1024;

/// Memory as it came: a stretch, and the file that it is in.
pub(super) type Stretch = (RegionSpan, OwnedFd);

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) info: Info,
    pub(super) memory: Vec<Stretch>,
}

#[derive(Debug)]
pub(super) struct Link {
    stream: UnixStream,
    request_last: u64,
    received: Vec<u8>,
    files: Vec<OwnedFd>,
    /// Descriptors came for which this process had no place.
    files_lost: bool,
    /// A call has failed, and an answer to it may still come: whoever asked again would get that, or be taken for one who breaks the protocol.
    broken: bool,
    /// Whose it is: a child that forked off must not speak in its place.
    process: Pid,
}

impl Link {
    pub(super) fn connect(socket: Option<&Path>) -> Result<Self, RegionError> {
        let stream = match socket {
            Some(path) => UnixStream::connect(path)
                .map_err(|why| RegionError::Connect { path: path.to_owned(), why })?,
            None => {
                let places = loam_wire::places::node_sockets();
                places.iter().find_map(|path| UnixStream::connect(path).ok()).ok_or_else(|| {
                    let places: Vec<String> = places.iter().map(|path| path.display().to_string()).collect();
                    RegionError::NoNode { places: places.join(" or ") }
                })?
            }
        };
        stream.set_write_timeout(Some(PATIENCE)).map_err(RegionError::Lost)?;
        let mut link = Self {
            stream,
            request_last: 0,
            received: Vec::new(),
            files: Vec::new(),
            files_lost: false,
            broken: false,
            process: getpid(),
        };
        let mut hello = Vec::new();
        encode::hello(&mut hello, 0, "a program with regions");
        link.exchange(&hello, Some(PATIENCE), |frame, _, _| match frame {
            Frame::Welcome(_) => Some(Ok(())),
            _ => None,
        })?;
        Ok(link)
    }

    /// Nothing can be asked over it any more. For as long as it is there the node takes what was opened over it to be open, if it lives.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// If so: what was asked over it and is not done yet is not done any more. The node takes what was opened over it to be closed.
    pub(super) fn end_if_broken(&self) {
        if self.broken {
            let _ = self.stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Makes a call.
    pub(super) fn call(&mut self, ask: &RegionAsk<'_>) -> Result<Answer, RegionError> {
        let (number, sent) = self.encode(ask);
        self.exchange(&sent, None, |frame, files, lost| match frame {
            Frame::Region { request, entry, spans } if *request == number => {
                let files = std::mem::take(files);
                Some(if lost {
                    Err(RegionError::Descriptors { stretches: spans.len() })
                } else if files.len() == spans.len() {
                    Ok(Answer {
                        info: Info::from(*entry),
                        memory: spans.iter().copied().zip(files).collect(),
                    })
                } else {
                    let text = format!("{} stretches with {} descriptors", spans.len(), files.len());
                    Err(RegionError::Protocol(text))
                })
            }
            _ => None,
        })
    }

    /// Asks for all regions.
    pub(super) fn list(&mut self) -> Result<List, RegionError> {
        let (number, sent) = self.encode(&RegionAsk::new(RegionCall::List, ""));
        self.exchange(&sent, Some(PATIENCE), |frame, _, _| match frame {
            Frame::Regions { request, figures, entries } if *request == number => Some(Ok(List {
                regions: entries.iter().map(Info::from).collect(),
                reserved_bytes: figures.reserved_bytes(),
                free_bytes: figures.free_bytes(),
            })),
            _ => None,
        })
    }

    fn encode(&mut self, ask: &RegionAsk<'_>) -> (u64, Vec<u8>) {
        self.request_last += 1;
        let mut sent = Vec::new();
        encode::region_call(&mut sent, self.request_last, ask);
        (self.request_last, sent)
    }

    /// Sends, and waits for the frame that `answer` takes, between two pieces of it at most for `patience`. It is also told whether descriptors were lost
    /// on the way.
    fn exchange<T>(
        &mut self,
        sent: &[u8],
        patience: Option<Duration>,
        answer: impl Fn(&Frame<'_>, &mut Vec<OwnedFd>, bool) -> Option<Result<T, RegionError>>,
    ) -> Result<T, RegionError> {
        if self.process != getpid() {
            return Err(RegionError::OtherProcess);
        }
        if self.broken {
            let why = "a call before this one has failed: open it anew";
            return Err(RegionError::Lost(io::Error::new(io::ErrorKind::NotConnected, why)));
        }
        let done = self.try_exchange(sent, patience, answer);
        self.broken = matches!(done, Err(RegionError::Lost(_) | RegionError::Protocol(_)));
        done
    }

    fn try_exchange<T>(
        &mut self,
        sent: &[u8],
        patience: Option<Duration>,
        answer: impl Fn(&Frame<'_>, &mut Vec<OwnedFd>, bool) -> Option<Result<T, RegionError>>,
    ) -> Result<T, RegionError> {
        self.stream.set_read_timeout(patience).map_err(RegionError::Lost)?;
        self.stream.write_all(sent).map_err(RegionError::Lost)?;
        loop {
            let (taken, consumed) = match decode(&self.received) {
                Err(why) => return Err(RegionError::Protocol(why.to_string())),
                Ok(Decoded::NeedMore { .. }) => {
                    self.receive().map_err(RegionError::Lost)?;
                    continue;
                }
                Ok(Decoded::Whole { frame, consumed }) => {
                    let taken = match &frame {
                        Frame::RegionRefused { why, text, .. } => {
                            Some(Err(RegionError::Refused { why: *why, text: (*text).to_owned() }))
                        }
                        Frame::Error { text, .. } => Some(Err(RegionError::Lost(io::Error::other(*text)))),
                        frame => answer(frame, &mut self.files, std::mem::take(&mut self.files_lost)),
                    };
                    (taken, consumed)
                }
            };
            self.received.drain(..consumed);
            if let Some(taken) = taken {
                return taken;
            }
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut space =
            vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(loam_wire::limits::REGION_SPANS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; RECEIVE_BYTES];
        let message = loop {
            let into = &mut [IoSliceMut::new(&mut bytes)];
            match rustix::net::recvmsg(&self.stream, into, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?,
            }
        };
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = part {
                self.files.extend(files);
            }
        }
        self.files_lost |= message.flags.contains(ReturnFlags::CTRUNC);
        if message.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.received.extend_from_slice(&bytes[..message.bytes]);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
