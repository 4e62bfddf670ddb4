//! Hardware models: what a fault costs, as a TOML file that a user can copy and change.
//!
//! A message of a fetch plan passes through the model's stages in order. Each stage is one thing at one place, which serves one message
//! at a time, so messages of one fault overlap in different stages and those of different faults stand in line for each other
//! (subpages-1996, section 3.2: "these page fault components were chosen to permit modelling of the overlap ... in addition the simulator models
//! congestion delays in the network").

use serde::{Deserialize, Serialize};
use std::io::Read;

/// Where a stage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// At the lender that has the page: each has one of its own.
    Lender,
    /// Between them, or at the borrower: one for all.
    Shared,
    /// The borrower's processor: what it does here the program cannot.
    Processor,
}

/// One stage of a page's way.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// For reports.
    pub name: String,
    /// Where it is.
    pub at: Place,
    /// For each message.
    pub fixed_ns: u64,
    /// For each byte, in picoseconds.
    pub ps_per_byte: u64,
    /// More for each message that does not follow the last one's end (a disk's seek and rotation).
    #[serde(default)]
    pub random_ns: u64,
    /// Where the figures come from.
    pub source: String,
}

/// Accesses to what is here of an incomplete page are emulated (subpages-1996, section 3.1 and table 1).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Emulation {
    /// A load from the page of the last emulated access.
    pub fast_load_ns: u64,
    /// Any other load.
    pub slow_load_ns: u64,
    /// A store to the page of the last emulated access.
    pub fast_store_ns: u64,
    /// Any other store.
    pub slow_store_ns: u64,
    /// Where the figures come from.
    pub source: String,
}

impl Emulation {
    fn times(&self) -> [u64; 4] {
        [self.fast_load_ns, self.slow_load_ns, self.fast_store_ns, self.slow_store_ns]
    }

    fn is_upside_down(&self) -> bool {
        self.slow_load_ns < self.fast_load_ns || self.slow_store_ns < self.fast_store_ns
    }
}

/// A machine, its network, and the machines that lend.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// For reports.
    pub name: String,
    /// What it stands for.
    pub about: String,
    /// Time of one memory reference that finds its page here.
    pub reference_ns: u64,
    /// Where that comes from.
    pub reference_source: String,
    /// From the fault to the moment at which the first stage can begin.
    pub request_ns: u64,
    /// Where that comes from.
    pub request_source: String,
    /// Lenders that the pages are spread over.
    #[serde(default = "one")]
    pub lenders: u8,
    /// A page's way, in order.
    #[serde(rename = "stage")]
    pub stages: Vec<Stage>,
    /// Software that stands in for hardware's subpage valid bits.
    #[serde(default)]
    pub emulation: Option<Emulation>,
}

const fn one() -> u8 {
    1
}

/// A model that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// There is no file and no built-in model of this name.
    #[error("{0}: no such model: give a TOML file, or one of {names}", names = Model::NAMES.join(", "))]
    Unknown(String),
    /// The file cannot be read.
    #[error("{path}: {error}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// It is not a model.
    #[error("{name}: {what}")]
    Malformed {
        /// The file, or the model's name.
        name: String,
        /// What is wrong, with its line.
        what: String,
    },
}

/// Largest file that is read as a model.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Stages that a model may have.
const STAGES_MAX: usize = 16;
/// Longest time that a model may name: an hour.
const TIME_NS_MAX: u64 = 3_600_000_000_000;
/// And for what every reference takes: more, and the time of a long run would have no number.
const REFERENCE_NS_MAX: u64 = 1_000_000;

macro_rules! built_in {
    ($($name:literal),*) => {
        const BUILT_IN: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../models/", $name, ".toml")))),*];
        impl Model {
            /// The built-in models.
            pub const NAMES: &'static [&'static str] = &[$($name),*];
        }
    };
}
built_in!(
    "alpha-an2-1996",
    "alpha-disk-1996",
    "ethernet-10-1996",
    "tcp-10g",
    "tcp-25g",
    "tcp-100g",
    "rdma-100g",
    "cxl",
    "nvme"
);

