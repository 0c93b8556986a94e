//! Programs for what files carry beside their contents: access lists, attributes, capabilities,
//! flags.

use super::Program;

const ACL: &[(&str, &str)] = &[("setfacl", "acl")];
const ATTR: &[(&str, &str)] = &[("setfattr", "attr")];

pub const PROGRAMS: &[Program] = &[
    Program::new("acl", ACL, ACCESS_LISTS).quick(),
    Program::new("attr", ATTR, EXTENDED).quick(),
    Program::new("setcap", &[("setcap", "libcap2-bin")], CAPABILITIES).quick(),
    Program::new("chattr", &[("chattr", "e2fsprogs")], FLAGS).quick(),
];

const ACCESS_LISTS: &str = r#"
### setting
touch f; mkdir d
try setfacl -m u:12345:rw,g:77:r f; getfacl -n f; stat -c '%a %A' f; try setfacl -x u:12345 f; getfacl -cn f; try chmod g= f; getfacl -cn f; try chmod 640 f; getfacl -cn f; try setfacl -m m::rwx f; getfacl -cn f; try setfacl -b f; getfacl -cn f
try setfacl -m u::r,g::w,o::x f; stat -c %a f; try setfacl -m u:nosuch:r f; try setfacl -m d:u:1:r f; try setfacl --set u::rw,u:1:r,u:2:w,g::-,o::- f; getfacl -cn f; try setfacl -k d; try setfacl -m d:u:1:r missing
ls -l f d | cut -c1-11
### inheriting
try setfacl -m d:u:12345:rwx,d:g:5:rx,d:o::- d; getfacl -cn d; touch d/f; mkdir d/sub; mkfifo d/p; ln -s f d/s; getfacl -cn d/f d/sub d/p; umask 077; touch d/g; mkdir -m 700 d/closed; getfacl -cn d/g d/closed; umask 022
setfacl -R -m u:9:r d; find d | LC_ALL=C sort | xargs getfacl -cnp; cp d/f d/plain; cp -p d/f kept; getfacl -cn d/plain kept; mv d/g .; getfacl -cn g; mv g d/back; getfacl -cn d/back; setfacl -k d; touch d/none; getfacl -cn d/none
getfacl -Rpn d > $WORK/acl; setfacl -Rb d; setfacl --restore=$WORK/acl; getfacl -Rpn d | cmp - $WORK/acl && echo restored
### granting
echo data > g; chmod 600 g; as_user cat g; setfacl -m u:12345:r g; as_user cat g; as_user bash -c 'echo x >> g'; setfacl -m u:12345:rw g; as_user bash -c 'echo x >> g'; chmod g-w g; as_user bash -c 'echo x >> g'; setfacl -m g:12345:rwx,m::rwx,u:12345:- g; as_user cat g; setfacl -x u:12345 g; as_user cat g; as_user setfacl -m u:1:r g
setfacl -b g; as_user cat g; mkdir -m 700 h; setfacl -m u:12345:x h; touch h/f; chmod 644 h/f; as_user cat h/f; as_user ls h; setfacl -m u:12345:rx h; as_user ls h
### as attributes
setfacl -b g; setfacl -m u:1:r g; getfattr -d -m system -e hex g; getfattr -n system.posix_acl_access -e hex g > $WORK/v; setfattr -x system.posix_acl_access g; getfacl -cn g; setfattr --restore=$WORK/v; getfacl -cn g; try setfattr -n system.posix_acl_access -v 0x00 g; try setfattr -n system.posix_acl_access -v 0x0300000001000700ffffffff g; try setfattr -n system.posix_acl_default -v 0x02000000 g
list=$(for i in $(seq 1 200); do printf 'u:%d:r,' $((i + 1000)); done); try setfacl -m u::rw,g::r,o::r,${list%,} g > /dev/null; getfacl -cn g | wc -l
"#;

