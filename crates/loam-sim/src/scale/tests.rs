use super::*;

fn today() -> Hardware {
    let load = |name| Model::load(name).expect("it is built in");
    Hardware::today(&load("tcp-25g"), &load("nvme"))
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let text = |seed| format!("{:?}", run(&today(), 20, seed));
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
}

#[test]
fn an_initiator_sends_as_the_square_of_nodes_and_others_work_as_ever() {
    let [few, many] = [50, 200].map(|nodes| run(&Hardware::paper(), nodes, 1));
    assert_eq!((few.weights, many.weights), (few.idle, many.idle), "all idle nodes are known");
    let near = |a: u64, b: u64| a.abs_diff(b) * 20 <= b;
    // Requests and the head of the weights grow with the nodes, the weights with their square.
    let fixed = |of: &Scaled| {
        let begins = 24 + 16 + 48 + 12 * of.idle as u64;
        (u64::from(of.nodes) - 1) * (24 + 16 + begins)
    };
    assert!(near(few.initiator_bytes, fixed(&few)) && near(many.initiator_bytes, fixed(&many)), "{many:?}");
    assert!(near(many.initiator.0, few.initiator.0 * 199 / 49), "{few:?} {many:?}");
    assert!(near(many.others.0, few.others.0), "{few:?} {many:?}");
}

#[test]
fn programs_gain_as_much_in_a_larger_cluster() {
    let [few, many] = [20, 200].map(|nodes| run(&today(), nodes, 1));
    assert!(few.speedup() > 1.4 && many.speedup() > few.speedup() * 0.9, "{few:?} {many:?}");
    assert!(many.directory.0 > many.faults / 4, "shared pages are looked up: {many:?}");
    assert!(many.from_disk * 20 < many.faults, "there is room for all: {many:?}");
}

#[test]
fn tables_have_a_row_for_each_run() {
    let done = [run(&today(), 10, 1), Scaled { nodes: 5, ..Scaled::default() }];
    for (name, _, table) in tables(&done) {
        assert_eq!(table.rows().len(), 2, "{name}");
        assert!(table.rows().iter().all(|row| row.len() == table.header().len()), "{name}");
    }
}
