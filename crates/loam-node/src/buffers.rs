//! A connection's two buffers. Both stay initialised and grow only as bytes really come, so that neither a
//! claimed length nor clearing costs anything.

use crate::limits::BUFFER_BYTES_MIN;
use loam_wire::limits::FRAME_BYTES_MAX;

/// Largest size of a receive buffer: one whole frame, and the beginning of the next.
const RECEIVE_BYTES_MAX: usize = FRAME_BYTES_MAX + BUFFER_BYTES_MIN;

/// Bytes received and not handled yet.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes that the frame at the front needs in all.
    wanted: usize,
}

impl Incoming {
    /// What has come and is not consumed.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The frame at the front needs `bytes_total`.
    pub(crate) fn want(&mut self, bytes_total: usize) {
        assert!(bytes_total <= FRAME_BYTES_MAX, "the decoder limits it");
        self.wanted = bytes_total;
    }

    /// Where to receive to; never empty.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.start > 0 && (self.start + self.wanted > self.buffer.len() || self.end == self.buffer.len()) {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.buffer.len() {
            // Full: what was claimed has come this far, so there may be as much again.
            let bytes = (self.buffer.len() * 2).clamp(BUFFER_BYTES_MIN, RECEIVE_BYTES_MAX);
            assert!(bytes > self.buffer.len(), "a frame is larger than a frame may be");
            self.buffer.resize(bytes, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// `bytes` were received into [`Self::room`].
    pub(crate) fn received(&mut self, bytes: usize) {
        self.end += bytes;
        assert!(self.end <= self.buffer.len());
    }

    /// The first `bytes` are handled.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        self.wanted = 0;
        assert!(self.start <= self.end);
    }

    /// Gives memory back if nothing is in it and it has more than it `keeps`.
    pub(crate) fn shrink(&mut self, keeps: usize) {
        if self.start == self.end && self.buffer.len() > keeps {
            *self = Self::default();
        }
    }
}

/// Bytes that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Outgoing {
    /// What waits.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// How much waits.
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    /// Space for `bytes` at the end, with whatever was there before; all of it must be written.
    pub(crate) fn append(&mut self, bytes: usize) -> &mut [u8] {
        if self.end + bytes > self.buffer.len() && self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end + bytes > self.buffer.len() {
            let len = (self.end + bytes).next_power_of_two().max(BUFFER_BYTES_MIN);
            self.buffer.resize(len, 0);
        }
        self.end += bytes;
        &mut self.buffer[self.end - bytes..self.end]
    }

    /// Takes back the last `bytes`.
    pub(crate) fn take_back(&mut self, bytes: usize) {
        assert!(bytes <= self.len());
        self.end -= bytes;
    }

    /// The first `bytes` are sent.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.start += bytes;
        assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Gives memory back if nothing is in it and it has more than it `keeps`.
    pub(crate) fn shrink(&mut self, keeps: usize) {
        if self.len() == 0 && self.buffer.len() > keeps {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_any_size_comes_through_in_pieces() {
        let mut incoming = Incoming::default();
        let mut sent = 0_u32;
        for bytes in [10, BUFFER_BYTES_MIN - 4, BUFFER_BYTES_MIN + 1, FRAME_BYTES_MAX, 3, FRAME_BYTES_MAX] {
            let from = sent;
            incoming.want(bytes);
            while incoming.bytes().len() < bytes {
                let room = incoming.room();
                let piece = room.len().min(7001);
                for byte in &mut room[..piece] {
                    *byte = (sent % 251) as u8;
                    sent += 1;
                }
                incoming.received(piece);
            }
            for (at, byte) in incoming.bytes()[..bytes].iter().enumerate() {
                assert_eq!(u32::from(*byte), (from + at as u32) % 251);
            }
            incoming.consume(bytes);
            sent = from + bytes as u32;
            // What came too early is sent again: begin anew.
            let early = incoming.bytes().len();
            incoming.consume(early);
        }
    }

    #[test]
    fn who_keeps_nothing_begins_anew() {
        let (mut incoming, mut outgoing) = (Incoming::default(), Outgoing::default());
        for _ in 0..2 {
            incoming.room()[0] = 1;
            incoming.received(1);
            outgoing.append(1)[0] = 2;
            incoming.shrink(0);
            outgoing.shrink(0);
            assert_eq!((incoming.bytes(), outgoing.bytes()), (&[1][..], &[2][..]), "what is in them stays");
            incoming.consume(1);
            outgoing.sent(1);
            incoming.shrink(0);
            outgoing.shrink(0);
            assert_eq!((incoming.buffer.capacity(), outgoing.buffer.capacity()), (0, 0));
        }
    }

    #[test]
    fn what_is_appended_is_sent_in_order() {
        let mut outgoing = Outgoing::default();
        let (mut appended, mut taken) = (0_u8, 0_u8);
        for round in 0..2000_usize {
            for byte in outgoing.append(1 + round * 37 % 900) {
                *byte = appended;
                appended = appended.wrapping_add(1);
            }
            let bytes = (round * 53 % 1100).min(outgoing.len());
            for byte in &outgoing.bytes()[..bytes] {
                assert_eq!(*byte, taken);
                taken = taken.wrapping_add(1);
            }
            outgoing.sent(bytes);
        }
    }
}
