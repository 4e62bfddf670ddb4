//! Reading credentials, and reading them again.

use super::*;
use crate::tls::{CA_FILE, CERTIFICATE_FILE, CredentialsError, KEY_FILE, Watched};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

fn refused(folder: &Folder) -> (CredentialsError, String) {
    let error = Credentials::load(&folder.0).expect_err("it must be refused");
    let line = error.to_string();
    assert!(!line.contains('\n') && !line.contains("  "), "one line: {line:?}");
    (error, line)
}

fn folder(ca: &Authority) -> Folder {
    let folder = Folder::new();
    ca.issue("node-1", &[Role::Node], -1, 1).write(&folder.0, &[ca]);
    folder
}

#[test]
fn a_key_that_others_can_read() {
    let ca = Authority::new("ca");
    for mode in [0o644, 0o640, 0o604, 0o620, 0o601] {
        let folder = folder(&ca);
        fs::set_permissions(folder.0.join(KEY_FILE), fs::Permissions::from_mode(mode)).unwrap();
        let (error, line) = refused(&folder);
        assert!(matches!(error, CredentialsError::Readable { mode: told, .. } if told == mode));
        assert!(line.contains("node.key") && line.contains("chmod 600"), "{line}");
    }
    let folder = folder(&ca);
    fs::set_permissions(folder.0.join(KEY_FILE), fs::Permissions::from_mode(0o400)).unwrap();
    Credentials::load(&folder.0).unwrap();
}

#[test]
fn files_that_are_missing_empty_or_not_of_one_another() {
    let ca = Authority::new("ca");
    for name in [CA_FILE, CERTIFICATE_FILE, KEY_FILE] {
        let folder = folder(&ca);
        fs::remove_file(folder.0.join(name)).unwrap();
        assert!(matches!(refused(&folder).0, CredentialsError::Read { .. }), "{name}");
        let folder = self::folder(&ca);
        fs::write(folder.0.join(name), "nothing").unwrap();
        let (error, line) = refused(&folder);
        assert!(matches!(error, CredentialsError::Contents { .. }) && line.contains(name), "{line}");
    }
    let (one, other) = (folder(&ca), folder(&ca));
    fs::copy(other.0.join(KEY_FILE), one.0.join(KEY_FILE)).unwrap();
    assert!(matches!(refused(&one).0, CredentialsError::Pair { .. }));
}

#[test]
fn what_nobody_would_accept_is_told_before_somebody_refuses_it() {
    let ca = Authority::new("ca");
    let of = |issued: Issued, believed: &[&Authority]| credentials(&issued, believed).check(&[Role::Node]);
    of(ca.issue("n", &[Role::Node], -1, 1), &[&ca]).unwrap();
    let other = Authority::new("other");
    for (issued, believed, words) in [
        (ca.issue("n", &[Role::Node], -9, -1), &ca, "expired"),
        (ca.issue("n", &[Role::Node], 1, 9), &ca, "not valid yet"),
        (ca.issue("n", &[Role::Node], -1, 1), &other, "not of an authority"),
        (ca.issue("n", &[Role::Borrower], -1, 1), &ca, "--role node"),
    ] {
        let line = of(issued, &[believed]).expect_err(words).to_string();
        assert!(line.contains(words), "{line}");
    }
}

/// Before Linux 6.13 the times of files are as coarse as a tick of the kernel's clock.
fn tick() {
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
fn new_files_are_used_once_they_have_come_to_rest_and_only_if_they_are_good() {
    let ca = Authority::new("ca");
    let folder = folder(&ca);
    let watched = Watched::load(&folder.0, &[Role::Node]).unwrap();
    assert!(watched.look().is_none() && watched.look().is_none());
    tick();
    ca.issue("node-2", &[Role::Node], -1, 1).write(&folder.0, &[&ca]);
    assert!(watched.look().is_none(), "they may still be changing");
    assert_eq!(watched.look().unwrap().unwrap().identity().name, "node-2");
    assert!(watched.look().is_none());
    tick();
    fs::write(folder.0.join(CERTIFICATE_FILE), "broken").unwrap();
    assert!(watched.look().is_none());
    assert!(watched.look().unwrap().is_err());
    assert!(watched.look().is_none(), "told once");
    assert_eq!(watched.current().identity().name, "node-2", "the old ones stay");
    tick();
    // Expired ones would be refused by everybody.
    ca.issue("node-3", &[Role::Node], -9, -1).write(&folder.0, &[&ca]);
    assert!(watched.look().is_none());
    assert!(watched.look().unwrap().unwrap_err().to_string().contains("expired"));
    tick();
    ca.issue("node-3", &[Role::Node], -1, 1).write(&folder.0, &[&ca]);
    assert!(watched.look().is_none());
    assert_eq!(watched.look().unwrap().unwrap().identity().name, "node-3");
}

#[test]
fn two_authorities_while_one_takes_over() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let node = credentials(&new.issue("node-1", &[Role::Node], -1, 1), &[&old, &new]);
    let early = credentials(&old.issue("busy-1", &[Role::Borrower], -1, 1), &[&old, &new]);
    let late = credentials(&new.issue("busy-2", &[Role::Borrower], -1, 1), &[&new]);
    for borrower in [&early, &late] {
        let (mut client, mut server) = pair(borrower, &node, None);
        let (at_client, at_server) = meet(&mut client, &mut server);
        at_client.unwrap();
        at_server.unwrap();
    }
}

#[test]
fn those_that_end_soon_are_told_once_a_day() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let ca = Authority::new("ca");
    let ends = |issued: Issued| {
        let credentials = credentials(&issued, &[&ca]);
        [1, 10, 100].map(|days| credentials.end_within(days * DAY))
    };
    assert_eq!(ends(ca.issue("n", &[Role::Node], -1, 5)), [false, true, true]);
    assert_eq!(ends(ca.issue("n", &[Role::Node], -1, 50)), [false, false, true]);
    assert_eq!(ends(ca.issue("n", &[Role::Node], -9, -1)), [false; 3], "they have ended");
    let folder = folder(&ca);
    let watched = Watched::load(&folder.0, &[Role::Node]).unwrap();
    let line = watched.warning().expect("it ends tomorrow");
    assert!(line.contains("node-1") && line.contains("loam ca issue"), "{line}");
    assert_eq!(watched.warning(), None, "told today");
}
