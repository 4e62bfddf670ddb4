//! The way of messages from the lenders to the program: the model's stages, with a line before each.

use crate::engine::{Queue, Resource};
use crate::model::{Model, Place};
use loam_core::borrower::{CopyIndex, LenderIndex};
use loam_core::ids::Version;
use loam_core::units::{Duration, Instant};

/// One message of a fetch plan.
#[derive(Debug)]
pub(super) struct Message {
    pub lender: LenderIndex,
    pub copies: Vec<(CopyIndex, Version)>,
    pub bytes: u64,
    /// Where it lies at the lender, in base units, for stages that care where the last one ended.
    pub first: u64,
    pub units: u64,
    /// Nobody's processor is needed to receive it.
    pub unattended: bool,
}

/// A message is at a stage's door.
#[derive(Clone, Copy, Debug)]
pub(super) struct AtStage {
    pub message: usize,
    pub stage: usize,
}

/// What became of a step.
pub(super) enum Step {
    /// It is at a stage.
    Goes,
    /// The stage takes this of the borrower's processor, from now on.
    Takes(Duration),
    /// It is there.
    Arrived(Message),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Path {
    /// For each stage: one resource, or one a lender.
    stages: Vec<Vec<Resource>>,
    /// Where the last message at each stage ended.
    last_end: Vec<u64>,
    messages: Vec<Option<Message>>,
    free: Vec<usize>,
    pub bytes: u64,
    pub sent: u64,
}

impl Path {
    pub(super) fn new(model: &Model) -> Self {
        let count = |at| if at == Place::Lender { usize::from(model.lenders) } else { 1 };
        Self {
            stages: model.stages.iter().map(|s| vec![Resource::default(); count(s.at)]).collect(),
            last_end: vec![u64::MAX; model.stages.len()],
            messages: Vec::new(),
            free: Vec::new(),
            bytes: 0,
            sent: 0,
        }
    }

    /// A message sets out: it is ready for the first stage at `at`.
    pub(super) fn send(&mut self, queue: &mut Queue<AtStage>, at: Instant, message: Message) {
        self.bytes += message.bytes;
        self.sent += 1;
        let number = self.free.pop().unwrap_or(self.messages.len());
        if number == self.messages.len() {
            self.messages.push(None);
        }
        assert!(
            self.messages[number].replace(message).is_none(),
            "a message's number is used once at a time"
        );
        queue.push(at, AtStage { message: number, stage: 0 });
    }

    /// A message comes to a stage, or out of the last one.
    pub(super) fn step(
        &mut self,
        model: &Model,
        queue: &mut Queue<AtStage>,
        now: Instant,
        at: AtStage,
    ) -> Step {
        let message = self.messages[at.message].as_ref().expect("it is under way");
        let Some(stage) = model.stages.get(at.stage) else {
            let message = self.messages[at.message].take().expect("looked at above");
            self.free.push(at.message);
            return Step::Arrived(message);
        };
        let next = AtStage { stage: at.stage + 1, ..at };
        if message.unattended && stage.at == Place::Processor {
            queue.push(now, next);
            return Step::Goes;
        }
        let mut takes = Duration(stage.fixed_ns + stage.ps_per_byte * message.bytes / 1_000);
        if stage.random_ns > 0 {
            if self.last_end[at.stage] != message.first {
                takes.0 += stage.random_ns;
            }
            self.last_end[at.stage] = message.first + message.units;
        }
        let which = if stage.at == Place::Lender { usize::from(message.lender.0) } else { 0 };
        let done = self.stages[at.stage][which].serve(now, takes);
        queue.push(done, next);
        if stage.at == Place::Processor { Step::Takes(takes) } else { Step::Goes }
    }

    /// Until when the borrower's processor receives what is at it already.
    pub(super) fn processor_free_at(&self, model: &Model) -> Instant {
        let stages = model.stages.iter().zip(&self.stages).filter(|(stage, _)| stage.at == Place::Processor);
        stages.map(|(_, resources)| resources[0].free_at()).max().unwrap_or_default()
    }

    /// How long each stage has been at work, and how long messages stood before it.
    pub(super) fn figures(&self) -> impl Iterator<Item = (Duration, Duration)> + '_ {
        self.stages.iter().map(|resources| {
            let sum = |of: fn(&Resource) -> Duration| Duration(resources.iter().map(|r| of(r).0).sum());
            (sum(Resource::busy), sum(Resource::waited))
        })
    }
}
