//! Programs that keep systems: packages, layers of containers, sandboxes.

use super::Program;

pub const PROGRAMS: &[Program] = &[
    Program::new("dpkg", &[("dpkg-deb", "dpkg")], DPKG).quick(),
    Program::new(
        "overlayfs",
        &[("unshare", "util-linux"), ("python3", "python3")],
        OVERLAY,
    )
    .with_tree(),
    Program::new("bubblewrap", &[("bwrap", "bubblewrap")], BUBBLEWRAP),
    Program::new("debootstrap", &[("mmdebstrap", "mmdebstrap")], DEBOOTSTRAP).limited_to(300),
    Program::new(
        "containers",
        &[
            ("buildah", "buildah"),
            ("podman", "podman"),
            ("crun", "crun"),
            ("busybox", "busybox-static"),
        ],
        CONTAINERS,
    )
    .limited_to(120),
    Program::new(
        "squashfs-and-images",
        &[("mksquashfs", "squashfs-tools")],
        IMAGES,
    )
    .with_tree(),
    Program::new(
        "samba",
        &[("smbd", "samba"), ("smbclient", "smbclient")],
        SAMBA,
    ),
];

const DPKG: &str = r#"
### packages
export SOURCE_DATE_EPOCH=1000000000; package() { rm -rf p; mkdir -p p/DEBIAN p/usr/bin p/etc p/usr/share/doc/x; printf "Package: x\nVersion: $1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: x\n" > p/DEBIAN/control; echo /etc/x.conf > p/DEBIAN/conffiles; echo "conf $1" > p/etc/x.conf; printf '#!/bin/sh\necho '"$1"'\n' > p/usr/bin/x; chmod 4755 p/usr/bin/x; echo doc > p/usr/share/doc/x/copyright; ln -s copyright p/usr/share/doc/x/soft; ln p/usr/share/doc/x/copyright p/usr/share/doc/x/hard; (cd p && find usr etc -type f | LC_ALL=C sort | xargs md5sum > DEBIAN/md5sums); find p | xargs touch -h -d @1000000000; quietly dpkg-deb --root-owner-group -Zgzip -b p x_$1.deb; sha256sum < x_$1.deb; }
package 1; package 2; mkdir -p r/var/lib/dpkg/{info,updates,triggers}; touch r/var/lib/dpkg/{status,available}; go() { dpkg --root=$ROOT/r --force-script-chrootless --log=/dev/null "$@"; echo "=> $?"; }
try dpkg-deb -c x_1.deb; go -i x_1.deb; go -s x | grep Status; r/usr/bin/x; go -V x; echo changed >> r/etc/x.conf; go --force-confold -i x_2.deb; r/usr/bin/x; go -V x; stat -c '%n %a %h %y' r/usr/bin/x r/usr/share/doc/x/*; ls r/etc; go --force-confnew -i x_1.deb; ls r/etc; go -r x; go -P x; find r -type f | grep -v available | LC_ALL=C sort; dpkg-deb -x x_1.deb e; find e -printf '%p %m %U %n %TY\n' | LC_ALL=C sort; go --audit
"#;

const OVERLAY: &str = r#"
### upper folder on it
mkdir up work; cat > $WORK/o.sh <<'END'
mount -t overlay -o lowerdir=$ROOT/tree,upperdir=$ROOT/up,workdir=$ROOT/work$1 overlay $WORK/m || { dmesg 2>/dev/null | tail -n 3 | grep -i overlay | sed 's/.*overlay/overlay/'; exit 1; }
cd $WORK/m; try() { printf '$ %s\n' "$*"; "$@"; echo "=> $?"; }
echo more >> text-100; rm text-1; mv text-511 moved; mv few fewer; rm -r many; mkdir many; echo in > many/in; rm -r deep; mkdir deep; ln text-1000 third; chmod 600 text-0; chown 5:6 text-13; setfattr -n user.a -v b text-112; ln -sf x link-short; mkdir d; mv d e; touch e/f; rmdir private; rm -r private; mv text-513 e/f; mkfifo p; mknod n c 1 3; truncate -s 10 rand-65536; python3 -c 'import ctypes, os; print(ctypes.CDLL(None).renameat2(-100, b"text-512", -100, b"rand-512", 2))'
python3 -c 'import os, tempfile; f = tempfile.TemporaryFile(dir="."); f.write(b"x"); f.flush(); print(os.fstat(f.fileno()).st_nlink); fd = os.open(".", os.O_TMPFILE | os.O_RDWR); os.link("/proc/self/fd/%d" % fd, "linked", follow_symlinks=True)'
ls -A | LC_ALL=C sort; find . -printf '%p %y %m %U:%G %n %l\n' | LC_ALL=C sort | grep -v ' d ' | sha256sum; cat text-100 | tail -n 1; find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum; ls many deep; getfattr -d text-112 rand-512 -e hex
END
mkdir -p $WORK/m; for options in '' ,redirect_dir=on,index=on ,metacopy=on,redirect_dir=on ,userxattr ,xino=off,nfs_export=off ,volatile; do rm -rf up work; mkdir up work; echo "options $options"; unshare -m bash $WORK/o.sh $options 2>&1; find up -printf '%p %y %m %U:%G %s %l\n' | awk '$2 == "d" { $5 = "" } 1' | LC_ALL=C sort; find up -type c -printf '%P ' | tr ' ' '\n' | while read f; do [ -n "$f" ] && stat -c '%t:%T' "up/$f"; done | sort | uniq -c; getfattr -R -h -d -m 'overlay' up 2>/dev/null | grep -v -E 'origin|uuid|upper|metacopy' | LC_ALL=C sort; done; rm -rf up work
### lower folder on it
mkdir -p $WORK/up/{u,w} $WORK/m; mkdir low; cp -a tree/few tree/text-100 low; unshare -m bash -c 'mount -t tmpfs x $WORK/up && mkdir $WORK/up/{u,w} && mount -t overlay -o lowerdir=$ROOT/low:$ROOT/tree,upperdir=$WORK/up/u,workdir=$WORK/up/w overlay $WORK/m && cd $WORK/m && echo x >> text-100 && rm -r few/f1 && find . -printf "%P %y %m %n %l\n" | LC_ALL=C sort | sha256sum; cat text-100 | sha256sum'
"#;

const BUBBLEWRAP: &str = r#"
### bwrap
mkdir -p h/sub; echo x > h/f; bwrap --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --bind $ROOT/h /mnt --unshare-all --die-with-parent bash -c 'cd /mnt; cat f; echo y > g; mkdir d; rm f; touch /usr/x 2>&1; ls' ; ls h; bwrap --ro-bind / / --ro-bind $ROOT/h /mnt --dev /dev bash -c 'touch /mnt/z; echo "=> $?"' 2>&1; bwrap --ro-bind / / --bind $ROOT/h /mnt --dev /dev --unshare-user --uid 1000 --gid 1000 bash -c 'cd /mnt; stat -c "%u %g" g; touch u; stat -c "%u %g" u; chown 0 u; echo "=> $?"' 2>&1; stat -c '%u' h/u
unshare --user --map-root-user --mount bash -c 'mount --bind h /mnt && touch /mnt/mapped && stat -c %u /mnt/mapped; mount -o remount,bind,ro /mnt && touch /mnt/no; chroot . /bin/true' 2>&1 | sed 's/: failed to run.*/: no program/'; stat -c %u h/mapped
unshare -m bash -c 'mount --bind h /mnt; mount -o remount,bind,ro,noexec,nosuid /mnt; touch /mnt/a; cp /bin/true h/t; /mnt/t; echo $?; mount --move /mnt /media; ls /media' 2>&1
"#;

