//! Programs in situations: beside a snapshot, without room, and while the server of the file
//! system is away.

use super::Program;

pub const PROGRAMS: &[Program] = &[
    Program::new(
        "from-a-snapshot",
        &[("rsync", "rsync"), ("cpio", "cpio")],
        SNAPSHOT,
    )
    .with_tree()
    .quick(),
    Program::new(
        "borg-from-a-snapshot",
        &[("borg", "borgbackup")],
        BORG_SNAPSHOT,
    )
    .with_tree(),
    Program::new("no-room", &[("git", "git"), ("sqlite3", "sqlite3")], FULL)
        .with_small_rooms()
        .limited_to(180),
    Program::new(
        "away",
        &[
            ("python3", "python3"),
            ("git", "git"),
            ("sqlite3", "sqlite3"),
            ("rsync", "rsync"),
        ],
        AWAY,
    )
    .quick(),
    Program::new("restarted", &[("rsync", "rsync")], RESTARTED)
        .with_tree()
        .quick(),
];

const SNAPSHOT: &str = r#"
### before
cp -a tree $WORK/before; (cd tree; head -c 300000 /dev/zero > text-100; touch -d 2020-02-02 text-100)
listing tree > $WORK/listed
#snapshot
### changes
cd tree; sed -i s/a/b/ text-1000; rm -r few many; echo longer >> rand-20000; chmod 600 text-0; setfattr -n user.small -v other rand-512; mv text-511 text-512; head -c 300000 /dev/zero | tr '\0' y > text-100; echo >> text-100; ln text-13 snapped; truncate -s 0 rand-65536; rm link-short; mkdir few
### it is as it was
listing $SNAP/tree > $WORK/now; diff $WORK/listed $WORK/now && echo the same; listing tree | cmp -s - $WORK/listed || echo the live one is not
cmp $SNAP/tree/text-1000 tree/text-1000; cmp $SNAP/tree/text-113 tree/text-113; diff -rq --no-dereference -x chardev -x blockdev $SNAP/tree tree | LC_ALL=C sort
### backups from it
cd $SNAP; tar --sort=name --acls --xattrs --xattrs-include='*' -cf $WORK/a.tar tree; mkdir $WORK/x; tar --acls --xattrs --xattrs-include='*' -xpf $WORK/a.tar -C $WORK/x; same tree $WORK/x/tree; try rsync -aHAXS --numeric-ids tree $OTHER; same tree $OTHER/tree; mkdir $OTHER/cpio $OTHER/cp; find tree -print0 | LC_ALL=C sort -z | cpio -0 -pdm $OTHER/cpio; try cp -a tree $OTHER/cp; same tree $OTHER/cp/tree
### both at once
tar --sort=name -cf $WORK/both.tar -C $ROOT tree -C $SNAP tree; tar -tvf $WORK/both.tar | grep -c ' link to '; mkdir $WORK/two; cp -a $ROOT/tree $WORK/two/live; cp -a $SNAP/tree $WORK/two/snapped; rm -rf $WORK/three; mkdir $WORK/three; cp -a $ROOT/tree $SNAP/tree/few $WORK/three; diff -r --no-dereference $SNAP/tree/few $WORK/three/few | head -3; find $ROOT/tree/text-113 $SNAP/tree/text-113 -printf '%i %D\n' | sort -u | wc -l; rsync -aHi $SNAP/tree/ tree-back/ | wc -l; rsync -aHAXn --delete -i $SNAP/tree/ tree/ | LC_ALL=C sort; du -bs --inodes $SNAP/tree | cut -f1; python3 -c 'import os; r = os.environ; print(os.path.samefile(r["ROOT"] + "/tree/text-113", r["SNAP"] + "/tree/text-113"))'; diff -q $SNAP/tree/rand-20000 tree/rand-20000; find . $SNAP/tree -samefile tree/text-113 | LC_ALL=C sort
### nothing can be changed in it
cd $SNAP; try touch new 2>&1; try touch tree/text-1; try rm tree/text-1; try mv tree/text-1 tree/x; try mkdir d; echo x >> tree/text-1; echo "=> $?"; try chmod 600 tree/text-1; try chown 5 tree/text-1; try ln tree/text-1 tree/l; try ln -s a b; try setfattr -n user.a -v b tree/text-1; try truncate -s 0 tree/text-1; try mknod n c 1 3; try touch -d 2000-01-01 tree/text-1; try rmdir tree/few; dd status=none if=/dev/zero of=tree/text-1 conv=nocreat,notrunc count=1; try fallocate -l 1M tree/text-1; flock -n tree/text-1 echo locked; sqlite3 -readonly tree/none 2>/dev/null; python3 -c 'import fcntl; f = open("tree/text-1"); fcntl.lockf(f, fcntl.LOCK_SH); print("locked")'; test -w tree/text-1; echo "may be written: $?"
### programs in it
cd $SNAP/tree; cp /bin/true $ROOT/t; ls few | wc -l; (cd few && pwd -P | sed "s,$SNAP,,"); find . -type f | wc -l; as_user cat private/of-7; as_user cat shared/listed | wc -l; realpath text-1 | sed "s,$SNAP,,"; unshare -m bash -c 'mount --bind . /mnt && ls /mnt | wc -l; mount --bind text-1000 $ROOT/tree/text-1000 && cmp $ROOT/tree/text-1000 text-1000 && echo bound'; stat -c '%n %h %s %y' text-1000 hard-1; ls $SNAP
"#;

