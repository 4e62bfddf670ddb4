//! A small agent for tests: serves one tree of processes from a hash map, in the thread of the test.
//!
//! It keeps the real agent's rules: events are read with the gate held, an event that changes mappings makes the epoch
//! another, and while it waits for the hand it goes on reading events (handled later, in order).

pub mod kernel;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use kernel::{Event, Message};
use loam_hand::{
    BASE_PAGE_BYTES, Call, CallReply, Control, Hello, LAYOUT_VERSION, RING_COMMANDS, Ready, RegionPlan,
    SHARED_BYTES, TRANSFER_BYTES, Welcome, aside, call, kind, role, state, status,
};

pub const PAGE: u64 = BASE_PAGE_BYTES as u64;
const PATIENCE: Duration = Duration::from_secs(10);
static COUNTER: AtomicU32 = AtomicU32::new(0);

/// A process under the agent; also a forked child that has not joined yet.
pub struct Process {
    pub userfaultfd: OwnedFd,
    pub joined: Option<Joined>,
    pub pages: BTreeMap<u64, Box<[u8]>>,
    /// What it found in its probe page; 0: it has not knocked.
    pub knock: u64,
    pub window_removals: u32,
    pub faults: u32,
    queue: VecDeque<Message>,
    gone: bool,
}

/// What a joined process has.
pub struct Joined {
    pub pid: u32,
    pub hello: Hello,
    pub control: &'static Control,
    pub socket: OwnedFd,
}

pub struct Mini {
    pub processes: Vec<Process>,
    pub calls: Vec<(u32, u64, u64)>,
    pub fork_events: bool,
    /// What a handshake answers, and what a call does.
    pub welcome_status: u32,
    /// Calls that are refused (EFAULT).
    pub refused: Option<u32>,
    /// Requests to let a range go are not answered before [`Mini::answer_held`].
    pub holds: bool,
    held: Vec<(OwnedFd, Call)>,
    /// What an agent of another version would answer.
    pub stranger: Option<[u32; 6]>,
    /// What the hand finds that is to step aside.
    pub asides: Asides,
    /// The region that programs shall have.
    pub region: RegionPlan,
    listener: Option<OwnedFd>,
    path: PathBuf,
    /// The command that told the first one's hand to step aside.
    pub aside: Option<u32>,
    adopted: Vec<(u64, u64)>,
    output: HashMap<RawFd, Vec<u8>>,
}

/// What becomes of a call that the hand is to step aside.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Asides {
    /// The hand is told.
    Told,
    /// It is told of a descriptor that there is not, and so is everybody else.
    ToldWrong,
    /// It is told, and the agent dies before it answers.
    ToldLast,
    /// It is not told, and nobody answers: the agent hangs up.
    Unheard,
}

/// The program's end of things.
pub struct Victim {
    pub child: Child,
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The shim as cargo built it beside this test, or the one that LOAM_TEST_SHIM names.
pub fn shim() -> PathBuf {
    if let Some(path) = std::env::var_os("LOAM_TEST_SHIM") {
        return path.into();
    }
    let here = std::env::current_exe().unwrap();
    let candidates = [here.parent().unwrap(), here.parent().unwrap().parent().unwrap()];
    let found = candidates.iter().map(|folder| folder.join("libloam_shim.so")).find(|path| path.exists());
    found.expect("libloam_shim.so stands beside the tests")
}

/// The compiled victim.
pub fn victim_program() -> PathBuf {
    static ONCE: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    ONCE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (fresh, out) =
            (folder.join(format!("victim-{}", std::process::id())), folder.join("loam-victim"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/victim.c");
        let built =
            Command::new("cc").args(["-O1", "-Wall", "-pthread", "-o"]).arg(&fresh).arg(source).status();
        assert!(built.expect("a C compiler").success());
        // In one step, as several test programs may run at once.
        std::fs::rename(&fresh, &out).unwrap();
        out
    })
    .clone()
}

impl Mini {
    pub fn new(fork_events: bool) -> Mini {
        let number = COUNTER.fetch_add(1, SeqCst);
        let path = std::env::temp_dir().join(format!("loam-mini-{}-{number}", std::process::id()));
        let listener = kernel::listen(&path);
        Mini {
            processes: Vec::new(),
            calls: Vec::new(),
            fork_events,
            welcome_status: status::GO_ON,
            refused: None,
            holds: false,
            held: Vec::new(),
            stranger: None,
            asides: Asides::Told,
            region: RegionPlan::default(),
            listener: Some(listener),
            path,
            aside: None,
            adopted: Vec::new(),
            output: HashMap::new(),
        }
    }

