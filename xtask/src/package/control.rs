//! What dpkg reads of the package: its description, and the scripts that it runs.

use std::fmt::Write;

/// Where the package's programs go, and what follows from that.
pub struct Place {
    /// `/usr`, or another prefix.
    pub prefix: String,
}

impl Place {
    /// The prefix that a package of a distribution has. Programs there have the names of OpenZFS's.
    const SYSTEM: &str = "/usr";

    /// A place below this prefix.
    ///
    /// # Errors
    /// It is not an absolute path of plain names.
    pub fn at(prefix: &str) -> Result<Place, String> {
        let prefix = prefix.trim_end_matches('/');
        let plain = |name: &str| {
            let is_plain =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
            !name.is_empty() && name.chars().all(is_plain) && !name.starts_with('.')
        };
        match prefix.strip_prefix('/') {
            Some(names) if names.split('/').all(plain) => Ok(Place {
                prefix: prefix.to_owned(),
            }),
            _ => Err(format!(
                "'{prefix}' is no prefix for a package: give an absolute path of lower-case names, such as /opt/tarn"
            )),
        }
    }

    /// True where the programs take the places of OpenZFS's.
    pub fn is_system(&self) -> bool {
        self.prefix == Place::SYSTEM
    }

    /// The package's name: one beside OpenZFS has its prefix in it.
    pub fn package(&self) -> String {
        match self.is_system() {
            true => "tarn".to_owned(),
            false => format!("tarn{}", self.prefix.replace('/', "-")),
        }
    }

    /// Where the programs are.
    pub fn programs(&self) -> String {
        format!("{}/sbin", self.prefix)
    }
}

/// The file `control`.
///
/// `glibc` is the oldest C library that the programs run with, `installed_kib` what the files take.
pub fn control(
    place: &Place,
    version: &str,
    architecture: &str,
    glibc: &str,
    installed_kib: u64,
) -> String {
    let mut text = format!(
        "Package: {}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: Tarn <tarn@localhost>\n\
         Installed-Size: {installed_kib}\nSection: admin\nPriority: optional\n\
         Depends: libc6 (>= {glibc}), libgcc-s1, fuse3, init-system-helpers\n\
         Suggests: libgssapi-krb5-2\n",
        place.package()
    );
    if place.is_system() {
        // Its programs and man pages have the same paths.
        text.push_str(
            "Conflicts: zfsutils-linux, zfs-zed, zfs-fuse\nReplaces: zfsutils-linux, zfs-fuse\n",
        );
    } else {
        // One daemon serves the machine's own instance.
        text.push_str("Conflicts: tarn\n");
    }
    text.push_str(
        "Description: ZFS pools in user space\n \
         Tarn creates, imports, reads and writes OpenZFS pools without a kernel module,\n \
         and serves them as FUSE mounts. Its commands are zpool, zfs and zdb.\n",
    );
    text
}

/// The systemd units of the package, in the order in which they are started.
pub const UNITS: [&str; 3] = ["tarnd.service", "tarn-import.target", "tarn-mount.target"];

fn units() -> String {
    UNITS.join(" ")
}

/// A script that dpkg runs at one step.
pub struct Script {
    /// Its name for dpkg.
    pub name: &'static str,
    /// Its text.
    pub text: String,
}

