//! Archivers and copiers of trees: what they store, restore, and find changed.

use super::Program;

pub const PROGRAMS: &[Program] = &[
    Program::new("tar", &[("tar", "tar")], TAR)
        .with_tree()
        .quick(),
    Program::new("bsdtar", &[("bsdtar", "libarchive-tools")], BSDTAR)
        .with_tree()
        .quick(),
    Program::new("cpio", &[("cpio", "cpio")], CPIO)
        .with_tree()
        .quick(),
    Program::new("rsync", &[("rsync", "rsync")], RSYNC)
        .with_tree()
        .quick(),
    Program::new("zip", &[("zip", "zip"), ("unzip", "unzip")], ZIP).with_tree(),
    Program::new(
        "ar-pax-and-others",
        &[("pax", "pax"), ("7z", "p7zip-full")],
        OTHERS,
    )
    .with_tree(),
];

const TAR: &str = r#"
### creating
make_archive() { tar --sort=name --format=posix --pax-option=exthdr.name=%d/%f,delete=atime,delete=ctime --xattrs --xattrs-include='*' --acls "$@"; }
try make_archive -cf $WORK/a.tar tree; tar --sort=name -cf - tree | sha256sum
tar -tvf $WORK/a.tar --full-time --numeric-owner
tar -cf - tree | tar -tf - | wc -l
### extracting
mkdir x; try tar --xattrs --xattrs-include='*' --acls -xpf $WORK/a.tar -C x; same tree x/tree
try tar -df $WORK/a.tar; cd x; sed -i s/a/b/ tree/text-1000; chmod 600 tree/text-100; try tar -df $WORK/a.tar
try tar -xkf $WORK/a.tar tree/few 2>&1 | LC_ALL=C sort; try tar -xUf $WORK/a.tar tree/text-1000; try tar --keep-newer-files -xf $WORK/a.tar tree/text-100; try tar --overwrite -xf $WORK/a.tar tree/few; try tar -xf $WORK/a.tar nothing
as_user mkdir -p /nonexistent; mkdir -m 777 u; cd u; as_user tar --no-same-owner -xf $WORK/a.tar 2>&1 | LC_ALL=C sort; find . -printf '%p %M %U\n' | LC_ALL=C sort
### sparse
tar -Scf $WORK/s.tar tree/sparse tree/hole-only; [ $(stat -c %s $WORK/s.tar) -lt 1000000 ] && echo small; mkdir s; tar -xf $WORK/s.tar -C s; cmp s/tree/sparse tree/sparse; [ $(du -k s/tree/sparse | cut -f1) -lt 4000 ] && echo holes
### incremental
cp -a tree t; sleep 0.1; tar --listed-incremental=$WORK/snar -cf $WORK/0.tar t; echo new > t/new; echo more >> t/text-100; rm t/text-1; mv t/few t/fewer; mv t/deep t/many/deeper; sleep 0.1; try tar --listed-incremental=$WORK/snar -cvf $WORK/1.tar t 2>&1 | LC_ALL=C sort
mkdir r; cd r; tar --listed-incremental=/dev/null -xpf $WORK/0.tar; tar --listed-incremental=/dev/null -xpf $WORK/1.tar; cd ..; same t r/t '/user|trusted|posix_acl|^# file|^u|^g|^m|^d|^o|^$/d'
### changing archives
cd tree; try tar -cf $WORK/c.tar text-1 text-0; try tar -rf $WORK/c.tar text-100; echo x >> text-1; touch text-1; try tar -uf $WORK/c.tar text-1 text-0; try tar -tf $WORK/c.tar; try tar --delete -f $WORK/c.tar text-0; try tar -Af $WORK/c.tar $WORK/s.tar; try tar -tf $WORK/c.tar; try tar -cWf $WORK/w.tar few; try tar -cf $WORK/d.tar --remove-files many; ls -d many; try tar -cf in.tar . 2>&1 | tail -n 2; rm in.tar
try tar -czf $WORK/z.tgz few; try tar -tzf $WORK/z.tgz | LC_ALL=C sort
"#;