const BORG_SNAPSHOT: &str = r#"
### first
export BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes; quietly borg init -e none $WORK/repo; quietly borg create $WORK/repo::live tree; listing tree > $WORK/listed
#snapshot
### from it
export BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes; echo x >> tree/text-1000; rm tree/text-7; cd $SNAP; quietly borg create $WORK/repo::snap tree; borg create --list --filter ME $WORK/repo::again tree; borg diff --content-only $WORK/repo::live snap | LC_ALL=C sort; mkdir $OTHER/x; cd $OTHER/x; quietly borg extract $WORK/repo::snap; listing tree | diff - $WORK/listed && echo the same
"#;

const FULL: &str = r#"
### programs without room
cat > $WORK/full.sh <<'END'
cd $1; ends() { "$@" > $WORK/said 2>&1 && echo "$1: ends well" || echo "$1: fails"; }
is_kept() { [ "$(sha256sum < kept)" = "$sum" ] && echo "kept after $1"; }
git -c init.defaultBranch=m init -q g; seq 9000 > g/f; git -C g add f; git -C g -c user.name=a -c user.email=a@b commit -qm m; seq 30000 > kept; mkdir d; seq 1000 | sed 's/^/text of a line /' > d/small; sum=$(sha256sum < kept)
ends cp $WORK/large filler; sync .; for i in 1 2 3 4 5 6; do { cat $WORK/large >> filler2; sync .; } 2> /dev/null; done
for i in $(seq 400); do { head -c 20000 $WORK/large > tiny-$i; } 2> /dev/null || break; done; [ $(df --output=avail -k . | tail -n 1) -lt 300 ] && echo full
ends cp $WORK/large copy; rm -f copy; ends dd if=$WORK/large of=dd bs=1M; ends dd if=$WORK/large of=dd bs=1M oflag=direct; rm -f dd; ends tar -xf $WORK/t.tar; rm -f small; ends rsync $WORK/large rs; ls -A | grep -c '^\.rs'; is_kept copies
ends git -C g hash-object -w $WORK/large; git -C g fsck --full; git -C g cat-file -p HEAD:f | sha256sum; ends install $WORK/large inst; rm -f inst; ends split -b 1M $WORK/large part; rm -f part*; ends gzip -k filler; rm -f filler.gz
python3 - <<'PY'
import os, errno
def act(what, call):
    try: call(); print(what, 'done')
    except OSError as error: print(what, errno.errorcode[error.errno].replace('EDQUOT', 'ENOSPC'))
random = os.urandom(1 << 20)
def write(flags, n=100):
    fd = os.open('w', os.O_WRONLY | os.O_CREAT | flags)
    try:
        for _ in range(n): os.write(fd, random)
        os.fsync(fd)
    finally: os.close(fd)
act('write', lambda: write(0)); act('write O_SYNC', lambda: write(os.O_SYNC)); act('append', lambda: write(os.O_APPEND))
act('posix_fallocate', lambda: os.posix_fallocate(os.open('w', os.O_RDWR | os.O_CREAT), 0, 400 << 20))
act('read', lambda: open('kept').read()); act('chmod', lambda: os.chmod('kept', 0o600))
PY
rm -f w; is_kept writes; ends truncate -s 1000 filler; ends rm -f filler filler2; rm -f tiny-*; sync .; for i in $(seq 100); do [ $(df --output=avail -k . | tail -n 1) -gt 8000 ] && break; sleep 0.1; done
seq 30000 > again; cmp kept again && echo room again; ends cp $WORK/t.tar t; cmp t $WORK/t.tar; rm t again
sqlite3 s.db 'PRAGMA journal_mode=wal; CREATE TABLE t(b); INSERT INTO t VALUES(randomblob(1000))'; for i in 1 2 3 4 5 6 7 8; do sqlite3 s.db "INSERT INTO t SELECT randomblob(100000) FROM generate_series(1, 200)" 2> /dev/null || echo fails; done | sort -u; rm -f kept d/small; sync .; sleep 0.2; sqlite3 s.db 'PRAGMA integrity_check; SELECT (count(*) - 1) % 200 FROM t'; rm -rf s.db* g; ls -A
END
openssl rand 120000000 > $WORK/large 2> /dev/null || head -c 120000000 /dev/urandom > $WORK/large; head -c 1000000 $WORK/large > $WORK/small; tar -cf $WORK/t.tar -C $WORK small
echo a quota; bash $WORK/full.sh $QUOTA; echo a pool; bash $WORK/full.sh $FULL
"#;

