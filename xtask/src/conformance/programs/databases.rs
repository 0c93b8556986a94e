//! Databases: what they promise, check themselves and dump.

use super::Program;

pub const PROGRAMS: &[Program] = &[
    Program::new(
        "sqlite",
        &[("sqlite3", "sqlite3"), ("python3", "python3")],
        SQLITE,
    )
    .limited_to(120),
    Program::new(
        "lmdb",
        &[
            ("mdb_stat", "lmdb-utils"),
            ("/usr/lib/python3/dist-packages/lmdb", "python3-lmdb"),
        ],
        LMDB,
    ),
    Program::new("rocksdb", &[("db_bench", "rocksdb-tools")], ROCKSDB),
    Program::new("berkeley-db", &[("db5.3_load", "db5.3-util")], BERKELEY),
    Program::new(
        "postgresql",
        &[("/usr/lib/postgresql", "postgresql")],
        POSTGRESQL,
    )
    .limited_to(180),
    Program::new("mariadb", &[("mariadbd", "mariadb-server")], MARIADB).limited_to(180),
    Program::new(
        "mariadb-own-tests",
        &[
            ("mariadbd", "mariadb-server"),
            (
                "/usr/share/mysql/mysql-test/mariadb-test-run",
                "mariadb-test",
            ),
        ],
        MARIADB_TESTS,
    )
    .limited_to(300),
];

const SQLITE: &str = r#"
### journals
for mode in delete truncate persist memory wal off; do for sync in off normal full extra; do
  f=$mode-$sync.db; sqlite3 $f "PRAGMA journal_mode=$mode; PRAGMA synchronous=$sync; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);
  BEGIN; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<500) INSERT INTO t SELECT i, hex(i*i) FROM n; COMMIT;
  UPDATE t SET b = b || 'x' WHERE a % 7 = 0; BEGIN; DELETE FROM t; ROLLBACK; DELETE FROM t WHERE a % 5 = 0; PRAGMA integrity_check; SELECT count(*), sum(length(b)) FROM t;"; done; done
ls; sqlite3 wal-full.db 'PRAGMA mmap_size=268435456; SELECT count(*) FROM t; PRAGMA wal_checkpoint(TRUNCATE); VACUUM;' '.backup kept.db' ".dump" | sha256sum; sqlite3 kept.db 'PRAGMA integrity_check; VACUUM INTO "into.db"'; sqlite3 into.db .dump | sha256sum; for page in 512 4096 65536; do sqlite3 p$page "PRAGMA page_size=$page; CREATE TABLE t AS SELECT randomblob(100) AS r FROM generate_series(1,2000); PRAGMA integrity_check; VACUUM; SELECT count(*) FROM t"; stat -c %s p$page; done
### at the same time
cat > $WORK/busy.py <<'END'
import sqlite3, sys, os
mode = sys.argv[1]; f = 'busy-' + mode
c = sqlite3.connect(f); c.execute('PRAGMA journal_mode=' + mode); c.execute('CREATE TABLE t(n INTEGER)'); c.execute('INSERT INTO t VALUES(0)'); c.commit(); c.close()
children = []
for worker in range(4):
    pid = os.fork()
    if pid == 0:
        c = sqlite3.connect(f, timeout=50, isolation_level=None); c.execute('PRAGMA synchronous=NORMAL')
        for _ in range(25):
            c.execute('BEGIN IMMEDIATE'); n, = c.execute('SELECT n FROM t').fetchone(); c.execute('UPDATE t SET n = ?', (n + 1,)); c.execute('COMMIT')
        os._exit(0)
    children.append(pid)
print([os.waitpid(pid, 0)[1] for pid in children])
c = sqlite3.connect(f); print(c.execute('SELECT n FROM t').fetchone(), c.execute('PRAGMA integrity_check').fetchone())
a = sqlite3.connect(f, timeout=0); b = sqlite3.connect(f, timeout=0); a.execute('BEGIN EXCLUSIVE')
try: b.execute('INSERT INTO t VALUES(1)')
except sqlite3.Error as error: print(error)
END
for mode in delete wal; do python3 $WORK/busy.py $mode; done
### a killed writer
for mode in delete wal; do f=k-$mode; sqlite3 $f "PRAGMA journal_mode=$mode; CREATE TABLE t(a)"; (for i in $(seq 1000); do echo "BEGIN; INSERT INTO t VALUES($i); INSERT INTO t VALUES(-$i); COMMIT;"; done; sleep 9) | sqlite3 $f & sleep 0.5; kill -9 $!; wait $! 2>/dev/null; sqlite3 $f 'PRAGMA integrity_check; SELECT sum(a), count(*) % 2 FROM t'; done
chmod 444 kept.db; as_user sqlite3 kept.db 'SELECT count(*) FROM t; INSERT INTO t VALUES(9999, 1)'; chmod 777 .; as_user sqlite3 own.db 'CREATE TABLE t(a); INSERT INTO t VALUES(1); SELECT * FROM t'; rm -f busy-* *-off.db *-journal *-wal *-shm k-* p512 p4096 p65536
"#;

