//! Programs that change files in their own ways: editors and patches, mail delivery, locks, and
//! those that watch.

use super::Program;

pub const PROGRAMS: &[Program] = &[
    Program::new("patch-and-ed", &[("patch", "patch"), ("ed", "ed")], PATCH).quick(),
    Program::new("quilt", &[("quilt", "quilt")], QUILT),
    Program::new("vim", &[("vim", "vim")], VIM).quick(),
    Program::new(
        "locks",
        &[("flock", "util-linux"), ("python3", "python3")],
        LOCKS,
    )
    .quick(),
    Program::new(
        "jobs",
        &[
            ("run-parts", "debianutils"),
            ("savelog", "debianutils"),
            ("flock", "util-linux"),
        ],
        JOBS,
    )
    .quick(),
    Program::new("inotify", &[("inotifywait", "inotify-tools")], WATCHING).quick(),
    Program::new(
        "watchers",
        &[("entr", "entr"), ("dotlockfile", "liblockfile-bin")],
        WATCHERS,
    ),
    Program::new(
        "maildir",
        &[
            ("procmail", "procmail"),
            ("safecat", "safecat"),
            ("maildrop", "maildrop"),
        ],
        MAIL,
    )
    .limited_to(120),
    Program::new("logrotate", &[("logrotate", "logrotate")], LOGROTATE),
];

const PATCH: &str = r#"
### patch
seq 100 > a; sed 's/^50$/fifty/; 90,95d' a > b; diff -u --label a --label a a b > $WORK/p; chmod 640 a; ln a hard; touch -d 2001-01-01 a
try patch -b --verbose a $WORK/p; cmp a b; stat -c '%n %a %h' a a.orig hard; try patch -R a $WORK/p; seq 100 | cmp - a; try patch -N a < $WORK/p; try patch -N a < $WORK/p; ls; cat a.rej
ln -s a soft; try patch soft $WORK/p; try patch --follow-symlinks -R soft $WORK/p; try patch --dry-run -R a $WORK/p; chmod 400 a; try patch -R a $WORK/p; printf -- '--- /dev/null\n+++ d/new\n@@ -0,0 +1 @@\n+made\n' | try patch -p0; cat d/new; printf -- '--- d/new\n+++ /dev/null\n@@ -1 +0,0 @@\n-made\n' | try patch -p0; ls -d d
### ed
printf 'one\ntwo\nthree\n' > e; ln e e2; printf '2s/two/2/\nw\nq\n' | try ed -s e; cat e2; printf 'a\nnew\n.\nw made\nr !echo from a shell\n,p\nQ\n' | try ed e; printf 'w\nq\n' | try ed -s missing/x; chmod 444 e; printf '1d\nw\nq\n' | as_user ed -s e; echo "=> $?"; cat e
"#;

const QUILT: &str = r#"
### quilt
export QUILT_PATCHES=patches; seq 50 > a; seq 10 > b; mkdir patches; try quilt new one.patch; try quilt add a b; sed -i s/7/seven/ a; rm b; try quilt refresh; try quilt new two.patch; try quilt add a; echo end >> a; try quilt refresh; try quilt pop -a | LC_ALL=C sort; cat b | wc -l; tail -1 a; try quilt push -a; try quilt pop; try quilt series; try quilt applied; find . -path ./.pc -prune -o -type f -print | LC_ALL=C sort; find .pc | LC_ALL=C sort
"#;

const VIM: &str = r#"
### saving in each way
edit() { vim -es -u NONE -i NONE -N "$@" </dev/null; echo "=> $?"; }
for copy in yes no auto breakhardlink breaksymlink; do for backup in backup nobackup; do
  printf 'one\ntwo\n' > f; chmod 6640 f; chown 12:34 f; setfattr -n user.kept -v y f; ln -f f hard; ln -sf f soft; rm -f *~
  edit -c "set backupcopy=$copy $backup writebackup" -c '%s/two/2/' -c 'wq' f; edit -c "set backupcopy=$copy $backup" -c '$s/$/ soft/' -c 'wq' soft
  echo "$copy $backup"; stat -c '%n %F %a %u:%g %h %s' *; cat f hard; getfattr -d f; rm -f f hard soft