const DEBOOTSTRAP: &str = r#"
### a system
quietly mmdebstrap --variant=apt --mode=root --include=ca-certificates,perl-base --aptopt='APT::Sandbox::User "root"' --aptopt='Acquire::Languages "none"' bookworm $ROOT/c; [ -d c/usr ] || exit 1; find c -xdev -path c/var/cache -prune -o -path c/var/log -prune -o ! -type d -printf '%P %y %m %U:%G %n %l\n' | LC_ALL=C sort | sha256sum; in_c() { unshare -m --pid --fork --mount-proc=$ROOT/c/proc chroot c "$@"; }; quietly in_c dpkg --verify; quietly in_c dpkg --audit; in_c dpkg -l | tail -n +6 | awk '{ print $2, $3 }' | sha256sum; in_c getent passwd | wc -l; ls -l c/bin | sed 's/.*->/->/'; in_c perl -e 'print "perl\n"'
cp /etc/resolv.conf c/etc/; quietly in_c apt-get -y -q install --no-install-recommends patch; in_c patch --version | head -n 1; quietly in_c apt-get -y -q remove --purge patch; quietly in_c apt-get -q check; quietly in_c apt-get -y -q --reinstall install hostname; quietly in_c dpkg --verify; in_c adduser --version > /dev/null; quietly in_c useradd -m u; in_c su u -c 'cd; pwd; touch f; stat -c %U f'; quietly in_c ldconfig; quietly in_c update-ca-certificates; quietly in_c dpkg-reconfigure -f noninteractive debconf; getcap -r c 2>/dev/null; tar --one-file-system --numeric-owner -C c -cf - usr | tar -df - -C c; echo $?
rm -rf c; ls -A
"#;