/// The scripts of a package.
///
/// A daemon that serves pools is not restarted when the package is upgraded: its mounts would end
/// under the programs that use them. It goes on as it is until the machine or the administrator
/// restarts it.
pub fn scripts() -> [Script; 3] {
    let head = "#!/bin/sh\nset -e\n\nhas_systemd() { [ -d /run/systemd/system ]; }\n\n";
    let mut configure = String::from(head);
    let _ = write!(
        configure,
        "case $1 in\nconfigure)\n    \
         for unit in {units}; do\n        deb-systemd-helper unmask $unit >/dev/null || true\n        \
         if deb-systemd-helper --quiet was-enabled $unit; then\n            deb-systemd-helper enable $unit >/dev/null || true\n        \
         else\n            deb-systemd-helper update-state $unit >/dev/null || true\n        fi\n    done\n    \
         if has_systemd; then\n        systemctl --system daemon-reload >/dev/null || true\n        \
         modprobe --quiet fuse || true\n        if systemctl --quiet is-active tarnd.service; then\n            \
         if [ -n \"$2\" ]; then\n                \
         echo 'tarnd serves its pools on, as the version that it was started from.'\n                \
         echo 'To use the new one: systemctl restart tarnd (file systems are unmounted meanwhile).'\n            fi\n        \
         else\n            deb-systemd-invoke start {units} >/dev/null || true\n        fi\n    fi\n    ;;\nesac\n",
        units = units()
    );
    let mut remove = String::from(head);
    let _ = write!(
        remove,
        "# The daemon stores what its pools have not yet, and unmounts.\nif [ \"$1\" = remove ] && has_systemd; then\n    \
         deb-systemd-invoke stop tarn-mount.target tarn-import.target tarnd.service\nfi\n"
    );
    let mut removed = String::from(head);
    let _ = write!(
        removed,
        "case $1 in\nremove)\n    for unit in {units}; do deb-systemd-helper mask $unit >/dev/null || true; done\n    ;;\n\
         purge)\n    for unit in {units}; do\n        deb-systemd-helper purge $unit >/dev/null || true\n        \
         deb-systemd-helper unmask $unit >/dev/null || true\n    done\n    \
         # The list of pools and the log. Pools are not touched: they can be imported again.\n    \
         rm -rf /var/lib/tarn\n    ;;\nesac\nif has_systemd; then\n    systemctl --system daemon-reload >/dev/null || true\nfi\n",
        units = units()
    );
    [
        Script {
            name: "postinst",
            text: configure,
        },
        Script {
            name: "prerm",
            text: remove,
        },
        Script {
            name: "postrm",
            text: removed,
        },
    ]
}

/// The oldest C library of which a program needs nothing newer: the largest `GLIBC_2.N` among the
/// versions of symbols that stand in it.
pub fn glibc_of(program: &[u8]) -> Option<(u32, u32)> {
    const MARK: &[u8] = b"GLIBC_";
    let mut newest = None;
    for (at, _) in program
        .windows(MARK.len())
        .enumerate()
        .filter(|(_, window)| *window == MARK)
    {
        let rest = &program[at + MARK.len()..];
        let end = rest
            .iter()
            .position(|byte| !(byte.is_ascii_digit() || *byte == b'.'));
        let Some(text) = std::str::from_utf8(&rest[..end.unwrap_or(rest.len())]).ok() else {
            continue;
        };
        let mut numbers = text.split('.').map_while(|number| number.parse().ok());
        if let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) {
            newest = newest.max(Some((major, minor)));
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::{Place, control, glibc_of, scripts};
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn a_package_below_another_prefix_lives_beside_openzfs() {
        let system = Place::at("/usr/").expect("a prefix");
        let text = control(&system, "0.1.0", "amd64", "2.34", 100);
        assert!(text.starts_with("Package: tarn\n"), "{text}");
        assert!(text.contains("\nConflicts: zfsutils-linux"), "{text}");
        let beside = Place::at("/opt/tarn").expect("a prefix");
        let text = control(&beside, "0.1.0", "amd64", "2.34", 100);
        assert!(text.starts_with("Package: tarn-opt-tarn\n"), "{text}");
        assert!(!text.contains("zfsutils-linux"), "{text}");
        assert_eq!(beside.programs(), "/opt/tarn/sbin");
    }

    #[test]
    fn prefixes_that_dpkg_could_not_take_are_refused() {
        for prefix in [
            "",
            "/",
            "opt/tarn",
            "/opt/../etc",
            "/Opt",
            "/opt//tarn",
            "/a b",
            "/.x",
        ] {
            assert!(Place::at(prefix).is_err(), "{prefix:?}");
        }
    }

    #[test]
    fn the_newest_symbol_decides_the_c_library() {
        assert_eq!(
            glibc_of(b"xGLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE"),
            Some((2, 34))
        );
        assert_eq!(glibc_of(b"nothing"), None);
    }

    #[test]
    fn the_scripts_are_scripts() {
        for script in scripts() {
            let mut shell = Command::new("sh")
                .arg("-n")
                .stdin(Stdio::piped())
                .spawn()
                .expect("sh starts");
            let mut input = shell.stdin.take().expect("its input is a pipe");
            input.write_all(script.text.as_bytes()).expect("sh reads");
            drop(input);
            assert!(
                shell.wait().expect("sh ends").success(),
                "{}: {}",
                script.name,
                script.text
            );
        }
    }
}
