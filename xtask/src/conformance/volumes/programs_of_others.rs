//! Programs of others that speak iSCSI and NBD: libiscsi's tests of a target, qemu's drivers of
//! both protocols, and libnbd's shell.

use std::process::Command;
use std::time::Duration;

use tarn_oracle::program::{self, Spoken};

use super::scene::{LIMIT, Scene, TESTED, TESTED_512, VOLUME_BYTES, soon, target_of};
use crate::workspace::Outcome;

/// libiscsi's tests take as long on a busy machine.
const SUITE_LIMIT: Duration = Duration::from_secs(900);

/// What of libiscsi's tests a volume with larger blocks than 512 bytes fails, by suite and test,
/// and why.
const TOLERATED: [(&str, &str); 1] = [(
    "GetLBAStatus.UnmapSingle",
    "asks for the status of the block at 1 + i, and expects an answer that begins with the physical \
     block behind it",
)];

/// Families that are quick, for the small budget.
const QUICK: &str = "iSCSI";

/// What `nbdsh` does: each command of the protocol, with what it must lead to.
const SHELL: &str = r#"
import errno
h.add_meta_context("base:allocation")
h.connect_uri(URI)
size = h.get_size()
h.zero(size, 0)
h.pwrite(b"a" * 70000, 4096, nbd.CMD_FLAG_FUA)
h.flush()
assert h.pread(70000, 4096) == b"a" * 70000
h.trim(65536, 8192)
assert h.pread(70000, 4096) == b"a" * 4096 + b"\0" * 65536 + b"a" * 368
h.zero(4096, 4096, nbd.CMD_FLAG_NO_HOLE)
assert h.pread(8192, 0) == b"\0" * 8192
h.cache(65536, 0)
found = []
h.block_status(size, 0, lambda context, offset, extents, error: found.extend(extents) or 0)
assert sum(found[0::2]) == size and 3 in found[1::2] and 0 in found[1::2], found
for call in [lambda: h.pread(1, size), lambda: h.pwrite(b"x", size)]:
    try:
        call()
    except nbd.Error as error:
        assert error.errnum in [errno.EINVAL, errno.ENOSPC], error
    else:
        raise SystemExit("a command beyond the end succeeds")
handles = [h.aio_pread(nbd.Buffer(4096), at * 4096) for at in range(64)]
while any(not h.aio_command_completed(one) for one in handles[-1:]):
    h.poll(-1)
h.shutdown()
"#;

impl Scene {
    /// libiscsi's tests: all of them, or the quick families, on a volume of each block size.
    pub fn libiscsi(&self, is_small: bool) -> Outcome {
        let volumes: &[&str] = match is_small {
            true => &[TESTED_512],
            false => &[TESTED, TESTED_512],
        };
        for volume in volumes {
            let target = target_of(volume);
            let url = format!("iscsi://{}/{target}/0", self.portal);
            soon(|| self.run(&["iscsi-inq", &url]))?;
            let mut words = vec!["-d", "-n", "-A"];
            let family = format!("--test={QUICK}");
            if is_small {
                words.push(&family);
            }
            words.push(&url);
            let mut command = Command::new("iscsi-test-cu");
            let spoken = program::run(command.args(&words), SUITE_LIMIT)?;
            let told = verdict(&spoken, *volume == TESTED)?;
            println!("  iscsi-test-cu on {volume}: {told}");
        }
        Ok(())
    }

    /// qemu's driver of iSCSI reads and writes what its driver of NBD does.
    pub fn qemu_by_both(&self, image: &str) -> Outcome {
        let scsi = format!("iscsi://{}/{}/0", self.portal, target_of("small"));
        let nbd = self.uri("small");
        let compare = |one: &str, other: &str| {
            self.run(&["qemu-img", "compare", "-f", "raw", "-F", "raw", one, other])
        };
        compare(image, &scsi)?;
        let convert = [
            "qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", image, &scsi,
        ];
        self.run(&convert)?;
        compare(image, &nbd)?;
        let place = (VOLUME_BYTES / 2).to_string();
        let write = format!("write -f -P 9 {place} 64k");
        let zero = format!("write -z -u {place} 4k");
        self.run(&["qemu-io", "-f", "raw", &scsi, "-c", &write, "-c", &zero])?;
        let (zeros, rest) = (
            format!("read -P 0 {place} 4k"),
            format!("read -P 9 {} 60k", VOLUME_BYTES / 2 + 4096),
        );
        let said = self.run(&["qemu-io", "-f", "raw", &nbd, "-c", &zeros, "-c", &rest])?;
        match said.contains("failed") {
            true => Err(format!("qemu-io reads something else by NBD:\n{said}").into()),
            false => Ok(()),
        }
    }

    /// libnbd's shell.
    pub fn nbdsh(&self) -> Outcome {
        let script = format!("URI = {:?}\n{SHELL}", self.uri("small"));
        // It runs the Python that it finds first; only Debian's has the package.
        let mut shell = Command::new("nbdsh");
        let shell = shell.args(["-c", &script]).env("PATH", "/usr/bin:/bin");
        program::run(shell, LIMIT)?.expect_success()?;
        Ok(())
    }
}

/// What the tests say: no failure that is not tolerated, and something that was run.
fn verdict(spoken: &Spoken, tolerates: bool) -> Outcome<String> {
    let said = format!("{}\n{}", spoken.stdout, spoken.stderr);
    let mut unexpected = Vec::new();
    for line in said.lines() {
        let Some(failed) = line.trim().strip_prefix("Suite ") else {
            continue;
        };
        let Some((suite, rest)) = failed.split_once(", Test ") else {
            continue;
        };
        let test = rest.split(' ').next().unwrap_or_default();
        let name = format!("{suite}.{test}");
        let is_known = TOLERATED.iter().any(|(known, _)| *known == name);
        if !(tolerates && is_known) {
            unexpected.push(name);
        }
    }
    if !unexpected.is_empty() {
        let list = unexpected.join(", ");
        return Err(format!("libiscsi's tests fail: {list}\n{said}").into());
    }
    let summary = said.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let is_it = words.next() == Some("tests");
        let numbers: Vec<u32> = words.map_while(|word| word.parse().ok()).collect();
        (is_it && numbers.len() >= 4).then_some(numbers)
    });
    match summary.as_deref() {
        Some([total, ran, passed, failed, ..]) if *ran > 0 => Ok(format!(
            "{passed} of {total} pass; {failed} fail, as they do where blocks are larger than 512 bytes"
        )),
        _ => Err(format!("libiscsi's tests do not say how they ended:\n{said}").into()),
    }
}
