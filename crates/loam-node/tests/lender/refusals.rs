//! What a lender refuses before it begins, each with one line.

use crate::support::config;
use loam_core::units::Bytes;
use loam_node::{LendConfig, LocalSocket, NodeError, spawn};

fn refusal(config: &LendConfig) -> (NodeError, String) {
    let error = spawn(config).expect_err("it must be refused");
    let text = error.to_string();
    assert!(!text.contains('\n') && !text.contains("  "), "one line: {text:?}");
    (error, text)
}

#[test]
fn more_than_the_machine_has() {
    let (error, text) = refusal(&config(Bytes(1 << 43)));
    let NodeError::TooLarge { asked, available } = error else { panic!("{error:?}") };
    assert_eq!(asked, Bytes(1 << 43));
    assert!(available < asked && available > Bytes(0));
    assert!(text.contains("8.0 TiB") && text.contains(&available.to_string()) && text.contains("lend less"));
}

#[test]
fn nothing_at_all() {
    assert!(matches!(refusal(&config(Bytes(4095))).0, NodeError::Size { .. }));
}

#[test]
fn an_address_that_others_reach_needs_insecure() {
    let mut config = config(Bytes::from_mib(1));
    config.listen = "0.0.0.0:0".parse().unwrap();
    let (error, text) = refusal(&config);
    assert!(matches!(error, NodeError::NotLoopback { .. }), "{error:?}");
    assert!(text.contains("--insecure"));
}

#[test]
fn an_address_that_is_taken() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = config(Bytes::from_mib(1));
    config.listen = taken.local_addr().unwrap();
    let (error, text) = refusal(&config);
    assert!(matches!(error, NodeError::Listen { .. }), "{error:?}");
    assert!(text.contains(&config.listen.to_string()) && text.contains("--listen"));
}

#[test]
fn it_says_what_it_lends_and_where() {
    let lender = spawn(&config(Bytes(5 * 4096 + 1))).unwrap();
    assert_ne!(lender.addr().port(), 0, "the real port");
    let text = lender.lending().to_string();
    assert_eq!(text, format!("lending 20.0 KiB on {}", lender.addr()), "whole pages, and the address");
}

/// Nobody could ask for regions of it: that is not passed over, though the socket alone would be.
#[test]
fn a_device_without_the_usual_socket() {
    let mut config = config(Bytes::from_mib(1));
    let path = std::path::PathBuf::from("/dev/null/node.sock");
    config.socket = Some(LocalSocket { path, mode: 0o600, required: false });
    drop(spawn(&config).expect("it lends without a socket"));
    let device = std::path::PathBuf::from(format!("/dev/shm/loam-refusals-{}", std::process::id()));
    std::fs::write(&device, [0; 4096]).unwrap();
    config.region_devices = vec![device.clone()];
    let (error, text) = refusal(&config);
    std::fs::remove_file(&device).unwrap();
    assert!(matches!(error, NodeError::Socket { .. }), "{error:?}");
    assert!(text.contains("/dev/null/node.sock"), "{text}");
}
