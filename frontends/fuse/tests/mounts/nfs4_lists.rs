//! NFSv4 ACLs on a mount (`acltype=nfsv4`): rights beyond the mode, denials within it, and the
//! tools that set them.

use super::page_cache::set;
use super::{Bench, as_a_user};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

const NAME: &str = "system.nfs4_acl";

/// A list of entries: type, flags, rights, principal.
fn list(entries: &[(u32, u32, u32, &str)]) -> Vec<u8> {
    let count = u32::try_from(entries.len()).unwrap();
    let mut bytes = count.to_be_bytes().to_vec();
    for (kind, flags, mask, principal) in entries {
        let length = u32::try_from(principal.len()).unwrap();
        for word in [*kind, *flags, *mask, length] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend(principal.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

const ALLOW: u32 = 0;
const DENY: u32 = 1;
const READ: u32 = 0x1;
const WRITE: u32 = 0x2;
const EXECUTE: u32 = 0x20;
const DELETE: u32 = 0x1_0000;
const ALL: u32 = 0x1f_01ff;

fn set_list(path: &Path, entries: &[(u32, u32, u32, &str)]) {
    rustix::fs::setxattr(path, NAME, &list(entries), XattrFlags::REPLACE).unwrap();
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

const DENIED: Option<i32> = Some(13);

#[test]
fn an_nfs4_list_decides_and_not_the_mode() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[("acltype", "nfsv4")]);
    let file = path.join("file");
    fs::write(&file, "x").unwrap();
    let open = || {
        as_a_user(|| {
            let write = File::options().write(true).open(&file);
            [errno(File::open(&file)), errno(write)]
        })
    };
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(open(), [DENIED, DENIED]);
    set_list(
        &file,
        &[(ALLOW, 0, READ, "1000"), (ALLOW, 0, ALL, "OWNER@")],
    );
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o700);
    assert_eq!(open(), [None, DENIED]);
    set_list(
        &file,
        &[
            (DENY, 0, READ, "1000"),
            (ALLOW, 0, READ | WRITE, "EVERYONE@"),
        ],
    );
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o666);
    assert_eq!(open(), [DENIED, None]);
    // A chmod makes an equivalent list.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(open(), [None, DENIED]);
    let access = |mask| as_a_user(|| rustix::fs::access(&file, mask).is_ok());
    assert!(access(rustix::fs::Access::READ_OK) && !access(rustix::fs::Access::WRITE_OK));
    assert_eq!(
        as_a_user(|| errno(fs::set_permissions(
            &file,
            fs::Permissions::from_mode(0o666)
        ))),
        Some(1)
    );
}

#[test]
fn a_cached_name_is_not_found_where_search_is_denied() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[("acltype", "nfsv4")]);
    let (folder, file) = (path.join("folder"), path.join("folder/file"));
    fs::create_dir(&folder).unwrap();
    fs::write(&file, "x").unwrap();
    let read = || as_a_user(|| errno(fs::read(&file)));
    assert_eq!(read(), None);
    let rest = (ALLOW, 0, ALL, "EVERYONE@");
    for _ in 0..3 {
        set_list(&folder, &[(DENY, 0, EXECUTE, "1000"), rest]);
        assert_eq!(read(), DENIED);
        assert_eq!(as_a_user(|| errno(fs::metadata(&file))), DENIED);
        assert_eq!(as_a_user(|| errno(fs::read_dir(&folder))), None);
        assert!(fs::read(&file).is_ok(), "root passes");
        set_list(&folder, &[(DENY, 0, READ, "1000"), rest]);
        assert_eq!(read(), None);
        assert_eq!(as_a_user(|| errno(fs::read_dir(&folder))), DENIED);
    }
    // The process's groups count.
    set_list(&folder, &[(DENY, 0x40, EXECUTE, "1000"), rest]);
    assert_eq!(read(), DENIED);
}

#[test]
fn lists_allow_creating_removing_and_executing() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[("acltype", "nfsv4")]);
    let folder = path.join("folder");
    fs::create_dir(&folder).unwrap();
    let search = (ALLOW, 0, EXECUTE | READ, "EVERYONE@");
    set_list(&folder, &[(ALLOW, 0, WRITE, "1000"), search]);
    let (file, inner) = (folder.join("file"), folder.join("inner"));
    assert_eq!(as_a_user(|| errno(fs::write(&file, "x"))), None);
    assert_eq!(fs::metadata(&file).unwrap().uid(), 1000);
    assert_eq!(as_a_user(|| errno(fs::create_dir(&inner))), DENIED);
    set_list(&folder, &[search]);
    assert_eq!(as_a_user(|| errno(fs::remove_file(&file))), DENIED);
    set_list(
        &file,
        &[(ALLOW, 0, DELETE, "1000"), (ALLOW, 0, READ, "EVERYONE@")],
    );
    assert_eq!(as_a_user(|| errno(fs::remove_file(&file))), None);
    let program = path.join("true");
    fs::copy("/bin/true", &program).unwrap();
    let runs = || {
        as_a_user(|| {
            Command::new(&program)
                .status()
                .map(|status| status.success())
        })
    };
    set_list(
        &program,
        &[(ALLOW, 0, EXECUTE, "1000"), (ALLOW, 0, ALL, "OWNER@")],
    );
    assert!(runs().unwrap(), "it need not be readable");
    set_list(
        &program,
        &[(DENY, 0, EXECUTE, "1000"), (ALLOW, 0, ALL, "EVERYONE@")],
    );
    assert_eq!(errno(runs()), DENIED);
}