const BSDTAR: &str = r#"
### creating and extracting
list() { find tree -print0 | LC_ALL=C sort -z; }
list | bsdtar --null -n -T - --acls --xattrs --format pax -cf $WORK/a.tar; echo $?
bsdtar -tf $WORK/a.tar; bsdtar -xOf $WORK/a.tar tree/text-1000 | sha256sum
mkdir x; try bsdtar --acls --xattrs -xpf $WORK/a.tar -C x; same tree x/tree
mkdir y; tar --xattrs --xattrs-include='*' --acls -xpf $WORK/a.tar -C y 2>/dev/null; same tree y/tree
for format in ustar gnutar cpio newc mtree zip 7zip; do list | bsdtar --null -n -T - --format $format -cf $WORK/a.$format 2>&1 | head -5; echo "$format $?"; mkdir $format; bsdtar -xpf $WORK/a.$format -C $format 2>&1 | head -5; find $format ! -type d -printf '%P %y %s\n' | LC_ALL=C sort | sha256sum; done
### sparse
list() { find tree -print0 | LC_ALL=C sort -z; }
bsdtar --read-sparse -cf $WORK/s.tar tree/sparse tree/hole-only; [ $(stat -c %s $WORK/s.tar) -lt 1000000 ] && echo small; mkdir s; bsdtar -xSf $WORK/s.tar -C s; cmp s/tree/sparse tree/sparse
bsdcpio --version >/dev/null; mkdir p; list | bsdcpio -0 -p -d -m p 2>/dev/null; echo $?; find p ! -type d -printf '%P %y %s\n' | LC_ALL=C sort | sha256sum
bsdcat $WORK/a.tar | cmp - $WORK/a.tar
"#;

const CPIO: &str = r#"
### cpio
list() { find tree -print0 | LC_ALL=C sort -zr; }
list | cpio -0 --reproducible -o -H newc > $WORK/a.cpio; echo $?; sha256sum < $WORK/a.cpio; cpio -t < $WORK/a.cpio 2>&1 | LC_ALL=C sort; mkdir x; (cd x; cpio -idm < $WORK/a.cpio); same tree x/tree '/user|trusted|posix_acl|^# file|^u|^g|^m|^d|^o|^$/d; s/\.[0-9]{10}\t/\t/'
mkdir p; list | cpio -0 -pdm p; same tree p/tree '/user|trusted|posix_acl|^# file|^u|^g|^m|^d|^o|^$/d'
mkdir l; list | cpio -0 -pdml l; stat -c %h l/tree/text-100; for format in odc ustar crc; do list | cpio -0 -o -H $format 2>/dev/null > $WORK/b; mkdir $format; (cd $format; cpio -idm --no-absolute-filenames < $WORK/b 2>/dev/null); find $format -type f -printf '%P %s\n' | LC_ALL=C sort | sha256sum; done
mkdir sp; list | cpio -0 -pdm --sparse sp; cmp tree/sparse sp/tree/sparse
"#;

