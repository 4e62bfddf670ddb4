use super::*;
use crate::config::LocalSocket;

/// The keeper took connections for as long as any came: it looked at neither memory nor signals meanwhile, and at the door for local programs never.
#[test]
fn a_flood_of_connections_keeps_nobody_waiting() {
    let path = std::env::temp_dir().join(format!("loam-flood-{}", std::process::id()));
    let mut config = LendConfig::new(Bytes::from_mib(1));
    config.listen = "127.0.0.1:0".parse().unwrap();
    config.socket = Some(LocalSocket { path: path.clone(), mode: 0o600, required: true });
    // (Nobody runs it: it takes connections when it is told to.)
    let mut keeper = Keeper::start(&config).unwrap();
    let taken = |keeper: &Keeper| keeper.shared.places.taken();
    let flood: Vec<_> = (0..100).map(|_| TcpStream::connect(keeper.lending.addr).unwrap()).collect();
    let mut local = UnixStream::connect(&path).unwrap();
    keeper.accept().unwrap();
    assert_eq!(taken(&keeper), ACCEPTS_MAX, "the others have to wait");
    let mut hello = Vec::new();
    loam_wire::encode::hello(&mut hello, 0, "local");
    std::io::Write::write_all(&mut local, &hello).unwrap();
    local.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut buffer = Vec::new();
    let welcome = loam_wire::client::read_frame(&local, &mut buffer);
    assert!(matches!(welcome, Ok(loam_wire::Frame::Welcome(_))), "{welcome:?}");
    keeper.accept().unwrap();
    assert_eq!(taken(&keeper), flood.len() + 1);
    keeper.end();
}
