//! Frames for borrowers that have asked for nothing, until a loop that has a connection of theirs takes them.
//!
//! One that does not read (it was stopped, or its link is slow) must not have more and more of this machine's memory. Its connection takes no more posts
//! than [`crate::limits::QUEUED_BYTES_HIGH`] before it has sent them; the others stay here. Of those, hints go when they are late. What would not be said
//! again stays for as long as its connection does: there is little of it, at most a few bytes for each page that the borrower had put.

use crate::limits::STORED_POST_TIME;
use loam_core::ids::SpaceId;
use loam_core::lender::RECALL_TIME;
use loam_core::units::{Duration, Instant};
use std::sync::{Mutex, MutexGuard};

/// What a post tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Something that is said again, or is found out otherwise.
    Hint,
    /// Room: the newest is enough.
    Room,
    /// Pages that are stored.
    Stored,
}

impl News {
    /// How long it may be before a loop takes it: what nobody has taken for long is for somebody who has gone.
    fn time(self) -> Duration {
        match self {
            Self::Hint | Self::Room => RECALL_TIME,
            Self::Stored => STORED_POST_TIME,
        }
    }
}

/// Whether a loop takes a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    Yes,
    /// The connection that it is for has to send others first.
    Later,
    /// It has no connection that it is for.
    No,
}

/// A frame for a borrower.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) to: SpaceId,
    pub(crate) news: News,
    pub(crate) frame: Vec<u8>,
    until: Instant,
    /// The connection that it is for is there, and takes it later.
    held: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Posts(Mutex<Vec<Post>>);

impl Posts {
    fn lock(&self) -> MutexGuard<'_, Vec<Post>> {
        self.0.lock().expect("nothing panics under it")
    }

    /// Leaves a frame for the loops; they have to be woken.
    pub(crate) fn leave(&self, now: Instant, to: SpaceId, news: News, frame: Vec<u8>) {
        let mut posts = self.lock();
        let is_old_news = |post: &Post| news == News::Room && post.news == news && post.to == to;
        posts.retain(|post| (post.held || now < post.until) && !is_old_news(post));
        posts.push(Post { to, news, frame, until: now + news.time(), held: false });
    }

    /// Takes those that a loop `takes`, which hears for whom each is and how long, in their order.
    pub(crate) fn take(&self, mut takes: impl FnMut(SpaceId, usize) -> Takes) -> Vec<Post> {
        let take = |post: &mut Post| {
            let takes = takes(post.to, post.frame.len());
            post.held |= takes == Takes::Later && post.news != News::Hint;
            takes == Takes::Yes
        };
        self.lock().extract_if(.., take).collect()
    }

    /// The connection that was to take them later is over.
    pub(crate) fn let_go(&self, now: Instant, to: SpaceId) {
        for post in self.lock().iter_mut().filter(|post| post.to == to && post.held) {
            (post.held, post.until) = (false, now + post.news.time());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SpaceId = SpaceId(1);
    const B: SpaceId = SpaceId(2);

    fn now(ms: u64) -> Instant {
        Instant(0) + Duration::from_millis(ms)
    }

    fn lengths(posts: Vec<Post>) -> Vec<usize> {
        posts.iter().map(|post| post.frame.len()).collect()
    }

    #[test]
    fn what_would_not_be_said_again_stays_as_long_as_its_connection_does() {
        let posts = Posts::default();
        posts.leave(now(0), A, News::Hint, vec![0; 1]);
        posts.leave(now(0), A, News::Stored, vec![0; 2]);
        posts.leave(now(0), A, News::Room, vec![0; 3]);
        posts.leave(now(0), B, News::Stored, vec![0; 4]);
        let later = |space, _| if space == A { Takes::Later } else { Takes::No };
        assert!(posts.take(later).is_empty());
        // An hour later.
        posts.leave(now(3_600_000), A, News::Room, vec![0; 5]);
        assert!(posts.take(later).is_empty());
        posts.let_go(now(3_600_000), A);
        posts.leave(now(3_602_000), B, News::Hint, vec![0; 6]);
        assert_eq!(
            lengths(posts.take(|_, _| Takes::Yes)),
            [2, 6],
            "room is told of once, and is late by now"
        );
    }

    #[test]
    fn those_that_are_taken_keep_their_order() {
        let posts = Posts::default();
        (1..=6).for_each(|n| posts.leave(now(0), SpaceId(n as u64 % 2), News::Hint, vec![0; n]));
        assert_eq!(lengths(posts.take(|to, _| if to == A { Takes::Yes } else { Takes::No })), [1, 3, 5]);
        assert_eq!(lengths(posts.take(|_, _| Takes::Yes)), [2, 4, 6]);
    }
}