const RSYNC: &str = r#"
### whole
try rsync -aHAXS --numeric-ids tree/ copy; same tree copy; try rsync -aHAXSi --numeric-ids tree/ copy; try rsync -aHAXci --numeric-ids tree/ copy
try rsync -aHAX --numeric-ids --inplace --no-whole-file tree $OTHER; same tree $OTHER/tree
### changes
sed -i s/a/b/ tree/text-1000; chmod 600 tree/text-100; touch -d 2020-02-02 tree/text-0; rm tree/text-1; setfattr -n user.small -v other tree/rand-512; setfacl -m u:5:r tree/text-13; ln -sfn elsewhere tree/link-short; mv tree/few tree/fewer; chown 7:7 tree/text-112; printf x | dd status=none of=tree/rand-65536 bs=1 seek=30000 conv=notrunc; echo longer >> tree/text-513; truncate -s 10 tree/text-8192; sleep 1.1
try rsync -aHAXi --numeric-ids --delete --no-whole-file tree/ copy; same tree copy; try rsync -aHAXi --numeric-ids --delete --inplace --no-whole-file tree $OTHER; same tree $OTHER/tree
### more ways
try rsync -a --fake-super tree/ fake; find fake -printf '%P %m %U:%G\n' | LC_ALL=C sort; getfattr -R -d -m user.rsync fake | LC_ALL=C sort; try rsync -a --fake-super -M--fake-super fake/ fake2; mkdir un; rsync -a --super -M--super tree/ un
try rsync -a --link-dest=$ROOT/copy tree/ linked; find linked -type f -links 1 | wc -l; echo changed > tree/text-0; rm -r linked; rsync -a --link-dest=$ROOT/copy tree/ linked; find linked -type f -links 1 | LC_ALL=C sort
head -c 50000 tree/rand-100000 > copy/rand-100000; try rsync -ai --append-verify tree/rand-100000 copy/; cmp tree/rand-100000 copy/rand-100000; try rsync -ab --suffix=.old --backup-dir=$ROOT/backups tree/text-0 copy/; find backups | LC_ALL=C sort
try rsync -ai --existing --ignore-existing tree/ copy; try rsync -a --remove-source-files --include='text-1*' --exclude='*' tree/ gone; ls gone tree | wc -l; try rsync -a --partial-dir=.part --delay-updates tree/ delayed; try rsync -rtOJi tree/ delayed | head -5; try rsync -a --chmod=D700,F600 --chown=1:2 tree/many chowned; find chowned -printf '%m %U:%G\n' | sort | uniq -c; try rsync -a missing x 2>&1 | sed 's/(.*//' ; try rsync -aU tree/many atimes
rsync -a --preallocate tree/rand-20000 tree/sparse pre/; cmp tree/sparse pre/sparse; rsync -a --write-devices tree/text-8192 wd 2>&1 | head -3; rsync -rlpt --open-noatime tree/ na; echo $?
### a daemon of it
cat > $WORK/rsyncd.conf <<END
use chroot = yes
uid = 0
gid = 0
[m]
path = $ROOT
read only = no
END
rsync --server --daemon --config=$WORK/rsyncd.conf . < /dev/null 2>&1 | head -1 | cut -c1-8
rsync -a --rsh="sh -c 'shift; shift; exec rsync --server --daemon --config=$WORK/rsyncd.conf .'" tree/many x::m/served 2>&1 | head -3; find served 2>/dev/null | wc -l
"#;

const ZIP: &str = r#"
### zip and unzip
try zip -qry $WORK/a.zip tree -x tree/fifo tree/chardev tree/blockdev 2>&1 | tail -3; unzip -Z1 $WORK/a.zip | LC_ALL=C sort; mkdir x; quietly unzip -q $WORK/a.zip -d x; find x ! -type d -printf '%P %y %m %s %TY %l\n' | LC_ALL=C sort; quietly zip -T $WORK/a.zip; zip -qmX in.zip tree/text-1; ls in.zip tree/text-1
"#;

const OTHERS: &str = r#"
### pax
find tree | LC_ALL=C sort | pax -w -d -x ustar > $WORK/a 2>/dev/null; mkdir p; (cd p; pax -r -pe < $WORK/a); find p -printf '%P %y %m %n %l\n' | LC_ALL=C sort; mkdir q; pax -rw -pe tree q; find q ! -type d -printf '%P %y %s\n' | LC_ALL=C sort
### 7z
quietly 7z a -snl $WORK/a.7z tree/many tree/few tree/link-short; quietly 7z t $WORK/a.7z; mkdir z; quietly 7z x -oz $WORK/a.7z; find z -printf '%P %y %s %l\n' | grep -v '	d' | sed -E 's/ d [0-9]+/ d/' | LC_ALL=C sort
"#;
