//! How large the tree is, and how much of it is compiled.

/// What is compiled and linked.
#[derive(Clone, Debug, PartialEq)]
pub struct CompileConfig {
    /// Object files of the kernel.
    pub objects: u32,
    /// Of these so many are compiled; they are spread over the tree.
    pub compiled: u32,
    /// Subsystems that are linked first.
    pub subsystems: u32,
    /// Mean size of a source file. Sizes are from a half to one and a half of the mean.
    pub source_bytes: u64,
    /// Header files in the tree.
    pub headers: u32,
    /// Their mean size.
    pub header_bytes: u64,
    /// Different headers that a source file includes; which ones, by Zipf's law.
    pub included: u32,
    /// Mean size of an object file.
    pub object_bytes: u64,
    /// References of a recorded program that are used.
    pub references_max: u64,
}

impl CompileConfig {
    /// A kernel of OSF/1's time: 900 objects of 56 KB with their tables of symbols, some 50 MB in all; a twentieth of it is compiled.
    pub fn paper() -> Self {
        Self {
            objects: 900,
            compiled: 45,
            subsystems: 9,
            source_bytes: 36 << 10,
            headers: 800,
            header_bytes: 10 << 10,
            included: 60,
            object_bytes: 56 << 10,
            references_max: u64::MAX,
        }
    }

    /// For tests.
    pub fn small() -> Self {
        Self {
            objects: 20,
            compiled: 2,
            subsystems: 2,
            headers: 40,
            included: 10,
            references_max: 200_000,
            ..Self::paper()
        }
    }
}
