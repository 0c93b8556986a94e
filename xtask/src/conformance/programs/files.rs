//! Programs for files and folders: those of coreutils, findutils and diffutils.

use super::Program;

pub const PROGRAMS: &[Program] = &[
    Program::new("listing", &[], LISTING).with_tree().quick(),
    Program::new("making", &[], MAKING).quick(),
    Program::new("removing", &[], REMOVING).with_tree().quick(),
    Program::new("writing", &[], WRITING).quick(),
    Program::new("room-in-files", &[("fallocate", "util-linux")], ROOM).quick(),
    Program::new("copying", &[], COPYING).with_tree().quick(),
    Program::new("moving", &[], MOVING).with_tree().quick(),
    Program::new("comparing", &[("diff", "diffutils")], COMPARING)
        .with_tree()
        .quick(),
    Program::new(
        "other-users",
        &[("setpriv", "util-linux"), ("python3", "python3")],
        USERS,
    )
    .quick(),
    Program::new("names", &[("python3", "python3")], NAMES).quick(),
    Program::new("times", &[("python3", "python3")], TIMES).quick(),
];

const LISTING: &str = r#"
### ls
cd tree
try ls
try ls -1aR
try ls -pF
try ls -l rand-1 text-1 text-13 link-short fifo chardev blockdev
ls -lan --time-style=full-iso few/ | grep -v -E '^(total|d)'
try ls -lS --time-style=+%s rand-*
try ls -t | head -5
try ls -X --group-directories-first
try ls nothing
try ls text-1/
### stat
cd tree
find . -print0 | LC_ALL=C sort -z | xargs -0 stat -c '%N %A %a %u:%g %h %F %t:%T %y'
find . ! -type d -print0 | LC_ALL=C sort -z | xargs -0 stat -c '%N %s'
try stat -L -c '%F %s' link-short
try stat -L link-long
try stat nothing
stat -f -c 'longest name %l' .
### find
cd tree
ordered() { printf '$ find %s\n' "$*"; find "$@" | LC_ALL=C sort; }
ordered . -type l
ordered . -perm /4000
ordered . -perm -2000
ordered . -links +1
ordered . -empty
ordered . -type f -size +100k
ordered . -newermt 2100-01-01
ordered . -user 12345 -o -uid 1000 -o -gid 2000
ordered . -nouser -nogroup
ordered . -samefile text-1000
find . -inum $(stat -c %i text-1000) | LC_ALL=C sort
ordered . -type d -links 2
ordered . -lname 'rand*'
ordered . -xdev -mindepth 12
ordered . -maxdepth 1 -name '*ü*'
ordered . -regex '.*/f[0-3]'
ordered -L . -type l
### du and df
try du --inodes -s tree
du -b --max-depth=0 tree/rand-* tree/text-* tree/sparse tree/hole-only
du -bl tree/hard-1 tree/few/hard-2
du -b tree/hard-1 tree/few/hard-2
[ $(du -k tree/sparse | cut -f1) -lt 4000 ] && echo "holes take no room"
df --output=target . | tail -n 1 | sed "s,$ROOT,the root,"
df --output=target tree/text-1 | tail -n 1 | sed "s,$ROOT,the root,"
try df nothing
mountpoint . ; mountpoint tree
### trees
cd tree
shopt -s globstar dotglob; printf '%s\n' **/ | head -30
echo rand-*
realpath --relative-to=. few/../text-1 link-short
readlink -f link-short | sed "s,$ROOT,,"; readlink link-short; readlink -e link-long
pwd -P | sed "s,$ROOT,,"
"#;