const LMDB: &str = r#"
### lmdb
cat > $WORK/l.py <<'END'
import lmdb, os, sys, hashlib
for name, options in (('plain', {}), ('mapped', dict(writemap=True)), ('async', dict(writemap=True, map_async=True)), ('nosync', dict(sync=False)), ('one', dict(subdir=False)), ('meta', dict(metasync=False))):
    env = lmdb.open(name, map_size=64 << 20, max_dbs=4, **options); db = env.open_db(b'x')
    for batch in range(8):
        with env.begin(write=True, db=db) as txn:
            for n in range(400): txn.put(b'%d-%d' % (batch, n), hashlib.sha256(b'%d' % n).digest() * (1 + n % 40))
    with env.begin(write=True, db=db) as txn:
        for n in range(0, 400, 3): txn.delete(b'3-%d' % n)
        txn.put(b'lost', b'x'); txn.abort()
    pid = os.fork()
    if pid == 0:
        e = lmdb.open(name, readonly=True, max_dbs=4, subdir=options.get('subdir', True)); d = e.open_db(b'x'); 
        with e.begin(db=d) as txn: print(name, 'other process', txn.stat(d)['entries'], flush=True)
        os._exit(0)
    os.waitpid(pid, 0); env.sync(True)
    with env.begin(db=db) as txn: print(name, txn.stat(db)['entries'], hashlib.sha256(b''.join(k + v for k, v in txn.cursor())).hexdigest())
    env.close()
END
python3 $WORK/l.py; for e in plain mapped async nosync meta; do mdb_dump -a $e | sha256sum; mdb_stat -s x $e | grep Entries; mkdir c-$e; mdb_copy -c $e c-$e; mdb_dump -a c-$e | sha256sum; done; mdb_dump -n -a one | sha256sum
#restart
### dumps
for e in plain mapped async nosync meta; do mdb_dump -a $e | sha256sum; done; rm -r plain mapped async nosync meta c-*; rm one one-lock
"#;

const ROCKSDB: &str = r#"
### db_bench and ldb
bench() { quietly db_bench --db=$ROOT/db --num=20000 --value_size=200 --threads=2 --compression_type=none --write_buffer_size=500000 --verify_checksum=true "$@"; }
bench --benchmarks=fillseq,overwrite,readrandom,compact,verifychecksum --sync=false; bench --benchmarks=readwhilewriting,readseq --use_existing_db=1 --mmap_read=true; bench --benchmarks=fillrandom,readrandom,verifychecksum --use_direct_io_for_flush_and_compaction=true --use_direct_reads=true; bench --benchmarks=fillsync,readrandom --num=300 --mmap_write=true --db=$ROOT/m; quietly ldb --db=db checkconsistency; for i in 1 2 3; do ldb --db=l --create_if_missing put k$i v$i; done; ldb --db=l scan; quietly ldb --db=l checkpoint --checkpoint_dir=$ROOT/cp; ldb --db=cp scan; quietly ldb --db=l compact; quietly ldb --db=l backup --backup_dir=$ROOT/b; quietly ldb --db=r restore --backup_dir=$ROOT/b; ldb --db=r scan; quietly sst_dump --file=cp --command=verify; rm -r db m l cp b r
"#;

const BERKELEY: &str = r#"
### db_load and db_dump
for kind in btree hash; do seq 1 4000 | awk '{ print "k" $1; print "value of " $1 }' | db5.3_load -T -t $kind $kind.db; db5.3_dump -p $kind.db | sed 's/^db_pagesize.*//' | sort | sha256sum; quietly db5.3_verify $kind.db; db5.3_stat -d $kind.db | grep 'Number of keys' || db5.3_stat -d $kind.db | grep -i keys | head -2; done; mkdir env; seq 1 1000 | awk '{ print $1; print $1 * $1 }' | db5.3_load -h env -T -t btree e.db; quietly db5.3_recover -h env; db5.3_dump -h env -p e.db | wc -l; rm -r *.db env
"#;

