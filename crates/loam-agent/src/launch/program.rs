//! What a program is, before it is started: found as the shell would find it, and refused with a reason where the
//! dynamic loader would not load the shim into it.

use super::LaunchError;
use rustix::fs::{Access, AtFlags, CWD, StatVfsMountFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Scripts behind scripts that are followed; the kernel follows as many.
pub(super) const INTERPRETERS_MAX: usize = 4;
/// Where `execvp` looks if there is no `PATH`.
const PATH_DEFAULT: &str = "/bin:/usr/bin";
/// What `execvp` runs a file with that is executable and neither a program nor marked by `#!`.
const SHELL: &str = "/bin/sh";
/// The kernel reads this much of a script's first line.
const FIRST_LINE_BYTES_MAX: usize = 256;
/// The kernel takes program headers up to 64 KiB.
const HEADERS_BYTES_MAX: u64 = 65536;
/// `EM_X86_64`.
const MACHINE_X86_64: u16 = 62;
/// `PT_INTERP`: names the dynamic loader.
const HEADER_INTERP: u32 = 3;
/// Bytes of a program header of 64 bits.
const HEADER_BYTES: u64 = 56;

/// Finds the program as `execvp` does and checks that Loam can enter it. A script is judged by its interpreter.
///
/// # Errors
/// [`LaunchError`]: one line that says why not.
pub(crate) fn check_program(name: &OsStr) -> Result<PathBuf, LaunchError> {
    let path = find(name, std::env::var_os("PATH").as_deref())?;
    let mut at = path.clone();
    for _ in 0..=INTERPRETERS_MAX {
        match interpreter_of(&at)? {
            None => {
                check_rights(&at)?;
                return Ok(path);
            }
            Some(interpreter) => {
                check_executable(&interpreter).map_err(|error| match error {
                    LaunchError::NotFound { .. } => {
                        LaunchError::NoInterpreter { script: at.clone(), interpreter: interpreter.clone() }
                    }
                    other => other,
                })?;
                at = interpreter;
            }
        }
    }
    Err(LaunchError::TooManyInterpreters { path })
}

pub(super) fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, LaunchError> {
    if name.is_empty() {
        return Err(LaunchError::NotFound { name: name.to_owned() });
    }
    if name.as_bytes().contains(&b'/') {
        return check_executable(Path::new(name)).map(|()| name.into());
    }
    let mut refused = None;
    for dir in path.unwrap_or(OsStr::new(PATH_DEFAULT)).as_bytes().split(|byte| *byte == b':') {
        // An empty entry is the current directory. The slash keeps exec from searching once more.
        let dir = if dir.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(dir)) };
        let candidate = dir.join(name);
        match check_executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(LaunchError::NotFound { .. }) => {}
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| LaunchError::NotFound { name: name.to_owned() }))
}

fn check_executable(path: &Path) -> Result<(), LaunchError> {
    let refuse = |errno| match errno {
        Errno::NOENT | Errno::NOTDIR => LaunchError::NotFound { name: path.as_os_str().to_owned() },
        errno => LaunchError::NotExecutable { path: path.to_owned(), errno },
    };
    let stat = rustix::fs::stat(path).map_err(refuse)?;
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(refuse(Errno::ACCESS));
    }
    rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).map_err(refuse)
}

/// What runs this file: `None` if it is itself a program that Loam can enter.
fn interpreter_of(path: &Path) -> Result<Option<PathBuf>, LaunchError> {
    let refuse = |error: std::io::Error| LaunchError::NotExecutable {
        path: path.to_owned(),
        errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    };
    let file = match File::open(path) {
        // May be executed and not read: it cannot be judged here. The kernel can run it; if the shim does not
        // come up in it, that is found out then.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Ok(None),
        other => other.map_err(refuse)?,
    };
    let mut start = [0; FIRST_LINE_BYTES_MAX];
    let bytes = read_at_most(&file, &mut start, 0).map_err(refuse)?;
    let start = &start[..bytes];
    if let Some(line) = start.strip_prefix(b"#!") {
        // An empty interpreter is no program (ENOEXEC): the shell's, as any unmarked file.
        return Ok(Some(shebang(line).unwrap_or_else(|| SHELL.into())));
    }
    if !start.starts_with(b"\x7fELF") {
        return Ok(Some(SHELL.into()));
    }
    check_elf(path, &file, start)?;
    Ok(None)
}

