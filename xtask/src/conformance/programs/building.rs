//! Programs that make programs.

use super::Program;

pub const PROGRAMS: &[Program] = &[
    Program::new("gcc-and-make", &[("gcc", "gcc"), ("make", "make")], GCC).quick(),
    Program::new("cargo", &[("cargo", "cargo")], CARGO).limited_to(120),
    Program::new(
        "python",
        &[
            ("python3", "python3"),
            ("/usr/lib/python3/dist-packages/pip", "python3-pip"),
            ("/usr/share/python-wheels", "python3-venv"),
        ],
        PYTHON,
    )
    .limited_to(120),
    Program::new("npm", &[("npm", "npm")], NPM).limited_to(120),
    Program::new("ccache", &[("ccache", "ccache"), ("gcc", "gcc")], CCACHE),
];

const GCC: &str = r#"
### building
for n in $(seq 12); do printf 'int f%d(int x) { return x * %d; }\n' $n $n > f$n.c; done; { for n in $(seq 12); do echo "int f$n(int);"; done; echo '#include <stdio.h>'; echo '#include "h.h"'; echo 'int main(void) { int s = 0;'; for n in $(seq 12); do echo "s += f$n(N);"; done; echo 'printf("%d\n", s); return 0; }'; } > main.c; echo '#define N 3' > h.h
printf 'O = main.o $(patsubst %%.c,%%.o,$(wildcard f*.c))\nall: p lib.so\np: main.o lib.a\n\t@$(CC) -o $@ main.o lib.a\nlib.a: $(filter-out main.o,$(O))\n\t@rm -f $@; $(AR) rcsD $@ $^\nlib.so: $(filter-out main.o,$(O))\n\t@$(CC) -shared -o $@ $^\n%%.o: %%.c\n\t@$(CC) -g -fPIC -MMD -c -o $@ $<; echo $<\n-include *.d\n' > Makefile
try make -j3 | LC_ALL=C sort; ./p; try make; try make -q; sleep 0.02; echo '#define N 5' > h.h; try make; ./p; touch f3.c; make; rm p; make; ./p; cp -a . $OTHER/copy; try make -C $OTHER/copy -q; gcc -flto -O2 -o lto main.c f*.c; ./lto; gcc -shared -fPIC -o d.so f1.c; python3 -c 'import ctypes, os; print(ctypes.CDLL(os.getcwd() + "/d.so").f1(7))'; strip p; ./p; objcopy --only-keep-debug lto lto.debug 2>&1; gcc -fprofile-arcs -ftest-coverage -o cov f1.c main.c f2.c f3.c f4.c f5.c f6.c f7.c f8.c f9.c f10.c f11.c f12.c; ./cov; ls *.gcda | wc -l; sha256sum f*.o | sha256sum; rm -f *.gcda *.gcno lto* cov
"#;

const CARGO: &str = r#"
### building
export CARGO_NET_OFFLINE=true CARGO_TERM_COLOR=never; quietly cargo new --vcs none --lib l; quietly cargo new --vcs none p; echo 'l = { path = "../l" }' >> p/Cargo.toml; printf 'fn main() { println!("{}", l::add(2, 3)); }\n' > p/src/main.rs; cd p; quietly cargo build -q; ./target/debug/p; cargo build 2>&1 | sed -E 's/ in .*//'; echo 'pub fn more() {}' >> ../l/src/lib.rs; touch ../l/src/lib.rs; cargo build 2>&1 | sed -E 's/ in .*//; s/\(.*//'; cargo test -q 2>&1 | sed -E 's/; finished.*//' ; quietly cargo clean; quietly cargo build -q --release; ./target/release/p; find target -name '*.lock'; find target/release -maxdepth 1 | LC_ALL=C sort; stat -c %h target/release/p; quietly cargo package -q --allow-dirty --no-verify --manifest-path ../l/Cargo.toml; quietly cargo vendor -q; rm -rf target ../l/target
#restart
### nothing is stale
export CARGO_NET_OFFLINE=true CARGO_TERM_COLOR=never; cd p; quietly cargo build -q; ./target/debug/p; rm -rf target
"#;

