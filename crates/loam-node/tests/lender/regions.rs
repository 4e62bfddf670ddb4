//! Regions beside what runs store. What the machine has is said by files of ours.

use crate::giveback::Machine;
use crate::support::*;
use loam_core::units::Bytes;
use loam_wire::client::Client;
use loam_wire::{Frame, PutStatus, RegionAsk, RegionCall, RegionRefusal, encode, feature};

const MIB: u64 = 1 << 20;
const BOTH: u64 = feature::RECALL | feature::SPARE;

fn program(machine: &Machine) -> Client {
    let socket = machine.lender().lending().socket.clone().expect("it has one");
    Client::connect_local(&socket, 0, "a program", TIMEOUT).unwrap()
}

fn call(program: &mut Client, call: RegionCall, bytes: u64) -> Result<(), (RegionRefusal, String)> {
    let asked = program.next_request();
    let ask = RegionAsk { bytes, ..RegionAsk::new(call, "a") };
    program.send(&[], |out| encode::region_call(out, asked, &ask)).unwrap();
    match program.receive().unwrap() {
        Frame::Region { request, .. } if request == asked => Ok(()),
        Frame::RegionRefused { request, why, text } if request == asked => Err((why, text.to_owned())),
        other => panic!("{other:?}"),
    }
}

#[test]
fn room_that_a_region_gives_back_is_told() {
    let machine = Machine::new("region-room");
    let mut program = program(&machine);
    call(&mut program, RegionCall::Create, 7 * MIB).unwrap();
    let mut borrower = machine.borrower(1, feature::RECALL);
    assert_eq!(borrower.put(0..256, 1), [PutStatus::Stored; 256]);
    assert_eq!(borrower.put(256..512, 1), [PutStatus::NoRoom; 256]);
    call(&mut program, RegionCall::Remove, 0).unwrap();
    let Frame::Recall { free_bytes, within_ms: 0, pages: [] } = borrower.client.receive().unwrap() else {
        panic!("something else than room")
    };
    assert_eq!(free_bytes, 7 * MIB);
    assert_eq!(borrower.put(256..512, 1), [PutStatus::Stored; 256]);
}

/// Spare copies give way to a region, but not to one that there is no room for all the same.
#[test]
fn a_region_that_cannot_be_costs_nobody_a_page() {
    let machine = Machine::new("region-impossible");
    let mut spare = machine.borrower(1, BOTH);
    let mut only = machine.borrower(2, feature::RECALL);
    for first in (0..1024).step_by(256) {
        assert_eq!(only.put(first..first + 256, 1), [PutStatus::Stored; 256]);
    }
    for first in (0..512).step_by(256) {
        assert_eq!(spare.put(first..first + 256, 1), [PutStatus::Stored; 256]);
    }
    let mut program = program(&machine);
    let mut tool = machine.tool();
    for bytes in [5 * MIB, 9 * MIB] {
        let (why, text) = call(&mut program, RegionCall::Create, bytes).unwrap_err();
        assert!(why == RegionRefusal::NoRoom && text.contains("not free"), "{text}");
        let (figures, _) = tool.memory().unwrap();
        assert_eq!((figures.dropped.get(), figures.limit_bytes.get()), (0, 8 * MIB));
    }
    // Nobody was asked for anything either: the next frame is the answer.
    assert_eq!(only.get(0..256, 1).len(), 256);
    assert_eq!(spare.get(0..256, 1).len(), 256);
    call(&mut program, RegionCall::Create, 3 * MIB).unwrap();
    let (figures, _) = tool.memory().unwrap();
    assert!(figures.dropped.get() >= 256, "{}", figures.dropped.get());
    assert_eq!(only.get(0..256, 1).len(), 256);
}

/// Regions keep what they have whatever the machine needs; what it wants back is the runs' part, and status says why.
#[test]
fn regions_stay_when_the_machine_wants_memory() {
    let mut machine = Machine::new("region-pinned");
    let mut program = program(&machine);
    call(&mut program, RegionCall::Create, 4 * MIB).unwrap();
    let mut tool = machine.tool();
    let limit = |tool: &mut Client| tool.memory().unwrap().0.limit_bytes.get();
    eventually("it is told", || {
        let (figures, reason) = tool.memory().unwrap();
        figures.limit_bytes.get() == 4 * MIB
            && reason == "direct regions have 4.0 MiB, until they are removed"
    });
    // 3 MiB available, 1 of them the machine's: with the regions' 4 that is 6 in all.
    machine.has(3 * MIB);
    eventually("2 MiB are left for runs", || limit(&mut tool) == 2 * MIB);
    machine.has(0);
    eventually("none is", || limit(&mut tool) == 0);
    let (_, reason) = tool.memory().unwrap();
    assert!(
        reason.starts_with("direct regions have 4.0 MiB, until they are removed; this machine has 0 B"),
        "{reason}"
    );
    let (why, _) = call(&mut program, RegionCall::Resize, 5 * MIB).unwrap_err();
    assert_eq!(why, RegionRefusal::NoRoom);
    // Its memory is the machine's again, and the machine has that much more: what may be lent in all is as before, and runs may have it at once.
    machine.has(4 * MIB);
    call(&mut program, RegionCall::Remove, 0).unwrap();
    let in_all = Bytes(3 * MIB - MIB / 8).base_pages().bytes().0;
    assert_eq!(limit(&mut tool), in_all, "what regions had is counted");
}