const POSTGRESQL: &str = r#"
### a cluster
export PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1):$PATH; S=$(mktemp -d); chown postgres $S; mkdir pg; chown postgres pg; pg() { setpriv --reuid=postgres --regid=postgres --init-groups env HOME=$S PGHOST=$S "$@"; }; cd /
quietly pg initdb -k -D $ROOT/pg/data --no-sync; stat -c %a $ROOT/pg/data; quietly pg pg_ctl -w -s -D $ROOT/pg/data -l $S/log -o "-k $S -h '' -c wal_recycle=on -c max_wal_size=64MB" start
quietly pg createdb b; quietly pg pgbench -q -i -s 2 b; quietly pg pgbench -c 4 -j 2 -t 150 b; pg psql -Atc 'SELECT count(*), (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM pgbench_history) FROM pgbench_accounts' b; quietly pg pg_amcheck --install-missing --heapallindexed b
pg psql -qAt b <<'END'
CREATE TABLE t AS SELECT i, md5(i::text) AS m FROM generate_series(1, 50000) i; CREATE INDEX ON t(m); CREATE TABLE large(b text); ALTER TABLE large ALTER b SET STORAGE EXTERNAL; INSERT INTO large SELECT repeat(md5(i::text), 5000) FROM generate_series(1, 20) i;
DELETE FROM t WHERE i % 3 = 0; VACUUM FULL t; CLUSTER t USING t_m_idx; REINDEX TABLE t; CHECKPOINT; SELECT count(*), md5(string_agg(m, '' ORDER BY i)) FROM t; SELECT md5(string_agg(b, '' ORDER BY b)) FROM large;
CREATE DATABASE copied TEMPLATE template0; SELECT pg_switch_wal() IS NOT NULL;
END
mkdir $OTHER/ts; chown postgres $OTHER/ts; pg psql -qAt -c "CREATE TABLESPACE ts LOCATION '$OTHER/ts'" b; pg psql -qAt -c 'ALTER TABLE t SET TABLESPACE ts' -c 'SELECT count(*) FROM t' b; quietly pg pg_basebackup -D $ROOT/pg/base -T $OTHER/ts=$ROOT/pg/ts -c fast; quietly pg pg_verifybackup $ROOT/pg/base
pg pg_dump b | grep -v '^\\' | grep -A60000 'COPY public.t ' | head -33000 | sha256sum; quietly pg pg_dump -Fd -j 2 -f $ROOT/pg/dump b; quietly pg pg_restore -j 2 -d copied $ROOT/pg/dump; pg psql -Atc 'SELECT count(*) FROM t' copied
(pg pgbench -c 4 -t 100000 b > /dev/null 2>&1 &); sleep 1; quietly pg pg_ctl -D $ROOT/pg/data -m immediate -s stop; quietly pg pg_ctl -w -s -D $ROOT/pg/data -l $S/log -o "-k $S -h ''" start; pg psql -Atc 'SELECT count(*), (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM pgbench_history) FROM pgbench_accounts' b; quietly pg pg_ctl -D $ROOT/pg/data -s stop; quietly pg pg_checksums --check -D $ROOT/pg/data; grep -E 'PANIC|could not' $S/log | cut -c1-120 | sort -u; rm -r $S
#restart
### after the file system came back
export PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1):$PATH; S=$(mktemp -d); chown postgres $S; pg() { setpriv --reuid=postgres --regid=postgres --init-groups env HOME=$S PGHOST=$S "$@"; }; cd /
for method in fsync fdatasync open_sync open_datasync; do quietly pg pg_ctl -w -s -D $ROOT/pg/data -l $S/log -o "-k $S -h '' -c wal_sync_method=$method" start; quietly pg pgbench -c 2 -t 50 b; pg psql -Atc 'SELECT count(*), md5(string_agg(m, $$$$ ORDER BY i)) FROM t' b; quietly pg pg_ctl -D $ROOT/pg/data -s stop; done; quietly pg pg_checksums --check -D $ROOT/pg/data; quietly pg pg_test_fsync -s 1 -f $ROOT/pg/data/fs; rm -r $S $ROOT/pg $OTHER/ts
"#;

