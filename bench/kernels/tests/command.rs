//! `loam-kernel` as a user calls it.

use std::process::{Command, Output};

fn kernel(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_loam-kernel")).args(args).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it is text")
}

#[test]
fn what_is_printed_is_the_same_each_time_with_parts_and_without() {
    let args = ["sp", "--bytes", "1M", "--iterations", "3"];
    let (with, without) =
        (kernel(&args), kernel(&[&args[..], &["--parts", "off", "--threads", "1"]].concat()));
    assert!(with.status.success() && without.status.success());
    assert_eq!(with.stdout, without.stdout);
    assert!(text(&with.stdout).contains("\nchecksum "));
    // Setting up, six parts three times, checking.
    assert!(text(&with.stderr).contains(" 20 part marks"), "{}", text(&with.stderr));
    assert!(text(&without.stderr).contains(" 0 part marks"));
}

#[test]
fn json_has_the_same_figures() {
    let plain = text(&kernel(&["join", "--problem", "8"]).stdout);
    let json = text(&kernel(&["join", "--problem", "8", "--json"]).stdout);
    let checksum =
        plain.lines().last().and_then(|line| line.strip_prefix("checksum ")).expect("it is the last line");
    assert!(json.contains(&format!("\"checksum\": \"{checksum}\", \"passed\": true")), "{json}");
    assert!(json.starts_with('{') && json.trim_end().ends_with('}') && json.lines().count() == 1);
}

#[test]
fn a_wrong_result_ends_with_1_and_a_wrong_call_with_2() {
    let damaged = kernel(&["is", "--bytes", "64K", "--corrupt"]);
    assert_eq!(damaged.status.code(), Some(1));
    assert!(text(&damaged.stdout).contains("WRONG"));
    for args in [
        &["nothing"][..],
        &[],
        &["sp", "--size", "huge"],
        &["sp", "--bytes", "1K"],
        &["sp", "--bytes", "99999999999999999999G"],
        &["sp", "--problem", "5000"],
        &["sp", "--iterations", "0"],
        &["sp", "--threads", "2"],
        &["sp", "--parts"],
        &["sp", "--what"],
    ] {
        let refused = kernel(args);
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        assert!(refused.stdout.is_empty() && refused.stderr.starts_with(b"loam-kernel: "), "{args:?}");
    }
}
