//! A lock that survives a fork, with the value that it guards.
//!
//! Whoever holds it has every signal blocked: a handler that allocates, or forks, never finds the lock held by the thread that it
//! interrupted. Nobody waits for anything while holding it, but for the time of a fork: other fork handlers run then, in the same thread, and
//! get the lock as well.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicUsize};

use crate::sys::{self, SignalsBlocked};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may sleep for it.
const WANTED: u32 = 2;

/// See the module's documentation.
pub(crate) struct Lock<T> {
    word: AtomicU32,
    /// The thread that forks and holds it for that; 0: none. In the child it is the thread that is left.
    forking: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard only, and there is one guard at a time: none while it is held for a fork, but the one that the
// thread that forks gets meanwhile.
unsafe impl<T: Send> Sync for Lock<T> {}

/// Holds the lock while it lives.
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// Given back with this guard; else it stays with the thread that forks.
    ends: bool,
    /// Dropped after the lock was given back.
    signals: Option<SignalsBlocked>,
}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(FREE), forking: AtomicUsize::new(0), value: UnsafeCell::new(value) }
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let signals = SignalsBlocked::new();
        if self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            // Only this thread writes what would make it true here.
            if self.forking.load(Relaxed) == sys::thread() {
                return Guard { lock: self, ends: false, signals: Some(signals) };
            }
            while self.word.swap(WANTED, Acquire) != FREE {
                sys::futex_wait(&self.word, WANTED);
            }
        }
        Guard { lock: self, ends: true, signals: Some(signals) }
    }

    /// Takes the lock for the time of a fork: the child's copy of the value is whole then. The signals that were blocked before, for
    /// [`Self::let_go`].
    pub(crate) fn hold(&self) -> SignalsBlocked {
        let mut guard = self.lock();
        let signals = guard.signals.take().expect("until now");
        // From here on there is no guard, but those that the same thread gets.
        self.forking.store(sys::thread(), Relaxed);
        core::mem::forget(guard);
        signals
    }

    /// Ends what [`Self::hold`] began, in the parent or in the child, whose only thread has the lock.
    pub(crate) fn let_go(&self, signals: SignalsBlocked) {
        self.forking.store(0, Relaxed);
        drop(Guard { lock: self, ends: true, signals: Some(signals) });
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        if self.ends && self.lock.word.swap(FREE, Release) == WANTED {
            sys::futex_wake_one(&self.lock.word);
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and the guard is borrowed for writing.
        unsafe { &mut *self.lock.value.get() }
    }
}
