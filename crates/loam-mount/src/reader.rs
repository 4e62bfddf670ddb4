//! Reading a file: from this mount's memory, else from another mount's, else from the source.
//!
//! What is kept and offered to others is only what the source's file had while its version was the one that it is kept under: the file is
//! looked at again after it was read, and if it has changed meanwhile, what was read is dropped and all is read again under the new
//! version. After a few rounds of that, or when the last change is so recent that a further one might leave no trace, the reader gets
//! what the file has, as from any file that is being written, and nothing is kept.

use crate::cache::{Cache, Claim, Claimed};
use crate::figures::Figures;
use crate::inodes::Inodes;
use crate::open::OpenFile;
use crate::peers::Peers;
use crate::run::{RUN_BYTES, Run, RunKey};
use crate::source::{Source, is_away};
use crate::stat::Version;
use loam_disk::Piece;
use loam_wire::mount::ExtentRef;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Rounds with a file that changes while it is read.
const ROUNDS_MAX: usize = 4;
/// How long a run that another thread is getting is waited for, before it is read once more.
const WAIT_LIMIT: Duration = Duration::from_secs(30);
/// Mounts that are asked for the same runs before the source is.
const HOLDERS_ASKED_MAX: usize = 2;

/// All that reading needs.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) source: Arc<Source>,
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) peers: Arc<dyn Peers>,
    pub(crate) figures: Arc<Figures>,
}

/// Why runs could not be had.
enum Missed {
    /// The file has changed; its node knows the new version.
    Changed,
    Failed(Errno),
}

impl From<Errno> for Missed {
    fn from(error: Errno) -> Self {
        Self::Failed(error)
    }
}

impl Reader {
    /// Reads up to `bytes` from `offset` on and gives them to `answer`; fewer only at the file's end. `scratch` is any buffer.
    pub(crate) fn read(
        &self,
        file: &OpenFile,
        offset: u64,
        bytes: usize,
        scratch: &mut Vec<u8>,
        answer: impl FnOnce(&[u8]),
    ) -> Result<(), Errno> {
        self.figures.reads.add(1);
        for _ in 0..ROUNDS_MAX {
            let mut version = file.version()?;
            let end = offset.saturating_add(bytes as u64);
            if end > version.size {
                // At the end: is it still there? While the source is away it is where it was.
                let at_source = file.file(&self.source).ok();
                if let Some(Ok(seen)) = at_source.map(|at| self.look(file, &at)) {
                    version = seen;
                }
            }
            let end = end.min(version.size);
            if offset >= end {
                answer(&[]);
                return Ok(());
            }
            if !version.is_settled(SystemTime::now()) {
                break;
            }
            match self.runs(file, &version, offset, end) {
                Ok(runs) => {
                    assemble(&runs, offset, end, scratch, answer);
                    return Ok(());
                }
                Err(Missed::Changed) => {}
                Err(Missed::Failed(error)) => return Err(error),
            }
        }
        self.read_uncached(file, offset, bytes, scratch)?;
        answer(scratch);
        Ok(())
    }

    /// The version that the file has now.
    fn look(&self, file: &OpenFile, at_source: &OwnedFd) -> Result<Arc<Version>, Errno> {
        let seen = file.look(&self.source, &self.inodes, at_source)?;
        if seen.changed {
            self.figures.versions_changed.add(1);
        }
        Ok(seen.version)
    }

    /// The runs of a version from `offset` to `end`, in order.
    fn runs(
        &self,
        file: &OpenFile,
        version: &Version,
        offset: u64,
        end: u64,
    ) -> Result<Vec<Arc<Run>>, Missed> {
        let numbers = offset / RUN_BYTES as u64..=(end - 1) / RUN_BYTES as u64;
        let keys: Vec<RunKey> = numbers.map(|run| RunKey { file: version.file, run }).collect();
        let (claims, mut claimed) = self.cache.claim(keys.iter().copied());
        let mut found: BTreeMap<RunKey, Arc<Run>> = BTreeMap::new();
        let mut others = Vec::new();
        for (&key, claim) in keys.iter().zip(claims) {
            match claim {
                Claim::Hit(run) => drop(found.insert(key, run)),
                Claim::Mine => {}
                Claim::Others => others.push(key),
            }
        }
        self.figures.runs_hit.add(found.len() as u64);
        if !claimed.keys().is_empty() {
            self.ask_peers(version, &mut claimed, &mut found);
            self.ask_source(file, version, &mut claimed, &mut found)?;
        }
        // All of this thread's own claims are fulfilled: whoever waits for them waits no longer.
        drop(claimed);
        for key in others {
            let run = match self.cache.wait(key, WAIT_LIMIT) {
                Some(run) => run,
                None => self.read_alone(file, version, key)?,
            };
            found.insert(key, run);
        }
        Ok(found.into_values().collect())
    }