done; done
### undo, swap, read-only
edit() { vim -es -u NONE -i NONE -N "$@" </dev/null; echo "=> $?"; }
seq 10 > u; edit -c 'set undofile undodir=.' -c '3d' -c wq u; ls -A; edit -c 'set undofile undodir=.' -c 'rundo .%u' -c 'undo' -c 'wq' u; wc -l u; chmod 444 u; as_user vim -es -u NONE -i NONE -N -c 1d -c wq u < /dev/null; echo $?; edit -c '1d' -c 'wq!' u; wc -l u; stat -c %a u
seq 10 > s; (vim -es -u NONE -i NONE -N -c 'set swapfile updatecount=1' -c '2d' -c 'preserve' -c 'sleep 20' s < /dev/null &) ; await test -e .s.swp; sleep 0.3; stat -c '%a' .s.swp; cp .s.swp kept; vim -es -u NONE -i NONE -N -c 'set swapfile' -r kept -c 'w recovered' -c 'q!' < /dev/null > /dev/null; ls | LC_ALL=C sort
edit -c 'set patchmode=.orig backup' -c '1d' -c 'wq' s; ls; edit -c 'e missing/x' -c 'w' -c 'q!' ; ls missing; rm -f .s.swp .*.un~ kept
"#;

const LOCKS: &str = r#"
### flock
flock job true && echo taken; (flock 9; echo held; touch $WORK/held; await test -e $WORK/release) 9> job & await test -e $WORK/held; try flock -n job echo mine; try flock -w 0.2 -E 7 job echo mine; try flock -n -s job echo shared; touch $WORK/release; wait; try flock -n job echo mine
(flock -s 9; touch $WORK/s1; await test -e $WORK/s2) 9> job & await test -e $WORK/s1; try flock -n -s job echo both; try flock -n -x job echo alone; touch $WORK/s2; wait; try flock -u 9 9> job; try flock -n . echo of a folder; try flock -n missing/x true
for i in $(seq 8); do (for j in $(seq 25); do flock counter bash -c 'n=$(cat counter); echo $((n + 1)) > counter'; done) & done; wait; cat counter
(flock -n 9 && rm job && flock -n job echo another file) 9> job
### fcntl
cat > $WORK/locks.py <<'END'
import fcntl, os, struct, time, signal, errno
open('l', 'w').write('x' * 100)
F_OFD_SETLK, F_OFD_GETLK = 37, 36
def lock(kind, start, length): return struct.pack('hhqqi4x', kind, 0, start, length, 0)
def ask(fd, kind, start, length):
    k, _, s, n, pid = struct.unpack('hhqqi4x', fcntl.fcntl(fd, fcntl.F_GETLK, lock(kind, start, length)))
    return {2: 'free', 0: 'read', 1: 'write'}[k], s if k != 2 else None, n if k != 2 else None, pid == child if k != 2 else None
def take(fd, command, kind, start, length):
    try: fcntl.fcntl(fd, command, lock(kind, start, length)); return 'taken'
    except OSError as error: return error.strerror
r, w = os.pipe(); r2, w2 = os.pipe()
child = os.fork()
if child == 0:
    fd = os.open('l', os.O_RDWR); fcntl.lockf(fd, fcntl.LOCK_EX, 10, 10); fcntl.lockf(fd, fcntl.LOCK_SH, 10, 50)
    os.write(w, b'x'); os.read(r2, 1); os.close(os.open('l', os.O_RDONLY)); os.write(w, b'x'); os.read(r2, 1); os._exit(0)
