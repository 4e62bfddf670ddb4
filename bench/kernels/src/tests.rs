//! Every kernel, at a small size.

use super::*;
use std::cell::RefCell;
use std::rc::Rc;

/// The least bytes at which all kernels have several levels, lines and pages.
const SMALL: Size = Size::Bytes(3 << 20);

fn run<M: Memory>(info: &'static Info, size: Size, memory: M) -> Run<M> {
    let problem = info.problem(size).expect("it is large enough");
    let mut run = Run::new(info, problem, info.iterations, memory);
    while run.step() {}
    run
}

#[test]
fn results_are_right_and_the_same_each_time() {
    for info in INFOS {
        let first = run(info, SMALL, Plain::default()).finish();
        assert!(first.passed(), "{first:#?}");
        assert_eq!(first, run(info, SMALL, Plain::default()).finish());
        assert!(first.bytes <= 3 << 20, "{first:?}");
    }
}

#[test]
fn one_damaged_element_is_found() {
    for info in INFOS {
        let whole = run(info, SMALL, Plain::default()).finish();
        for seed in 0..4 {
            let mut damaged = run(info, SMALL, Plain::default());
            damaged.corrupt(seed);
            let report = damaged.finish();
            assert!(!report.passed(), "seed {seed}: {report:#?}");
            assert_ne!(report.checksum, whole.checksum, "{}", info.name);
        }
    }
}

/// Counts what a kernel does; the arrays are plain ones.
#[derive(Clone, Default)]
struct Counting {
    parts: Rc<RefCell<Vec<u32>>>,
    bytes: Rc<RefCell<u64>>,
}

impl Memory for Counting {
    type Array<T: Element> = Box<[T]>;
    fn array<T: Element>(&self, length: usize) -> Box<[T]> {
        *self.bytes.borrow_mut() += (length * size_of::<T>()) as u64;
        Plain::default().array(length)
    }
    fn part(&self, part: u32) {
        self.parts.borrow_mut().push(part);
    }
    fn work(&self, _operations: u64) {}
}

#[test]
fn parts_are_marked_in_order_and_bytes_are_as_told() {
    for info in INFOS {
        let counting = Counting::default();
        let report = run(info, SMALL, counting.clone()).finish();
        let each: Vec<u32> = (1..=info.parts.len() as u32).collect();
        let mut wanted = vec![0];
        (0..report.iterations).for_each(|_| wanted.extend(&each));
        wanted.push(0);
        assert_eq!(*counting.parts.borrow(), wanted, "{}", info.name);
        assert_eq!(*counting.bytes.borrow(), report.bytes, "{}", info.name);
    }
}

#[test]
fn sizes_grow_and_are_the_largest_that_fit() {
    for info in INFOS {
        let sizes = [Size::Small, Size::Medium, Size::Large].map(|size| info.problem(size).unwrap());
        assert!(info.bytes(sizes[0]) < info.bytes(sizes[1]) && info.bytes(sizes[1]) < info.bytes(sizes[2]));
        for bytes in [info.bytes(sizes[1]), info.bytes(sizes[1]) - 1] {
            let found = info.problem(Size::Bytes(bytes)).unwrap();
            assert!(info.bytes(found) <= bytes && bytes < info.bytes(found + 1), "{}: {found}", info.name);
        }
        assert!(info.problem(Size::Bytes(1)).is_err());
        assert!(info.problem(Size::Problem(usize::MAX)).is_err());
    }
}