const MAKING: &str = r#"
### mkdir
try mkdir a; try mkdir a; try mkdir -p a/b/c a/b; try mkdir x/y; try mkdir -m 1777 sticky; try mkdir -m u=rx,g=,o= closed
touch file; try mkdir file/below; try mkdir -p file/below
try mkdir ''; try mkdir .; try mkdir ..
try mkdir "$(printf 'n%.0s' {1..255})"; try mkdir "$(printf 'n%.0s' {1..256})"
### touch
try touch new; try touch new/; try touch missing/new; try touch -c absent
touch -d '2000-02-29 12:00:00.000000001' dated; stat -c '%y' dated
touch -a -d 1999-01-01 dated; stat -c '%x %y' dated
touch -r dated referred; stat -c '%x %y' referred
touch -d '1901-12-13 20:45:53' old; touch -d '1969-12-31 23:59:59.5' before; touch -d '2446-05-10' late; stat -c '%n %y' old before late
touch -h -d 2010-10-10 dangling; ln -s nowhere dangling; touch -h -d 2010-10-10 dangling; stat -c '%y' dangling
### ln
echo one > one
try ln one two; try ln one two; try ln -f one two; try ln a hard; try ln missing hard; try ln -s one soft; try ln -s other soft; try ln -sf other soft
try ln -sn a folder; try ln -sfn one folder; try ln -sr a/b/c/deep near; readlink near; try ln -L soft through; try ln -P dangling hard-soft
try ln -s "$(printf 'n%.0s' {1..4095})" long; try ln -s "$(printf 'n%.0s' {1..4096})" longer; try ln -s '' empty
stat -c '%n %h %F %s' one two soft hard-soft long
try ln one $OTHER/one
cp -s $ROOT/one softly; readlink softly | sed "s,$ROOT,,"
ln -s loop loop; try cat loop; try touch loop
### install
try install -D -m 640 -o 7 -g 8 one deep/down/installed; try install -d -m 2750 -o 3 made; try install -b -S .old one two; try install -C one deep/down/installed
try install -t made one two; try install missing made; cp /bin/true program; try install -s -m 755 program stripped; ./stripped; echo $?
stat -c '%n %a %u:%g %s' deep/down/installed made/* two two.old; stat -c '%n %a %u:%g' made
### nodes
try mkfifo pipe; try mkfifo -m 600 pipe2; try mknod null c 1 3; try mknod block b 7 200; try mknod p p; try mknod null c 1 3
stat -c '%n %F %a %t %T' pipe pipe2 null block p
echo gone > null; (echo through > pipe &); cat pipe
python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind("socket"); s.listen(); c = socket.socket(socket.AF_UNIX); c.connect("socket"); print("connected")'
stat -c '%F' socket
python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind("socket")' 2>&1 | tail -n 1
### modes
touch m; for mode in 0 7777 u+s,g+s g-s o=t a=rX -t,u-s +x u=g go-w; do chmod -v $mode m; done
try chmod -R a+rX,g-s a; try chmod 600 missing; try chmod +x dangling; try chown -v 4294967294:65536 m; try chown -h 5:6 soft; stat -c '%u:%g' soft one
chmod 4755 m; chown 1:1 m; stat -c '%a after a change of owner' m
chmod 2645 m; chgrp 2 m; stat -c '%a of what is not for groups' m
try chgrp --reference=one m; try chmod --reference=one m; stat -c '%a %u:%g' m
### temporary
d=$(mktemp -d -p . made.XXXX); stat -c '%a' $d; f=$(mktemp -p .); stat -c '%a %s' $f; rm -r $f $d
"#;

const REMOVING: &str = r#"
### rm
cp -a tree t; cd t
try rm few; try rm -r few; try rm missing; try rm -f missing; try rm -d many; try rm link-short; ls rand-513
try rm -r .; try rm -r ..; try unlink text-1; try unlink deep; try unlink missing
rm -v text-100 rand-1
try rmdir deep; find deep -depth -mindepth 3 -type d | xargs rmdir; try rmdir -p deep/*/*; try rmdir --ignore-fail-on-non-empty many; try rmdir many
rm -rf many & rm -rf many; wait; ls -d many
stat -c '%h' .
### open files
exec 5<> t/held; echo contents >&5; rm t/held; cat /proc/self/fd/5; echo more >&5; stat -L -c '%h %s' /proc/self/fd/5; ls t/held
cd t; mkdir leaving; cd leaving; rmdir ../leaving; try touch x; ls > $WORK/said 2>&1; echo "its list: $? $(wc -c < $WORK/said)"; try mkdir y; stat -c '%h %F' .; try cd ..
### find -delete
cd t; find . -name '*ünïcode*' -prune -o -type f -print | wc -l; find . -type f -size -1k -delete; find . -depth -type d -empty -delete; find . | LC_ALL=C sort
### while listing
mkdir crowd; (cd crowd; seq -f 'file-%05g' 2500 | xargs touch); find crowd -type f | wc -l
python3 - <<'END'
import os
seen = set()
for entry in os.scandir('crowd'):
    assert entry.name not in seen, entry.name
    seen.add(entry.name)
    os.unlink('crowd/' + entry.name)
