//! Scenarios: what a daemon owes to the machine and to its callers.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::{POOL, Scenario, Setting, expect};
use crate::workspace::Outcome;

/// All of this subject.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new("daemon-keeps-no-descriptors", keeps_no_descriptors),
    Scenario::new("daemon-is-not-starved-by-users", is_not_starved_by_users),
    Scenario::new(
        "daemon-refuses-pools-on-its-mounts",
        refuses_pools_on_its_mounts,
    ),
    Scenario::new(
        "import-names-what-is-in-its-way",
        import_names_what_is_in_its_way,
    ),
    Scenario::new("pool-goes-on-without-its-name", goes_on_without_its_name),
    Scenario::new("read-only-pool-is-not-cleared", read_only_pool),
    Scenario::new("spare-of-no-pool-is-free", spare_of_no_pool_is_free),
    Scenario::new("devices-are-found-by-guid", devices_are_found_by_guid),
];

/// A daemon that a command started held the locks of the command's caller, and kept the folder it
/// ran in from being unmounted.
fn keeps_no_descriptors(setting: &Setting) -> Outcome {
    setting.ends_with(0, "tarn stop")?;
    setting.script(
        r#"
        mkdir "$DIR/usb"; mount -t tmpfs none "$DIR/usb"
        ( cd "$DIR/usb"; exec 9>"$DIR/lock"; flock 9; zpool list >/dev/null )
        flock -n "$DIR/lock" true
        umount "$DIR/usb"
        "#,
    )?;
    Ok(())
}

