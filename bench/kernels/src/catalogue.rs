//! The kernels by name, and how large they are.

use crate::flow::{bt, sp};
use crate::kernel::Kernel;
use crate::memory::Memory;
use crate::{bfs, cg, flow, ft, himeno, is, join, mg};
use std::fmt;

/// What is known of a kernel before it is made.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// What it is called by.
    pub name: &'static str,
    /// What it does, in a few words.
    pub about: &'static str,
    /// Its parts, in order: the first one's mark is 1.
    pub parts: &'static [&'static str],
    /// Iterations unless others are asked for.
    pub iterations: u32,
    /// What its problem number counts.
    pub problem: &'static str,
    /// The problem numbers of small, medium and large.
    sizes: [usize; 3],
    /// The least and the largest problem number.
    range: (usize, usize),
    bytes: fn(usize) -> u64,
}

/// How large a kernel is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Less than a second.
    Small,
    /// Seconds; where NPB has it, class A.
    Medium,
    /// Up to minutes; where NPB has it, class B.
    Large,
    /// The largest problem whose arrays take no more bytes than this.
    Bytes(u64),
    /// A problem number.
    Problem(usize),
}

/// There is no such problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeError(String);

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SizeError {}

impl Info {
    /// The problem number for a size.
    ///
    /// # Errors
    /// If the size is less than the smallest problem, or a problem number is out of range.
    pub fn problem(&self, size: Size) -> Result<usize, SizeError> {
        let (least, most) = self.range;
        match size {
            Size::Small => Ok(self.sizes[0]),
            Size::Medium => Ok(self.sizes[1]),
            Size::Large => Ok(self.sizes[2]),
            Size::Problem(problem) if (least..=most).contains(&problem) => Ok(problem),
            Size::Problem(problem) => Err(SizeError(format!(
                "{}: problem {problem} is out of range: {} from {least} to {most}",
                self.name, self.problem
            ))),
            Size::Bytes(bytes) if bytes < self.bytes(least) => Err(SizeError(format!(
                "{}: {bytes} bytes are too few: the smallest problem takes {}",
                self.name,
                self.bytes(least)
            ))),
            Size::Bytes(bytes) => {
                let (mut fits, mut above) = (least, most + 1);
                while above - fits > 1 {
                    let middle = fits + (above - fits) / 2;
                    if self.bytes(middle) <= bytes {
                        fits = middle;
                    } else {
                        above = middle;
                    }
                }
                Ok(fits)
            }
        }
    }

    /// Bytes of the arrays of a problem.
    pub fn bytes(&self, problem: usize) -> u64 {
        (self.bytes)(problem)
    }

    /// Makes the kernel, its input set up.
    ///
    /// # Panics
    /// If the problem number is out of range.
    pub fn build<M: Memory>(&self, problem: usize, memory: &M) -> Box<dyn Kernel> {
        let (least, most) = self.range;
        assert!((least..=most).contains(&problem), "the problem number is out of range");
        match self.name {
            "himeno" => Box::new(himeno::Himeno::new(memory, problem)),
            "bt" => Box::new(bt::Bt::new(memory, problem)),
            "sp" => Box::new(sp::Sp::new(memory, problem)),
            "ft" => Box::new(ft::Ft::new(memory, problem)),
            "cg" => Box::new(cg::Cg::new(memory, problem)),
            "is" => Box::new(is::Is::new(memory, problem)),
            "mg" => Box::new(mg::Mg::new(memory, problem)),
            "bfs" => Box::new(bfs::Bfs::new(memory, problem)),
            "join" => Box::new(join::Join::new(memory, problem)),
            other => unreachable!("{other} is in the catalogue and is not made here"),
        }
    }
}

/// The kernel of this name.
pub fn info(name: &str) -> Option<&'static Info> {
    INFOS.iter().find(|info| info.name == name)
}

/// All kernels.
pub const INFOS: &[Info] = &[
    Info {
        name: "himeno",
        about: "Jacobi's iteration for Poisson's equation, 19 points",
        parts: himeno::PARTS,
        iterations: 10,
        problem: "points of the shortest edge of n x n x 2n",
        sizes: [64, 128, 256],
        range: (8, 1024),
        bytes: himeno::bytes,
    },
    Info {
        name: "bt",
        about: "alternating directions, block-tridiagonal",
        parts: bt::PARTS,
        iterations: 10,
        problem: "points of an edge",
        sizes: [24, 64, 102],
        range: (flow::EDGE_MIN, 400),
        bytes: bt::bytes,
    },
    Info {
        name: "sp",
        about: "alternating directions, scalar pentadiagonal",
        parts: sp::PARTS,
        iterations: 10,
        problem: "points of an edge",
        sizes: [24, 64, 102],
        range: (flow::EDGE_MIN, 600),
        bytes: sp::bytes,
    },
    Info {
        name: "ft",
        about: "three-dimensional fast Fourier transforms",
        parts: ft::PARTS,
        iterations: 6,
        problem: "binary logarithm of the number of elements",
        sizes: [18, 23, 25],
        range: (6, 30),
        bytes: ft::bytes,
    },
    Info {
        name: "cg",
        about: "conjugate gradients, a matrix with random sparsity",
        parts: cg::PARTS,
        iterations: 15,
        problem: "unknowns",
        sizes: [1 << 16, 1 << 20, 1 << 22],
        range: (16, 1 << 27),
        bytes: cg::bytes,
    },
    Info {
        name: "is",
        about: "integer sort by counting",
        parts: is::PARTS,
        iterations: 10,
        problem: "keys",
        sizes: [1 << 20, 1 << 25, 1 << 27],
        range: (1 << 8, 1 << 31),
        bytes: is::bytes,
    },
    Info {
        name: "mg",
        about: "V-cycles of multigrid on a periodic cube",
        parts: mg::PARTS,
        iterations: 4,
        problem: "binary logarithm of the points of an edge",
        sizes: [6, 8, 9],
        range: (3, 10),
        bytes: mg::bytes,
    },
    Info {
        name: "bfs",
        about: "breadth-first search on an RMAT graph",
        parts: bfs::PARTS,
        iterations: 8,
        problem: "binary logarithm of the number of vertices",
        sizes: [15, 20, 22],
        range: (6, 26),
        bytes: bfs::bytes,
    },
    Info {
        name: "join",
        about: "hash join of two relations",
        parts: join::PARTS,
        iterations: 3,
        problem: "binary logarithm of the rows of the smaller relation",
        sizes: [16, 21, 23],
        range: (6, 30),
        bytes: join::bytes,
    },
];