print(len(seen), len(os.listdir('crowd')))
END
seq -f 'crowd/file-%05g' 3000 | xargs touch
python3 - <<'END'
import os
old, met = set(os.listdir('crowd')), []
for number, entry in enumerate(os.scandir('crowd')):
    met.append(entry.name)
    if number % 3 == 0:
        open('crowd/new-%d' % number, 'w')
    if number % 5 == 0:
        os.rename('crowd/' + entry.name, 'crowd/other-%d' % number)
print(old <= set(met), len([name for name in met if name in old]) == len(old), len(met) == len(set(met)))
END
rm -r crowd; ls
"#;

const WRITING: &str = r#"
### dd
head -c 1000000 /dev/zero | openssl enc -aes-128-ctr -K 0 -iv 0 2>/dev/null > source || yes 'some text that goes on' | head -c 1000000 > source
try dd status=none if=source of=a bs=4k; cmp source a
try dd status=none if=source of=a bs=777 conv=notrunc seek=3; sum a
try dd status=none if=source of=a bs=1 count=10 seek=2000000; stat -c %s a; sum a
try dd status=none if=source of=b bs=64k oflag=append conv=notrunc; try dd status=none if=source of=b bs=100 count=3 oflag=append conv=notrunc; stat -c %s b
try dd status=none if=source of=c bs=4k oflag=direct conv=fsync count=100; sum c
try dd status=none if=c of=d bs=8k iflag=direct oflag=direct; cmp c d
try dd status=none if=source of=e oflag=sync bs=100k; try dd status=none if=source of=f oflag=dsync bs=100k count=1; try dd status=none if=source of=g conv=excl bs=1k count=1; try dd status=none of=g conv=excl bs=1k count=1 if=source; try dd status=none if=source of=absent conv=nocreat
try dd status=none if=source of=sparse conv=sparse bs=4k; cmp source sparse
try dd status=none if=/dev/zero of=zeros conv=sparse bs=128k count=16; stat -c '%s' zeros; cmp zeros /dev/zero
try dd status=none if=. of=x; try dd status=none of=. if=source; try dd status=none if=source iflag=nofollow of=y count=1; ln -s source soft; try dd status=none if=soft iflag=nofollow of=y count=1; try dd status=none if=source iflag=directory of=y
### sizes
try truncate -s 10 t; try truncate -s +5 t; try truncate -s %4096 t; try truncate -s -100 t; try truncate -s '<100' t; try truncate -s 0 t; try truncate -s 3M t; stat -c %s t; try truncate -s 1 .; try truncate -c -s 1 missing; ls missing
echo end >> t; tail -c 4 t; stat -c %s t
try truncate -s 1T huge; stat -c %s huge; echo x | dd status=none of=huge bs=1 seek=900G conv=notrunc; tail -c +$((900*1024*1024*1024+1)) huge | head -c 1; try truncate -s 100 huge
truncate -s 100 grown; printf 'abc' | dd status=none of=grown bs=1 seek=50 conv=notrunc; truncate -s 52 grown; truncate -s 100 grown; od -c grown
### pipes and copies
split -b 100000 -d source part.; ls part.*; cat part.* | cmp - source
csplit -s -n 3 <(seq 1000) '/00$/' '{*}' ; ls xx* | wc -l; cat xx* | wc -l
seq 5 | tee -a t1 t1 | tee t2 | sort -r -o t2; cat t1 t2
sort -n -o t2 t2; cat t2; shuf -i 1-1000 --random-source=source | sort -n > sorted; seq 1000 | cmp - sorted
touch follow followed; tail -n +1 -f follow >> followed & tail=$!; for i in 1 2 3; do echo line $i >> follow; done; await grep -q 'line 3' followed; kill $tail; cat followed
tac t1 > t3; paste t1 t3 | head -2; cat t1 >> t1; cat < t1 > t1; wc -c t1
sed -i 's/1/one/' t2; sed -i.bak -e '2d' t2; cat t2 t2.bak; stat -c '%n %a' t2; chmod 600 t2; sed -i 's/5/five/' t2; stat -c '%a' t2
perl -pi.orig -e 's/five/5/' t2; cat t2; awk 'NR % 100 == 0 { print > "hundreds" }' sorted; wc -l hundreds
echo locked > noclobber; set -C; echo again > noclobber; echo "=> $?"; set +C; exec 7>>appended; echo a >&7; echo b >> appended; echo c >&7; cat appended
### durable
try sync source; try sync -d source; try sync -f source; try sync missing; try sync .
try shred -u -n 1 part.00; ls part.00
python3 - <<'END'
import os, mmap
fd = os.open('mapped', os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 100_000)
m = mmap.mmap(fd, 100_000)
m[5:10] = b'hello'; m[99_995:] = b'world'
print(os.pread(fd, 5, 5), os.pread(fd, 10, 99_995))
os.pwrite(fd, b'beneath', 50_000); print(m[50_000:50_007])
m.flush(); os.ftruncate(fd, 60_000); os.ftruncate(fd, 100_000); print(m[99_995:] == bytes(5), m[50_000:50_007])
m.close(); os.close(fd)
fd = os.open('vectors', os.O_RDWR | os.O_CREAT)
print(os.pwritev(fd, [b'one', b'two', b'', b'three'], 2), os.preadv(fd, [bytearray(4), bytearray(100)], 0))
for flags in (os.RWF_DSYNC, os.RWF_SYNC, os.RWF_APPEND):
    print(os.pwritev(fd, [b'more'], 0, flags), os.fstat(fd).st_size)