#[test]
fn a_refused_name_keeps_the_mounts_below_it() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[("acltype", "nfsv4"), ("canmount", "on")]);
    let below = bench.create("tank/a/b", &[]);
    fs::write(below.join("file"), "x").unwrap();
    let deeper = path.join("x/y");
    fs::create_dir_all(&deeper).unwrap();
    fs::write(path.join("plain"), "x").unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("none", &deeper, "tmpfs", flags, None).unwrap();
    fs::write(deeper.join("file"), "x").unwrap();
    set_list(
        &path,
        &[(DENY, 0, EXECUTE, "1000"), (ALLOW, 0, ALL, "EVERYONE@")],
    );
    for _ in 0..2 {
        as_a_user(|| {
            assert!(fs::metadata(&below).is_err());
            assert!(fs::read(below.join("file")).is_err());
            assert!(fs::metadata(deeper.join("file")).is_err());
            assert_eq!(errno(fs::metadata(path.join("plain"))), DENIED);
        });
        assert!(fs::read(below.join("file")).is_ok(), "it is still mounted");
        assert!(fs::read(deeper.join("file")).is_ok(), "and so is this");
    }
    rustix::mount::unmount(&deeper, rustix::mount::UnmountFlags::empty()).unwrap();
}

#[test]
fn a_file_system_has_lists_of_one_kind() {
    let Some(bench) = Bench::new() else { return };
    let posix = "system.posix_acl_access";
    for (acl_type, of_nfs4, of_posix) in [
        ("nfsv4", None, Some(Errno::OPNOTSUPP)),
        ("posix", Some(Errno::OPNOTSUPP), Some(Errno::NODATA)),
    ] {
        let path = bench.create(&format!("tank/{acl_type}"), &[("acltype", acl_type)]);
        let file = path.join("file");
        fs::write(&file, "x").unwrap();
        let get = |name: &str| rustix::fs::getxattr(&file, name, &mut [0; 1024]).err();
        assert_eq!([get(NAME), get(posix)], [of_nfs4, of_posix], "{acl_type}");
        let named = |file: &Path| {
            let mut names = vec![0; 1024];
            let size = rustix::fs::listxattr(file, &mut names[..]).unwrap();
            String::from_utf8_lossy(&names[..size]).contains(NAME)
        };
        assert!(!named(&file));
        if acl_type == "nfsv4" {
            set_list(&file, &[(ALLOW, 0, READ, "1000")]);
            assert!(named(&file), "a list that says more than the mode is named");
        }
    }
}

#[test]
fn lists_count_from_when_the_property_is_set_on_a_mount() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[("acltype", "nfsv4")]);
    let file = path.join("file");
    fs::write(&file, "x").unwrap();
    set_list(
        &file,
        &[(DENY, 0, READ, "1000"), (ALLOW, 0, READ, "EVERYONE@")],
    );
    let read = || as_a_user(|| errno(fs::read(&file)));
    assert_eq!(read(), DENIED);
    // A mount without the kernel's checks: the mode is checked all the same.
    set(&bench, "tank/a", "acltype", "off");
    assert_eq!(read(), None);
    let write = || as_a_user(|| errno(File::options().write(true).open(&file)));
    assert_eq!(write(), DENIED);
    bench.unmount("tank/a", false).unwrap();
    bench.mount("tank/a");
    assert_eq!(read(), None);
    // A mount with them: the list's denials hold.
    set(&bench, "tank/a", "acltype", "nfsv4");
    assert_eq!(read(), DENIED);
    let kept = fs::metadata(&file).unwrap().mode() & 0o777;
    assert_eq!(kept, 0o444);
}

/// The output and effect of Debian's nfs4-acl-tools.
#[test]
fn nfs4_getfacl_and_nfs4_setfacl_work() {
    let Some(bench) = Bench::new() else { return };
    let path = bench.create("tank/a", &[("acltype", "nfsv4")]);
    let file = path.join("file");
    fs::write(&file, "x").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program)
            .args(arguments)
            .arg(&file)
            .output()
            .ok()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{program}: {said}");
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let Some(shown) = run("nfs4_getfacl", &[]) else {
        eprintln!("not seen: nfs4-acl-tools are not installed");
        return;
    };
    let entries = |shown: &str| -> Vec<String> {
        let lines = shown
            .lines()
            .filter(|line| line.contains("::") || line.contains(":g:"));
        lines
            .filter(|line| !line.starts_with('#'))
            .map(str::to_string)
            .collect()
    };
    let of_mode = [
        "A::OWNER@:rwatTnNcCoy",
        "A:g:GROUP@:rtncy",
        "A::EVERYONE@:tncy",
    ];
    assert_eq!(entries(&shown), of_mode);
    run("nfs4_setfacl", &["-a", "A::1000:rx"]).unwrap();
    let added = entries(&run("nfs4_getfacl", &[]).unwrap());
    assert_eq!(added[0], "A::1000:rx");
    assert_eq!(added[1..], of_mode);
    assert_eq!(as_a_user(|| errno(fs::read(&file))), None);
    run("nfs4_setfacl", &["-x", "A::1000:rx"]).unwrap();
    assert_eq!(entries(&run("nfs4_getfacl", &[]).unwrap()), of_mode);
    assert_eq!(as_a_user(|| errno(fs::read(&file))), DENIED);
}
