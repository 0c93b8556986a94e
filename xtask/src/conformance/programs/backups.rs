//! Backup programs: what they keep, verify and give back.

use super::Program;

pub const PROGRAMS: &[Program] = &[
    Program::new("borg", &[("borg", "borgbackup")], BORG)
        .with_tree()
        .limited_to(120),
    Program::new("restic", &[("restic", "restic")], RESTIC)
        .with_tree()
        .limited_to(120),
    Program::new("rdiff-backup", &[("rdiff-backup", "rdiff-backup")], RDIFF).with_tree(),
    Program::new("duplicity", &[("duplicity", "duplicity")], DUPLICITY)
        .with_tree()
        .limited_to(120),
    Program::new("rsnapshot", &[("rsnapshot", "rsnapshot")], RSNAPSHOT).with_tree(),
];

const BORG: &str = r#"
### a repository on it, of it
export BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes BORG_RELOCATED_REPO_ACCESS_IS_OK=yes
try borg init -e none repo; sleep 0.1; echo newest > tree/newest; touch -d 2001-01-01 tree/newest tree; quietly borg create repo::one tree; borg list repo::one --format '{mode} {uid} {gid} {size} {mtime} {path} {source}{NL}' | grep -v -E 'hard-|text-1000' | LC_ALL=C sort; quietly borg check --verify-data repo; mkdir x; (cd x; quietly borg extract --sparse ../repo::one); same tree x/tree
quietly borg create -C zstd $OTHER/none::x tree; borg create --list --filter AMCE repo::again tree 2>&1 | LC_ALL=C sort; echo new >> tree/text-100; touch tree/added; rm tree/text-1; setfattr -n user.more -v x tree/text-13; borg create --list --filter AMCE repo::two tree 2>&1 | LC_ALL=C sort; borg diff repo::one repo::two | LC_ALL=C sort | sed -E 's/-> .*//' ; quietly borg delete repo::again; quietly borg prune --keep-last 1 repo; quietly borg compact repo; borg list --short repo; quietly borg check repo; mkdir y; (cd y; quietly borg extract ../repo::two); same tree y/tree
borg export-tar repo::two - | tar -tf - | LC_ALL=C sort | sha256sum; (borg with-lock repo sleep 2 & sleep 1; borg list --lock-wait 0 repo 2>&1 | head -1 | cut -c1-30; wait)
#restart
### after the file system came back
export BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes BORG_RELOCATED_REPO_ACCESS_IS_OK=yes
borg create --files-cache=ctime,size --list --filter AM repo::three tree 2>&1 | LC_ALL=C sort; quietly borg check --verify-data repo; mkdir z; (cd z; quietly borg extract ../repo::three); same tree z/tree; rm -rf repo $OTHER/none
"#;

const RESTIC: &str = r#"
### restic
export RESTIC_PASSWORD=p; quietly restic init -r repo; quietly restic -r repo backup -q tree; restic -r repo ls latest | tail -n +2 | LC_ALL=C sort; quietly restic -r repo check --read-data; quietly restic -r repo restore latest --target x; same tree x$ROOT/tree '/posix_acl|^# file|^$/d; /^(user|group|mask|other|default|#)/d' || same tree x/tree '/posix_acl|^# file|^$/d; /^(user|group|mask|other|default|#)/d'
echo new > tree/new; rm tree/text-100; restic -r repo backup --json tree | tail -1 | grep -o -E '"(files|dirs)_[a-z]*":[0-9]+'; quietly restic -r repo forget --keep-last 1 --prune -q; quietly restic -r repo check --read-data; restic -r repo snapshots --json | grep -o '"paths"' | wc -l; restic -r repo dump latest $ROOT/tree/text-1000 | cmp - tree/text-1000; quietly restic -r repo rebuild-index -q; find repo -type f -printf '%m\n' | sort | uniq -c | sed 's/^ *[0-9]*//'; quietly restic -r repo key list; rm -rf repo
"#;

const RDIFF: &str = r#"
### rdiff-backup
now() { rdiff-backup --current-time $1 "${@:2}"; }
quietly now 1600000000 tree b; diff -r --no-dereference tree b --exclude rdiff-backup-data | grep -v -E 'fifo|device'; grep -A40 -i 'file system' b/rdiff-backup-data/backup.log | grep -v -E '^(Mon|Tue|Wed|Thu|Fri|Sat|Sun)' | head -60; echo x >> tree/text-1000; rm tree/text-13; mv tree/few tree/fewer; chmod 600 tree/text-100; quietly now 1600001000 tree b; rdiff-backup --list-increments b | tail -n 4; rdiff-backup --list-changed-since 1600000000 b | LC_ALL=C sort; quietly rdiff-backup --verify b; quietly rdiff-backup -r 1600000000 b r; quietly rdiff-backup -r now b n; same tree n; cat r/text-7; quietly rdiff-backup --compare tree b; quietly rdiff-backup --remove-older-than 1600000500 --force b; find b/rdiff-backup-data -type f | wc -l; rm -rf b
"#;

const DUPLICITY: &str = r#"
### duplicity
go() { quietly duplicity --no-encryption --archive-dir $ROOT/cache -v1 "$@"; }
rm -f tree/chardev tree/blockdev; go full tree file://$ROOT/d; echo x >> tree/text-1000; rm tree/text-13; sleep 1.1; go incremental tree file://$ROOT/d; go verify --compare-data file://$ROOT/d tree; go restore file://$ROOT/d r; same tree r '/user|trusted|posix_acl|^# file|^u|^g|^m|^d|^o|^$/d; s/\.[0-9]{10}\t/\t/; s/\t[0-9]+\t([0-9]*)\t([^\t]*)\t(-?[0-9]+)\t[^\t]*$/\t\1\t\2\t\3/'; duplicity list-current-files --no-encryption --archive-dir $ROOT/cache file://$ROOT/d 2>/dev/null | grep text | wc -l; find d -type f | sed -E 's/[0-9]{8}T[0-9]{6}Z/T/g' | LC_ALL=C sort; rm -rf d cache
"#;

const RSNAPSHOT: &str = r#"
### rsnapshot
printf 'config_version\t1.2\nsnapshot_root\t%s/s/\ncmd_rsync\t/usr/bin/rsync\ncmd_cp\t/bin/cp\nretain\thourly\t3\nlockfile\t%s/pid\nbackup\t%s/tree/\there/\nlink_dest\t0\n' $ROOT $WORK $ROOT > $WORK/conf; for i in 1 2 3 4; do seq $i > tree/n; quietly rsnapshot -c $WORK/conf hourly; done; ls s; cat s/*/here$ROOT/tree/n; find s -type f -name text-1000 -printf '%n\n'; du -s --inodes s/*/here$ROOT/tree | cut -f1; rm -r s
"#;