print(os.lseek(fd, 0, os.SEEK_END), os.lseek(fd, 3, os.SEEK_DATA) == 3)
for call in (lambda: os.pread(fd, 1, 1 << 62), lambda: os.lseek(fd, 1000, os.SEEK_DATA), lambda: os.lseek(fd, 1000, os.SEEK_HOLE), lambda: os.pwrite(fd, b'x', -1), lambda: os.ftruncate(fd, -1)):
    try: print(call())
    except OSError as error: print(error)
END
"#;

const ROOM: &str = r#"
### fallocate
how() { stat -c '%n %s' $1; sha256sum < $1; }
seq 200000 > data; try fallocate -l 5M kept; how kept; try fallocate -n -l 8M kept; how kept; try fallocate -o 4M -l 2M kept; how kept
try fallocate -p -o 100k -l 300k data; how data; try fallocate -z -o 500000 -l 4097 data; how data; try fallocate -z -n -o 2M -l 4096 data; how data
try fallocate -z -o 1999999 -l 100000 data; how data; try fallocate -p -o 10M -l 1M data; how data; try fallocate -d data; how data
try fallocate -l 0 data; try fallocate -l 1M .; try fallocate -l 1M /dev/null; try fallocate -x -l 3M posix; how posix
### shifting
try fallocate -c -o 131072 -l 131072 data; try fallocate -i -o 131072 -l 131072 data; how() { stat -c '%n %s' $1; sha256sum < $1; }; how data
### what was given up reads as nothing
yes x | head -c 1000000 > f; fallocate -p -o 1000 -l 500000 f; tr -d '\0' < f | wc -c; fallocate -z -o 600000 -l 1000 f; tr -d '\0' < f | wc -c
python3 - <<'END'
import os
fd = os.open('holes', os.O_RDWR | os.O_CREAT)
M = 1 << 20
os.pwrite(fd, b'a' * M, 0); os.pwrite(fd, b'b' * M, 3 * M); os.ftruncate(fd, 6 * M); os.close(fd); os.sync(); fd = os.open('holes', os.O_RDONLY)
def walk():
    at, found = 0, []
    while True:
        try: data = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error: return found + [error.strerror]
        at = os.lseek(fd, data, os.SEEK_HOLE)
        found.append((data, at))
print(walk())
fd = os.open('holes', os.O_RDWR); os.posix_fallocate(fd, 7 * M, M); print(os.fstat(fd).st_size)
END
"#;