os.read(r, 1)
fd = os.open('l', os.O_RDWR)
print(ask(fd, 0, 0, 0), ask(fd, 1, 50, 5), ask(fd, 0, 50, 5), ask(fd, 1, 0, 10))
print(take(fd, fcntl.F_SETLK, 0, 15, 1), take(fd, fcntl.F_SETLK, 0, 50, 100), take(fd, fcntl.F_SETLK, 1, 0, 10), take(fd, fcntl.F_SETLK, 1, 20, 30))
print(take(fd, F_OFD_SETLK, 1, 12, 1))
os.write(w2, b'x'); os.read(r, 1); print('after the other closed one of its descriptors', ask(fd, 1, 10, 5), take(fd, fcntl.F_SETLK, 1, 0, 0))
os.write(w2, b'x'); os.waitpid(child, 0)
a = os.open('l', os.O_RDWR); b = os.open('l', os.O_RDWR); os.close(fd)
print(take(a, F_OFD_SETLK, 1, 0, 50), take(b, F_OFD_SETLK, 1, 49, 1), take(b, F_OFD_SETLK, 1, 50, 1)); os.close(a); print(take(b, F_OFD_SETLK, 1, 0, 50))
ro = os.open('l', os.O_RDONLY); print(take(ro, fcntl.F_SETLK, 1, 0, 1), take(ro, fcntl.F_SETLK, 0, 90, 1))
fcntl.flock(b, fcntl.LOCK_EX); 
c = os.open('l', os.O_RDWR)
try: fcntl.flock(c, fcntl.LOCK_EX | fcntl.LOCK_NB); print('taken')
except OSError as error: print(error.strerror)
os.close(b); fcntl.flock(c, fcntl.LOCK_EX | fcntl.LOCK_NB); print('free after close')
# A wait that a signal ends, and one that a release ends.
child = os.fork()
if child == 0:
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(InterruptedError())); signal.setitimer(signal.ITIMER_REAL, 0.2)
    d = os.open('l', os.O_RDWR)
    try: fcntl.flock(d, fcntl.LOCK_EX); print('taken')
    except InterruptedError: print('interrupted', flush=True)
    fcntl.flock(d, fcntl.LOCK_EX); print('taken at last', flush=True); os._exit(0)
time.sleep(0.5); fcntl.flock(c, fcntl.LOCK_UN); os.waitpid(child, 0)
# Two that wait for each other.
pair = [os.open('l', os.O_RDWR) for _ in range(2)]
fcntl.lockf(pair[0], fcntl.LOCK_EX, 1, 0)
child = os.fork()
if child == 0:
    d = os.open('l', os.O_RDWR); fcntl.lockf(d, fcntl.LOCK_EX, 1, 1); os.write(w, b'x')
    try: fcntl.lockf(d, fcntl.LOCK_EX, 1, 0); print('child goes on', flush=True)
    except OSError as error: print('child:', error.strerror, flush=True)
    os._exit(0)
os.read(r, 1); time.sleep(0.2)
try: fcntl.lockf(pair[0], fcntl.LOCK_EX, 1, 1); print('parent goes on')
except OSError as error: print('parent:', error.strerror)
fcntl.lockf(pair[0], fcntl.LOCK_UN); os.waitpid(child, 0)
END
timeout 20 python3 $WORK/locks.py
### lock files
try lockfile -1 -r 2 x.lock 2>/dev/null || ln -s pid x.lock; ls x.lock; (set -C; echo 1 > y.lock) && (set -C; echo 2 > y.lock); cat y.lock; for i in $(seq 50); do (mkdir z.lock 2>/dev/null && echo won) & done | wc -l; wait
for i in $(seq 30); do (ln x.lock w.lock 2>/dev/null && echo won) & done | wc -l; wait
### leases
python3 - <<'END'
import fcntl, os
open('lease', 'w'); fd = os.open('lease', os.O_RDONLY)
for kind in (fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK):
    try: fcntl.fcntl(fd, fcntl.F_SETLEASE, kind); print(fcntl.fcntl(fd, fcntl.F_GETLEASE))
    except OSError as error: print(error.strerror)
