//! Scenarios: pools at the prompt.

use std::fs;
use std::os::unix::process::CommandExt;

use tarn_oracle::program;

use super::{LIMIT, POOL, Scenario, Setting, expect};
use crate::workspace::Outcome;

/// All of this subject.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::new("tags-harm-no-pool", tags_harm_no_pool),
    Scenario::new("pool-user-properties", pool_user_properties),
    Scenario::new("property-names-have-case", property_names_have_case),
    Scenario::new("sync-force-writes-labels", sync_force_writes_labels),
    Scenario {
        pool_options: "-d",
        ..Scenario::new("status-knows-compatibility", status_knows_compatibility)
    },
    Scenario::new("root-properties-are-checked", root_properties_are_checked),
    Scenario::new("key-format-needs-encryption", key_format_needs_encryption),
    Scenario::new("posixly-correct", posixly_correct),
    Scenario::new("arguments-that-are-not-utf-8", arguments_that_are_not_utf_8),
];

/// A user with delegated `hold` gave an empty tag, and the pool was suspended.
fn tags_harm_no_pool(setting: &Setting) -> Outcome {
    const USER: u32 = 65_534;
    setting.answer(&format!("zfs snapshot {POOL}@s"))?;
    setting.answer(&format!("zfs allow -u {USER} hold,release,userprop {POOL}"))?;
    let long = "t".repeat(256);
    for (tag, reason) in [
        (
            "",
            "cannot hold: operation not applicable to datasets of this type\n\
             a tag has at least one character",
        ),
        (
            long.as_str(),
            "cannot hold snapshot 'everyday@s': tag too long",
        ),
    ] {
        let mut hold = setting.instance.command("zfs");
        let hold = hold
            .args(["hold", tag, &format!("{POOL}@s")])
            .uid(USER)
            .gid(USER);
        let spoken = program::run(hold, LIMIT)?;
        expect("the exit code", Some(1), spoken.code)?;
        expect("the reason", reason, spoken.stderr.trim_end())?;
        expect(
            "health",
            "ONLINE",
            &setting.answer(&format!("zpool list -H -o health {POOL}"))?,
        )?;
    }
    let longest = "t".repeat(255);
    setting.answer(&format!("zfs hold {longest} {POOL}@s"))?;
    setting
        .answer(&format!("zfs release {longest} {POOL}@s"))
        .map(drop)
}

/// `zpool get` printed nothing of them; values ended at 4095 bytes.
fn pool_user_properties(setting: &Setting) -> Outcome {
    let get = |name: &str| {
        setting.answer(&format!(
            "zpool get -H -o property,value,source {name} {POOL}"
        ))
    };
    expect("before it is set", "a:b\t-\tdefault", &get("a:b")?)?;
    setting.answer(&format!("zpool set a:b=c {POOL}"))?;
    expect("after", "a:b\tc\tlocal", &get("a:b")?)?;
    let all = setting.answer(&format!("zpool get -H -o property all {POOL}"))?;
    let place = |name: &str| all.lines().position(|line| line.starts_with(name));
    let is_between = place("bcloneratio") < place("a:b") && place("a:b") < place("feature@");
    expect(
        "it stands between native properties and features",
        true,
        is_between,
    )?;
    let json = setting.answer(&format!("zpool get -j a:b {POOL}"))?;
    expect("it is in JSON", true, json.contains("\"a:b\""))?;
    let longest = "v".repeat(8191);
    setting.answer(&format!("zpool set a:long={longest} {POOL}"))?;
    expect(
        "the longest value",
        format!("a:long\t{longest}\tlocal"),
        get("a:long")?,
    )?;
    setting.ends_with(1, &format!("zpool set a:long={longest}v {POOL}"))?;
    setting.answer(&format!("zpool set a:b= {POOL}"))?;
    expect("after it was cleared", "a:b\t-\tdefault", &get("a:b")?)
}

/// Names were taken in any case.
fn property_names_have_case(setting: &Setting) -> Outcome {
    for line in [
        format!("zfs create -o QuOta=none {POOL}/a"),
        format!("zfs set COMPRESSION=on {POOL}"),
        format!("zfs get AVAIL {POOL}"),
        format!("zpool set CoMMent=a {POOL}"),
        format!("zpool get SIZE {POOL}"),
    ] {
        let mut words = line.split(' ');
        let program = words.next().unwrap_or_default();
        let spoken = setting.instance.run(program, &words.collect::<Vec<_>>())?;
        expect(&line, false, spoken.succeeded())?;
    }
    setting.answer(&format!("zfs get avail {POOL}"))?;
    setting.answer(&format!("zpool get cap {POOL}")).map(drop)
}

/// `zpool sync -f` wrote nothing where nothing had changed.
fn sync_force_writes_labels(setting: &Setting) -> Outcome {
    let txg = || -> Outcome<u64> {
        let label = setting.answer(&format!("zdb -l {}", setting.image.display()))?;
        let line = label
            .lines()
            .find_map(|line| line.trim().strip_prefix("txg: "));
        Ok(line.ok_or("no txg in the label")?.parse()?)
    };
    setting.answer(&format!("zpool sync {POOL}"))?;
    let before = txg()?;
    setting.answer(&format!("zpool sync {POOL}"))?;
    expect("the label's txg without -f", before, txg()?)?;
    setting.answer(&format!("zpool sync -f {POOL}"))?;
    expect("the label's txg has grown", true, txg()? > before)
}

