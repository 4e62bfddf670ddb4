//! A slow link between a borrower and its lender, which writes down what goes over it in what order.

use loam_core::ids::Urgency;
use loam_wire::{Decoded, Frame, decode};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Something that a page went through, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// It was asked for because a thread waits for it.
    AskedWaited(u64),
    /// It was asked for behind others.
    AskedBehind(u64),
    /// A thread waited for it by then.
    Hurried(u64),
    /// It has come, or the lender does not have it.
    Came(u64),
}

/// What was seen so far, in the order in which the borrower's side of the link saw it.
pub type Log = Arc<Mutex<Vec<Passed>>>;

/// Bytes of one piece on its way to the borrower, and the pause after each: about 8 MB/s.
const PIECE_BYTES: usize = 16 * 1024;
const PAUSE: Duration = Duration::from_millis(2);
/// What the link holds of what the lender has sent.
const LINK_BYTES: usize = 64 * 1024;

/// Starts a link to `lender`, for as long as the test's process lives. Connect to the address that it returns.
///
/// # Panics
/// If loopback has no free port.
pub fn start(lender: SocketAddr) -> (SocketAddr, Log) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let addr = listener.local_addr().expect("just bound");
    let log = Log::default();
    let seen = Arc::clone(&log);
    thread::spawn(move || {
        for borrower in listener.incoming().flatten() {
            let Ok(lender) = TcpStream::connect(lender) else { return };
            let _ = (borrower.set_nodelay(true), lender.set_nodelay(true));
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&lender, LINK_BYTES);
            let _ = rustix::net::sockopt::set_socket_send_buffer_size(&borrower, LINK_BYTES);
            let (Ok(from), Ok(to)) = (borrower.try_clone(), lender.try_clone()) else { return };
            let (asks, answers) = (Arc::clone(&seen), Arc::clone(&seen));
            thread::spawn(move || pass(from, to, &asks, false));
            thread::spawn(move || pass(lender, borrower, &answers, true));
        }
    });
    (addr, log)
}

fn pass(mut from: TcpStream, mut to: TcpStream, log: &Log, slow: bool) {
    let (mut piece, mut unread) = (vec![0; PIECE_BYTES], Vec::new());
    while let Ok(got @ 1..) = from.read(&mut piece) {
        unread.extend_from_slice(&piece[..got]);
        let mut used = 0;
        while let Ok(Decoded::Whole { frame, consumed }) = decode(&unread[used..]) {
            used += consumed;
            note(&frame, log);
        }
        unread.drain(..used);
        if to.write_all(&piece[..got]).is_err() {
            break;
        }
        // Acks and the like are no load.
        if slow && got > PIECE_BYTES / 2 {
            thread::sleep(PAUSE);
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn note(frame: &Frame<'_>, log: &Log) {
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    match frame {
        Frame::GetPage { pages, .. } => log.extend(pages.iter().map(|page| match page.urgency() {
            Urgency::Waited => Passed::AskedWaited(page.index()),
            Urgency::Behind => Passed::AskedBehind(page.index()),
        })),
        Frame::Hurry { pages } => log.extend(pages.iter().map(|page| Passed::Hurried(page.index()))),
        Frame::Page { pages, .. } => log.extend(pages.iter().map(|page| Passed::Came(page.index()))),
        Frame::Miss { pages, .. } => log.extend(pages.iter().map(|page| Passed::Came(page.index()))),
        _ => {}
    }
}

/// What a log says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    /// Pages asked for because a thread waited.
    pub waited: usize,
    /// Pages asked for behind others.
    pub behind: usize,
    /// Pages hurried.
    pub hurried: usize,
    /// Pages that were waited for, or hurried, and came before something that was asked for behind before them.
    pub overtakes: usize,
    /// Most pages asked for behind that came between a waited page's asking and its coming.
    pub before_waited_max: usize,
}

/// Reads a log.
///
/// # Panics
/// If a page was asked for again before it came, or came without being asked for.
pub fn read(log: &Log) -> Told {
    let log = log.lock().unwrap_or_else(PoisonError::into_inner);
    let mut told = Told::default();
    // Open questions: when each page was asked for.
    let (mut behind, mut waited) = (std::collections::BTreeMap::new(), std::collections::BTreeMap::new());
    let mut came_behind = 0;
    let mut open = BTreeSet::new();
    for (at, &passed) in log.iter().enumerate() {
        match passed {
            Passed::AskedWaited(page) => {
                told.waited += 1;
                assert!(open.insert(page), "page {page} was asked for twice");
                waited.insert(page, (at, came_behind));
            }
            Passed::AskedBehind(page) => {
                told.behind += 1;
                assert!(open.insert(page), "page {page} was asked for twice");
                behind.insert(page, at);
            }
            Passed::Hurried(page) => {
                told.hurried += 1;
                // What has come meanwhile is nobody's to hurry.
                if behind.remove(&page).is_some() {
                    waited.insert(page, (at, came_behind));
                }
            }
            Passed::Came(page) => {
                assert!(open.remove(&page), "page {page} came and was not asked for");
                if let Some((asked, before)) = waited.remove(&page) {
                    told.overtakes += usize::from(behind.values().any(|&other| other < asked));
                    told.before_waited_max = told.before_waited_max.max(came_behind - before);
                } else {
                    behind.remove(&page);
                    came_behind += 1;
                }
            }
        }
    }
    told
}
