//! How busy this machine's processors are, for the weights: a node with idle memory and busy processors is spared.

/// Counts of `/proc/stat`, kept between two looks.
#[derive(Debug, Default)]
pub(crate) struct Processors {
    idle: u64,
    total: u64,
}

impl Processors {
    /// Thousandths of the time since the last look that they were busy; 0 at the first look, or where it cannot be known.
    pub(crate) fn busy_permille(&mut self) -> u16 {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        parse(&text).map_or(0, |now| self.since(now))
    }

    fn since(&mut self, now: Self) -> u16 {
        let before = std::mem::replace(self, now);
        let (idle, total) = (self.idle.saturating_sub(before.idle), self.total.saturating_sub(before.total));
        if before.total == 0 || total == 0 {
            return 0;
        }
        (total.saturating_sub(idle) * 1000 / total) as u16
    }
}

/// The first line: `cpu user nice system idle iowait irq softirq steal guest guest_nice`, guests counted in user already.
fn parse(stat: &str) -> Option<Processors> {
    let ticks = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> =
        ticks.split_ascii_whitespace().take(8).map_while(|tick| tick.parse().ok()).collect();
    let [_, _, _, idle, waiting, ..] = ticks[..] else { return None };
    Some(Processors { idle: idle + waiting, total: ticks.iter().sum() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_what_is_neither_idle_nor_waiting_since_the_last_look() {
        let at = |text: &str| parse(text).unwrap();
        let mut processors = Processors::default();
        assert_eq!(processors.since(at("cpu  10 0 10 60 20 0 0 0 5 0\ncpu0 1")), 0);
        assert_eq!(processors.since(at("cpu  30 0 15 110 45 0 0 0 9 0")), 250);
        assert_eq!(processors.since(at("cpu  30 0 15 110 45 0 0 0 9 0")), 0);
        assert!(parse("cpu 1 2").is_none() && parse("intr 5").is_none() && parse("").is_none());
        let mut real = Processors::default();
        real.busy_permille();
        assert!(real.total > 0);
    }
}
