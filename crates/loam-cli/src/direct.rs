//! The memory of a direct region: reserved at this machine's node before the program starts.

use crate::args::BorrowArgs;
use crate::failure::Failure;
use loam::region::{Options, RegionMemory};
use loam_agent::DirectMemory;
use loam_core::units::Bytes;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// What the run has of the node.
pub(crate) struct Reserved {
    pub(crate) memory: Arc<DirectMemory>,
    /// For as long as this is there the node keeps it.
    _at_node: RegionMemory,
}

/// A region's flags that have no meaning for a direct one.
pub(crate) fn check(args: &BorrowArgs, is_direct: bool) -> Result<(), Failure> {
    if !is_direct {
        let flags = [
            ("--region-socket", args.region_socket.is_some()),
            ("--region-device", args.region_device.is_some()),
            ("--region-numa", args.region_numa.is_some()),
        ];
        return match flags.into_iter().find(|(_, given)| *given) {
            Some((flag, _)) => Err(Failure::new(format!(
                "{flag} is for a direct region, and this one is paged: give --region SIZE:direct, or leave it out"
            ))),
            None => Ok(()),
        };
    }
    let flags = [
        ("--reserve", args.reserve.is_some()),
        ("--lender", !args.lender.is_empty()),
        ("--embedded", args.embedded.is_some()),
        ("--node", args.node.is_some()),
    ];
    match flags.into_iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(Failure::new(format!(
            "{flag} is about pages that leave, and of a program with a direct region none does: leave it out, or give --region SIZE:paged"
        ))),
        None => Ok(()),
    }
}

/// Reserves `size` bytes.
pub(crate) fn reserve(args: &BorrowArgs, size: Bytes) -> Result<Reserved, Failure> {
    let failed = |why: String| {
        Failure::new(format!("cannot reserve {size} for --region; the program was not started: {why}"))
    };
    let mut options = Options::new().memory_policy(args.region_numa.unwrap_or_default());
    if let Some(device) = &args.region_device {
        options = options.device(device);
    }
    if let Some(socket) = &args.region_socket {
        options = options.socket(socket);
    }
    // Nobody else's: also where another container has the same process number.
    let moment = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let name = format!("run-{}-{moment:x}", std::process::id());
    let at_node =
        RegionMemory::reserve(&name, size.0, &options).map_err(|error| failed(error.to_string()))?;
    let mut stretches = at_node.stretches();
    let (Some((file, offset, bytes)), None) = (stretches.next(), stretches.next()) else {
        return Err(failed(
            "the node has it in several pieces only: use the same version of Loam on both".into(),
        ));
    };
    if bytes != size.0 {
        return Err(failed(format!("the device cuts by {} only: give a multiple of that", Bytes(bytes))));
    }
    let file = file
        .try_clone_to_owned()
        .map_err(|why| failed(format!("{why}: raise the limit of open files (ulimit -n)")))?;
    drop(stretches);
    Ok(Reserved { memory: Arc::new(DirectMemory { file, offset }), _at_node: at_node })
}