    /// Starts the victim under the shim and waits until it runs.
    pub fn start(&mut self) -> Victim {
        self.start_by(&victim_program(), |command| command)
    }

    /// As `start`, as a user without any privilege.
    pub fn start_as_nobody(&mut self) -> Victim {
        // Copies that every user can reach, whatever the build folder's permissions.
        let (library, program) = (self.path.with_extension("so"), self.path.with_extension("program"));
        std::fs::copy(shim(), &library).unwrap();
        std::fs::copy(victim_program(), &program).unwrap();
        for (path, mode) in [(&library, 0o755), (&self.path, 0o777), (&program, 0o755)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let victim =
            self.start_by(&program, |command| command.uid(65534).gid(65534).env("LD_PRELOAD", &library));
        self.answer(&victim, "hello");
        std::fs::remove_file(&library).unwrap();
        std::fs::remove_file(&program).unwrap();
        victim
    }

    /// As `start_and_greet`, as the first process of a PID namespace.
    pub fn start_as_first(&mut self) -> (Victim, i64) {
        let preload = format!("LD_PRELOAD={}", shim().display());
        let victim = self.start_by(Path::new("unshare"), |command| {
            let command = command.args(["--pid", "--fork", "--kill-child", "env", &preload]);
            command.arg(victim_program()).env_remove("LD_PRELOAD")
        });
        let open = self.answer(&victim, "hello");
        (victim, open)
    }

    fn start_by(&mut self, program: &Path, change: impl FnOnce(&mut Command) -> &mut Command) -> Victim {
        let child = change(Command::new(program).env("LD_PRELOAD", shim()))
            .env("LOAM_SOCKET", &self.path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        kernel::set_nonblocking(child.stdout.as_ref().unwrap().as_raw_fd());
        Victim { child }
    }

    /// Starts the victim and reads its greeting; the number of descriptors that it has open.
    pub fn start_and_greet(&mut self) -> (Victim, i64) {
        let victim = self.start();
        let open = self.answer(&victim, "hello");
        (victim, open)
    }

    /// Has the victim fill an area and adopts it; its address.
    pub fn fill(&mut self, victim: &Victim, pages: u64) -> u64 {
        let address = self.ask(victim, &format!("fill {pages}"), "area") as u64;
        kernel::register(&self.processes[0].userfaultfd, address, pages * PAGE, kernel::MODE_MISSING)
            .unwrap();
        self.adopted.push((address, pages));
        address
    }

    pub fn tell(&mut self, victim: &Victim, line: &str) {
        writeln!(victim.child.stdin.as_ref().unwrap(), "{line}").unwrap();
    }

    pub fn ask(&mut self, victim: &Victim, line: &str, answer: &str) -> i64 {
        self.tell(victim, line);
        self.answer(victim, answer)
    }

    /// Serves until the victim has said the word; its number.
    pub fn answer(&mut self, victim: &Victim, word: &str) -> i64 {
        let fd = victim.child.stdout.as_ref().unwrap().as_raw_fd();
        self.until(word, |mini| {
            let buffer = mini.output.entry(fd).or_default();
            kernel::read_available(fd, buffer);
            let end = buffer.iter().position(|byte| *byte == b'\n')?;
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let line = String::from_utf8(line).unwrap();
            let (said, number) = line.trim_end().split_once(' ').unwrap();
            assert_eq!(said, word, "the victim's answer");
            Some(number.parse().unwrap())
        })
    }

    /// Serves until `ready` gives something.
    pub fn until<T>(&mut self, what: &str, mut ready: impl FnMut(&mut Mini) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            self.pump();
            if let Some(value) = ready(self) {
                return value;
            }
            assert!(began.elapsed() < PATIENCE, "waited too long for {what}");
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// One round of everything that is waiting.
    pub fn pump(&mut self) {
        if let Some(socket) = self.listener.as_ref().and_then(kernel::accept) {
            self.greet(socket);
        }
        for index in 0..self.processes.len() {
            self.read_events(index);
            self.handle_events(index);
        }
    }

    fn greet(&mut self, socket: OwnedFd) {
        let (hello, _) = kernel::receive::<Hello>(&socket).expect("a hello");
        assert_eq!(hello.layout_version, LAYOUT_VERSION);
        if hello.role == role::CALL {
            let (asked, _) = kernel::receive::<Call>(&socket).expect("a call");
            self.calls.push((asked.what, asked.address, asked.bytes));
            if self.holds && asked.what == call::RELEASE {
                self.held.push((socket, asked));
                return;
            }
            match asked.what {
                call::RELEASE if self.refused == Some(call::RELEASE) => {}
                call::RELEASE => self.bring_home(asked.address, asked.bytes, true),
                call::FORK_PREPARE => self.bring_home(0, u64::MAX, false),
                call::STEP_ASIDE if self.asides == Asides::Unheard => return,
                call::STEP_ASIDE if self.refused != Some(call::STEP_ASIDE) => {
                    let asks = |p: &Process| p.joined.as_ref().is_some_and(|j| j.pid == hello.pid);
                    let index = self.processes.iter().position(asks).expect("it has joined");
                    let mut socket = asked.address as u32;
                    if self.asides == Asides::ToldWrong {
                        socket += 1000;
                        self.processes[index].control().aside.store(aside::wanted(socket), SeqCst);
                    }
                    let number = self.post_command(index, kind::STEP_ASIDE, 0, &[(0, 0, socket)]);
                    if self.asides == Asides::ToldLast {
                        return self.die();
                    }
                    self.aside = Some(number).filter(|_| index == 0);
                }
                _ => {}
            }
            let is_refused = self.refused == Some(asked.what);
            let status = if is_refused { libc::EFAULT as u32 } else { 0 };
            kernel::send(&socket, &CallReply { status, ..CallReply::default() }, &[]);
            return;
        }
        if let Some(words) = &self.stranger {
            kernel::send(&socket, words, &[]);
            return;
        }
        let memory = kernel::memfd(SHARED_BYTES);
        let control = kernel::map_control(&memory);
        control.layout_version.store(LAYOUT_VERSION, SeqCst);
        let welcome = Welcome {
            layout_version: LAYOUT_VERSION,
            fork_events: u32::from(self.fork_events),
            window_bytes: TRANSFER_BYTES as u64,
            status: self.welcome_status,
            reserved: 0,
            region: self.region,
        };
        if self.welcome_status != status::GO_ON {
            kernel::send(&socket, &welcome, &[]);
            return;
        }
        // Both ways to a userfaultfd are tried: by the device, and by the system call.
        let device = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/userfaultfd")
            .ok()
            .filter(|_| self.fork_events);
        let passed: Vec<RawFd> =
            std::iter::once(memory.as_raw_fd()).chain(device.as_ref().map(AsRawFd::as_raw_fd)).collect();
        kernel::send(&socket, &welcome, &passed);
        let (hello, userfaultfd) = kernel::receive::<Hello>(&socket).expect("a complete hello");
        assert_eq!(hello.userfaultfd_errno, 0);
        let index = match userfaultfd {
            Some(userfaultfd) => {
                kernel::userfault_api(&userfaultfd, self.fork_events);
                let probe = hello.probe_address;
                kernel::register(&userfaultfd, probe, PAGE, kernel::MODE_MISSING).unwrap();
                self.processes.push(Process::new(userfaultfd));
                self.processes.len() - 1
            }
            None => {
                assert_eq!(hello.role, role::FORKED);
                let of_child = |process: &Process| process.knock == hello.knock && process.joined.is_none();
                self.processes.iter().position(of_child).expect("the child knocked before it came")
            }
        };
        let process = &mut self.processes[index];
        let (window, bytes) = (hello.window_address, hello.window_bytes);
        kernel::register(&process.userfaultfd, window, bytes, kernel::MODE_WRITE_PROTECT).unwrap();
        let inherited = process.userfaultfd.as_raw_fd();
        let passed: &[RawFd] =
            if hello.role == role::FORKED && self.fork_events { &[inherited] } else { &[] };
        kernel::send(&socket, &Ready::default(), passed);
        process.joined = Some(Joined { pid: hello.pid, hello, control, socket });
    }

    /// Lets the ranges go that the program has asked for.
    pub fn answer_held(&mut self) {
        for (socket, asked) in std::mem::take(&mut self.held) {
            self.bring_home(asked.address, asked.bytes, true);
            kernel::send(&socket, &CallReply::default(), &[]);
        }
    }

    /// The victim has said nothing.
    pub fn is_silent(&mut self, victim: &Victim) -> bool {
        let fd = victim.child.stdout.as_ref().unwrap().as_raw_fd();
        let buffer = self.output.entry(fd).or_default();
        kernel::read_available(fd, buffer);
        buffer.is_empty()
    }

    /// Installs every page that is away in the range.
    fn bring_home(&mut self, start: u64, bytes: u64, unregister: bool) {
        for process in &mut self.processes {
            let end = start.saturating_add(bytes);
            let addresses: Vec<u64> = process.pages.range(start..end).map(|(address, _)| *address).collect();
            for address in addresses {
                let page = process.pages.remove(&address).unwrap();
                kernel::copy(&process.userfaultfd, address, &page).unwrap();
            }
            if unregister {
                kernel::unregister(&process.userfaultfd, start, bytes).unwrap();
            }
        }
    }

    /// Reads events with the gate held, as the real agent must.
    pub fn read_events(&mut self, index: usize) {
        let process = &mut self.processes[index];
        if process.gone || !kernel::is_readable(&process.userfaultfd) {
            return;
        }
        let control = process.joined.as_ref().map(|joined| joined.control);
        while control.is_some_and(|control| !control.gate.try_lock()) {
            std::hint::spin_loop();
        }
        match kernel::read_messages(&process.userfaultfd) {
            Some(messages) => {
                if let (Some(control), true) = (control, messages.iter().any(Message::changes_mappings)) {
                    control.epoch.fetch_add(1, SeqCst);
                }
                process.queue.extend(messages);
            }
            None => process.gone = true,
        }
        if let Some(control) = control {
            control.gate.unlock();
        }
    }

    fn handle_events(&mut self, index: usize) {
        while let Some(message) = self.processes[index].queue.pop_front() {
            let process = &mut self.processes[index];
            match message.event() {
                Event::Fault { address } => {
                    let page = address & !(PAGE - 1);
                    let is_adopted = self
                        .adopted
                        .iter()
                        .any(|(start, pages)| (*start..start + pages * PAGE).contains(&page));
                    process.faults += 1;
                    let mut zeros = vec![0; BASE_PAGE_BYTES].into_boxed_slice();
                    if !is_adopted {
                        process.knock = index as u64 + 1;
                        zeros[..8].copy_from_slice(&process.knock.to_ne_bytes());
                    }
                    let contents = process.pages.get(&page).unwrap_or(&zeros);
                    match kernel::copy(&process.userfaultfd, page, contents) {
                        Ok(()) => {
                            process.pages.remove(&page);
                        }
                        Err(libc::EEXIST) => kernel::wake(&process.userfaultfd, page),
                        Err(libc::EAGAIN) => {
                            process.queue.push_back(message);
                            self.read_events(index);
                        }
                        Err(libc::ENOENT | libc::ESRCH) => {}
                        Err(errno) => panic!("COPY: {errno}"),
                    }
                }
                Event::Fork(userfaultfd) => {
                    // SAFETY: the number came from the kernel as a new descriptor.
                    let mut child = Process::new(unsafe { OwnedFd::from_raw_fd(userfaultfd) });
                    child.pages = process.pages.clone();
                    self.processes.push(child);
                }
                Event::Remove { start, end } => {
                    let window = process.joined.as_ref().map(|joined| joined.hello.window_address);
                    process.window_removals += u32::from(window == Some(start));
                    process.pages.retain(|address, _| !(start..end).contains(address));
                }
                Event::Other => {}
            }
        }
    }

    /// Posts an EVICT command of (address, pages) spans. The ring must have room.
    pub fn post(&mut self, index: usize, spans: &[(u64, u32)]) -> u32 {
        let epoch = self.processes[index].control().epoch.load(SeqCst);
        self.post_command(
            index,
            kind::EVICT,
            epoch,
            &spans.iter().map(|(a, p)| (*a, *p, 0)).collect::<Vec<_>>(),
        )
    }

    /// Posts any command; its number.
    pub fn post_command(&mut self, index: usize, what: u32, epoch: u32, spans: &[(u64, u32, u32)]) -> u32 {
        let process = &self.processes[index];
        let control = process.control();
        let number = control.posted.load(SeqCst);
        let command = &control.commands[number as usize % RING_COMMANDS];
        assert_eq!(command.state.load(SeqCst), state::FREE);
        command.kind.store(what, SeqCst);
        command.epoch.store(epoch, SeqCst);
        command.outcome.store(0, SeqCst);
        command.spans_count.store(spans.len() as u32, SeqCst);
        for (slot, (address, pages, extra)) in command.spans.iter().zip(spans) {
            slot.address.store(*address, SeqCst);
            slot.pages.store(*pages, SeqCst);
            slot.extra.store(*extra, SeqCst);
        }
        command.state.store(state::POSTED, SeqCst);
        control.posted.store(number.wrapping_add(1), SeqCst);
        if control.hand_sleeps.load(SeqCst) != 0 {
            kernel::ring(&process.joined.as_ref().unwrap().socket);
        }
        number
    }

    /// Waits for a command without handling events (they are read, though).
    pub fn wait_done(&mut self, index: usize, number: u32) {
        let began = Instant::now();
        let control = self.processes[index].control();
        let command = &control.commands[number as usize % RING_COMMANDS];
        while command.state.load(SeqCst) != state::DONE {
            self.read_events(index);
            assert!(began.elapsed() < PATIENCE, "the hand does not answer");
            std::thread::yield_now();
        }
    }

    /// Keeps what was moved and frees the slot; the results, a byte a page.
    pub fn collect(&mut self, index: usize, number: u32) -> Vec<u8> {
        let process = &mut self.processes[index];
        let control = process.control();
        let slot = number as usize % RING_COMMANDS;
        let command = &control.commands[slot];
        let mut results = Vec::new();
        for span in &command.spans[..command.spans_count.load(SeqCst) as usize] {
            for page in 0..u64::from(span.pages.load(SeqCst)) {
                let outcome = command.results[results.len()].load(SeqCst);
                if outcome == loam_hand::result::MOVED {
                    let contents = kernel::transfer_page(control, slot, results.len());
                    let old = process.pages.insert(span.address.load(SeqCst) + page * PAGE, contents);
                    assert!(old.is_none(), "a page cannot be taken away twice");
                }
                results.push(outcome);
            }
        }
        command.state.store(state::FREE, SeqCst);
        results
    }

    pub fn evict(&mut self, index: usize, spans: &[(u64, u32)]) -> Vec<u8> {
        let number = self.post(index, spans);
        self.wait_done(index, number);
        let results = self.collect(index, number);
        self.handle_events(index);
        results
    }

    /// As kill -9 of the agent: everything it holds is closed.
    pub fn die(&mut self) {
        self.processes.clear();
        self.listener = None;
    }
}

impl Drop for Mini {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Process {
    fn new(userfaultfd: OwnedFd) -> Process {
        Process {
            userfaultfd,
            joined: None,
            pages: BTreeMap::new(),
            knock: 0,
            window_removals: 0,
            faults: 0,
            queue: VecDeque::new(),
            gone: false,
        }
    }

    pub fn control(&self) -> &'static Control {
        self.joined.as_ref().expect("a joined process").control
    }
}
