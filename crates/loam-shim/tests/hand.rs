//! The shim against the kernel that it runs on, with a small agent: each test is a behaviour that Loam stands on.
//! They need userfaultfd, `UFFDIO_MOVE` and fork events (Linux 6.8, root or `CAP_SYS_PTRACE`).
#![allow(unreachable_pub)]

mod mini;

use std::io::Read;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use loam_hand::result::{BUSY, CANCELLED, DENIED, HOLE, MOVED};
use loam_hand::{LAYOUT_VERSION, aside, call, kind, state, status};
use mini::{Asides, Mini, PAGE, Victim, kernel};

fn count(results: &[u8], what: u8) -> usize {
    results.iter().filter(|result| **result == what).count()
}

/// How many descriptors the victim has without the shim (the tests' own parents may leave some open).
fn descriptors_without_shim() -> i64 {
    let output = std::process::Command::new(mini::victim_program())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim_end().strip_prefix("hello ").unwrap().parse().unwrap()
}

fn stderr(victim: &mut Victim) -> String {
    let mut text = String::new();
    victim.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn pages_leave_and_come_back_with_their_contents() {
    let mut mini = Mini::new(true);
    let (victim, open) = mini.start_and_greet();
    assert_eq!(open, descriptors_without_shim(), "the program sees no descriptor of the shim");
    let area = mini.fill(&victim, 1024);
    for block in 0..4 {
        let results = mini.evict(0, &[(area + block * 256 * PAGE, 256)]);
        assert_eq!(count(&results, MOVED), 256);
    }
    assert_eq!(mini.processes[0].pages.len(), 1024);
    assert_eq!(mini.ask(&victim, "check", "check"), -1);
    assert_eq!(mini.processes[0].faults, 1024, "every page came back by a fault");
    assert_eq!(mini.processes[0].window_removals, 0, "emptying the window raises no event");
}

#[test]
fn single_pages_holes_and_spans_over_the_end_of_a_mapping() {
    let mut mini = Mini::new(true);
    let (victim, _) = mini.start_and_greet();
    let area = mini.fill(&victim, 64);
    mini.ask(&victim, "dontneed 10 5", "dontneed");
    let results = mini.evict(0, &[(area + 8 * PAGE, 10), (area + 2 * PAGE, 1), (area + 4 * PAGE, 1)]);
    assert_eq!(results, [MOVED, MOVED, HOLE, HOLE, HOLE, HOLE, HOLE, MOVED, MOVED, MOVED, MOVED, MOVED]);
    mini.ask(&victim, "protect 32 16", "protect");
    let results = mini.evict(0, &[(area + 30 * PAGE, 20)]);
    let wanted: Vec<u8> =
        (30..50).map(|page| if (32..48).contains(&page) { DENIED } else { MOVED }).collect();
    assert_eq!(results, wanted);
    let results = mini.evict(0, &[(PAGE * 16, 4)]);
    assert_eq!(results, [HOLE; 4], "no mapping there at all");
}

#[test]
fn what_is_swapped_out_is_not_taken_for_a_page_that_has_arrived() {
    let mut mini = Mini::new(true);
    let (victim, _) = mini.start_and_greet();
    let area = mini.fill(&victim, 64);
    // A guard (Linux 6.13) stands in for what is swapped out: it is not here, and not nothing.
    if mini.ask(&victim, "guard 10 4", "guard") != 0 {
        println!("skipped: this kernel has no guards");
        return;
    }
    // Whoever reads the window from outside has the kernel put zeros there.
    let joined = mini.processes[0].joined.as_ref().unwrap();
    let memory = std::fs::File::open(format!("/proc/{}/mem", joined.pid)).unwrap();
    for page in 0..6 {
        let mut word = [1; 8];
        memory.read_exact_at(&mut word, joined.hello.window_address + page * PAGE).unwrap();
        assert_eq!(word, [0; 8]);
    }
    let results = mini.evict(0, &[(area + 8 * PAGE, 8)]);
    assert_eq!(results, [MOVED, MOVED, DENIED, DENIED, DENIED, DENIED, MOVED, MOVED]);
    let away: Vec<u64> = mini.processes[0].pages.keys().map(|address| (address - area) / PAGE).collect();
    assert_eq!(away, [8, 9, 14, 15]);
    assert!(mini.processes[0].pages.values().all(|page| page.iter().any(|byte| *byte != 0)));
}

#[test]
fn a_gate_that_was_asked_for_and_never_taken_holds_no_eviction_up() {
    let mut mini = Mini::new(true);
    let (victim, _) = mini.start_and_greet();
    let area = mini.fill(&victim, 300);
    // What is protected makes the hand go page by page, which it does in several turns with the gate now.
    mini.ask(&victim, "protect 100 8", "protect");
    mini.processes[0].control().agent_wants_gate.store(1, SeqCst);
    let results = mini.evict(0, &[(area + 90 * PAGE, 60), (area, 80)]);
    assert_eq!((count(&results, MOVED), count(&results, DENIED)), (132, 8));
    assert_eq!(mini.ask(&victim, "check", "check"), -1);
}

#[test]
fn whoever_has_the_gate_has_what_was_moved_so_far() {
    let mut mini = Mini::new(true);
    let (victim, _) = mini.start_and_greet();
    let area = mini.fill(&victim, 256);
    // In the middle of a command: how far it is then is chance.
    for attempt in 0.. {
        assert!(attempt < 200, "the hand is never met at work");
        let control = mini.processes[0].control();
        let slot = control.posted.load(SeqCst) as usize % loam_hand::RING_COMMANDS;
        let command = &control.commands[slot];
        command.results.iter().for_each(|r| r.store(loam_hand::result::NONE, SeqCst));
        let number = mini.post(0, &[(area, 256)]);
        let results = || command.results.iter().map(|r| r.load(SeqCst)).collect::<Vec<_>>();
        while results()[0] != MOVED {}
        // As the agent does: the hand has the gate again within nanoseconds if nobody says so.
        control.agent_wants_gate.store(1, SeqCst);
        while !control.gate.try_lock() {}
        control.agent_wants_gate.store(0, SeqCst);
        let so_far = results();
        let pages: Vec<_> = (0..256)
            .filter(|&page| so_far[page] == MOVED)
            .map(|page| (page, mini::kernel::transfer_page(control, slot, page)))
            .collect();
        control.gate.unlock();
        mini.wait_done(0, number);
        assert_eq!(mini.collect(0, number), [MOVED; 256]);
        for (page, contents) in &pages {
            assert!(mini.processes[0].pages[&(area + *page as u64 * PAGE)] == *contents, "page {page}");
        }
        assert_eq!(mini.ask(&victim, "check", "check"), -1);
        if (1..256).contains(&pages.len()) {
            return;
        }
    }
}

#[test]
fn a_command_of_an_old_epoch_is_void_and_a_cancelled_one_passed_over() {
    let mut mini = Mini::new(true);
    let (victim, _) = mini.start_and_greet();
    let area = mini.fill(&victim, 16);
    let old = mini.processes[0].control().epoch.fetch_add(1, SeqCst);
    let number = mini.post_command(0, kind::EVICT, old, &[(area, 8, 0), (area + 8 * PAGE, 8, 0)]);
    mini.wait_done(0, number);
    assert_eq!(mini.collect(0, number), [CANCELLED; 16]);

    // With the gate held the hand cannot finish the first, so the second can be taken back.
    let control = mini.processes[0].control();
    while !control.gate.try_lock() {}
    let first = mini.post(0, &[(area, 1)]);
    let second = mini.post(0, &[(area + PAGE, 1)]);
    let command = &control.commands[second as usize % loam_hand::RING_COMMANDS];
    assert!(command.state.compare_exchange(state::POSTED, state::CANCELLED, SeqCst, SeqCst).is_ok());
    control.gate.unlock();
    mini.wait_done(0, first);
    assert_eq!(mini.collect(0, first), [MOVED]);
    mini.until("the hand to pass", |_| (control.finished.load(SeqCst) > second).then_some(()));
    assert_eq!(command.state.load(SeqCst), state::CANCELLED);
    command.state.store(state::FREE, SeqCst);
    assert_eq!(mini.ask(&victim, "check", "check"), -1);
}

#[test]
fn while_an_event_is_unread_nothing_moves_and_then_the_command_is_void() {
    let mut mini = Mini::new(true);
    let (victim, _) = mini.start_and_greet();
    let area = mini.fill(&victim, 64);
    mini.evict(0, &[(area, 8)]);
    // The victim waits in madvise until its event is read.
    mini.tell(&victim, "dontneed 0 4");
    let began = Instant::now();
    while !kernel::is_readable(&mini.processes[0].userfaultfd) {
        assert!(began.elapsed() < Duration::from_secs(5));
    }
    let number = mini.post(0, &[(area + 32 * PAGE, 32)]);
    let control = mini.processes[0].control();
    let command = &control.commands[number as usize % loam_hand::RING_COMMANDS];
    let posted = Instant::now();
    while command.state.load(SeqCst) == state::POSTED {
        assert!(posted.elapsed() < Duration::from_secs(5), "the hand does not begin");
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(command.state.load(SeqCst), state::RUNNING, "the kernel refuses MOVE, the hand tries on");
    mini.wait_done(0, number);
    assert_eq!(mini.collect(0, number), [CANCELLED; 32]);
    mini.answer(&victim, "dontneed");
    assert_eq!(mini.processes[0].pages.len(), 4, "what was discarded is not kept");
    assert_eq!(mini.ask(&victim, "check", "check"), 0, "page 0 reads as zeros, as the program asked");
}

#[test]
fn forked_children_and_grandchildren_are_served_and_evicted_from() {
    let mut mini = Mini::new(true);
    let (victim, _) = mini.start_and_greet();
    let area = mini.fill(&victim, 512);
    for round in 0..3 {
        mini.evict(0, &[(area, 200)]);
        let before = mini.processes.len();
        assert_eq!(mini.ask(&victim, "fork 2", "status"), 0, "round {round}");
        let children = &mini.processes[before..];
        assert_eq!(children.len(), 3);
        assert!(children.iter().all(|child| child.joined.is_some()));
        assert_eq!(mini.ask(&victim, "check", "check"), -1);
    }
    // A child that lives: what it shares is busy, what is its own leaves.
    let pid = mini.ask(&victim, "hold", "pid");
    let child = mini.processes.len() - 1;
    mini.until("the child to join", |mini| mini.processes[child].joined.is_some().then_some(()));
    assert_eq!(i64::from(mini.processes[child].joined.as_ref().unwrap().pid), pid);
    assert_eq!(mini.evict(0, &[(area, 64)]), [BUSY; 64]);
    assert_eq!(mini.evict(child, &[(area, 64)]), [BUSY; 64]);
    mini.ask(&victim, "refill", "refilled");
    let results = mini.evict(0, &[(area, 64)]);
    assert_eq!(count(&results, MOVED), 64, "written since, so no longer shared");
    mini.ask(&victim, &format!("reap {pid}"), "reaped");
    assert_eq!(mini.ask(&victim, "check", "check"), -1);
}

#[test]
fn without_fork_events_the_agent_is_asked_before_a_fork() {
    let mut mini = Mini::new(false);
    let (victim, _) = mini.start_and_greet();
    let area = mini.fill(&victim, 256);
    assert_eq!(count(&mini.evict(0, &[(area, 256)]), MOVED), 256);
    assert_eq!(mini.ask(&victim, "fork 0", "status"), 0);
    let asked: Vec<u32> = mini.calls.iter().map(|(what, _, _)| *what).collect();
    assert_eq!(asked, [call::FORK_PREPARE, call::FORK_DONE]);
    assert_eq!(mini.processes.len(), 2, "the child joined with a userfaultfd of its own");
    assert_eq!(mini.ask(&victim, "check", "check"), -1);
}

#[test]
fn a_fork_of_a_process_that_is_large_is_announced() {
    let mut mini = Mini::new(true);
    let (victim, _) = mini.start_and_greet();
    mini.fill(&victim, 4096);
    for (above, announced) in [(0, 0), (1 << 20, 0), (4096, 1), (0, 1)] {
        mini.processes[0].control().announce_above.store(above, SeqCst);
        assert_eq!(mini.ask(&victim, "fork 0", "status"), 0);
        let asked: Vec<u32> = mini.calls.iter().map(|(what, _, _)| *what).collect();
        assert_eq!(asked, vec![call::FORK_COMES; announced], "above {above} base pages");
    }
    assert_eq!(mini.ask(&victim, "check", "check"), -1);
}

#[test]
fn an_ordinary_users_program_by_the_device_that_the_agent_opened() {
    let mut mini = Mini::new(true);
    let victim = mini.start_as_nobody();
    let area = mini.fill(&victim, 128);
    assert_eq!(count(&mini.evict(0, &[(area, 128)]), MOVED), 128);
    assert_eq!(mini.ask(&victim, "fork 1", "status"), 0);
    assert_eq!(mini.processes.len(), 3);
    assert_eq!(mini.ask(&victim, "check", "check"), -1);
}

#[test]
fn close_range_and_errno_of_the_program_are_its_own() {
    let mut mini = Mini::new(true);
    let (victim, _) = mini.start_and_greet();
    let area = mini.fill(&victim, 64);
    assert_eq!(mini.ask(&victim, "closefds", "closed"), 0);
    assert_eq!(mini.ask(&victim, "errno", "errno"), 0);
    assert_eq!(count(&mini.evict(0, &[(area, 64)]), MOVED), 64);
    assert_eq!(count(&mini.evict(0, &[(area, 8)]), HOLE), 8);
    mini.tell(&victim, "");
    assert_eq!(mini.answer(&victim, "errno"), 77);
    assert_eq!(mini.ask(&victim, "check", "check"), -1);
    assert_eq!(mini.ask(&victim, "badioctl", "badioctl"), i64::from(libc::EBADF));
}

#[test]
fn the_agent_hears_of_clashing_requests_first() {
    let mut mini = Mini::new(true);
    let (victim, _) = mini.start_and_greet();
    let area = mini.fill(&victim, 64);
    mini.evict(0, &[(area, 64)]);
    assert_eq!(mini.ask(&victim, "register 0 16", "registered"), 0);
    assert_eq!(mini.ask(&victim, "wipe 16 16", "wipe"), 0);
    let wanted = [(call::RELEASE, area, 16 * PAGE), (call::RELEASE, area + 16 * PAGE, 16 * PAGE)];
    assert_eq!(mini.calls, wanted);
    assert_eq!(mini.ask(&victim, "check", "check"), -1);
}

#[test]
fn what_children_are_to_find_empty_is_so_only_once_the_agent_has_let_it_go() {
    let mut mini = Mini::new(true);
    let (victim, _) = mini.start_and_greet();
    let area = mini.fill(&victim, 64);
    mini.evict(0, &[(area, 64)]);
    mini.holds = true;
    mini.tell(&victim, "wipe 0 16");
    mini.until("the request", |mini| (!mini.calls.is_empty()).then_some(()));
    // Longer than an answer that needs nothing may take: the agent may have gigabytes to bring home.
    std::thread::sleep(Duration::from_millis(10_500));
    assert!(mini.is_silent(&victim), "the kernel was asked before the agent had answered");
    mini.answer_held();
    assert_eq!(mini.answer(&victim, "wipe"), 0);
    (mini.holds, mini.refused) = (false, Some(call::RELEASE));
    assert_eq!(mini.ask(&victim, "wipe 16 16", "wipe"), -1);
    let pid = mini.processes[0].joined.as_ref().unwrap().pid;
    let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let wiped = smaps.lines().filter(|line| line.starts_with("VmFlags") && line.contains(" wf")).count();
    // Beside the page by which the shim knows whose memory this is.
    assert_eq!(wiped, 1 + 1, "the kernel was asked for the first range alone");
    assert_eq!(mini.ask(&victim, "check", "check"), -1);
}

#[test]
fn what_cannot_be_one_mapping_again_is_copied_if_the_agent_says_that_it_may() {
    let mut mini = Mini::new(true);
    let (victim, _) = mini.start_and_greet();
    let area = mini.fill(&victim, 64);
    // To the kernel, two mappings from here on.
    kernel::unregister(&mini.processes[0].userfaultfd, area, 32 * PAGE).unwrap();
    let asked = |mini: &Mini, what: u32| {
        let of_all = (what, area, 64 * PAGE);
        mini.calls.iter().filter(|call| **call == of_all).count()
    };
    for (refused, answer, may_copy) in
        [(call::MAKE_WHOLE, libc::EFAULT, 0), (call::MAY_COPY, libc::EFAULT, 1), (0, 0, 2)]
    {
        mini.refused = Some(refused);
        assert_eq!(mini.ask(&victim, "grow 4096", "grow"), i64::from(answer));
        assert_eq!(asked(&mini, call::MAY_COPY), may_copy);
        assert_eq!(mini.ask(&victim, "check", "check"), -1);
    }
    assert!(asked(&mini, call::MAKE_WHOLE) > 2, "it is tried for a while first");
}

#[test]
fn two_threads_write_while_everything_is_evicted_again_and_again() {
    let mut mini = Mini::new(true);
    let (victim, _) = mini.start_and_greet();
    let area = mini.fill(&victim, 512);
    mini.tell(&victim, "churn 1500");
    let began = Instant::now();
    let mut moved = 0;
    let mut random = 1_u64;
    while began.elapsed() < Duration::from_millis(1400) {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let first = (random >> 33) % 500;
        let pages = ((random >> 20) % 12 + 1) as u32;
        moved += count(&mini.evict(0, &[(area + first * PAGE, pages)]), MOVED);
        for _ in 0..20 {
            mini.pump();
        }
    }
    assert_eq!(mini.answer(&victim, "churned"), 0, "no word was ever another than written");
    assert!(moved > 500, "{moved} pages were evicted under the writers");
    assert_eq!(mini.ask(&victim, "check", "check"), -1);
}

/// The agent dies: how its program ends, and after what time.
fn end_with_agent(mini: &mut Mini, victim: &mut Victim) -> (std::process::ExitStatus, Duration) {
    let died = Instant::now();
    mini.die();
    loop {
        if let Some(status) = victim.child.try_wait().unwrap() {
            return (status, died.elapsed());
        }
        assert!(died.elapsed() < Duration::from_secs(5), "the program lives on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_agents_death_ends_the_program_with_a_line() {
    // Asleep at the time of death; then waiting for a page that is away; then with the hand at a command that cannot finish.
    for case in 0..3 {
        let mut mini = Mini::new(true);
        let (mut victim, _) = mini.start_and_greet();
        let area = mini.fill(&victim, 64);
        mini.evict(0, &[(area, 64)]);
        match case {
            0 => _ = mini.ask(&victim, "spin", "spinning"),
            1 => mini.tell(&victim, "check"),
            _ => {
                let control = mini.processes[0].control();
                while !control.gate.try_lock() {}
                mini.post(0, &[(area, 64)]);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
        let (status, took) = end_with_agent(&mut mini, &mut victim);
        assert_eq!(status.signal(), Some(libc::SIGKILL), "case {case}");
        assert!(took < Duration::from_millis(900), "case {case}: {took:?}");
        let text = stderr(&mut victim);
        assert_eq!(text.lines().count(), 1, "case {case}: {text:?}");
        assert!(text.starts_with("loam: the agent (loam run) has died; loam-victim is ended"), "{text}");
    }
}

#[test]
fn the_agents_death_ends_the_first_process_of_a_namespace_too() {
    let mut mini = Mini::new(true);
    let (mut victim, _) = mini.start_as_first();
    let area = mini.fill(&victim, 64);
    mini.evict(0, &[(area, 64)]);
    assert_eq!(mini.processes[0].joined.as_ref().unwrap().pid, 1);
    mini.tell(&victim, "check");
    std::thread::sleep(Duration::from_millis(20));
    let (status, _) = end_with_agent(&mut mini, &mut victim);
    assert_eq!(status.code(), Some(128 + libc::SIGKILL));
    assert!(stderr(&mut victim).starts_with("loam: the agent (loam run) has died; loam-victim is ended"));
}

#[test]
fn exec_exit_abort_and_a_leaving_main_thread() {
    let mut mini = Mini::new(true);
    let (mut victim, _) = mini.start_and_greet();
    let area = mini.fill(&victim, 32);
    mini.evict(0, &[(area, 32)]);
    assert_eq!(
        mini.ask(&victim, "exec", "hello"),
        descriptors_without_shim(),
        "the image after exec has joined anew"
    );
    assert_eq!(mini.processes.len(), 2);
    drop(victim.child.stdin.take());
    assert_eq!(victim.child.wait().unwrap().code(), Some(42));

    let mut mini = Mini::new(true);
    let (mut victim, _) = mini.start_and_greet();
    mini.tell(&victim, "abort");
    assert_eq!(victim.child.wait().unwrap().signal(), Some(libc::SIGABRT));

    let mut mini = Mini::new(true);
    let (mut victim, _) = mini.start_and_greet();
    mini.tell(&victim, "leave");
    assert_eq!(
        victim.child.wait().unwrap().code(),
        Some(0),
        "libc's last thread ends the process, hand or not"
    );
}

/// Its answer may have another size, and whatever stands where ours has the status.
#[test]
fn an_agent_of_another_version_is_named() {
    for (answer, says) in [
        ([LAYOUT_VERSION + 1, 0, 0, 0, status::GO_ON, 0], "different versions"),
        ([LAYOUT_VERSION + 1, 7, 7, 7, status::RUN_WITHOUT, 7], "different versions"),
        ([LAYOUT_VERSION, 0, 0, 0, 0, 0], "does not answer as it should"),
        ([0; 6], "does not answer as it should"),
    ] {
        let mut mini = Mini::new(true);
        mini.stranger = Some(answer);
        let mut victim = mini.start();
        let status = mini.until("the end", |_| victim.child.try_wait().unwrap());
        assert_eq!(status.code(), Some(125));
        let said = stderr(&mut victim);
        assert!(said.contains(says) && said.lines().count() == 1, "{answer:?}: {said}");
    }
}

#[test]
fn a_refused_or_absent_agent() {
    let mut mini = Mini::new(true);
    mini.welcome_status = status::RUN_WITHOUT;
    let (victim, open) = mini.start_and_greet();
    assert_eq!(open, descriptors_without_shim());
    assert_eq!(mini.ask(&victim, "fork 0", "status"), 0);
    assert!(mini.processes.is_empty());

    let mut mini = Mini::new(true);
    mini.welcome_status = status::EXIT;
    let mut victim = mini.start();
    let status = mini.until("the program's end", |_| victim.child.try_wait().unwrap());
    assert_eq!(status.code(), Some(125));

    let mut mini = Mini::new(true);
    mini.die();
    let (mut victim, open) = mini.start_and_greet();
    assert_eq!(open, descriptors_without_shim());
    drop(victim.child.stdin.take());
    assert_eq!(victim.child.wait().unwrap().code(), Some(42));
    assert_eq!(stderr(&mut victim), "");
}

#[test]
fn advice_and_the_hands_end() {
    let mut mini = Mini::new(true);
    let (victim, _) = mini.start_and_greet();
    let area = mini.fill(&victim, 16);
    let spans = [(area, 16, libc::MADV_NOHUGEPAGE as u32), (PAGE * 16, 1, libc::MADV_NOHUGEPAGE as u32)];
    let number = mini.post_command(0, kind::ADVISE_CHECKED, 0, &spans);
    mini.wait_done(0, number);
    let control = mini.processes[0].control();
    assert_eq!(control.commands[number as usize].outcome.load(SeqCst), libc::ENOMEM as u32);
    mini.collect(0, number);
    let pid = mini.processes[0].joined.as_ref().unwrap().pid;
    let has_huge_pages = || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        text.lines().any(|line| line.split_whitespace().eq(["THP_enabled:", "1"]))
    };
    assert!(has_huge_pages(), "as long as nobody has said otherwise");
    let number = mini.post_command(0, kind::NO_HUGE_PAGES, 0, &[]);
    mini.wait_done(0, number);
    mini.collect(0, number);
    assert!(!has_huge_pages());
    let control = mini.processes[0].control();
    let hand = control.hand_tid.load(SeqCst);
    let task = format!("/proc/{pid}/task/{hand}");
    assert_eq!(std::fs::read_to_string(format!("{task}/comm")).unwrap(), "loam-hand\n");
    assert_eq!(std::fs::read_dir(format!("{task}/fd")).unwrap().count(), 3, "socket, userfaultfd, pagemap");
    mini.post_command(0, kind::EXIT, 0, &[]);
    mini.until("the hand's end", |_| (!std::path::Path::new(&task).exists()).then_some(()));
    assert_eq!(mini.ask(&victim, "check", "check"), -1);
}

/// The kernel lets only a process of one thread leave its user namespace.
#[test]
fn the_hand_steps_aside_for_what_takes_one_thread() {
    let mut mini = Mini::new(true);
    let (victim, open) = mini.start_and_greet();
    let area = mini.fill(&victim, 64);
    let leave = |mini: &mut Mini| count(&mini.evict(0, &[(area, 32)]), MOVED);
    assert_eq!(leave(&mut mini), 32);
    let control = mini.processes[0].control();
    let first = control.hand_tid.load(SeqCst);
    // With a namespace of processes, of which only its children become a part: a process that has left its own so makes no threads any more.
    assert_eq!(mini.ask(&victim, "unshare", "unshare"), 0);
    let second = control.hand_tid.load(SeqCst);
    assert!(second != 0 && second != first, "another hand");
    let number = mini.aside.take().expect("it was told");
    mini.wait_done(0, number);
    mini.collect(0, number);
    assert_eq!(mini.ask(&victim, "open", "open"), open, "the program sees no descriptor of the shim");
    assert_eq!(threads(&victim), 2);
    assert_eq!(mini.ask(&victim, "check", "check"), -1);
    assert_eq!((mini.processes[0].faults, leave(&mut mini)), (32, 32));
    assert_eq!(mini.ask(&victim, "fork 1", "status"), 0, "its children are served");
    // There is no hand to come back from here on, so it stays.
    mini.calls.clear();
    assert_eq!(mini.ask(&victim, "unshare", "unshare"), i64::from(libc::EINVAL));
    assert_eq!((control.hand_tid.load(SeqCst), mini.calls.len()), (second, 0));
}

/// What would be refused all the same is tried beforehand, by a child: nobody steps aside for that.
#[test]
fn the_hand_stays_where_it_would_be_in_vain() {
    let mut mini = Mini::new(true);
    let (victim, open) = mini.start_and_greet();
    let first = mini.processes[0].control().hand_tid.load(SeqCst);
    assert_eq!(mini.ask(&victim, "setns", "setns"), i64::from(libc::EINVAL), "it is there already");
    assert_eq!((mini.processes[0].control().hand_tid.load(SeqCst), &mini.calls[..]), (first, &[][..]));
    assert_eq!(mini.ask(&victim, "open", "open"), open);
}

#[test]
fn the_hand_steps_aside_for_a_namespace_that_is_there() {
    // Of the kind that was asked for, or of whatever it is.
    for kind in [0, 1] {
        let mut mini = Mini::new(true);
        let (victim, open) = mini.start_and_greet();
        let area = mini.fill(&victim, 64);
        assert_eq!(count(&mini.evict(0, &[(area, 32)]), MOVED), 32);
        let first = mini.processes[0].control().hand_tid.load(SeqCst);
        assert_eq!(mini.ask(&victim, &format!("setns_other {kind}"), "setns"), 0);
        assert_ne!(mini.processes[0].control().hand_tid.load(SeqCst), first);
        let number = mini.aside.take().expect("it was told");
        mini.wait_done(0, number);
        mini.collect(0, number);
        assert_eq!(mini.ask(&victim, "check", "check"), -1);
        // A child has shared all of it.
        mini.ask(&victim, "refill", "refilled");
        assert_eq!(count(&mini.evict(0, &[(area + 32 * PAGE, 32)]), MOVED), 32);
        assert_eq!(mini.ask(&victim, "check", "check"), -1);
        assert_eq!(mini.ask(&victim, "open", "open"), open);
        assert_eq!(threads(&victim), 2);
    }
}

#[test]
fn the_hand_stays_where_nobody_is_told_or_it_cannot_give_away_what_it_has() {
    for asides in [Asides::ToldWrong, Asides::Unheard, Asides::Told] {
        let mut mini = Mini::new(true);
        mini.asides = asides;
        mini.refused = Some(call::STEP_ASIDE).filter(|_| asides == Asides::Told);
        let (victim, open) = mini.start_and_greet();
        let area = mini.fill(&victim, 64);
        let first = mini.processes[0].control().hand_tid.load(SeqCst);
        assert_eq!(mini.ask(&victim, "unshare", "unshare"), i64::from(libc::EINVAL));
        if let Some(number) = mini.aside.take() {
            mini.wait_done(0, number);
            mini.collect(0, number);
        }
        assert_eq!(count(&mini.evict(0, &[(area, 32)]), MOVED), 32);
        assert_eq!(mini.processes[0].control().hand_tid.load(SeqCst), first);
        assert_eq!(mini.ask(&victim, "check", "check"), -1);
        assert_eq!(mini.ask(&victim, "open", "open"), open);
    }
}

#[test]
fn a_program_of_several_threads_is_refused_as_ever() {
    let mut mini = Mini::new(true);
    let (victim, _) = mini.start_and_greet();
    assert_eq!(mini.ask(&victim, "unshare_threaded", "unshare"), i64::from(libc::EINVAL));
    assert_eq!(mini.calls, [], "nobody was asked");
}

/// The hand has gone, or not yet: nobody reads zeros.
#[test]
fn an_agent_that_dies_while_the_hand_steps_aside_ends_the_program() {
    let mut gone = 0;
    for _ in 0..40 {
        let mut mini = Mini::new(true);
        mini.asides = Asides::ToldLast;
        let (mut victim, _) = mini.start_and_greet();
        let area = mini.fill(&victim, 64);
        assert_eq!(count(&mini.evict(0, &[(area, 64)]), MOVED), 64);
        let control = mini.processes[0].control();
        mini.tell(&victim, "unshare");
        mini.tell(&victim, "check");
        mini.until("the call", |mini| mini.processes.is_empty().then_some(()));
        let (status, _) = end_with_agent(&mut mini, &mut victim);
        assert_eq!(status.signal(), Some(libc::SIGKILL), "{status:?}");
        let said = stderr(&mut victim);
        assert!(said.starts_with("loam: the agent (loam run) has died; loam-victim is ended"), "{said}");
        let mut answers = String::new();
        victim.child.stdout.take().unwrap().read_to_string(&mut answers).unwrap();
        assert!(!answers.contains("check"), "nobody reads what is away: {answers}");
        gone += usize::from(control.aside.load(SeqCst) == aside::GOES);
    }
    assert!(gone > 0, "the hand has stepped aside in none of these runs");
}

fn threads(victim: &Victim) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", victim.child.id())).unwrap().count()
}

/// Not a check but a measurement: `cargo test --release -p loam-shim -- --ignored --nocapture cost`.
#[test]
#[ignore = "prints figures"]
fn cost_of_a_round_trip() {
    for cores in [2, 1] {
        let mut mini = Mini::new(true);
        let (victim, _) = mini.start_and_greet();
        let area = mini.fill(&victim, 256);
        kernel::pin(0, 0);
        kernel::pin(mini.processes[0].control().hand_tid.load(SeqCst), cores - 1);
        kernel::pin(victim.child.id(), cores - 1);
        for (pages, sleeps) in [(1, false), (16, false), (256, false), (1, true), (256, true)] {
            let (mut done_us, mut emptied_us) = (Vec::new(), Vec::new());
            for _ in 0..200 {
                let control = mini.processes[0].control();
                while sleeps && control.hand_sleeps.load(SeqCst) == 0 {}
                let began = Instant::now();
                let number = mini.post(0, &[(area, pages)]);
                mini.wait_done(0, number);
                done_us.push(began.elapsed().as_secs_f64() * 1e6);
                while control.finished.load(SeqCst) == number {
                    mini.read_events(0);
                }
                emptied_us.push(began.elapsed().as_secs_f64() * 1e6);
                assert_eq!(count(&mini.collect(0, number), MOVED), pages as usize);
                let process = &mut mini.processes[0];
                for (address, page) in std::mem::take(&mut process.pages) {
                    kernel::copy(&process.userfaultfd, address, &page).unwrap();
                }
            }
            done_us.sort_by(f64::total_cmp);
            emptied_us.sort_by(f64::total_cmp);
            println!(
                "{cores} cores, hand asleep {sleeps}, {pages} pages: done p50 {:.1} us, p90 {:.1} us, window empty p50 {:.1} us",
                done_us[100], done_us[180], emptied_us[100]
            );
        }
    }
}