/// Connections of one user that never made a request kept root's commands waiting.
fn is_not_starved_by_users(setting: &Setting) -> Outcome {
    let socket = setting.instance.state().join("tarnd.sock");
    let hold = r#"
import os, socket, sys, time
os.setgroups([]); os.setgid(65534); os.setuid(65534)
held = []
for _ in range(400):
    one = socket.socket(socket.AF_UNIX); one.connect(sys.argv[1])
    try: one.send(b'POST /v1/')
    except OSError: pass
    held.append(one)
print('held', flush=True)
time.sleep(600)
"#;
    setting.script(r#"chmod 755 "$DIR" "$DIR"/..; until [ -x "$DIR" ]; do :; done"#)?;
    let mut holder = std::process::Command::new("python3")
        .args(["-c", hold])
        .arg(&socket)
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    let mut output = holder.stdout.take().ok_or("no output")?;
    let told = std::io::Read::read(&mut output, &mut [0; 4]);
    let listed = setting.ends_with(0, "zpool list -H -o name");
    // Another of root's connections is not closed while the user's are held.
    let another = UnixStream::connect(&socket);
    let is_held = holder.try_wait()?.is_none();
    holder.kill()?;
    holder.wait()?;
    expect("connections are held", true, is_held)?;
    expect("what the holder said", 4, told?)?;
    another?.set_read_timeout(Some(Duration::from_secs(1)))?;
    expect("the pool", format!("{POOL}\n"), listed?.stdout)
}

/// A pool of a file on a mount of the same daemon lost what was written last when the daemon
/// stopped.
fn refuses_pools_on_its_mounts(setting: &Setting) -> Outcome {
    setting.script(
        r#"
        truncate -s 100M inner; truncate -s 100M "$DIR/outer-spare"
        ln -s "$PWD/inner" "$DIR/link"
        mkdir "$DIR/bound"; mount --bind "$PWD" "$DIR/bound"
        losetup --find --show "$PWD/inner" > "$DIR/loop" 2>/dev/null || : > "$DIR/loop"
        "#,
    )?;
    let folder = setting.folder.display().to_string();
    let inner = setting.mount.join("inner").display().to_string();
    let looped = setting.script(r#"cat "$DIR/loop""#)?;
    let mut ways = vec![
        inner.clone(),
        format!("{folder}/link"),
        format!("{folder}/bound/inner"),
    ];
    ways.extend(Some(looped).filter(|device| !device.is_empty()));
    let mut seen = Vec::new();
    for way in &ways {
        let refused = setting.ends_with(1, &format!("zpool create -f y {way}"))?;
        seen.push((
            refused.stderr,
            format!("'{way}' lies on '{POOL}', a file system of this tarnd"),
        ));
        let added = setting.ends_with(1, &format!("zpool add -f {POOL} {way}"))?;
        seen.push((added.stderr, format!("'{way}' lies on '{POOL}'")));
    }
    // One that another daemon made there is not imported either.
    setting.script(&format!(
        r#"TARN_DIR="$DIR/other" zpool create -O mountpoint=none y {inner}
           TARN_DIR="$DIR/other" zpool export y; TARN_DIR="$DIR/other" tarn stop"#
    ))?;
    let imported = setting.ends_with(1, &format!("zpool import -d {inner} y"))?;
    seen.push((
        imported.stderr,
        format!("cannot import 'y': '{inner}' lies on '{POOL}'"),
    ));
    setting
        .script(r#"umount "$DIR/bound"; l=$(cat "$DIR/loop"); [ -z "$l" ] || losetup -d "$l""#)?;
    for (said, expected) in seen {
        if !said.contains(&expected) {
            return Err(format!("expected {expected:?}, seen {said:?}").into());
        }
    }
    Ok(())
}

/// A device that could not be written, and one that another daemon had, led to the advice to
/// destroy the pool.
fn import_names_what_is_in_its_way(setting: &Setting) -> Outcome {
    let said = setting.script(
        r#"
        other() { TARN_DIR="$DIR/other" "$@"; }
        images=$(dirname "$(zpool list -vHPL | awk 'NR == 2 {print $1}')")
        other zpool import -f -N -d "$images" everyday 2>&1 || echo "code $?"
        other tarn stop >/dev/null
        cd /; zpool export everyday
        mkdir "$DIR/ro"; mount --bind "$images" "$DIR/ro"; mount -o remount,bind,ro "$DIR/ro"
        zpool import -d "$DIR/ro" everyday 2>&1 || echo "code $?"
        zpool import -d "$DIR/ro" -o readonly=on everyday; zpool export everyday
        umount "$DIR/ro"; zpool import -d "$images" everyday
        "#,
    )?;
    let lines: Vec<&str> = said.lines().collect();
    let process = setting.script(r#"cat "$TARN_DIR/tarnd.lock""#)?;
    let image = setting.image.display();
    let read_only = setting.folder.join("ro/disk");
    let expected = [
        format!("cannot import '{POOL}': one or more devices are already in use"),
        format!("\t{image} is in use by process {process} (tarnd). The pool is as it was."),
        "code 1".to_string(),
        format!("cannot import '{POOL}': one or more devices is read only"),
        format!(
            "\t{} cannot be written. The pool can be imported using '-o readonly=on'.",
            read_only.display()
        ),
        "code 1".to_string(),
    ];
    let trimmed = |line: &str| line.trim().to_string();
    let expected: Vec<String> = expected.iter().map(|line| trimmed(line)).collect();
    expect(
        "what is said",
        expected,
        lines.into_iter().map(trimmed).collect(),
    )
}

/// A pool whose file was removed was suspended at once.
fn goes_on_without_its_name(setting: &Setting) -> Outcome {
    let said = setting.script(
        r#"
        truncate -s 100M "$DIR/gone"
        zpool create -m "$DIR/m" gone "$DIR/gone"
        rm "$DIR/gone"
        head -c 20M /dev/urandom > "$DIR/m/file"; sync "$DIR/m/file"; zpool sync gone
        zpool list -H -o health gone
        zpool destroy -f gone; echo $?
        truncate -s 100M "$DIR/gone"; zpool create -m "$DIR/m" gone "$DIR/gone"; rm "$DIR/gone"
        zpool export gone; echo $?
        "#,
    )?;
    expect("health and exit codes", "ONLINE\n0\n0", &*said)
}

/// A pool that was imported read-only could not be destroyed, and could be cleared.
fn read_only_pool(setting: &Setting) -> Outcome {
    setting.script(
        r#"
        truncate -s 100M "$DIR/ro"; zpool create -O mountpoint=none ro "$DIR/ro"
        zpool export ro; zpool import -o readonly=on -d "$DIR/ro" ro
        "#,
    )?;
    let refused = setting.ends_with(1, "zpool clear ro")?;
    let expected = "cannot clear errors for ro: pool is read-only\n";
    expect("zpool clear", expected, &*refused.stderr)?;
    setting.ends_with(0, "zpool destroy ro")?;
    setting.ends_with(1, "zpool list ro")?;
    Ok(())
}

/// A hot spare of a pool that is not there any more was refused to others for good.
fn spare_of_no_pool_is_free(setting: &Setting) -> Outcome {
    setting.script(r#"truncate -s 100M "$DIR/a" "$DIR/s""#)?;
    let folder = setting.folder.display().to_string();
    setting.answer(&format!(
        "zpool create -O mountpoint=none q {folder}/a spare {folder}/s"
    ))?;
    let refused = setting.ends_with(1, &format!("zpool create -f r {folder}/s"))?;
    let expected = format!("{folder}/s is reserved as a hot spare for pool q\n");
    if !refused.stderr.ends_with(&expected) {
        return Err(format!("zpool create said {:?}", refused.stderr).into());
    }
    setting.answer("zpool destroy q")?;
    setting.answer(&format!("zpool create -O mountpoint=none r {folder}/s"))?;
    setting.answer("zpool destroy r")?;
    Ok(())
}

/// A device that had got another name was not found by a cache file.
fn devices_are_found_by_guid(setting: &Setting) -> Outcome {
    let said = setting.script(
        r#"
        mkdir "$DIR/d"; truncate -s 100M "$DIR/d/a" "$DIR/d/b"
        zpool create -O mountpoint=none -o cachefile="$DIR/cache" q mirror "$DIR/d/a" "$DIR/d/b"
        cp "$DIR/cache" "$DIR/kept"; zpool export q
        mv "$DIR/d/a" "$DIR/d/c"
        zpool import -c "$DIR/kept" q
        zpool list -H -o health q; zpool list -vHPL q | awk 'NR > 2 {print $1}' | sed 's,.*/,,'
        zpool destroy q
        "#,
    )?;
    expect("health and devices", "ONLINE\nc\nb", &*said)
}