const MARIADB: &str = r#"
### a server
S=$(mktemp -d); chmod 755 $S; mkdir data; chown mysql data $S; quietly mariadb-install-db --user=mysql --datadir=$ROOT/data --skip-test-db --auth-root-authentication-method=normal; start() { mariadbd --no-defaults --user=mysql --datadir=$ROOT/data --socket=$S/s --pid-file=$S/pid --skip-networking "$@" > $S/log 2>&1 & server=$!; await test -S $S/s; for i in $(seq 200); do mariadb-admin --no-defaults -S $S/s ping > /dev/null 2>&1 && break; sleep 0.05; done; }; stop() { quietly mariadb-admin --no-defaults -S $S/s shutdown; wait $server; echo "server: $?"; }; sql() { mariadb --no-defaults -S $S/s -N -B "$@"; }
start --innodb-flush-method=fsync; sql <<'END'
CREATE DATABASE b; USE b; CREATE TABLE i(a INT PRIMARY KEY, m CHAR(32), KEY(m)) ENGINE=InnoDB; CREATE TABLE my(a INT PRIMARY KEY, m CHAR(32), KEY(m)) ENGINE=MyISAM; CREATE TABLE ar(a INT PRIMARY KEY, m CHAR(32)) ENGINE=Aria; CREATE TABLE pc(a INT PRIMARY KEY, m TEXT) ROW_FORMAT=COMPRESSED;
INSERT INTO i SELECT seq, MD5(seq) FROM seq_1_to_30000; INSERT INTO my SELECT * FROM i; INSERT INTO ar SELECT * FROM i; INSERT INTO pc SELECT * FROM i; DELETE FROM i WHERE a % 3 = 0; ALTER TABLE i ADD COLUMN n INT DEFAULT 7, FORCE; OPTIMIZE TABLE i, my; CHECKSUM TABLE i, my, ar, pc; SELECT COUNT(*), SUM(n) FROM i; RENAME TABLE my TO b.renamed; TRUNCATE TABLE ar; DROP TABLE pc;
END
quietly mariadb-slap --no-defaults -S $S/s --concurrency=4 --iterations=2 --number-of-queries=400 --auto-generate-sql --auto-generate-sql-load-type=mixed --engine=innodb; quietly mariadb-check --no-defaults -S $S/s --extended --all-databases; mariadb-dump --no-defaults -S $S/s --skip-comments b | sha256sum; stop
start --innodb-flush-method=O_DIRECT --innodb-use-native-aio=1; sql -e 'CHECKSUM TABLE b.i, b.renamed; INSERT INTO b.i(a, m) SELECT seq, MD5(seq) FROM seq_40000_to_60000'; (sql -e 'INSERT INTO b.i(a, m) SELECT seq, MD5(seq) FROM seq_100000_to_900000' 2> /dev/null &) ; sleep 1; kill -9 $server; wait $server 2> /dev/null; rm -f $S/s
start --innodb-flush-method=O_DSYNC; sql -e 'CHECK TABLE b.i EXTENDED; SELECT COUNT(*), MD5(GROUP_CONCAT(m ORDER BY a)) FROM b.i WHERE a < 50000'; quietly mariadb-check --no-defaults -S $S/s --extended b; stop; grep -E 'ERROR' $S/log | cut -c1-150; rm -r $S data
"#;

const MARIADB_TESTS: &str = r#"
### its own tests
D=$(mktemp -d); cd /usr/share/mysql/mysql-test; ./mariadb-test-run --vardir=$ROOT/var --tmpdir=$D/t --force --max-test-fail=40 --parallel=2 main.insert main.create main.repair main.myisam main.loaddata main.outfile main.symlink main.partition_symlink main.flush main.drop main.merge main.rename main.truncate main.upgrade innodb.innodb innodb.create_select maria.maria archive.archive csv.csv binlog.binlog_base64_flag > $WORK/said 2>&1; echo "=> $?"; grep -E '\[ (pass|fail|skipped|retry-)' $WORK/said | sed -E 's/ w[0-9]+ / /; s/\] +[0-9]+$/]/; s/  +/ /g' | LC_ALL=C sort; grep -A20 -E '^(mysqltest|CURRENT_TEST)' $WORK/said | head -40; rm -rf $D $ROOT/var
"#;