impl Model {
    /// A built-in model by its name, or a file by its path.
    ///
    /// # Errors
    /// [`ModelError`].
    pub fn load(name: &str) -> Result<Self, ModelError> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Self::parse(name, text);
        }
        let unreadable = |error| ModelError::Unreadable { path: name.into(), error };
        let file = match std::fs::File::open(name) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(ModelError::Unknown(name.into()));
            }
            Err(error) => return Err(unreadable(error)),
        };
        // Whatever it says that it has: a device has no end.
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(ModelError::Malformed {
                name: name.into(),
                what: "a model has at most 1 MiB".into(),
            });
        }
        Self::parse(name, &text)
    }

    /// The text of a built-in model, to begin an own one with.
    pub fn text(name: &str) -> Option<&'static str> {
        BUILT_IN.iter().find(|(built_in, _)| *built_in == name).map(|b| b.1)
    }

    /// A model from its text; `name` is for messages.
    ///
    /// # Errors
    /// [`ModelError::Malformed`].
    pub fn parse(name: &str, text: &str) -> Result<Self, ModelError> {
        let malformed = |what: String| ModelError::Malformed { name: name.into(), what };
        let model: Self = toml::from_str(text).map_err(|e| malformed(e.to_string().trim_end().to_owned()))?;
        if model.stages.is_empty() || model.stages.len() > STAGES_MAX {
            return Err(malformed(format!("a model has 1 to {STAGES_MAX} stages")));
        }
        if model.lenders == 0 || model.reference_ns == 0 {
            return Err(malformed("lenders and reference_ns are at least 1".into()));
        }
        let times = model.stages.iter().flat_map(|s| [s.fixed_ns, s.ps_per_byte, s.random_ns]);
        if times.chain([model.reference_ns, model.request_ns]).any(|ns| ns > TIME_NS_MAX) {
            return Err(malformed("a time is longer than an hour".into()));
        }
        let of_references = model.emulation.iter().flat_map(Emulation::times).chain([model.reference_ns]);
        if of_references.max() > Some(REFERENCE_NS_MAX) {
            return Err(malformed("a reference, emulated or not, takes at most a millisecond".into()));
        }
        if model.emulation.as_ref().is_some_and(Emulation::is_upside_down) {
            return Err(malformed("emulation: what is slow takes at least as long as what is fast".into()));
        }
        Ok(model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_models_are_models() {
        for name in Model::NAMES {
            let model = Model::load(name).unwrap();
            assert!(model.stages.iter().all(|s| !s.source.is_empty()), "{name}: each figure has its source");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let text = Model::text("tcp-10g").unwrap().replace("reference_ns", "refrence_ns");
        let error = Model::parse("mine.toml", &text).unwrap_err().to_string();
        assert!(error.starts_with("mine.toml: ") && error.contains("refrence_ns"), "{error}");
        assert!(Model::load("no-such").unwrap_err().to_string().contains("alpha-an2-1996"));
    }

    #[test]
    fn times_that_no_run_could_count_are_refused() {
        let text = Model::text("alpha-an2-1996").unwrap();
        let emulation = |slow: &str| {
            format!(
                "{text}\n[emulation]\nfast_load_ns = 195\nslow_load_ns = {slow}\nfast_store_ns = 241\nslow_store_ns = 383\n\
                 source = \"table 1\"\n"
            )
        };
        assert!(Model::parse("m", &emulation("361")).is_ok());
        for wrong in [
            text.replace("reference_ns = 12", "reference_ns = 1_000_001"),
            text.replace("reference_ns = 12", "reference_ns = 0"),
            text.replace("fixed_ns = 60_333", "fixed_ns = 3_600_000_000_001"),
            emulation("100"),
            emulation("1_000_001"),
        ] {
            assert!(Model::parse("m", &wrong).is_err(), "{wrong}");
        }
    }
}
