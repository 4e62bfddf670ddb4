//! Where the threads of a process have what the kernel writes to when they have ended.

use rustix::process::Pid;

/// The word that is cleared for a thread stands 16 bytes before the head of its list of locks in glibc, both in its control block.
const BEFORE_BYTES: u64 = 64;
/// The head: three words.
const HEAD_BYTES: u64 = 24;

/// The base pages of control blocks of threads, as addresses from and to: of those threads that have told the kernel where their list of
/// locks is, which glibc does for each. None where we may not ask.
pub(crate) fn control_blocks(pid: Pid) -> Vec<(u64, u64)> {
    let folder = format!("/proc/{}/task", pid.as_raw_nonzero());
    let tasks = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let tids = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    tids.filter_map(list_head).map(pages).collect()
}

/// Address of the head of a thread's list of locks.
fn list_head(tid: i32) -> Option<u64> {
    let (mut head, mut bytes) = (0_u64, 0_u64);
    // SAFETY: the kernel writes a pointer and a size, for which there is room.
    let answer = unsafe { libc::syscall(libc::SYS_get_robust_list, tid, &raw mut head, &raw mut bytes) };
    // A program can name any address.
    let is_sane = (BEFORE_BYTES..1 << 56).contains(&head) && bytes == HEAD_BYTES;
    (answer == 0 && is_sane).then_some(head)
}

fn pages(head: u64) -> (u64, u64) {
    ((head - BEFORE_BYTES) & !4095, (head + HEAD_BYTES).next_multiple_of(4096))
}
