//! What is done to a cluster: settings and a list of actions, made from the seed before the run begins. As in [`super::super::script`], whoever is
//! named is named by a number modulo those who live at the time, so any action may be taken out.

use crate::fuzz::dice::Dice;
use loam_core::global::placement;
use loam_core::units::Instant;

/// What holds for a whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Page frames of each machine at the beginning; who joins later gets those of one of them.
    pub frames: Vec<u32>,
    /// Which of them have programs that work, bit by bit. The others are idle.
    pub busy: u64,
    /// Where pages go: a name of [`placement::NAMES`].
    pub placement: &'static str,
    /// Threads of a machine's programs.
    pub threads: u64,
    /// Private pages that a machine's programs use.
    pub private: u64,
    /// Files.
    pub files: u64,
    /// Pages of each.
    pub file_pages: u64,
    /// Of a hundred accesses so many are of files.
    pub shared_percent: u64,
    /// Of a hundred accesses of private pages so many write.
    pub write_percent: u64,
    /// Programs read one page after the other (else at random).
    pub in_order: bool,
    /// Microseconds between two accesses, about.
    pub think_us: u64,
    /// Microseconds that a disk takes, about.
    pub disk_us: u64,
    /// Milliseconds that a fault waits for others.
    pub fault_wait_ms: u64,
    /// Of a thousand messages so many are lost, as many doubled, and as many very late.
    pub hostile_permille: u64,
    /// Milliseconds until others notice that a node comes or goes, about.
    pub notice_ms: u64,
    /// Pages of its own that a node may have elsewhere.
    pub share: u32,
    /// Scans are put as old pages.
    pub guard: bool,
    /// Milliseconds of the longest epoch.
    pub epoch_ms: u64,
    /// Nodes come, go and hang, and the network fails (else only programs work and memory moves).
    pub faults: bool,
}

/// One thing that is done. A number names a node, modulo the living.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Its programs work from now on, or rest.
    Work(u64, bool),
    /// Who works rests, and who rests works.
    SwapIdle,
    /// Its machine takes frames away or gives them: so many in a hundred of all are left.
    Frames(u64, u64),
    /// A file has other contents from now on, under another version.
    Change(u64),
    /// `kill -9`.
    Kill(u64),
    /// The same to the master.
    KillMaster,
    /// The same to the initiator.
    KillInitiator,
    /// The same to the next who asks for summaries, so many microseconds after its first question.
    KillGathering(u64),
    /// It does nothing for so many milliseconds.
    Stop(u64, u64),
    /// The same to the initiator.
    StopInitiator(u64),
    /// It is killed and begins anew at once, as another node.
    Restart(u64),
    /// A machine joins, with the frames of that one at the beginning.
    Join(u64),
    /// Its programs end, it puts its pages elsewhere, and goes.
    Leave(u64),
    /// The network falls in two for so many milliseconds: each node is on the side of its bit.
    Part(u64, u64),
    /// Its clock jumps forward by so many milliseconds.
    Jump(u64, u64),
    /// The first believes for so many milliseconds that the second is gone.
    Suspect(u64, u64, u64),
}

/// An action, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// When.
    pub at: Instant,
    /// What.
    pub act: Act,
}

/// A run before it is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Where it comes from.
    pub seed: u64,
    /// What holds all the time.
    pub settings: Settings,
    /// What is done, in order of time.
    pub actions: Vec<Action>,
    /// From here on nothing is injected any more.
    pub quiet_at: Instant,
}

const MS: u64 = 1_000_000;