/// The interpreter in a first line after `#!`: the first word.
pub(super) fn shebang(line: &[u8]) -> Option<PathBuf> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let word = line.split(|byte| matches!(byte, b' ' | b'\t' | 0)).find(|word| !word.is_empty())?;
    Some(OsString::from(OsStr::from_bytes(word)).into())
}

fn check_elf(path: &Path, file: &File, start: &[u8]) -> Result<(), LaunchError> {
    let damaged = |what| LaunchError::Damaged { path: path.to_owned(), what };
    let other = |what| LaunchError::OtherMachine { path: path.to_owned(), what };
    let header = start.get(..64).ok_or_else(|| damaged("a cut header"))?;
    match header[4] {
        2 => {}
        1 => return Err(other("a 32-bit program")),
        _ => return Err(damaged("an unknown class")),
    }
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    if header[5] != 1 || half(18) != MACHINE_X86_64 {
        return Err(other("made for another processor"));
    }
    let table_offset = u64::from_le_bytes(header[32..40].try_into().expect("eight bytes"));
    let (entry_bytes, entries) = (u64::from(half(54)), u64::from(half(56)));
    if entry_bytes != HEADER_BYTES || entries == 0 || entries * entry_bytes > HEADERS_BYTES_MAX {
        return Err(damaged("impossible program headers"));
    }
    let mut table = vec![0; (entries * entry_bytes) as usize];
    match read_at_most(file, &mut table, table_offset) {
        Ok(bytes) if bytes == table.len() => {}
        _ => return Err(damaged("cut program headers")),
    }
    let dynamic = table
        .chunks_exact(HEADER_BYTES as usize)
        .any(|entry| u32::from_le_bytes(entry[..4].try_into().expect("four bytes")) == HEADER_INTERP);
    if dynamic { Ok(()) } else { Err(LaunchError::Static { path: path.to_owned() }) }
}

fn read_at_most(file: &File, into: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        let at = offset.checked_add(done as u64).ok_or(std::io::ErrorKind::InvalidInput)?;
        match file.read_at(&mut into[done..], at) {
            Ok(0) => break,
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Whether starting this file would change ids or give capabilities: then the loader runs in secure mode, without
/// `LD_PRELOAD`.
fn check_rights(path: &Path) -> Result<(), LaunchError> {
    let privileged = |what| Err(LaunchError::Privileged { path: path.to_owned(), what });
    let Ok(stat) = std::fs::metadata(path) else { return Ok(()) };
    let mounted = rustix::fs::statvfs(path).map(|stat| stat.f_flag);
    // Neither bit nor capability counts on such a mount, or for a process that gave new rights up for good.
    if mounted.is_ok_and(|flags| flags.contains(StatVfsMountFlags::NOSUID))
        || rustix::thread::no_new_privs().unwrap_or(false)
    {
        return Ok(());
    }
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if stat.mode() & libc::S_ISUID != 0 && stat.uid() != uid.as_raw() {
        return privileged("set-user-id");
    }
    // Without the group's x bit it is not set-group-id but a mark for locking.
    let set_gid = libc::S_ISGID | libc::S_IXGRP;
    if stat.mode() & set_gid == set_gid && stat.gid() != gid.as_raw() {
        return privileged("set-group-id");
    }
    // Root has all capabilities as it is.
    if !uid.is_root() && rustix::fs::getxattr(path, c"security.capability", &mut [0_u8; 64]).is_ok() {
        return privileged("file capabilities");
    }
    Ok(())
}
