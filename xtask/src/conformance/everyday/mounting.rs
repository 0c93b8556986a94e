//! Scenarios: what is mounted, where, and how it ends.

use super::{POOL, Scenario, Setting, expect, is_mounted};
use crate::workspace::Outcome;

/// All of this subject.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new(
        "unmount-and-mount-keeps-files",
        unmount_and_mount_keeps_files,
    ),
    Scenario::new("unmount-leaves-other-namespaces", unmount_leaves_others),
    Scenario::new("umount-then-mount", umount_then_mount),
    Scenario::new("mountpoint-parent-renamed", parent_renamed),
    Scenario::new("mount-options", mount_options),
    Scenario::new("legacy-by-mount", legacy_by_mount),
    Scenario::new("canmount-off-keeps-children", canmount_off),
    Scenario::new("upgrade-unmounts-nothing", upgrade_unmounts_nothing),
    Scenario::new("inert-properties-say-so", inert_properties),
    Scenario::new("shares-over-nfs", shares_over_nfs),
];

/// `zfs unmount` takes a mount away, `zfs mount` brings it back with what was written.
fn unmount_and_mount_keeps_files(here: &Setting) -> Outcome {
    let copied = here.program("cp", &["/proc/version", "version"])?;
    expect("cp ends with", Some(0), copied.code)?;
    here.answer(&format!("zfs unmount {POOL}"))?;
    expect("mounted after unmount", false, is_mounted(&here.mount)?)?;
    here.answer(&format!("zfs mount {POOL}"))?;
    expect("mounted after mount", true, is_mounted(&here.mount)?)?;
    here.script("cmp /proc/version version")?;
    here.answer(&format!("zpool export {POOL}"))?;
    let images = here.image.parent().ok_or("the image has a folder")?;
    here.answer(&format!("zpool import -N -d {} {POOL}", images.display()))?;
    Ok(())
}

/// `zfs unmount` without `-f` took a file system away from other mount namespaces and bind mounts.
/// It goes on there; what needs it out of use is busy until then; `zfs mount` mounts it here again
/// meanwhile, and both see the same files.
fn unmount_leaves_others(here: &Setting) -> Outcome {
    let seen = here.script(
        "cd /; zfs create everyday/a; m=$(zfs get -Ho value mountpoint everyday/a); mkdir $m/sub $DIR/bind
         zfs snapshot everyday/a@1; mkfifo $DIR/go $DIR/ready
         unshare -m --propagation private sh -c '
             exec 3>>$0/log; echo >$1/ready; read x <$1/go
             echo second >&3 && echo wrote; echo >$1/ready; read x <$1/go' $m $DIR & other=$!
         read x <$DIR/ready
         mount --bind $m/sub $DIR/bind
         zfs unmount everyday/a; zfs get -Ho value mounted everyday/a
         touch $DIR/bind/x && echo bound
         echo go >$DIR/go; read x <$DIR/ready
         for what in 'rollback everyday/a@1' 'destroy -r everyday/a'; do
             zfs $what 2>&1 | head -n1 | sed 's/.*: //'
         done
         zfs mount everyday/a; zfs get -Ho value mounted everyday/a; cat $m/log; echo both >$m/sub/x; cat $DIR/bind/x
         echo go >$DIR/go; wait $other
         zfs rollback everyday/a@1 2>&1 | head -n1 | sed 's/.*: //'
         umount $DIR/bind; zfs rollback everyday/a@1; ls $m/sub; echo ended",
    )?;
    let expected = "no\nbound\nwrote\ndataset is busy\ndataset is busy\nyes\nsecond\nboth\ndataset is busy\nended";
    expect(
        "what is said and seen",
        expected.to_string(),
        seen.replace("pool or dataset", "dataset"),
    )
}

/// What umount(8) had ended was "already mounted" while another namespace had a copy of the mount,
/// or the daemon was slow to notice.
fn umount_then_mount(here: &Setting) -> Outcome {
    let seen = here.script(
        "cd /; zfs create everyday/a; m=$(zfs get -Ho value mountpoint everyday/a); echo data >$m/f
         for round in $(seq 20); do umount $m; zfs mount everyday/a; done
         mkfifo $DIR/go $DIR/ready
         unshare -m --propagation private sh -c 'echo >$0/ready; read x <$0/go' $DIR & other=$!
         read x <$DIR/ready
         umount $m; zfs get -Ho value mounted everyday/a; zfs mount everyday/a; cat $m/f
         exec 3>$m/open; umount -l $m; zfs get -Ho value mounted everyday/a; zfs mount everyday/a
         echo late >&3; cat $m/open; exec 3>&-
         zfs list -Ho name $m; echo go >$DIR/go; wait $other",
    )?;
    expect(
        "what is said and seen",
        "no\ndata\nno\nlate\neveryday/a",
        seen.as_str(),
    )
}

