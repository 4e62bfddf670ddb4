//! One operation from queueing to completion.

use crate::engine::{Attempt, Verb};
use rustix::io::Errno;

/// Attempts without a whole block of progress before an operation fails.
pub(crate) const IDLE_ATTEMPTS_MAX: u8 = 16;

/// Kept for reuse when it is over, with its vectors.
pub(crate) struct Operation {
    pub(crate) token: u64,
    pub(crate) verb: Verb,
    pub(crate) offset_bytes: u64,
    /// All that is to be transferred; 0 for a sync.
    pub(crate) bytes: usize,
    /// Where an attempt may stop and the next begin: direct I/O takes whole blocks only.
    pub(crate) block_bytes: usize,
    /// What is read or written, in the file's order.
    pub(crate) pieces: Vec<libc::iovec>,
    /// What the kernel reads while an attempt is under way: not touched meanwhile.
    pub(crate) iovecs: Vec<libc::iovec>,
    pub(crate) done_bytes: usize,
    pub(crate) idle_attempts: u8,
    pub(crate) live: bool,
}

impl Operation {
    pub(crate) fn new(block_bytes: usize) -> Self {
        Self {
            token: 0,
            verb: Verb::Sync,
            offset_bytes: 0,
            bytes: 0,
            block_bytes,
            pieces: Vec::new(),
            iovecs: Vec::new(),
            done_bytes: 0,
            idle_attempts: 0,
            live: false,
        }
    }

    /// What is left to do, as one call. Pieces that lie side by side share an iovec.
    pub(crate) fn attempt(&mut self, index: u32) -> Attempt {
        assert!(self.live && (self.done_bytes < self.bytes || self.verb == Verb::Sync));
        self.iovecs.clear();
        let mut skip_bytes = self.done_bytes;
        for piece in &self.pieces {
            if skip_bytes >= piece.iov_len {
                skip_bytes -= piece.iov_len;
                continue;
            }
            // Inside the piece, by the test above.
            let start = piece.iov_base.wrapping_byte_add(skip_bytes);
            let bytes = piece.iov_len - skip_bytes;
            skip_bytes = 0;
            match self.iovecs.last_mut() {
                Some(last) if last.iov_base.addr() + last.iov_len == start.addr() => last.iov_len += bytes,
                _ => self.iovecs.push(libc::iovec { iov_base: start, iov_len: bytes }),
            }
        }
        Attempt {
            op: index,
            verb: self.verb,
            offset_bytes: self.offset_bytes + self.done_bytes as u64,
            iovecs: self.iovecs.as_ptr(),
            iovecs_count: self.iovecs.len() as u32,
        }
    }

    /// What an attempt's result means: `None` to go on with the rest.
    pub(crate) fn judge(&mut self, result: i32) -> Option<Result<(), Errno>> {
        let whole_bytes = match usize::try_from(result) {
            Ok(_) if self.verb == Verb::Sync => return Some(Ok(())),
            Ok(bytes) => bytes / self.block_bytes * self.block_bytes,
            Err(_) => match Errno::from_raw_os_error(-result) {
                Errno::INTR | Errno::AGAIN => 0,
                errno => return Some(Err(errno)),
            },
        };
        assert!(whole_bytes <= self.bytes - self.done_bytes, "more was transferred than asked for");
        self.done_bytes += whole_bytes;
        if self.done_bytes == self.bytes && self.verb != Verb::Sync {
            return Some(Ok(()));
        }
        // Part of a block counts for nothing: direct I/O goes on at whole blocks.
        self.idle_attempts = if whole_bytes == 0 { self.idle_attempts + 1 } else { 0 };
        (self.idle_attempts >= IDLE_ATTEMPTS_MAX).then_some(Err(Errno::IO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owned::Buffer;

    const PAGE: usize = 4096;

    #[test]
    fn interrupted_and_partial_transfers_go_on_where_they_stopped() {
        let mut memory = Buffer::new(4 * PAGE);
        let base = memory.start();
        let page = |index: usize| base.wrapping_add(index * PAGE);
        let mut operation = Operation::new(PAGE);
        operation.pieces =
            [0, 1, 3, 2].map(|index| libc::iovec { iov_base: page(index).cast(), iov_len: PAGE }).to_vec();
        (operation.verb, operation.offset_bytes, operation.bytes) = (Verb::Read, 100 * 4096, 4 * PAGE);
        operation.live = true;
        let attempt = operation.attempt(0);
        assert_eq!(
            (attempt.offset_bytes, attempt.iovecs_count),
            (100 * 4096, 3),
            "two neighbours share an iovec"
        );
        assert!(operation.judge(-libc::EINTR).is_none());
        assert!(operation.judge(4096 + 512).is_none());
        let attempt = operation.attempt(0);
        assert_eq!((attempt.offset_bytes, attempt.iovecs_count), (101 * 4096, 3));
        assert_eq!(operation.iovecs[0].iov_base.addr(), page(1).addr());
        assert!(operation.judge(2 * 4096).is_none());
        assert!(matches!(operation.judge(4096), Some(Ok(()))));

        (operation.done_bytes, operation.idle_attempts) = (0, 0);
        let mut attempts = 1;
        while operation.judge(-libc::EAGAIN).is_none() {
            attempts += 1;
        }
        assert_eq!(attempts, u32::from(IDLE_ATTEMPTS_MAX));
        assert!(matches!(operation.judge(-libc::ENOSPC), Some(Err(Errno::NOSPC))));
    }

    #[test]
    fn one_long_piece_goes_on_inside_itself_at_whole_blocks() {
        let mut memory = Buffer::new(9 * 512);
        let start = memory.start();
        let mut operation = Operation::new(512);
        operation.pieces = vec![libc::iovec { iov_base: start.cast(), iov_len: 9 * 512 }];
        (operation.verb, operation.offset_bytes, operation.bytes) = (Verb::Write, 1024, 9 * 512);
        operation.live = true;
        assert!(operation.judge(3 * 512 + 100).is_none());
        let attempt = operation.attempt(0);
        assert_eq!((attempt.offset_bytes, attempt.iovecs_count), (1024 + 3 * 512, 1));
        assert_eq!(operation.iovecs[0].iov_base.addr(), start.addr() + 3 * 512);
        assert_eq!(operation.iovecs[0].iov_len, 6 * 512);
        assert!(matches!(operation.judge(6 * 512), Some(Ok(()))));
    }

    #[test]
    fn a_sync_is_tried_again_and_ends() {
        let mut operation = Operation::new(512);
        operation.live = true;
        assert_eq!(operation.attempt(0).iovecs_count, 0);
        assert!(operation.judge(-libc::EINTR).is_none());
        assert!(matches!(operation.judge(0), Some(Ok(()))));
        assert!(matches!(operation.judge(-libc::EIO), Some(Err(Errno::IO))));
    }
}
