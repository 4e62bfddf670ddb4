//! The text that `valgrind --tool=lackey --trace-mem=yes` writes.
//!
//! One access a line: ` L address,size` loads, ` S` stores, ` M` does both (two references), `I ` fetches an
//! instruction; addresses are hexadecimal. Lines that begin with `==`, `--` or `**` are valgrind's own.

use super::collapse::{ACCESS_BYTES_MAX, Collapse};
use super::lines::{self, Lines};
use super::{RUNS_PER_CALL, Run, Source, TraceError};
use std::io::BufRead;

/// What a line has to look like.
const EXPECTED: &str =
    "expected ` L address,size`, ` S ...`, ` M ...` or `I  address,size`, address hexadecimal";

/// Reads lackey's text.
pub struct Lackey<R> {
    lines: Lines<R>,
    instructions: bool,
    collapse: Collapse,
}

impl<R: BufRead> Lackey<R> {
    /// Reads from `reader`; `trace` is its name in messages. Instruction fetches are skipped unless asked
    /// for.
    pub fn new(reader: R, trace: &str, instructions: bool) -> Self {
        Self { lines: Lines::new(reader, trace), instructions, collapse: Collapse::default() }
    }
}

/// What a line of lackey says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Load,
    Store,
    Modify,
    Instruction,
}

impl<R: BufRead> Source for Lackey<R> {
    fn next_runs(&mut self, into: &mut Vec<Run>) -> Result<bool, TraceError> {
        let before = into.len();
        while into.len() - before < RUNS_PER_CALL {
            let Some((line, ended)) = self.lines.next()? else {
                self.collapse.end(into);
                break;
            };
            let Some(parsed) = parse(line) else {
                let shown = self.lines.shown();
                return Err(self.lines.error(format_args!("{shown}: {EXPECTED}")));
            };
            if !ended {
                let shown = self.lines.shown();
                return Err(self.lines.error(format_args!(
                    "{shown} is the last line and has no end: the trace was cut here; record it again"
                )));
            }
            let Some((access, address, bytes)) = parsed else { continue };
            match access {
                Access::Load => self.collapse.access(address, bytes, false, into),
                Access::Store => self.collapse.access(address, bytes, true, into),
                Access::Modify => {
                    self.collapse.access(address, bytes, false, into);
                    self.collapse.access(address, bytes, true, into);
                }
                Access::Instruction if self.instructions => {
                    self.collapse.access(address, bytes, false, into);
                }
                Access::Instruction => {}
            }
        }
        Ok(into.len() > before)
    }
}

/// It tells what valgrind does, and not what the program does.
pub(super) fn is_valgrinds(line: &[u8]) -> bool {
    [b"==", b"--", b"**"].iter().any(|begin| line.starts_with(*begin))
}

/// None: malformed. Some(None): not an access.
fn parse(line: &[u8]) -> Option<Option<(Access, u64, u64)>> {
    let (access, rest) = match line {
        [b' ', b'L', b' ', rest @ ..] => (Access::Load, rest),
        [b' ', b'S', b' ', rest @ ..] => (Access::Store, rest),
        [b' ', b'M', b' ', rest @ ..] => (Access::Modify, rest),
        [b'I', b' ', b' ', rest @ ..] => (Access::Instruction, rest),
        [] => return Some(None),
        line if is_valgrinds(line) => return Some(None),
        _ => return None,
    };
    let comma = rest.iter().position(|&letter| letter == b',')?;
    let address = lines::hex(&rest[..comma])?;
    let bytes = lines::decimal(&rest[comma + 1..]).filter(|bytes| (1..=ACCESS_BYTES_MAX).contains(bytes))?;
    Some(Some((access, address, bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::summary::all_runs;

    const TEXT: &str =
        "==7== Lackey\n==7== \nI  04001000,3\n S 1fff0007f8,16\n L 04001200,8\n M 04001208,4\n==7== Exit\n";

    fn run(grain: u64, references: u32, writes: bool) -> Run {
        Run { grain, references, writes }
    }

    #[test]
    fn accesses_become_runs() {
        let runs = all_runs(&mut Lackey::new(TEXT.as_bytes(), "t", false)).expect("sound");
        assert_eq!(runs, [run(0x1fff_0007, 1, true), run(0x1fff_0008, 1, true), run(0x4_0012, 3, true)]);
    }

    #[test]
    fn instructions_come_when_asked_for() {
        let runs = all_runs(&mut Lackey::new(TEXT.as_bytes(), "t", true)).expect("sound");
        assert_eq!(runs.first(), Some(&run(0x4_0010, 1, false)));
        assert_eq!(runs.len(), 4);
    }

    #[test]
    fn a_malformed_line_is_named() {
        for wrong in [" L xyz,8", " L 1000", " L 1000,0", " L 1000,9999999", " X 10,8", "hello", " L ,8"] {
            let text = format!(" L 1000,8\n{wrong}\n");
            let error =
                all_runs(&mut Lackey::new(text.as_bytes(), "t.txt", false)).expect_err(wrong).to_string();
            assert!(
                error.starts_with("t.txt: line 2: ") && error.contains("expected ` L address,size`"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_cut_line_is_noticed() {
        let error = all_runs(&mut Lackey::new(&b" L 1000,8\n L 1000,1"[..], "t", false)).expect_err("cut");
        assert!(error.to_string().starts_with("t: line 2: ` L 1000,1` is the last line"), "{error}");
    }

    #[test]
    fn a_file_without_lines_is_no_text() {
        let zeros = vec![b'0'; 5000];
        let error = all_runs(&mut Lackey::new(zeros.as_slice(), "t", false)).expect_err("no text");
        assert!(error.to_string().contains("more than 4096 bytes"), "{error}");
    }
}