    fn ask_peers(
        &self,
        version: &Version,
        claimed: &mut Claimed<'_>,
        found: &mut BTreeMap<RunKey, Arc<Run>>,
    ) {
        if self.peers.count() == 0 {
            return;
        }
        let mut extents: Vec<ExtentRef> = claimed.keys().iter().map(|key| key.extent()).collect();
        extents.dedup();
        let holders = self.peers.who_has(&extents);
        for (extent, holders) in extents.iter().zip(holders) {
            for (node, runs) in holders.into_iter().take(HOLDERS_ASKED_MAX) {
                let of_node = |key: &&RunKey| key.extent() == *extent && runs & key.bit() != 0;
                let wanted: Vec<RunKey> = claimed.keys().iter().filter(of_node).copied().collect();
                if wanted.is_empty() {
                    continue;
                }
                let got = self.peers.fetch(node, &wanted, version.size);
                self.figures.runs_from_peers.add(got.len() as u64);
                self.keep(got, true, claimed, found);
            }
        }
    }

    fn keep(
        &self,
        runs: Vec<(RunKey, Arc<Run>)>,
        duplicate: bool,
        claimed: &mut Claimed<'_>,
        found: &mut BTreeMap<RunKey, Arc<Run>>,
    ) {
        let evicted = claimed.bring(&runs, duplicate);
        let keys: Vec<RunKey> = runs.iter().map(|(key, _)| *key).collect();
        found.extend(runs);
        self.peers.now_have(&keys);
        self.peers.no_longer(&evicted);
    }

    /// Gets what is still claimed from the source: neighbours by one call.
    fn ask_source(
        &self,
        file: &OpenFile,
        version: &Version,
        claimed: &mut Claimed<'_>,
        found: &mut BTreeMap<RunKey, Arc<Run>>,
    ) -> Result<(), Missed> {
        let left = claimed.keys().to_vec();
        for keys in left.chunk_by(|one, next| one.run + 1 == next.run) {
            let read = self.read_source(file, version, keys)?;
            self.keep(keys.iter().copied().zip(read).collect(), false, claimed, found);
        }
        Ok(())
    }

    /// Another thread did not bring it in time, or failed: reads it for this reader alone.
    fn read_alone(&self, file: &OpenFile, version: &Version, key: RunKey) -> Result<Arc<Run>, Missed> {
        let mut runs = self.read_source(file, version, &[key])?;
        Ok(runs.pop().expect("one was asked for"))
    }

    /// Reads neighbouring runs from the source, proved to be of `version`.
    fn read_source(
        &self,
        file: &OpenFile,
        version: &Version,
        keys: &[RunKey],
    ) -> Result<Vec<Arc<Run>>, Missed> {
        let mut buffers = self.cache.buffers.take_row(keys.len());
        let due: Vec<usize> = keys.iter().map(|key| key.bytes_in(version.size)).collect();
        self.fill(file, version, &mut buffers, &due, keys[0].run * RUN_BYTES as u64)?;
        self.figures.runs_from_source.add(keys.len() as u64);
        let runs = buffers.into_iter().zip(due);
        Ok(runs.map(|(buffer, bytes)| Arc::new(Run::read(buffer, bytes))).collect())
    }

