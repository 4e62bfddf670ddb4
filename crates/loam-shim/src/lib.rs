//! `libloam_shim.so`, loaded into the borrowing program by `LD_PRELOAD`.
//!
//! It does only what must be done inside the program: it makes the userfaultfd and hands it to the agent ([`join`]),
//! starts the *hand*, the one thread that takes pages away on the agent's commands ([`hand`], [`evict`]), gives
//! forked children a hand of their own ([`fork`]), has the hand step aside for what only a process of one thread may do ([`alone`]), tells the agent of requests that would clash with ours
//! ([`interpose`]), has whoever allocates wait while the tree takes memory faster than it can leave ([`throttle`]), and serves large allocations from the region if there is one ([`region`]). Without `LOAM_SOCKET` in the environment it does nothing.
//!
//! Rules of this crate: no allocation, no thread-local storage, no libc wrappers (they write `errno`, which the hand
//! shares with the thread that it was cloned from): system calls are made in [`sys`]. It needs no library: the few
//! symbols of libc that it uses are weak, so it loads into whatever the program brings.
//!
//! Built to abort on panic (the release profile) it is `no_std`. Test builds unwind, for which the standard library is
//! needed; it is linked, not used.
#![cfg_attr(panic = "abort", no_std)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!(
    "the shim is written for Linux on x86-64: its system calls and the clone of the hand are assembly"
);

mod alone;
mod connect;
mod delays;
mod evict;
mod fork;
mod hand;
mod interpose;
mod join;
mod lock;
mod message;
mod process;
mod region;
mod remap;
mod room;
mod sharers;
mod start;
mod sys;
mod throttle;
mod userfault;

// The precompiled core library names the routine that unwinding would use. Nothing unwinds here. Hidden, or it would stand in for the
// standard library's own in programs that load that as a shared object.
#[cfg(panic = "abort")]
core::arch::global_asm!(
    ".pushsection .text",
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:",
    "ud2",
    ".popsection",
);

/// An invariant does not hold: nothing in this process can be trusted with its memory any more.
#[cfg(all(panic = "abort", not(test)))]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let file = info.location().map_or("", |location| location.file());
    let line = info.location().map_or(0, |location| location.line());
    message::kill_self(&[
        message::Piece::Text(b"internal error in the shim at "),
        message::Piece::Text(file.as_bytes()),
        message::Piece::Text(b":"),
        message::Piece::Number(u64::from(line)),
        message::Piece::Text(b"; the program is ended"),
    ])
}
