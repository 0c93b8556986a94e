//! Programs that keep versions of files.

use super::Program;

pub const PROGRAMS: &[Program] = &[
    Program::new("git", &[("git", "git")], GIT)
        .with_tree()
        .quick(),
    Program::new("mercurial", &[("hg", "mercurial")], MERCURIAL),
    Program::new("subversion", &[("svn", "subversion")], SUBVERSION),
];

const GIT: &str = r#"
### repository
cat > $HOME/.gitconfig <<END
[user]
	name = a
	email = a@b
[init]
	defaultBranch = main
[advice]
	detachedHead = false
[safe]
	directory = *
[protocol "file"]
	allow = always
END
export GIT_AUTHOR_DATE='2001-01-01T00:00:00Z' GIT_COMMITTER_DATE='2001-01-01T00:00:00Z'
try git init r; cd r; git config -l --local; cp -a ../tree/few ../tree/many ../tree/text-* ../tree/rand-* ../tree/link-short ../tree/naïve* .; chmod 755 text-13; quietly git add .; quietly git commit -qm one; git rev-parse HEAD; git ls-files -s | sha256sum; git status --short | head
touch text-100; try git status --short; git update-index --refresh; echo x >> text-100; chmod +x text-112; rm text-113; ln -sfn a link-short; echo new > new; try git status --short; quietly git commit -qam two; git clean -fdq; git rev-parse HEAD
### branches
export GIT_AUTHOR_DATE='2001-01-01T00:00:00Z' GIT_COMMITTER_DATE='2001-01-01T00:00:00Z'
cd r; try git checkout -q -b side HEAD~1; echo y > text-511; quietly git commit -qam side; try git checkout -q main; try git merge -q -m merged side; git rev-parse HEAD; echo z > text-512; try git stash -q; try git stash pop -q; try git checkout -q -- .; try git rebase -q --onto side~1 side~1 side; git rev-parse HEAD; try git checkout -q main; git mv many plenty; quietly git commit -qm moved; git log --oneline --all --graph | cat; for i in $(seq 40); do echo $i > counted; git add counted; git commit -qm $i; done; git rev-parse HEAD; git bisect start -q HEAD HEAD~30 > /dev/null; git bisect run sh -c '[ $(cat counted) -lt 25 ]' 2>&1 | grep 'first bad'; git bisect reset -q
### keeping house
cd r; quietly git gc -q --aggressive --prune=now; quietly git fsck --full --strict; git count-objects -v | grep -v size; find .git -type f -name '*.pack' -printf '%m\n'; quietly git repack -adq; quietly git prune; quietly git pack-refs --all; git reflog | wc -l; quietly git maintenance run; git verify-pack -v .git/objects/pack/*.idx | wc -l; git commit-graph write 2>/dev/null; git commit-graph verify; git multi-pack-index write; git multi-pack-index verify
#restart
### nothing changed while it was away
cd r; git -c core.trustctime=true status --short; git diff --stat; git fsck --full
### clones and worktrees
quietly git clone -q r local; find local/.git/objects -type f -links +1 | wc -l; quietly git clone -q --no-hardlinks r copied; quietly git clone -q --bare r bare; quietly git clone -q --shared r shared; quietly git clone -q file://$ROOT/r overfile; quietly git clone -q --depth 3 file://$ROOT/r shallow; for c in local copied overfile; do git -C $c rev-parse HEAD; git -C $c fsck; git -C $c status --short; done; try git -C r worktree add -q ../wt side; git -C wt status --short; mv wt wt2; try git -C r worktree repair $ROOT/wt2 2>&1 | sed "s,$ROOT,,g"; try git -C r worktree list | wc -l; try git -C r worktree remove --force ../wt2; git -C r worktree list | wc -l
cd local; git config user.name b; echo l > l; git add l; GIT_COMMITTER_DATE='2001-01-01T00:00:00Z' git commit -qm l --date 2001-01-01T00:00:00Z; quietly git push -q $ROOT/bare main; git -C $ROOT/bare rev-parse main; git -C ../overfile pull -q $ROOT/bare main; git -C ../overfile rev-parse HEAD; mkdir -p $OTHER/g; quietly git clone -q . $OTHER/g; quietly git submodule add -q $ROOT/bare sub; git submodule status | cut -c1-50; git bundle create -q $WORK/b main; quietly git bundle verify $WORK/b; git archive main | sha256sum; git grep -c x -- 'text-1*' | head -5
git config core.untrackedCache true; git update-index --test-untracked-cache 2>&1 | tail -1; git update-index --untracked-cache; git status --short; touch u; git status --short; git config core.preloadIndex true; git config core.fsyncMethod batch; git config core.fsync all; git add u; git commit -qm u; git fsck
### concurrent
mkdir c; cd c; git init -q; git config gc.auto 0; for i in $(seq 30); do (echo $i | git hash-object -w --stdin > /dev/null; git update-ref refs/heads/b$i $(git commit-tree -m $i $(git mktree < /dev/null))) & done; wait; git branch | wc -l; git fsck --full 2>&1 | grep -v dangling; ls .git/*.lock; rm -rf $ROOT/* $OTHER/g
"#;

const MERCURIAL: &str = r#"
### hg
cat > $HOME/.hgrc <<END
[ui]
username = a
END
hg init r; cd r; seq 100 > a; ln -s a l; printf '#!/bin/sh\n' > x; chmod 755 x; try hg add; try hg commit -m one -d '0 0'; hg id -i; echo b > b; hg add b; hg mv a c; chmod -x x; try hg status; hg commit -m two -d '0 0'; hg id -i; try hg verify -q; try hg update -q 0; hg status; ls -A; hg clone -q . ../local; find ../local/.hg/store -links +1 -type f | wc -l; hg -R ../local verify -q; hg --config extensions.strip= strip -q tip; hg log -q | cat; try hg purge --config extensions.purge=; hg debugfs . | grep -v -E 'mounted|fstype' ; hg bundle -a -q $WORK/b; hg init ../u; hg -R ../u unbundle -q $WORK/b; hg -R ../u log -q | cat; rm -rf $ROOT/*
"#;

const SUBVERSION: &str = r#"
### svn
svnadmin create r; chmod -R go-w r; export U=file://$ROOT/r; try svn mkdir -q -m m $U/trunk; svn co -q $U/trunk wc; cd wc; seq 50 > a; ln -s a l; mkdir d; seq 5 > d/x; chmod 755 d/x; try svn add -q a l d; svn propset -q svn:executable on d/x; try svn commit -q -m one; echo y >> a; try svn status; svn diff a | tail -n 3; try svn revert -q a; svn mv -q a b; try svn commit -q -m two; svn up -q; svn cleanup; svnversion; ls -A; svn co -q $U/trunk ../wc2; ls -A ../wc2; quietly svnadmin verify -q $ROOT/r; svnadmin dump -q $ROOT/r | wc -l; svnadmin pack $ROOT/r; svnadmin hotcopy $ROOT/r $ROOT/hot; quietly svnadmin verify -q $ROOT/hot; stat -c %a ../wc2/d/x; rm -rf $ROOT/*
"#;