    fn fill(
        &self,
        file: &OpenFile,
        version: &Version,
        buffers: &mut [Piece],
        due: &[usize],
        offset: u64,
    ) -> Result<(), Missed> {
        let total: usize = due.iter().sum();
        let at_source = self.at_source(file)?;
        let mut read = 0;
        while read < total {
            let mut skip = read;
            let mut slices: Vec<IoSliceMut<'_>> = Vec::with_capacity(buffers.len());
            for (buffer, &bytes) in buffers.iter_mut().zip(due) {
                let from = skip.min(bytes);
                skip -= from;
                if from < bytes {
                    slices.push(IoSliceMut::new(&mut buffer[from..bytes]));
                }
            }
            match rustix::io::preadv(&at_source, &mut slices, offset + read as u64) {
                Ok(0) => break,
                Ok(bytes) => read += bytes,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed(file, &at_source, error).into()),
            }
        }
        self.figures.source_bytes.add(read as u64);
        let seen = self.look(file, &at_source).map_err(|error| self.failed(file, &at_source, error))?;
        // With the version that was asked for, and not with what the node says: another thread may have seen the change before this one read.
        if *seen == *version && read == total { Ok(()) } else { Err(Missed::Changed) }
    }

    fn at_source(&self, file: &OpenFile) -> Result<Arc<OwnedFd>, Errno> {
        // What cannot be opened has gone or is away. To a reader that has it open both are the same.
        file.file(&self.source).map_err(|_| Errno::IO)
    }

    fn failed(&self, file: &OpenFile, at_source: &Arc<OwnedFd>, error: Errno) -> Errno {
        if is_away(error) || error == Errno::STALE {
            file.lost(at_source);
            return Errno::IO;
        }
        error
    }

    /// What the file has now, into `scratch`.
    fn read_uncached(
        &self,
        file: &OpenFile,
        offset: u64,
        bytes: usize,
        scratch: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        self.figures.reads_uncached.add(1);
        let at_source = self.at_source(file)?;
        scratch.resize(bytes, 0);
        let mut read = 0;
        while read < bytes {
            match rustix::io::pread(&at_source, &mut scratch[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed(file, &at_source, error)),
            }
        }
        scratch.truncate(read);
        self.figures.source_bytes.add(read as u64);
        // So that the next reader finds the version that was read, once it is settled.
        self.look(file, &at_source).map_err(|error| self.failed(file, &at_source, error))?;
        Ok(())
    }
}