/// A mount below a folder that got another name was "busy" for ever, and its path led to another
/// dataset.
fn parent_renamed(here: &Setting) -> Outcome {
    let seen = here.script(
        "m=$PWD; cd /; mkdir $m/x; zfs create -o mountpoint=$m/x/y everyday/a; mv $m/x $m/z
         ln -s $m/z/y $DIR/link
         zfs list -Ho name $m/z/y; zfs list -Ho name $DIR/link; zfs mount | grep everyday/a | sed \"s|$m||\"
         zfs snapshot everyday/a@1; touch $m/z/y/f; zfs rollback everyday/a@1; ls $m/z/y
         zfs unmount $m/z/y; zfs list -Ho name $m/z/y
         zfs mount everyday/a; zfs list -Ho name $m/x/y; mv $m/x $m/w
         zpool export everyday",
    )?;
    let listed = format!("{:<30}  /z/y", "everyday/a");
    let expected = format!("everyday/a\neveryday/a\n{listed}\neveryday\neveryday/a");
    expect("what is said and seen", expected, seen)?;
    let images = here.image.parent().ok_or("the image has a folder")?;
    here.answer(&format!("zpool import -N -d {} {POOL}", images.display()))?;
    Ok(())
}

/// Options that do not exist were taken without effect, and `remount` was refused.
fn mount_options(here: &Setting) -> Outcome {
    let seen = here.script(
        "cd /; zfs create everyday/a; m=$(zfs get -Ho value mountpoint everyday/a); zfs unmount everyday/a
         zfs mount -o nosuchoption everyday/a 2>&1 || echo $?
         zfs get -Ho value mounted everyday/a
         zfs mount -o strictatime,noexec everyday/a; zfs get -Ho value,source relatime,exec everyday/a
         zfs mount -o remount,ro everyday/a; touch $m/f 2>/dev/null || echo refused
         zfs get -Ho value,source readonly,exec,relatime everyday/a
         zfs mount -o remount everyday/a; touch $m/f; zfs get -Ho value,source readonly everyday/a",
    )?;
    let expected = "cannot mount 'everyday/a': Invalid argument\n1\nno\n\
                    off\ttemporary\noff\ttemporary\nrefused\n\
                    on\ttemporary\non\tdefault\non\tdefault\noff\tdefault";
    expect("what is said and seen", expected, seen.as_str())
}

/// What has `mountpoint=legacy` could not be mounted by anything. mount(8) finds its helper as
/// `/sbin/mount.zfs`; here it is called by that name.
fn legacy_by_mount(here: &Setting) -> Outcome {
    let seen = here.script(
        "cd $DIR; mkdir bin l k; ln -s $(command -v zfs) bin/mount.zfs; export PATH=$DIR/bin:$PATH
         zfs create -o mountpoint=legacy everyday/l; zfs create everyday/p
         zfs mount everyday/l 2>&1 || echo $?
         mount.zfs everyday/l $DIR/l -o rw,noexec; echo x >l/f; zfs get -Ho value mounted everyday/l
         grep -c \" $DIR/l fuse .*noexec\" /proc/mounts
         mount.zfs everyday/l $DIR/k; cat k/f; umount k
         zfs unmount everyday/l 2>&1 || echo $?
         zfs snapshot everyday/l@1; echo y >l/f; zfs rollback everyday/l@1; cat l/f
         tarn stop >/dev/null; tarn start >/dev/null; cat l/f; grep -c \" $DIR/l fuse .*noexec\" /proc/mounts
         mount.zfs -o remount,ro everyday/l $DIR/l; touch l/g 2>/dev/null || echo refused
         umount l; zfs get -Ho value mounted everyday/l
         mount.zfs everyday/p $DIR/l 2>&1 || echo $?
         mount.zfs -o nonsense everyday/l $DIR/l 2>&1 || echo $?
         mount.zfs -s -o nonsense everyday/l $DIR/l; umount l
         unshare -m --propagation private mount.zfs everyday/l $DIR/l 2>&1 | grep -c namespace",
    )?;
    let expected = "cannot mount 'everyday/l': legacy mountpoint\nuse mount(8) to mount this filesystem\n1\n\
         yes\n1\nx\n\
         cannot unmount 'everyday/l': legacy mountpoint\nuse umount(8) to unmount this filesystem\n1\n\
         x\nx\n1\nrefused\nno\n\
         filesystem 'everyday/p' cannot be mounted using 'mount'.\n\
         Use 'zfs set mountpoint=legacy' or 'zfs mount everyday/p'.\n\
         See zfs(8) for more information.\n1\n\
         filesystem 'everyday/l' cannot be mounted due to invalid option 'nonsense'.\n\
         Use the '-s' option to ignore the bad mount option.\n1\n1";
    expect("what is said and seen", expected, seen.as_str())
}