const EXTENDED: &str = r#"
### values
touch f; mkdir d; ln -s f s; mkfifo p
try setfattr -n user.a -v one f; try setfattr -n user.empty f; try setfattr -n user.b -v 0x00ff10 f; try setfattr -n user.a -v two f; getfattr -d -e hex f; try getfattr -n user.none f; try setfattr -x user.none f; try setfattr -x user.b f; getfattr -d f
try setfattr -n user.d -v x d; try setfattr -n user.s -v x -h s; try setfattr -n user.p -v x p; try setfattr -n trusted.s -v x -h s; getfattr -h -d -m - s; try setfattr -n nothing -v x f; try setfattr -n user. -v x f; try setfattr -n nosuch.a -v x f; try setfattr -n security.own -v x f; getfattr -d -m '^security' f; try setfattr -n system.own -v x f
try setfattr -n user.$(printf 'n%.0s' {1..250}) -v x f | cut -c1-40; try setfattr -n user.$(printf 'n%.0s' {1..251}) -v x f 2>&1 | tail -n 1; getfattr f | wc -l; chmod 0 f; as_user getfattr -d f; chmod 444 f; as_user getfattr -n user.a f; as_user setfattr -n user.a -v z f; as_user getfattr -m - -d f
### many and large
python3 - <<'END'
import os, errno
open('m', 'w')
for n in range(40): os.setxattr('m', 'user.name-%03d' % n, b'v' * (n % 20))
print(sorted(os.listxattr('m')) == ['user.name-%03d' % n for n in range(40)], all(os.getxattr('m', 'user.name-%03d' % n) == b'v' * (n % 20) for n in range(40)))
for n in range(0, 40, 2): os.removexattr('m', 'user.name-%03d' % n)
print(len(os.listxattr('m')))
for size in (1, 100, 3000, 5000, 20000, 65535, 65536, 65537):
    try: os.setxattr('m', 'user.large', os.urandom(size)); print(size, len(os.getxattr('m', 'user.large')) == size)
    except OSError as error: print(size, error.strerror)
for flags, name in ((os.XATTR_CREATE, 'user.large'), (os.XATTR_REPLACE, 'user.absent'), (os.XATTR_CREATE, 'user.fresh'), (os.XATTR_REPLACE, 'user.fresh')):
    try: os.setxattr('m', name, b'x', flags); print(name, 'set')
    except OSError as error: print(name, error.strerror)
fd = os.open('m', os.O_RDONLY); os.setxattr(fd, 'user.byfd', b'1'); print(os.getxattr(fd, 'user.byfd')); os.unlink('m'); print(os.getxattr(fd, 'user.byfd'))
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
open('e', 'w'); os.setxattr('e', 'user.v', b'12345')
buffer = ctypes.create_string_buffer(100)
print(libc.getxattr(b'e', b'user.v', None, 0), libc.getxattr(b'e', b'user.v', buffer, 3), os.strerror(ctypes.get_errno()), libc.listxattr(b'e', None, 0), libc.listxattr(b'e', buffer, 2), os.strerror(ctypes.get_errno()))
END
#restart
### still there
getfattr -d -e hex f d
cp --preserve=xattr f g; getfattr -d g; cp f h; getfattr -d h; mv g $OTHER; getfattr -d --absolute-names $OTHER/g | tail -n +2
"#;

const CAPABILITIES: &str = r#"
### setcap
cp /bin/cat c; chmod 755 c; echo secret > s; chmod 600 s; as_user ./c s; try setcap cap_dac_read_search+ep c; getcap c; as_user ./c s; cp c plain; getcap plain; cp -a c kept; getcap kept; echo >> c; getcap c; setcap cap_dac_read_search+ep c; chown 1 c; getcap c; setcap cap_net_raw=p c; getcap -n c; try setcap -r c; getcap c; try setcap nosuch+ep c; mkdir d; try setcap cap_kill+p d
setcap cap_kill+ep kept; truncate -s 5 kept; getcap kept; setcap cap_kill+ep kept; chmod 700 kept; getcap kept
"#;

const FLAGS: &str = r#"
### chattr
flags() { lsattr -d "$@" | sed -E 's/[eN-]//g; s,'$ROOT'/?,,'; }
echo x > f; mkdir d; echo y > d/g
try chattr +i f; flags f; echo z >> f; echo "=> $?"; try rm -f f; try mv f n; try chmod 600 f; try ln f l; try touch f; try truncate -s 0 f; try setfattr -n user.a -v b f; cat f; try chattr -i f; echo z >> f; cat f
try chattr +a f; flags f; echo w >> f; echo over > f; echo "=> $?"; try rm -f f; try truncate -s 1 f; try dd status=none if=/dev/zero of=f bs=1 count=1 conv=notrunc; cat f; try chattr -a f
try chattr +i d; touch d/new; try rm -f d/g; echo more >> d/g; try rmdir d; try chattr -i d; try chattr +a d; touch d/new; rm -f d/new; mv d/new d/newer; try chattr -a d; ls d
try chattr +d f; flags f; try chattr -d f; as_user chattr +i f
"#;