const COPYING: &str = r#"
### cp -a
try cp -a tree copy; same tree copy
try cp -a tree/. $OTHER/into; same tree $OTHER/into
cp -a copy copy; ls copy/copy | wc -l; rm -r copy/copy; mkdir e; try cp e e/f
### cp and its options
cd tree; try cp text-1 text-7; try cp text-1 missing/x; try cp few x; try cp -r few x; try cp -n text-100 text-7; cat text-7; try cp -b text-100 text-7; ls text-7*; try cp --backup=numbered text-100 text-7; ls text-7*
try cp -l text-100 linked; stat -c %h linked; try cp -s text-100 soft; readlink soft; try cp -L link-short followed; stat -c '%F %s' followed; try cp -P link-short kept; readlink kept; try cp link-long broken; try cp -P link-long ok; try cp -u text-13 text-7; try cp --parents few/f3 x; find x | LC_ALL=C sort
try cp -p rand-1 rand-13 x; stat -c '%n %a %u:%g %y' x/rand-1 x/rand-13; try cp rand-1 x/plain; stat -c '%a %u:%g' x/plain
try cp --preserve=xattr rand-512 x/with; getfattr -d -m user.small -e hex x/with | tail -n +2; try cp --no-preserve=mode rand-1 x/modeless; stat -c %a x/modeless
try cp --remove-destination text-100 linked; stat -c %h linked; try cp text-1 text-1; try cp text-1 text-100 few/f1; try cp -T text-1 few; try cp -t few text-1; try cp --attributes-only text-1000 few/f8; stat -c %s few/f8
try cp fifo fifo2 & cpid=$!; sleep 0.1; echo through > fifo; wait $cpid; cat fifo2
try cp -R fifo fifo3; stat -c %F fifo3
### clones and holes
try cp --reflink=auto tree/rand-100000 clone; cmp tree/rand-100000 clone; try cp --sparse=always tree/sparse s1; cmp tree/sparse s1; try cp --sparse=never tree/sparse s2; cmp tree/sparse s2; try cp --sparse=auto tree/hole-only s3; cmp tree/hole-only s3; stat -c %s s1 s2 s3
try cp --reflink=always tree/rand-100000 clone2; ls -s clone2 | sed 's/^[0-9]* //'
### copy_file_range
python3 - <<'END'
import os
a = os.open('tree/rand-131071', os.O_RDONLY); b = os.open('ranged', os.O_RDWR | os.O_CREAT)
whole = os.pread(a, 1 << 20, 0)
def copy(count, at, to):
    done = 0
    while done < count:
        n = os.copy_file_range(a, b, count - done, at + done, to + done)
        if n == 0: break
        done += n
    return done
print(copy(131071, 0, 0), os.pread(b, 1 << 20, 0) == whole, copy(5000, 1, 131071) , copy(100, 131068, 0), copy(10, 1 << 30, 0))
print(os.pread(b, 3, 0) == whole[131068:131071])
c = os.open('ranged', os.O_RDWR)
for count, at, to in ((100, 0, 50), (100, 0, 100), (0, 0, 0)):
    try: print(os.copy_file_range(c, c, count, at, to))
    except OSError as error: print(error)
other = os.open(os.environ['OTHER'] + '/ranged', os.O_RDWR | os.O_CREAT)
try: print('across file systems:', os.copy_file_range(a, other, 1000, 0, 0) == 1000)
except OSError as error: print('across file systems:', error)
os.lseek(a, 0, 0); print(os.sendfile(other, a, 0, 131071), os.fstat(other).st_size)
END
sha256sum ranged $OTHER/ranged | cut -c1-64
"#;

const MOVING: &str = r#"
### mv
cd tree; try mv text-1 moved; try mv moved few; try mv missing x; try mv few few; try mv few few/f1; try mv few few/inside; try mv text-1000 text-1000; try mv hard-1 text-1000; ls hard-1 text-1000
try mv -n text-100 text-112; ls text-100; try mv -b text-100 text-112; ls text-112*; try mv -u text-113 text-112; try mv -T few many; try mv -T many fresh; try mv -t fresh text-511 text-512; ls fresh | wc -l
mkdir e1 e2; try mv -T e1 e2; ls -d e1 e2; try mv link-short few; readlink few/link-short; try mv "$(printf 'n%.0s' {1..255})" short; try mv short "$(printf 'm%.0s' {1..256})"; mv short long; try mv deep/d* .; find . -maxdepth 1 | LC_ALL=C sort
### directories keep their links
mkdir -p p/a/b q; mv p/a q; stat -c '%n %h' p q q/a; ls q/a/..
cd q/a/b; mv ../../../q/a ../../../p/; cd ..; try ls; pwd -P | sed "s,$ROOT,,"
### over an open file
echo old > o; exec 5< o; echo new > n; mv n o; cat <&5; cat o; stat -L -c %h /proc/self/fd/5
### across file systems
cp -a tree whole; try mv whole $OTHER/; ls -d whole; listing $OTHER/whole > $WORK/moved; listing tree > $WORK/stayed; diff $WORK/stayed $WORK/moved && echo the same
try mv $OTHER/whole back; same tree back; ls $OTHER
ln tree/text-1000 third; try mv third $OTHER; stat -c %h tree/text-1000 $OTHER/third; mkdir $OTHER/d; touch $OTHER/d/f; try mv -T tree/few $OTHER/d
try mv tree/fifo tree/chardev $OTHER; stat -c '%n %F' $OTHER/fifo $OTHER/chardev | sed "s,$OTHER,,"
### exchanging
python3 - <<'END'
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def rename(a, b, flags):
    code = libc.renameat2(-100, a.encode(), -100, b.encode(), flags)
    return 'done' if code == 0 else os.strerror(ctypes.get_errno())