const AWAY: &str = r#"
### [away] a writer goes on
cat > $WORK/writer.py <<'END'
import os, time, errno, sys
root, work = os.environ['ROOT'], os.environ['WORK']
promised, errors = [], set()
os.mkdir(root + '/log'); here = os.open(root + '/log', os.O_RDONLY)
def write(number):
    fd = os.open(root + '/log/lines', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try: os.write(fd, b'%d\n' % number); os.fsync(fd)
    finally: os.close(fd)
    promised.append(number)
for number in range(200): write(number)
unsynced = open(root + '/log/unsynced', 'w'); unsynced.write('x' * 100000); unsynced.flush()
import mmap
m = os.open(root + '/log/mapped', os.O_RDWR | os.O_CREAT); os.ftruncate(m, 65536); memory = mmap.mmap(m, 65536); memory[:6] = b'mapped'
open(work + '/ready', 'w')
limit = time.time() + 40; number = 200
while not os.path.exists(work + '/back') and time.time() < limit:
    try:
        if os.path.isdir(root + '/log'): write(number)
    except OSError as error: errors.add(error.errno)
    number += 1; time.sleep(0.01)
for number in range(number, number + 100): write(number)
lines = [int(line) for line in open(root + '/log/lines')]
print('all that was promised is there:', set(promised) <= set(lines), 'in order:', lines == sorted(lines))
print('not synced, kept:', os.path.getsize(root + '/log/unsynced'), 'mapped, kept:', open(root + '/log/mapped', 'rb').read(6))
strange = errors - {errno.ENOTCONN, errno.EIO, errno.ENOENT, errno.ECONNABORTED, errno.ENODEV, errno.EINTR}
print('strange errors:', [errno.errorcode[number] for number in strange])
os.unlink(root + '/log/lines')
END
python3 $WORK/writer.py; rm -f $WORK/ready $WORK/back $WORK/away
### [away] programs that are tried again
cd $WORK; cp -r /etc/apt /etc/default src 2>/dev/null || mkdir -p src; seq 50000 > src/numbers; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; git -c init.defaultBranch=m init -q $ROOT/r; sqlite3 $ROOT/db 'PRAGMA journal_mode=wal; CREATE TABLE t(n)'; : > promised; : > committed; touch ready
for n in $(seq 400); do { timeout 20 sqlite3 $ROOT/db "INSERT INTO t VALUES($n)" && echo $n >> promised; timeout 20 rsync -a src/ $ROOT/copy; rm -f $ROOT/r/.git/*.lock; echo $n > $ROOT/r/f$n && timeout 20 git -C $ROOT/r add f$n && timeout 20 git -C $ROOT/r commit -qm $n && echo $n >> committed; timeout 20 tar -C src -cf - . | tar -C $ROOT -xf - --one-top-level=untarred; } > said 2>&1; [ -e back ] && [ $(wc -l < committed) -gt 20 ] && break; done
rsync -a --delete src/ $ROOT/copy; diff -r src $ROOT/copy && echo copied; tar -C src -cf - . | tar -C $ROOT -xf - --one-top-level=untarred; diff -r src $ROOT/untarred && echo untarred; sqlite3 $ROOT/db 'PRAGMA integrity_check'; sqlite3 $ROOT/db 'SELECT DISTINCT n FROM t' | sort > stored; sort promised | comm -13 stored - | wc -l; rm -f $ROOT/r/.git/*.lock; git -C $ROOT/r fsck --full 2>&1 | grep -v dangling; git -C $ROOT/r ls-tree --name-only HEAD | sed s/f// | sort > stored; sort committed | comm -13 stored - | wc -l; rm -rf $ROOT/* ready back away
### [away] programs that read and walk
mkdir t; for i in $(seq 300); do echo $i > t/$i; done; touch $WORK/ready; for round in $(seq 100); do timeout 20 find t -type f 2>/dev/null | xargs -r cat > /dev/null 2>&1; [ -e $WORK/back ] && break; done; cd $ROOT; cat t/* | sort -n | sha256sum; rm -f $WORK/ready $WORK/back $WORK/away
### afterwards
ls -A; ls t | wc -l; touch works; rm works
"#;

const RESTARTED: &str = r#"
### before
listing tree > $WORK/listed; find tree -printf '%p %i\n' | LC_ALL=C sort > $WORK/inodes; rsync -a tree/ synced; make -v > /dev/null; echo x > a; (echo x > unsynced); mkfifo f; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("s")'; chmod 6755 a; ln a b; for i in 1 2 3; do mkdir -p x/$i; mv x/$i y$i; done; seq 100000 > big; truncate -s 5000 big; sha256sum < big
#restart
### after
listing tree > $WORK/now; diff $WORK/listed $WORK/now && echo the same; find tree -printf '%p %i\n' | LC_ALL=C sort | diff - $WORK/inodes && echo the same inodes; rsync -ai tree/ synced; cat unsynced; stat -c '%n %F %a %h %s' a b f s big; stat -c '%n %F %a %h' y1; sha256sum < big; ls -A
#restart
### after once more
echo more >> unsynced; cat unsynced; listing tree | diff - $WORK/listed && echo the same; rm -r tree; ls -A
"#;