impl Script {
    /// The script of a seed.
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed, 101);
        let settings = settings(&mut dice);
        let span_ms = dice.pick(&[1_500, 6_000, 6_000, 20_000, 60_000]);
        let mut actions = Vec::new();
        for _ in 0..dice.between(5, 40) {
            let at = Instant(dice.below(span_ms * MS));
            let act = act(&mut dice, &settings, span_ms);
            actions.push(Action { at, act });
        }
        if dice.once_in(6) {
            // The idle set swaps every second.
            let swaps = (0..span_ms / 1_000).take(30);
            actions.extend(swaps.map(|s| Action { at: Instant(s * 1_000 * MS + 1), act: Act::SwapIdle }));
        }
        actions.sort_by_key(|action| action.at);
        Self { seed, settings, actions, quiet_at: Instant(span_ms * MS) }
    }

    /// The same with these actions alone.
    pub fn with(&self, keep: &[usize]) -> Self {
        let actions = keep.iter().filter_map(|&i| self.actions.get(i).copied()).collect();
        Self { actions, ..self.clone() }
    }
}

fn settings(dice: &mut Dice) -> Settings {
    let (frames, busy) = if dice.once_in(8) {
        // Seven borrowers on one lender.
        let mut frames = vec![dice.between(4, 12) as u32; 7];
        frames.insert(dice.below(8) as usize, 200);
        let idle = frames.iter().position(|&frames| frames == 200).expect("it was just put there");
        (frames, !(1 << idle))
    } else {
        let nodes = dice.pick(&[2, 3, 4, 5, 5, 5, 6, 7, 8, 9, 9, 9]);
        ((0..nodes).map(|_| dice.pick(&[4, 8, 16, 32, 64, 100])).collect(), dice.below(1 << nodes) | 1)
    };
    let faults = !dice.once_in(4);
    Settings {
        frames,
        busy,
        placement: dice.pick(&[
            "gms",
            "gms",
            "gms",
            placement::NAMES[1],
            placement::NAMES[2],
            placement::NAMES[3],
        ]),
        threads: dice.between(1, 3),
        private: dice.pick(&[6, 20, 40, 80]),
        files: dice.between(1, 3),
        file_pages: dice.pick(&[4, 20, 60]),
        shared_percent: dice.pick(&[0, 20, 50, 90]),
        write_percent: dice.pick(&[5, 30, 70]),
        in_order: dice.once_in(3),
        think_us: dice.pick(&[300, 5_000, 50_000]),
        disk_us: dice.pick(&[100, 8_000, 8_000]),
        fault_wait_ms: dice.pick(&[5, 100, 100, 1_000]),
        hostile_permille: if faults { dice.pick(&[0, 0, 5, 50, 200]) } else { 0 },
        notice_ms: dice.pick(&[10, 300, 2_000]),
        share: dice.pick(&[u32::MAX, u32::MAX, u32::MAX, 3]),
        guard: dice.once_in(2),
        epoch_ms: dice.pick(&[10_000, 10_000, 2_000]),
        faults,
    }
}

fn act(dice: &mut Dice, s: &Settings, span_ms: u64) -> Act {
    let (one, other) = (dice.below(64), dice.below(64));
    let ms = dice.pick(&[20, 500, 3_000, 30_000, span_ms / 2]).min(30_000);
    match dice.below(if s.faults { 100 } else { 30 }) {
        0..=9 => Act::Work(one, dice.once_in(2)),
        10..=13 => Act::SwapIdle,
        14..=24 => Act::Frames(one, dice.pick(&[0, 5, 50, 80, 100, 100])),
        25..=29 => Act::Change(one),
        30..=34 => Act::Kill(one),
        35..=38 => Act::KillMaster,
        39..=43 => Act::KillInitiator,
        44..=49 => Act::KillGathering(dice.pick(&[0, 100, 400, 300_000])),
        50..=57 => Act::Stop(one, ms),
        58..=60 => Act::StopInitiator(ms),
        61..=66 => Act::Restart(one),
        67..=75 => Act::Join(one),
        76..=79 => Act::Leave(one),
        80..=87 => Act::Part(dice.below(1 << 16), ms),
        88..=91 => Act::Jump(one, dice.pick(&[1, 200, 15_000, 7 * 24 * 3_600_000])),
        _ => Act::Suspect(one, other, ms.min(5_000)),
    }
}
