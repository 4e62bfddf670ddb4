//! What coordinators say to each other, what they ask of their driver, and how long they wait.

use super::ages::AgeSummary;
use super::epoch::{Epoch, EpochId, EpochLimits};
use super::pod::{Pod, PodVersion};
use crate::ids::NodeId;
use crate::units::Duration;
use alloc::boxed::Box;
use alloc::sync::Arc;

/// Why an epoch ended before its time (section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// A node got as many pages as its weight.
    Replaced,
    /// A node's ages are no longer what it said.
    Inaccurate,
}

/// What nodes tell each other about the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Say what ages your pages have: I begin this epoch.
    EpochRequest {
        /// The epoch to come.
        id: EpochId,
    },
    /// The ages of my pages.
    Summary {
        /// The epoch that they are for.
        id: EpochId,
        /// The ages.
        summary: Box<AgeSummary>,
    },
    /// An epoch has begun.
    EpochBegins(Arc<Epoch>),
    /// This epoch should end.
    EpochEnds {
        /// Which.
        id: EpochId,
        /// Why.
        why: EndReason,
    },
    /// The newest page-ownership directory.
    Pod(Arc<Pod>),
    /// Mine is this one: send yours if it is newer.
    PodRequest {
        /// What I have.
        version: PodVersion,
    },
}

/// What the driver shall do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send it; nobody waits for an answer.
    Send {
        /// To whom.
        to: NodeId,
        /// What.
        message: Message,
    },
    /// Count the ages of this node's pages, and call [`super::Coordinator::handle_summary`].
    Summarise,
    /// [`super::Coordinator::epoch`] is another one.
    EpochBegan,
    /// [`super::Coordinator::pod`] is another one: directory entries whose owner changed are to be handed on.
    PodChanged,
}

/// How a coordinator waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoordinatorConfig {
    /// What epochs may be.
    pub limits: EpochLimits,
    /// How long the initiator waits for summaries.
    pub gather: Duration,
    /// How long after an epoch's time others wait before they think that its initiator will not begin the next.
    pub patience: Duration,
}

impl Default for CoordinatorConfig {
    fn default() -> Self {
        Self {
            limits: EpochLimits::default(),
            gather: Duration::from_millis(500),
            patience: Duration::from_millis(1_500),
        }
    }
}