os.mkdir('d'); open('d/in', 'w').write('in'); open('f', 'w').write('f')
print(rename('d', 'f', 2), sorted(os.listdir('f')), open('d').read())
print(rename('d', 'f', 1), rename('d', 'fresh', 1), rename('fresh', 'd', 3), rename('gone', 'd', 2), rename('f', 'f/x', 2))
END
"#;

const COMPARING: &str = r#"
### cmp and diff
cp -a tree other; cd tree; sed -i 's/a/b/' ../other/text-1000; printf x | dd status=none of=../other/rand-20000 bs=1 seek=299 conv=notrunc; rm ../other/text-1; mkdir ../other/added; ln -sfn text-2 ../other/link-short
try cmp text-511 ../other/text-511; try cmp rand-511 text-511; try cmp -l -n 3 rand-511 text-511; try cmp text-100 text-112; try cmp missing text-1; try cmp few text-1
try cmp text-1000 few/hard-2; try cmp text-1000 ../other/hard-1
diff -rq --no-dereference -x chardev -x blockdev . ../other | LC_ALL=C sort
printf 'a\nb\n' > l1; printf 'a\nc\n' > l2; try diff l1 l2; try diff -u --label a --label b l1 l2; try diff -y -W 20 l1 l2; try comm l1 l2; try diff l1 .; try diff3 l1 l2 l1
try sha256sum text-1* > $WORK/sums; sha256sum --quiet -c $WORK/sums; cd ../other; sha256sum --quiet -c $WORK/sums
"#;