const CONTAINERS: &str = r#"
### storage
cat > $WORK/policy.json <<< '{"default":[{"type":"insecureAcceptAnything"}]}'
for driver in vfs overlay; do export CONTAINERS_STORAGE_CONF=$WORK/$driver.conf; mkdir -p $WORK/run-$driver; printf '[storage]\ndriver = "%s"\ngraphroot = "%s/%s"\nrunroot = "%s/run-%s"\n' $driver $ROOT $driver $WORK $driver > $CONTAINERS_STORAGE_CONF
  echo driver $driver; c=$(buildah --signature-policy $WORK/policy.json from scratch); mkdir -p l/bin l/d; cp $(which busybox) l/bin/sh; echo x > l/d/f; buildah copy -q $c l / > /dev/null; echo "=> $?"; buildah config --cmd '/bin/sh' $c; quietly buildah --signature-policy $WORK/policy.json commit -q $c one; m=$(buildah mount $c); ls $m; rm $m/d/f; mv $m/d $m/e 2>&1 | sed "s,$ROOT.*,,"; mkdir $m/d; setfattr -n user.a -v b $m/bin/sh; buildah umount $c > /dev/null; quietly buildah --signature-policy $WORK/policy.json commit -q $c two; buildah images --format '{{.Name}}' | LC_ALL=C sort; c2=$(buildah --signature-policy $WORK/policy.json from localhost/two); m=$(buildah mount $c2); find $m -printf '%P %y %m %n\n' | LC_ALL=C sort; getfattr -d $m/bin/sh | tail -n +2; quietly buildah rm -a; quietly buildah --signature-policy $WORK/policy.json push -q localhost/two dir:$ROOT/dir-$driver; quietly podman --signature-policy $WORK/policy.json load -q -i <(true); podman --cgroup-manager=cgroupfs run --rm --network=none --cgroups=disabled --signature-policy $WORK/policy.json localhost/two /bin/sh -c 'echo inside; echo y > /d/g; ls /d' 2>&1 | sed -E 's/[0-9a-f]{64}/ID/g' | tail -n 3; quietly buildah rmi -a -f; find $driver -name '*.lock' -prune -o -type d -name diff -print | wc -l; done 2>&1 | sed -E 's/[0-9a-f]{64}/ID/g; s/[0-9]{4}-[0-9]{2}-[0-9]{2}[^"]*"/TIME"/'
mount | grep -c $ROOT/ ; umount -R -l $ROOT/overlay $ROOT/vfs 2>/dev/null; rm -rf overlay vfs l dir-*
"#;

const IMAGES: &str = r#"
### images
quietly mksquashfs tree $WORK/s -no-progress -quiet; quietly unsquashfs -q -n -d u $WORK/s; find u -printf '%P %y %m %U:%G %n %TY %l\n' | LC_ALL=C sort; quietly mksquashfs $ROOT/tree $ROOT/s -no-progress -quiet; unshare -m bash -c 'mkdir -p m && mount -o loop,ro s m && find m -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum'
truncate -s 64M e; quietly mkfs.ext4 -q -F e; unshare -m bash -c 'mount -o loop e m && cp -a tree/many tree/text-1000 m && umount m && mount -o loop e m && diff -r tree/many m/many && ls m | wc -l; umount m'; quietly e2fsck -fn e; fallocate -d e; quietly e2fsck -fn e; truncate -s 64M sw; chmod 600 sw; quietly mkswap sw; rm e sw s; rmdir m
"#;

const SAMBA: &str = r#"
### vfs_acl_xattr
mkdir share; chmod 777 share; D=$(mktemp -d); printf '[global]\nserver role = standalone\nmap to guest = bad user\nguest account = nobody\nsmb ports = 14%s\nbind interfaces only = yes\ninterfaces = lo\nprivate dir = %s\nlock directory = %s\nstate directory = %s\ncache directory = %s\npid directory = %s\nncalrpc dir = %s\nlog file = %s/log\ndisable spoolss = yes\nload printers = no\n[s]\npath = %s/share\nguest ok = yes\nread only = no\nvfs objects = acl_xattr streams_xattr\nstore dos attributes = yes\nea support = yes\nacl_xattr:ignore system acls = yes\n' $((RANDOM % 900 + 100)) $D $D $D $D $D $D/n $D $ROOT > $D/conf; port=$(sed -n 's/smb ports = //p' $D/conf); smbd -F --no-process-group -s $D/conf > $D/out 2>&1 & server=$!; await bash -c "exec 3<>/dev/tcp/127.0.0.1/$port" 2>/dev/null; c() { smbclient -s $D/conf -N -p $port //127.0.0.1/s -c "$1" 2>&1 | grep -v -E 'blocks of size|KiloBytes|putting|getting'; }; seq 5000 > $WORK/f; c "put $WORK/f a; mkdir d; put $WORK/f d/b; ls" | sed -E 's/ (Mon|Tue|Wed|Thu|Fri|Sat|Sun) .*//' | LC_ALL=C sort; c 'rename a c; setmode c +rh; allinfo c' | grep -E 'attributes|stream'; c "put $WORK/f c:stream; get c:stream $WORK/g; del d\\b; rmdir d; altname c" | head -3; cmp $WORK/f $WORK/g; smbcacls -s $D/conf -N -p $port //127.0.0.1/s c 2>&1 | sed -E 's/S-1-[-0-9]*/SID/; s/:.*nobody/:nobody/' | head; smbcacls -s $D/conf -N -p $port //127.0.0.1/s c -a 'ACL:S-1-1-0:ALLOWED/0x0/READ' 2>&1 | head -3; getfattr -d -m - -e hex share/c | cut -c1-40 | LC_ALL=C sort; kill $server; wait $server 2>/dev/null; rm -r $D share
"#;