const PYTHON: &str = r#"
### venv and pip
quietly python3 -m venv --without-pip bare; ./bare/bin/python -c 'import sys, os; print(sys.prefix == os.environ["ROOT"] + "/bare")'; quietly python3 -m venv v; export PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1; mkdir -p w/pkg w/pkg-1.dist-info; printf 'def f(): return 42\n' > w/pkg/__init__.py; printf 'Metadata-Version: 2.1\nName: pkg\nVersion: 1\n' > w/pkg-1.dist-info/METADATA; printf 'Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n' > w/pkg-1.dist-info/WHEEL; printf '[console_scripts]\nsay = pkg:f\n' > w/pkg-1.dist-info/entry_points.txt; printf 'pkg/__init__.py,,\npkg-1.dist-info/METADATA,,\npkg-1.dist-info/WHEEL,,\npkg-1.dist-info/entry_points.txt,,\npkg-1.dist-info/RECORD,,\n' > w/pkg-1.dist-info/RECORD; find w -exec touch -d @1000000000 {} +; (cd w; python3 -m zipfile -c ../pkg-1-py3-none-any.whl pkg pkg-1.dist-info); quietly v/bin/pip install ./pkg-1-py3-none-any.whl; v/bin/python -c 'import pkg; print(pkg.f())'; v/bin/say; echo $?; v/bin/pip list --format=freeze | grep pkg; quietly v/bin/pip install --force-reinstall ./pkg-1-py3-none-any.whl; quietly v/bin/pip check; quietly v/bin/pip uninstall -y pkg; v/bin/python -c 'import pkg' 2>&1 | tail -n 1; rm -r v bare
### bytecode, temporary files, locks of it
printf 'x = 1\n' > m.py; python3 -c 'import m; print(m.x)'; ls __pycache__; printf 'x = 22\n' > m.py; python3 -c 'import m; print(m.x)'; python3 - <<'END'
import tempfile, shutil, os, zipfile, shelve, dbm, filecmp, pathlib, glob
with tempfile.TemporaryDirectory(dir='.') as d: open(d + '/f', 'w').write('x'); print(len(os.listdir(d)))
with tempfile.NamedTemporaryFile(dir='.') as f: f.write(b'x'); f.flush(); print(os.path.getsize(f.name))
with tempfile.TemporaryFile(dir='.') as f: f.write(b'x'); print(os.fstat(f.fileno()).st_nlink)
os.makedirs('a/b'); open('a/b/f', 'w').write('y' * 100000); shutil.copytree('a', 'c'); print(filecmp.cmp('a/b/f', 'c/b/f', shallow=False)); shutil.move('c', os.environ['OTHER'] + '/c'); shutil.make_archive('z', 'zip', 'a'); shutil.rmtree('a')
with shelve.open('s') as s: s['k'] = list(range(1000))
with shelve.open('s') as s: print(sum(s['k']))
print(sorted(glob.glob('*')), pathlib.Path('m.py').owner())
END
rm -r __pycache__ s* z.zip; ls
"#;

const NPM: &str = r#"
### npm
export npm_config_cache=$ROOT/cache npm_config_offline=true npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false; mkdir -p lib/bin app; printf '{"name":"lib","version":"1.0.0","main":"i.js","bin":{"say":"bin/say.js"},"scripts":{"postinstall":"echo ran > ran"}}' > lib/package.json; echo 'module.exports = 42' > lib/i.js; printf '#!/usr/bin/env node\nconsole.log(require("../i.js"))\n' > lib/bin/say.js; cd app; printf '{"name":"app","version":"1.0.0"}' > package.json; quietly npm pack ../lib; quietly npm install --foreground-scripts ./lib-1.0.0.tgz; ls -A node_modules node_modules/.bin; node -e 'console.log(require("lib"))'; npx say; readlink node_modules/.bin/say; stat -c %a node_modules/lib/bin/say.js; quietly npm ci; npm ls; quietly npm install ../lib; readlink node_modules/lib; quietly npm cache verify; quietly npm uninstall lib; ls -A; node -e 'const fs = require("fs"); const w = fs.watch(".", (e, f) => { console.log(e, f); w.close() }); setTimeout(() => fs.writeFileSync("watched", "x"), 200)'; node -e 'const fs = require("fs"); fs.cpSync("../lib", "cp", { recursive: true }); fs.rmSync("cp", { recursive: true }); fs.writeFileSync("a", "b"); fs.copyFileSync("a", "c", fs.constants.COPYFILE_EXCL); console.log(fs.readdirSync(".", { withFileTypes: true }).map(e => e.name + e.isFile()).sort().join(), fs.statSync("a", { bigint: true }).size)'; rm -rf ../cache node_modules *.tgz
"#;

const CCACHE: &str = r#"
### ccache
export CCACHE_DIR=$ROOT/cc; printf 'int main(void) { return 0; }\n' > a.c; for i in 1 2 3; do quietly ccache gcc -c a.c -o a$i.o; done; cmp a1.o a3.o; ccache --print-stats | grep -E '^(direct_cache_hit|cache_miss|preprocessed_cache_hit)'; ccache -o hard_link=true; quietly ccache gcc -c a.c -o b.o; quietly ccache -C; quietly ccache -c; rm -rf cc *.o
"#;
