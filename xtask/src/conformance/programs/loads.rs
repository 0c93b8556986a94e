//! Programs that load file systems and verify what they get back.

use super::Program;

pub const PROGRAMS: &[Program] = &[
    Program::new("fio", &[("fio", "fio")], FIO).limited_to(120),
    Program::new("fio-two-engines", &[("fio", "fio")], FIO_SHORT).quick(),
    Program::new("stress-ng", &[("stress-ng", "stress-ng")], STRESS).limited_to(180),
    Program::new("dbench", &[("dbench", "dbench")], DBENCH),
    Program::new("bonnie", &[("bonnie++", "bonnie++")], BONNIE),
];

const FIO: &str = r#"
### engines
job() { fio --name=j --filename=f --size=8M --bsrange=4k-64k --blockalign=4k --rw=$1 --ioengine=$2 --direct=$3 --iodepth=8 --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0 --randseed=7 --output-format=terse --minimal "${@:4}" > $WORK/said 2>&1; local code=$?; echo "$1 $2 direct=$3 ${*:4}: $code $(grep -v '^3;' $WORK/said | grep -v -i note | sed 's/pid=[0-9]*, //' | head -3)"; rm -f f*; }
for engine in sync psync vsync pvsync pvsync2 mmap libaio posixaio io_uring splice; do for direct in 0 1; do job randwrite $engine $direct; done; done
### patterns
job() { fio --name=j --filename=f --size=8M --bsrange=4k-64k --blockalign=4k --rw=$1 --ioengine=$2 --direct=$3 --iodepth=8 --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0 --randseed=7 --output-format=terse --minimal "${@:4}" > $WORK/said 2>&1; local code=$?; echo "$1 $2 direct=$3 ${*:4}: $code $(grep -v '^3;' $WORK/said | grep -v -i note | sed 's/pid=[0-9]*, //' | head -3)"; rm -f f*; }
for rw in write randrw rw; do job $rw libaio 1; job $rw io_uring 0; job $rw psync 0 --fsync=8; job $rw mmap 0 --fsync=32; done
job randwrite io_uring 1 --fixedbufs --registerfiles; job randwrite io_uring 1 --sqthread_poll=1; job randwrite io_uring 0 --nonvectored=1 --uncached=0; job randwrite psync 0 --fallocate=none; job randwrite psync 0 --fallocate=keep; job randwrite psync 0 --fallocate=posix; job randwrite psync 0 --fallocate=truncate; job randwrite libaio 1 --overwrite=1 --nrfiles=4 --filename=f1:f2:f3:f4; job randwrite psync 0 --sync=1 --size=1M; job randwrite psync 1 --sync=dsync --size=1M; job write psync 0 --bs=777 --blockalign=1 --size=1M; job randwrite sync 0 --verify_backlog=16; job randtrimwrite psync 0 --size=1M; job randwrite psync 0 --zero_buffers=1 --verify=md5; job randwrite libaio 1 --bs=512 --blockalign=512 --size=1M; job randwrite psync 0 --create_on_open=1 --unlink=1; job write psync 0 --file_append=1 --verify=0; job randwrite libaio 1 --end_fsync=1 --thread --numjobs=2 --filename_format='f.$jobnum' --size=2M; job randwrite pvsync2 0 --rwf_nowait=0 --hipri=0
"#;

const FIO_SHORT: &str = r#"
### engines
job() { fio --name=j --filename=f --size=2M --bsrange=4k-32k --blockalign=4k --rw=randwrite --ioengine=$1 --direct=$2 --iodepth=8 --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0 --randseed=7 --minimal > $WORK/said 2>&1; local code=$?; echo "$1 direct=$2: $code $(grep -v '^3;' $WORK/said | head -3)"; rm -f f; }
for engine in psync mmap libaio io_uring; do job $engine 0; job $engine 1; done
"#;

const STRESS: &str = r#"
### stressors
mkdir s; for one in access chattr chdir chmod chown copy-file dentry dir dirdeep dirmany dnotify dup eventfd fallocate fanotify fcntl fiemap file-ioctl filename flock fpunch fsize fstat getdent handle; do stress-ng --temp-path s --$one 1 --$one-ops 60 --timeout 2 --verify --no-rand-seed > $WORK/said 2>&1; echo "$one: $? $(grep -E 'fail:|error:' $WORK/said | sed -E 's/^[^]]*\] //' | head -3)"; ls -A s; done
### more stressors
for one in aio aiol bind-mount hdd inode-flags inotify io io-uring iomix ioprio lease link locka lockf lockofd mknod open rename symlink sync-file touch utime verity xattr seek sendfile splice tee vm-splice mmap mmapfork mmapmany msync madvise mlock fork revio readahead unlink; do stress-ng --temp-path s --$one 1 --$one-ops 60 --timeout 2 --verify --no-rand-seed --hdd-bytes 4M --iomix-bytes 4M --seek-size 4M --readahead-bytes 4M --revio-bytes 4M --sync-file-bytes 4M --mmap-bytes 4M --mmap-file --fallocate-bytes 4M > $WORK/said 2>&1; echo "$one: $? $(grep -E 'fail:|error:' $WORK/said | grep -v syncfs | sed -E 's/^[^]]*\] //' | head -3)"; ls -A s; done
rm -rf s
"#;

const DBENCH: &str = r#"
### dbench
for options in '' -s -S -x; do mkdir d; dbench -t 3 -D d -c /usr/share/dbench/client.txt $options 2 > $WORK/said 2>&1; echo "$options: $?"; grep -i -E 'error|fail' $WORK/said | head -3; rm -rf d; done
"#;

const BONNIE: &str = r#"
### bonnie++
bonnie++ -f -d . -s 64 -r 32 -n 2:20000:10:4 -u root -q > $WORK/said 2> $WORK/errors; echo $?; grep -i -E 'error|fail|drastic' $WORK/errors; ls -A
bonnie++ -d . -s 0 -n 1 -D -b -u root -q > $WORK/said 2> $WORK/errors; echo $?; ls -A
"#;