try: fcntl.fcntl(os.open('.', os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_CREATE); print('notifies')
except OSError as error: print(error.strerror)
END
"#;

const JOBS: &str = r#"
### cron's way
mkdir jobs lib; printf '#!/bin/bash\n[ "$FLOCKER" != "$0" ] && exec env FLOCKER="$0" flock -E 9 -en "$0" "$0" "$@"\ntouch $WORK/ran-$1\nawait() { for i in $(seq 400); do "$@" && return; sleep 0.025; done; }; await test -e $WORK/let-go\necho ran $1\n' > self; chmod 755 self; ./self one > one & await test -e $WORK/ran-one; try ./self two; touch $WORK/let-go; wait; cat one; try ./self three
for n in 10-first 20-second bad.name; do printf '#!/bin/sh\nflock -n lib/lock echo %s\n' $n > jobs/$n; chmod 755 jobs/$n; done; try run-parts --report jobs; try run-parts --test jobs; chmod 644 jobs/20-second; try run-parts jobs; mkdir jobs/30-folder; try run-parts --list jobs
### a program that is replaced while it runs, and logs
cp /bin/bash own; mkfifo $WORK/never; ./own -c 'touch $WORK/runs; read < $WORK/never' & p=$!; await test -e $WORK/runs; mv own renamed; cp renamed own.new; mv own.new own; rm renamed; ls -A; kill $p; wait $p; echo "=> $?"
seq 5 > log; for i in 1 2 3; do savelog -q -n -l log; seq $i > log; done; ls log*; savelog -q -l -c 2 -m 600 -u 3 -g 4 -t log; stat -c '%n %a %u:%g' log*
"#;

const WATCHERS: &str = r#"
### entr
echo 1 > w; (echo w | entr -n -p -z sh -c 'cat w' > $WORK/seen & sleep 1; echo 2 > w; wait) 2>&1; cat $WORK/seen; (ls -d . | entr -n -d -z true > $WORK/seen 2>&1 & p=$!; sleep 1; touch fresh; wait $p; echo "=> $?") 2>&1
### tail, by name and by descriptor
echo a > t; tail -F -s 0.1 t > $WORK/name 2>/dev/null & n=$!; tail -f -s 0.1 t > $WORK/descriptor 2>/dev/null & d=$!; await grep -q a $WORK/name; await grep -q a $WORK/descriptor; mv t t.1; echo c > t; await grep -q c $WORK/name; echo b >> t.1; await grep -q b $WORK/descriptor; kill $n $d; wait 2>/dev/null; cat $WORK/name $WORK/descriptor
### dotlockfile
try dotlockfile -l -r 0 a.lock; try dotlockfile -l -r 0 a.lock; try dotlockfile -c a.lock; try dotlockfile -u a.lock; try dotlockfile -c a.lock; for i in $(seq 12); do (dotlockfile -l -r 0 b.lock && echo won) & done | wc -l; wait; rm b.lock; ls -A
### watchdogs of python
python3 - <<'END'
import asyncio, os, select, ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.fanotify_init(0x200 | 0x400 | 0x800, os.O_RDONLY)
print('fanotify', fd >= 0)
if fd >= 0:
    marked = libc.fanotify_mark(fd, 1, ctypes.c_uint64(0x100 | 0x200 | 0x40 | 0x80 | 0x40000000), -100, os.getcwd().encode())
    print('marked', marked == 0 or os.strerror(ctypes.get_errno()))
    if marked == 0:
        open('made', 'w').close(); os.rename('made', 'moved'); os.mkdir('folder'); os.unlink('moved')
        kinds = []
        while select.select([fd], [], [], 0.5)[0]:
            data = os.read(fd, 65536)
            while data:
                length, _, _, _, mask, _, _ = struct.unpack_from('IBBHQii', data); kinds.append(hex(mask)); data = data[length:]
        print(kinds)
END
"#;

const WATCHING: &str = r#"
### a folder
mkdir d; inotifywait -q -m -r --format '%e %w%f' d > $WORK/events & watcher=$!; sleep 0.5
echo a > d/a; cat d/a > /dev/null; echo b >> d/a; mv d/a d/b; chmod 600 d/b; ln d/b d/c; rm d/c; mkdir d/sub; sleep 0.3; touch d/sub/x; mv d/sub/x d/y; truncate -s 0 d/y; setfattr -n user.a -v b d/y; mv d/y away; mv away d/back; rm -r d/sub; cp d/b d/copied; python3 -c 'import mmap; f = open("d/b", "r+b"); m = mmap.mmap(f.fileno(), 0); m[0:1] = b"z"; m.close(); f.close()'; ln -s x d/soft; mkfifo d/p; fallocate -l 10000 d/back; rm d/b; sleep 0.3
kill $watcher; wait $watcher 2>/dev/null; cat $WORK/events
### a file, and its end
echo x > f; inotifywait -q -m --format '%e' f > $WORK/events & watcher=$!; sleep 0.5; echo y >> f; mv f g; exec 5< g; rm g; sleep 0.2; exec 5<&-; sleep 0.2; kill $watcher; wait $watcher 2>/dev/null; cat $WORK/events
### what waits for it
(sleep 0.5; echo go > trigger) & inotifywait -q -t 5 -e create,close_write --format '%e %f' .; echo "=> $?"; inotifywait -q -t 1 .; echo "=> $?"
"#;

const MAIL: &str = r#"
### safecat, procmail, maildrop
mkdir -p M/{tmp,new,cur} home; for i in 1 2 3; do printf 'From: a@b\nSubject: %d\n\nbody %d\n' $i $i | safecat M/tmp M/new > /dev/null || echo failed; done; ls M/new | wc -l; ls M/tmp; cat M/new/* | grep -c '^body'; cat M/new/* | sort | sha256sum
cat > $WORK/rc <<END
MAILDIR=$ROOT
DEFAULT=$ROOT/Maildir/
LOGFILE=$WORK/log
LOCKSLEEP=1
:0:
* ^Subject: 1
mbox
:0
* ^Subject: 2
Two/
END
for i in $(seq 24); do (printf 'From: a@b\nSubject: %d\n\nbody %d\n' $i $i | procmail -m $WORK/rc || echo failed) & done; wait; grep -c '^body' mbox; ls Two/new | wc -l; ls Maildir/new | wc -l; find Two Maildir -path '*/tmp/*'; stat -c '%a' mbox Two Two/new; ls *.lock
printf 'to "%s/Box/."\n' $ROOT > $WORK/filter; chmod 600 $WORK/filter; mkdir -p Box/{new,cur,tmp}; for i in 1 2 3; do printf 'Subject: %d\n\nbody\n' $i | maildrop $WORK/filter || echo failed; done; ls Box/new | wc -l
python3 - <<'END'
import mailbox
box = mailbox.Maildir('Py'); keys = [box.add('Subject: %d\n\nbody' % n) for n in range(10)]
for key in keys[:5]:
    message = box[key]; message.set_subdir('cur'); message.add_flag('S'); box[key] = message
box.remove(keys[9]); box.flush(); print(len(box), sorted(message['subject'] for message in box), sum(m.get_subdir() == 'cur' for m in box))
m = mailbox.mbox('pybox'); m.lock(); [m.add('Subject: x\n\nbody') for _ in range(5)]; m.flush(); m.unlock(); m.remove(2); m.flush(); print(len(mailbox.mbox('pybox')))
END
rm -rf M Two Maildir Box mbox Py pybox
"#;

const LOGROTATE: &str = r#"
### logrotate
mkdir log; for f in a b; do seq 1000 > log/$f.log; done; cat > $WORK/conf <<END
$ROOT/log/a.log { rotate 3
 compress
 delaycompress
 create 640 0 4
 dateext
 dateformat -%s
 missingok }
$ROOT/log/b.log { rotate 2
 copytruncate
 size 10 }
END
exec 5>> log/b.log; for i in 1 2 3; do quietly logrotate -f -s $WORK/state $WORK/conf; echo after $i >&5; seq $i >> log/a.log; sleep 1.1; done; ls log | sed -E 's/-[0-9]+/-DATE/' ; stat -c '%n %a %g' log/a.log; cat log/b.log log/b.log.1; rm -r log
"#;
