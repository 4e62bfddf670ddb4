//! What each node has heard of every other one's memory. Each sends its table to a few others now and then, and of two figures the later
//! one counts: after some rounds everybody knows, whoever was away.

use loam_core::ids::NodeId;
use loam_core::units::{Duration, Instant};
use loam_wire::NodeFigures;
use loam_wire::limits::VIEW_NODES_MAX;
use std::collections::BTreeMap;

/// The table of one node.
#[derive(Debug, Default)]
pub(crate) struct Table {
    heard: BTreeMap<NodeId, (NodeFigures, Instant)>,
}

impl Table {
    /// This node has looked at itself.
    pub(crate) fn set(&mut self, now: Instant, figures: NodeFigures) {
        self.heard.insert(NodeId(figures.id.get()), (figures, now));
    }

    /// Another node's table has come. What it says of `me`, and of those who are not among `living`, is not wanted.
    pub(crate) fn hear(
        &mut self,
        now: Instant,
        table: &[NodeFigures],
        me: NodeId,
        living: impl Fn(NodeId) -> bool,
    ) {
        for figures in table {
            let id = NodeId(figures.id.get());
            let newer =
                self.heard.get(&id).is_none_or(|(known, _)| known.number.get() < figures.number.get());
            if id != me && newer && living(id) {
                self.heard.insert(id, (*figures, now));
            }
        }
    }

    /// Forgets all but these.
    pub(crate) fn retain(&mut self, living: impl Fn(NodeId) -> bool) {
        self.heard.retain(|id, _| living(*id));
    }

    /// What was heard of a node, and how long ago.
    pub(crate) fn get(&self, now: Instant, id: NodeId) -> Option<(&NodeFigures, Duration)> {
        self.heard.get(&id).map(|(figures, heard)| (figures, now - *heard))
    }

    /// What to send.
    pub(crate) fn message(&self) -> Vec<u8> {
        let list: Vec<NodeFigures> =
            self.heard.values().map(|(figures, _)| *figures).take(VIEW_NODES_MAX).collect();
        NodeFigures::message(&list).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(id: u64, number: u64, free: u64) -> NodeFigures {
        NodeFigures {
            id: id.into(),
            number: number.into(),
            free_bytes: free.into(),
            ..NodeFigures::default()
        }
    }

    #[test]
    fn the_later_figures_count_and_nobody_tells_us_of_ourselves() {
        let mut table = Table::default();
        let (me, other) = (NodeId(1), NodeId(2));
        table.set(Instant(0), figures(1, 1, 10));
        table.hear(Instant(5), &[figures(1, 9, 0), figures(2, 4, 40), figures(3, 1, 0)], me, |id| {
            id != NodeId(3)
        });
        table.hear(Instant(9), &[figures(2, 3, 30)], me, |_| true);
        let of = |table: &Table, id| table.get(Instant(15), id).map(|(f, age)| (f.free_bytes.get(), age.0));
        assert_eq!(of(&table, me), Some((10, 15)));
        assert_eq!(of(&table, other), Some((40, 10)));
        assert_eq!(of(&table, NodeId(3)), None);
        let message = table.message();
        assert_eq!(NodeFigures::list(&message).unwrap().len(), 2);
        table.retain(|id| id == me);
        assert_eq!(of(&table, other), None);
    }
}