/// `canmount=off` was "busy" where children were mounted below. They are unmounted, and mounted
/// again.
fn canmount_off(here: &Setting) -> Outcome {
    let seen = here.script(
        "cd /; zfs create -p everyday/a/b/c; zfs set canmount=off everyday/a
         zfs get -Ho value mounted everyday/a everyday/a/b everyday/a/b/c
         zfs create -o canmount=noauto -o mountpoint=$DIR/n everyday/n; zfs mount everyday/n; zfs unmount -a
         zfs get -Ho value mounted everyday/a/b everyday/n",
    )?;
    expect("mounted", "no\nyes\nyes\nno\nyes", seen.as_str())
}

/// `zfs upgrade` of a file system in use was "busy".
fn upgrade_unmounts_nothing(here: &Setting) -> Outcome {
    let seen = here.script(
        "cd /; zfs create -o version=4 everyday/a; zfs create everyday/a/b
         m=$(zfs get -Ho value mountpoint everyday/a); exec 3>$m/f; zfs upgrade everyday/a >/dev/null
         zfs get -Ho value version everyday/a; echo x >&3; exec 3>&-
         zfs unmount everyday/a; zfs mount everyday/a; cat $m/f; echo y >$m/g; cat $m/g",
    )?;
    expect("version and contents", "5\nx\ny", seen.as_str())
}

/// Settings without effect were taken without a word; and a file system that cannot be mounted
/// where it belongs now ended `zfs set` with 255, though the property was set.
fn inert_properties(here: &Setting) -> Outcome {
    let set = here.ends_with(0, &format!("zfs set vscan=on {POOL}"))?;
    let expected = "warning: property 'vscan' is stored and has no effect yet: no file is scanned for viruses\n";
    expect("vscan=on", expected, set.stderr.as_str())?;
    expect(
        "stored",
        "on",
        here.answer(&format!("zfs get -Ho value vscan {POOL}"))?
            .as_str(),
    )?;
    let set = here.ends_with(0, &format!("zfs set vscan=off atime=off {POOL}"))?;
    expect("what is said of others", "", set.stderr.as_str())?;
    std::fs::write(here.folder.join("file"), "")?;
    let place = here.folder.join("file").display().to_string();
    let set = here.ends_with(0, &format!("zfs set mountpoint={place} {POOL}"))?;
    let expected = format!("cannot mount '{place}': failed to create mountpoint: File exists\n");
    expect("a place that is a file", expected, set.stderr)
}

/// A mount and a client of NFS (libnfs) see the same files; a share outlives the daemon and ends
/// with `zfs unshare`.
fn shares_over_nfs(here: &Setting) -> Outcome {
    let seen = here.script(
        r#"
        cd /; command -v nfs-cp >/dev/null || { apt-get -qq update && apt-get -qq install -y libnfs-utils; } >/dev/null 2>&1
        tarn stop >/dev/null
        export TARN_NFS_PORT=$(python3 -c 'import socket; s = socket.socket(socket.AF_INET6); s.bind(("::", 0)); print(s.getsockname()[1])')
        zfs create -o sharenfs=rw,no_root_squash,insecure everyday/a; zfs create everyday/a/b
        m=$(zfs get -Ho value mountpoint everyday/a); u=nfs://127.0.0.1$m; q="?nfsport=$TARN_NFS_PORT&mountport=$TARN_NFS_PORT"
        head -c 3000001 /dev/urandom >$DIR/f; nfs-cp $DIR/f "$u/f$q" >/dev/null; cmp $DIR/f $m/f && echo written
        cp $DIR/f $m/b/g; nfs-cat "$u/b/g$q" | cmp - $DIR/f && echo read below
        nfs-ls "$u$q" | awk '{ print $1, $5, $6 }' | LC_ALL=C sort
        zfs snapshot everyday/a@s; echo new >$m/f; sync $m/f; nfs-cat "$u/f$q"; nfs-cat "$u/.zfs/snapshot/s/f$q" | cmp - $DIR/f && echo old
        kill -9 $(cat $TARN_DIR/tarnd.lock); until zfs list everyday >/dev/null 2>&1; do :; done; nfs-cat "$u/f$q"
        zfs share everyday/a 2>&1 || echo "=> $?"; zfs unshare everyday/a; nfs-cat "$u/f$q" >/dev/null 2>&1 || echo gone
        zfs unshare everyday/a 2>&1 || echo "=> $?"; zfs share -a; nfs-cat "$u/f$q"
        zfs set sharenfs=fsid=3 everyday/a 2>&1 | sed 's/.*: //'
        zfs inherit sharenfs everyday/a; nfs-ls "$u$q" >/dev/null 2>&1 || echo ended; tarn stop >/dev/null
        "#,
    )?;
    let expected = "written\nread below\n-rw-rw---- 3000001 f\ndrwxr-xr-x 3 b\nnew\nold\nnew\n\
        cannot share 'everyday/a': filesystem already shared\n=> 1\ngone\n\
        cannot unshare 'everyday/a': not currently shared\n=> 1\nnew\n\
        sharenfs option 'fsid=3' is not supported by this version of Tarn\nended";
    expect("what clients see", expected, seen.trim_end())
}