/// What a pool lacked or had too much of its set was not told.
fn status_knows_compatibility(setting: &Setting) -> Outcome {
    let file = setting.folder.join("set");
    let status = || setting.answer(&format!("zpool status {POOL}"));
    let has = |text: &str| -> Outcome<bool> { Ok(status()?.contains(text)) };
    let (lacks, exceeds) = ("requested features are not enabled", "despite not being");
    fs::write(&file, "lz4_compress\n")?;
    setting.answer(&format!(
        "zpool set compatibility={} {POOL}",
        file.display()
    ))?;
    expect("a set of which something is missing", true, has(lacks)?)?;
    setting.answer(&format!("zpool upgrade {POOL}"))?;
    expect(
        "after the upgrade",
        (false, false),
        (has(lacks)?, has(exceeds)?),
    )?;
    let is_on = format!("zpool get -H -o value feature@bookmarks {POOL}");
    expect(
        "what is not in the set",
        "disabled",
        &setting.answer(&is_on)?,
    )?;
    fs::write(&file, "bookmarks\n")?;
    expect(
        "a set without what is enabled",
        true,
        has(lacks)? || has(exceeds)?,
    )?;
    fs::write(&file, "extensible_dataset\n")?;
    setting.answer(&format!("zpool upgrade {POOL}"))?;
    expect("one that has too little", true, has(exceeds)?)?;
    let problems = setting.answer("zpool status -x")?;
    expect(
        "none of it is a problem",
        "all pools are healthy",
        &problems,
    )?;
    fs::remove_file(&file)?;
    expect("a set that is gone", true, has("could not be")?)
}

/// Properties of the root file system were not looked at: a compression whose feature the new pool
/// does not have suspended it, and `encryption=on` and `dedup=on` were taken and did nothing.
fn root_properties_are_checked(setting: &Setting) -> Outcome {
    let disk = setting.folder.join("images/other");
    fs::File::create(&disk)?.set_len(128 << 20)?;
    let upgraded = "pool must be upgraded to set this property or value";
    for (options, reason) in [
        ("-d -O compression=zstd", upgraded),
        ("-d -O dnodesize=auto", upgraded),
        ("-d -O recordsize=1M", upgraded),
        ("-d -O checksum=skein", upgraded),
        (
            "-O encryption=on",
            "making encrypted datasets is not supported by this version",
        ),
        (
            "-O dedup=on",
            "writing deduplicated blocks is not supported by this version",
        ),
    ] {
        let create = format!("zpool create {options} other {}", disk.display());
        let spoken = setting.ends_with(1, &create)?;
        let is_said =
            spoken.stderr.starts_with("cannot create 'other': ") && spoken.stderr.contains(reason);
        expect(&format!("{options}: {}", spoken.stderr), true, is_said)?;
    }
    let options = "-d -o feature@zstd_compress=enabled -O compression=zstd -m none";
    setting.answer(&format!("zpool create {options} other {}", disk.display()))?;
    setting.answer("zpool destroy other").map(drop)
}

/// A key format without encryption was taken, and did nothing.
fn key_format_needs_encryption(setting: &Setting) -> Outcome {
    let disk = setting.folder.join("images/other");
    fs::File::create(&disk)?.set_len(128 << 20)?;
    let reason = "Encryption must be turned on to set encryption properties.";
    let create = format!(
        "zpool create -O keyformat=passphrase other {}",
        disk.display()
    );
    let spoken = setting.ends_with(1, &create)?;
    expect(
        "of a pool",
        format!("cannot create 'other': {reason}"),
        spoken.stderr.trim_end().to_string(),
    )?;
    let spoken = setting.ends_with(1, &format!("zfs create -o keyformat=passphrase {POOL}/a"))?;
    let expected = format!("cannot create '{POOL}/a': {reason}");
    expect(
        "of a file system",
        expected,
        spoken.stderr.trim_end().to_string(),
    )
}

/// Options after operands were taken as options.
fn posixly_correct(setting: &Setting) -> Outcome {
    for words in [
        &["zfs", "get", "all", "-r"][..],
        &["zpool", "list", POOL, "-H"],
    ] {
        let run = |is_posix: bool| -> Outcome<bool> {
            let mut command = setting.instance.command(words[0]);
            command.args(&words[1..]);
            if is_posix {
                command.env("POSIXLY_CORRECT", "1");
            }
            Ok(program::run(&mut command, LIMIT)?.succeeded())
        };
        expect(words[0], (true, false), (run(false)?, run(true)?))?;
    }
    Ok(())
}

/// A path in another encoding was changed to another path.
fn arguments_that_are_not_utf_8(setting: &Setting) -> Outcome {
    use std::os::unix::ffi::OsStrExt;
    let path = [
        b"mountpoint=".as_slice(),
        setting.folder.as_os_str().as_bytes(),
        b"/\xff",
    ]
    .concat();
    let mut set = setting.instance.command("zfs");
    set.arg("set")
        .arg(std::ffi::OsStr::from_bytes(&path))
        .arg(POOL);
    let spoken = program::run(&mut set, LIMIT)?;
    expect("the exit code", Some(1), spoken.code)?;
    expect("the reason", true, spoken.stderr.contains("is not UTF-8"))?;
    let mounted = setting.answer(&format!("zfs get -H -o value mountpoint {POOL}"))?;
    expect(
        "the mount point",
        setting.mount.display().to_string(),
        mounted,
    )
}