const USERS: &str = r#"
### permissions
mkdir -m 755 mine; echo secret > mine/s; chmod 600 mine/s; echo open > mine/o; mkdir -m 1777 shared; mkdir -m 2777 grouped; chgrp 4242 grouped; mkdir -m 733 dropbox; mkdir -m 744 seen
echo x > seen/f; as_user bash -c 'cd "$0"
try() { printf "$ %s\n" "$*"; "$@"; echo "=> $?"; }
try cat mine/s; try cat mine/o; try touch mine/new; try rm -f mine/o; try touch shared/user; try mkdir grouped/d; try touch grouped/f; try touch dropbox/f; try ls dropbox; try ls seen; try cat seen/f; try chmod 777 mine; try chown 12345 mine/o; try mv mine/o shared/o; try ln mine/o shared/ln; try ln -s x mine/soft; try touch mine/o; try touch -d 2000-01-01 mine/o
chmod 2755 grouped/f; stat -c "%a" grouped/f; try chgrp 0 shared/user; try mknod shared/dev c 1 3; try mkfifo shared/fifo; try setfattr -n user.x -v y mine/o; try setfattr -n trusted.x -v y shared/user; try truncate -s 0 mine/o' $ROOT
stat -c '%n %a %u:%g' grouped grouped/* shared/* dropbox/*
### sticky
echo r > shared/root; as_user rm -f shared/root; as_user mv shared/root shared/mine; as_user mv shared/user shared/root; setpriv --reuid=777 --clear-groups rm -f shared/user; setpriv --reuid=777 --clear-groups mv shared/user shared/taken; ls shared
### what writing takes away
for mode in 6755 2755 2745 4711; do install -m 666 /dev/null w; chown 12345:12345 w; chmod $mode w; chmod o+w w; setpriv --reuid=777 --regid=777 --clear-groups bash -c 'echo x >> w'; stat -c '%a written' w; chmod $mode w; chmod o+w w; setpriv --reuid=777 --regid=777 --clear-groups truncate -s 0 w; stat -c '%a truncated' w; chmod $mode w; echo x >> w; stat -c '%a written by root' w; chmod $mode w; as_user chmod g+w w; stat -c '%a by its owner' w; as_user chown :12345 w; stat -c '%a owned' w; for who in as_user ''; do chmod $mode w; $who python3 -c 'import os; os.chown("w", -1, -1)'; stat -c '%a given to nobody else' w; done; rm w; done
setpriv --reuid=12345 --regid=12345 --clear-groups bash -c 'cd grouped; touch inherits; chmod g+s inherits; stat -c "%a %g" inherits; mkdir -m 700 sub; stat -c "%a %g" sub'
### programs
cp /bin/true t; chmod 711 t; as_user ./t; echo $?; chmod 600 t; as_user ./t; echo $?; printf '#!/bin/sh\necho script\n' > s; chmod 755 s; as_user ./s; (exec 5>>s; ./s); sh -c 'exec 6>>t; chmod 755 t; ./t'; cp /bin/sleep z; ./z 5 & sleep 0.2; echo x > z; echo $?; kill $!
as_user test -r t && echo r; as_user test -w t && echo w; as_user test -x t && echo x
### groups
mkdir -m 770 team; chgrp 555 team; setpriv --reuid=777 --regid=777 --groups=555 touch team/f; stat -c '%u:%g' team/f; setpriv --reuid=777 --regid=777 --clear-groups touch team/g; setpriv --reuid=777 --regid=777 --groups=556,557,558,559,560,561,562,563,564,565,566,567,568,569,570,571,572,573,574,575,576,577,578,579,580,555 touch team/h; ls team
setpriv --reuid=777 --regid=777 --clear-groups --inh-caps=-all --bounding-set=-all ls team
umask 077; touch u; mkdir v; stat -c %a u v; umask 0; touch w2; mkdir x2; stat -c %a w2 x2
"#;

const NAMES: &str = r#"
### any bytes
python3 - <<'END'
import os
names = [bytes([byte]) for byte in range(1, 256) if byte not in (0x2f, 0x2e)]
names += [b'--', b'-rf', b'  lead', b'trail ', b'a\nb', b'...', b'.hidden', b'\xff\xfe', b'x' * 255, '\u00e9'.encode(), 'e\u0301'.encode(), 'K\u212a'.encode(), b'CON', b'a:b', b'.zfs ', b'lost+found']
os.mkdir('n')
for number, name in enumerate(names):
    with open(b'n/' + name, 'xb') as file: file.write(b'%d' % number)
print(sorted(os.listdir(b'n')) == sorted(set(names)), len(set(names)))
for number, name in enumerate(names):
    assert open(b'n/' + name, 'rb').read() == b'%d' % number, name
for name in (b'x' * 256, b'a\0b', b'', b'a/b', b'.', b'..', b'a' + b'/' * 10 + b'b', '\u00e9'.encode() * 128):
    try: open(b'n/' + name, 'xb'); print(name, 'made')
    except (OSError, ValueError) as error: print(type(error).__name__, getattr(error, 'errno', error))
print(os.path.exists('n/X' * 1), os.path.exists('n/A'), os.path.exists('n/a'))
END
### long paths
python3 - <<'END'
import os
top = os.getcwd(); os.mkdir('p'); os.chdir('p')
for depth in range(40):
    os.mkdir('d' * 200); os.chdir('d' * 200)
open('leaf', 'w').write('x')
try: print(len(os.getcwd()))
except OSError as error: print(error)
print(os.listdir('.'), os.stat('..').st_ino != os.stat('.').st_ino)
os.chdir(top)
try: os.stat('p/' + '/'.join(['d' * 200] * 40))
except OSError as error: print(error.strerror)
END
try find p -type f | wc -c; try rm -r p; ls
### many in one folder
mkdir big; (cd big; seq -f 'a-rather-long-name-for-a-file-%06g' 20000 | xargs touch); ls big | wc -l; ls -f big | sort | uniq -d; ls big | sha256sum; rm big/*9; ls big | wc -l; stat -c %h big; (cd big; seq -f 'dir-%g' 500 | xargs mkdir); stat -c %h big; rm -r big
### identity
python3 - <<'END'
import os
os.makedirs('i/a/b'); open('i/f', 'w'); os.link('i/f', 'i/a/g'); os.symlink('f', 'i/s')
for folder in ('i', 'i/a', 'i/a/b'):
    for entry in os.scandir(folder):
        assert entry.inode() == os.lstat(entry.path).st_ino, entry.path
print(os.stat('i/a/..').st_ino == os.stat('i').st_ino, os.path.samefile('i/f', 'i/a/g'))
before = os.stat('i/f').st_ino
os.rename('i/f', 'i/renamed'); print(os.stat('i/renamed').st_ino == before)
held = os.open('i/renamed', os.O_RDONLY); os.unlink('i/renamed'); os.unlink('i/a/g')
numbers = set()
for number in range(300):
    open('i/x', 'w'); numbers.add(os.stat('i/x').st_ino); os.unlink('i/x')
print(before in numbers, os.fstat(held).st_ino == before, os.fstat(held).st_nlink)
END
"#;

const TIMES: &str = r#"
### which operations change which times
python3 - <<'END'
import os, time
def times(path): s = os.lstat(path); return (s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns)
os.mkdir('d'); open('d/f', 'w').write('x' * 10000); os.mkdir('d/sub'); os.symlink('f', 'd/s')
def changed(what, act, *paths):
    for path in paths: os.utime(path, ns=(1_500_000_000_000_000_000, 1_400_000_000_000_000_000), follow_symlinks=False)
    time.sleep(0.02)
    before = {path: times(path) for path in paths}
    act()
    print(what, {path: ''.join(name for name, a, b in zip('amc', before[path], times(path)) if a != b) for path in paths if os.path.lexists(path)})
f, d = 'd/f', 'd'
changed('read', lambda: open(f).read(), f, d)
changed('read again', lambda: open(f).read(), d)
changed('list', lambda: os.listdir(d), d)
changed('readlink', lambda: os.readlink('d/s'), 'd/s')
changed('write', lambda: open(f, 'r+').write('y'), f, d)
changed('write nothing', lambda: os.write(os.open(f, os.O_WRONLY), b''), f)
changed('open to truncate', lambda: open(f, 'w').close(), f, d)
changed('truncate to the same size', lambda: os.truncate(f, 0), f)
changed('truncate', lambda: os.truncate(f, 100), f)
changed('chmod', lambda: os.chmod(f, 0o600), f, d)
changed('chmod to the same', lambda: os.chmod(f, 0o600), f)
changed('chown to nothing', lambda: os.chown(f, -1, -1), f)
changed('chown', lambda: os.chown(f, 1, 1), f)
changed('link', lambda: os.link(f, 'd/l'), f, d)
changed('unlink', lambda: os.unlink('d/l'), f, d)
changed('create', lambda: open('d/new', 'x').close(), d)
changed('rename within', lambda: os.rename('d/new', 'd/newer'), 'd/new', d)
changed('rename across', lambda: os.rename('d/newer', 'd/sub/n'), d, 'd/sub')
changed('rename a folder', lambda: os.rename('d/sub', 'moved'), d, '.')
changed('mkdir', lambda: os.mkdir('d/m'), d)
changed('rmdir', lambda: os.rmdir('d/m'), d)
changed('xattr', lambda: os.setxattr(f, 'user.a', b'b'), f)
changed('symlink', lambda: os.symlink('x', 'd/t'), d)
changed('mknod', lambda: os.mkfifo('d/p'), d)
changed('utime', lambda: os.utime(f, ns=(5, 5)), f)
changed('fallocate', lambda: os.posix_fallocate(os.open(f, os.O_RDWR), 0, 100_000), f)
changed('rename over', lambda: os.rename(f, 'd/t'), d)
END
### values
python3 - <<'END'
import os
open('v', 'w')
for ns in (0, 1, -1, 999_999_999, 1_000_000_000, 2**31 * 10**9, -(2**31) * 10**9, 15_032_385_535 * 10**9 - 1):
    os.utime('v', ns=(ns, ns)); s = os.stat('v'); print(ns, s.st_atime_ns == ns, s.st_mtime_ns == ns)
END
### relatime
echo x > r; touch -a -d '3 days ago' r; a=$(stat -c %X r); cat r > /dev/null; [ $(stat -c %X r) != $a ] && echo updated; a=$(stat -c %x r); cat r > /dev/null; [ "$(stat -c %x r)" = "$a" ] && echo kept
python3 -c 'import os; os.utime("r", (1, 1)); fd = os.open("r", os.O_RDONLY | os.O_NOATIME); os.read(fd, 1); print(os.stat("r").st_atime)'
make --version > /dev/null && printf 'b: a\n\tcp a b\n' > Makefile && echo 1 > a && make && make && touch -d '+1 min' a && make && touch -d 2001-01-01 a b && make
"#;