/// Gives the bytes from `offset` to `end` of the runs that hold them: from where they lie if they lie side by side, else copied together.
fn assemble(runs: &[Arc<Run>], offset: u64, end: u64, scratch: &mut Vec<u8>, answer: impl FnOnce(&[u8])) {
    let start = (offset % RUN_BYTES as u64) as usize;
    let bytes = (end - offset) as usize;
    let (last, whole) = runs.split_last().expect("some bytes are asked for");
    let there = whole.len() * RUN_BYTES + last.contents().len();
    let is_whole = |run: &Arc<Run>| run.contents().len() == RUN_BYTES;
    assert!(whole.iter().all(is_whole) && start + bytes <= there, "runs are whole up to the file's end");
    if whole.is_empty() {
        return answer(&last.contents()[start..start + bytes]);
    }
    if let Some(contents) = Run::joined(runs) {
        return answer(&contents[start..start + bytes]);
    }
    scratch.clear();
    for (at, run) in runs.iter().enumerate() {
        let from = if at == 0 { start } else { 0 };
        let to = run.contents().len().min(from + bytes - scratch.len());
        scratch.extend_from_slice(&run.contents()[from..to]);
    }
    answer(scratch);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::CACHE_BYTES_MIN;
    use crate::inodes::ROOT_ID;
    use crate::peers::{Holder, NodeId};
    use crate::source::stat_of;
    use loam_disk::Pieces;
    use std::ffi::OsStr;
    use std::path::PathBuf;

    const LAST_BYTES: usize = 3 * 4096 + 10;

    fn byte_at(at: usize) -> u8 {
        let run = at / RUN_BYTES;
        (at % 251) as u8 ^ run as u8
    }

    /// Three runs of a file and its end, of these pieces.
    fn runs(pieces: Vec<Piece>) -> Vec<Arc<Run>> {
        let last = pieces.len() - 1;
        let run = |(n, mut piece): (usize, Piece)| {
            piece.iter_mut().enumerate().for_each(|(at, byte)| *byte = byte_at(n * RUN_BYTES + at));
            Arc::new(Run::read(piece, if n == last { LAST_BYTES } else { RUN_BYTES }))
        };
        pieces.into_iter().enumerate().map(run).collect()
    }

    fn read(runs: &[Arc<Run>], offset: usize, end: usize, scratch: &mut Vec<u8>) -> Vec<u8> {
        let mut answered = None;
        assemble(runs, offset as u64, end as u64, scratch, |bytes| answered = Some(bytes.to_vec()));
        answered.expect("it is answered")
    }

    #[test]
    fn what_is_read_is_the_same_however_runs_lie() {
        let end = 3 * RUN_BYTES + LAST_BYTES;
        let expected: Vec<u8> = (0..end).map(byte_at).collect();
        let pieces = Pieces::new(RUN_BYTES, 8);
        let side_by_side = runs(pieces.take_row(4));
        let mut apart = pieces.take_row(4);
        apart.reverse();
        let apart = runs(apart);
        for (first, to) in [(0, end), (5, end - 5), (RUN_BYTES - 1, 2 * RUN_BYTES + 1), (4096, RUN_BYTES)] {
            let of = (to - 1) / RUN_BYTES + 1;
            let (mut scratch, mut copied) = (Vec::new(), Vec::new());
            assert_eq!(read(&side_by_side[..of], first, to, &mut scratch), expected[first..to]);
            assert_eq!(read(&apart[..of], first, to, &mut copied), expected[first..to]);
            assert!(scratch.is_empty(), "nothing was copied");
            assert_eq!(copied.is_empty(), of == 1);
        }
    }

    /// Another mount that has nothing, and is asked just when the file is written anew and another thread sees it.
    #[derive(Debug)]
    struct Meanwhile {
        path: PathBuf,
        inodes: Arc<Inodes>,
    }

    impl Peers for Meanwhile {
        fn who_has(&self, extents: &[ExtentRef]) -> Vec<Vec<Holder>> {
            std::fs::write(&self.path, [2; 5000]).expect("writable");
            let stat = stat_of(std::fs::File::open(&self.path).expect("there")).expect("open");
            self.inodes.observe(&self.inodes.get(stat.ino).expect("it was found"), &stat, stat.dev);
            vec![Vec::new(); extents.len()]
        }
        fn fetch(&self, _: NodeId, _: &[RunKey], _: u64) -> Vec<(RunKey, Arc<Run>)> {
            Vec::new()
        }
        fn now_have(&self, _: &[RunKey]) {}
        fn no_longer(&self, _: &[RunKey]) {}
        fn count(&self) -> usize {
            1
        }
    }

    #[test]
    fn what_is_read_after_another_thread_saw_a_change_is_not_kept_as_of_before() {
        let dir = std::env::temp_dir().join(format!("loam-mount-reader-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("writable");
        let path = dir.join("file");
        std::fs::write(&path, [1; 5000]).expect("writable");
        let stat = |path| stat_of(std::fs::File::open(path).expect("there")).expect("open");
        let (root, seen) = (stat(&dir), stat(&path));
        let inodes = Arc::new(Inodes::new("name", &root));
        let node =
            inodes.found(&inodes.get(ROOT_ID).expect("there").place(), OsStr::new("file"), &seen, root.dev);
        let version = node.version();
        let file = OpenFile::new(Arc::clone(&node), 0, None, SystemTime::now());
        let figures = Arc::new(Figures::default());
        let reader = Reader {
            source: Arc::new(Source::open(&dir).expect("there")),
            peers: Arc::new(Meanwhile { path, inodes: Arc::clone(&inodes) }),
            inodes,
            cache: Arc::new(Cache::new(CACHE_BYTES_MIN, true, Arc::clone(&figures))),
            figures,
        };
        while !version.is_settled(SystemTime::now()) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut read = Vec::new();
        reader.read(&file, 0, 4096, &mut Vec::new(), |bytes| read = bytes.to_vec()).expect("readable");
        std::fs::remove_dir_all(&dir).expect("ours");
        assert!(read == [2; 4096] && node.version().file != version.file);
        let (claims, _claimed) = reader.cache.claim([RunKey { file: version.file, run: 0 }].into_iter());
        assert!(matches!(claims[..], [Claim::Mine]), "bytes of the new version under the old one's name");
    }

    #[test]
    fn a_run_of_zeros_lies_nowhere() {
        let pieces = Pieces::new(RUN_BYTES, 8);
        let mut row = pieces.take_row(3);
        row[0].fill(1);
        row[2].fill(3);
        let runs: Vec<Arc<Run>> =
            row.into_iter().map(|piece| Arc::new(Run::read(piece, RUN_BYTES))).collect();
        let all = read(&runs, 0, 3 * RUN_BYTES, &mut Vec::new());
        assert!((0..3 * RUN_BYTES).all(|at| all[at] == [1, 0, 3][at / RUN_BYTES]));
    }

    #[test]
    #[should_panic(expected = "runs are whole up to the file's end")]
    fn a_run_that_is_short_in_the_middle_is_caught() {
        let pieces = Pieces::new(RUN_BYTES, 8);
        let row = pieces.take_row(2).into_iter().map(|mut piece| {
            piece.fill(7);
            Arc::new(Run::read(piece, RUN_BYTES - 1))
        });
        read(&row.collect::<Vec<_>>(), 0, 2 * RUN_BYTES - 1, &mut Vec::new());
    }
}
