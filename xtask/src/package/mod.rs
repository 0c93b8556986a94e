//! `cargo xtask package`: a Debian package of the programs and of what a server needs around them.
//!
//! # Mechanism
//! The programs are built and copied without symbols into a tree below `target/package`, laid out
//! as on the machine; `dpkg-deb` makes the package of it. Beside the programs there are systemd's
//! units and the configuration of kernel modules (`commands/tarnd/system`), man pages (`docs/man`
//! as roff) and completions for bash, zsh and fish, made from the usage texts of the programs.
//!
//! Below `/usr` the package takes the places of OpenZFS's programs and conflicts with its package.
//! Below another prefix it lives beside it; then nothing that mount(8) or a shell looks for by name
//! is installed: no `mount.zfs`, and completions and man pages below the prefix.

mod completions;
mod control;
mod judge;
mod man_page;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use tarn_oracle::instance::PROGRAMS;
use tarn_oracle::tools::is_in_path;

use crate::build;
use crate::workspace::{Outcome, checkout, output, programs, remove_folder, run, target};
use control::Place;

/// Where to install to, and what to package.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where the package's programs go. Below another prefix than /usr the package can be installed
    /// beside OpenZFS
    #[arg(long, default_value = "/usr")]
    prefix: String,
    /// The folder for the package; target/package unless given
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// What follows the version, such as ~rc1
    #[arg(long, default_value = "")]
    suffix: String,
    /// Package the programs of the last build, or of $TARN_PROGRAMS
    #[arg(long)]
    built: bool,
    /// Install, use, upgrade and remove it in a virtual machine with systemd, and say how that
    /// went; needs root, qemu and Debian's archive
    #[arg(long, conflicts_with_all = ["prefix", "out", "suffix"])]
    judge: bool,
}

/// The tree of the package.
struct Staging<'a> {
    root: PathBuf,
    place: &'a Place,
}

/// Makes the package, and says where it is.
pub fn package(arguments: &Arguments) -> Outcome {
    let place = Place::at(&arguments.prefix)?;
    if !is_in_path("dpkg-deb") {
        return Err("a package needs dpkg-deb, which Debian's package dpkg has".into());
    }
    if !arguments.built {
        build::build()?;
    }
    let folder = target().join("package");
    if arguments.judge {
        return judge::judge(&judge::Packages {
            first: make(&place, "~first", &folder)?,
            second: make(&place, "", &folder)?,
            beside: make(&Place::at("/opt/tarn")?, "", &folder)?,
        });
    }
    let out = arguments.out.as_ref().unwrap_or(&folder);
    make(&place, &arguments.suffix, out)?;
    Ok(())
}

/// Makes one package in a folder. Gives its file.
fn make(place: &Place, suffix: &str, out: &Path) -> Outcome<PathBuf> {
    let staging = Staging {
        root: target().join("package").join("tree"),
        place,
    };
    remove_folder(&staging.root)?;
    let version = format!("{}{suffix}", env!("CARGO_PKG_VERSION"));
    let glibc = staging.programs()?;
    staging.units()?;
    staging.man_pages(&version)?;
    staging.completions()?;
    staging.licences()?;
    staging.control(&version, &glibc)?;
    fs::create_dir_all(out)?;
    let architecture = architecture()?;
    let file = out.join(format!("{}_{version}_{architecture}.deb", place.package()));
    run(Command::new("dpkg-deb")
        .args(["--root-owner-group", "--build", "-Zxz"])
        .arg(&staging.root)
        .arg(&file))?;
    println!("{}", file.display());
    Ok(file)
}

/// Debian's name of this machine's architecture.
fn architecture() -> Outcome<String> {
    let printed = output(Command::new("dpkg").arg("--print-architecture"))?;
    Ok(printed.trim().to_owned())
}

impl Staging<'_> {
    /// Writes a file of the package, by its path on the machine.
    fn write(&self, path: &str, contents: impl AsRef<[u8]>, mode: u32) -> Outcome {
        let file = self.root.join(path.trim_start_matches('/'));
        let folder = file
            .parent()
            .ok_or("a file of the package is in a folder")?;
        fs::create_dir_all(folder)?;
        fs::write(&file, contents)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
        Ok(())
    }

    /// The programs, without symbols. Gives the version of the C library that they need.
    fn programs(&self) -> Outcome<String> {
        let mut glibc = None;
        for program in PROGRAMS {
            let built = programs().join(program);
            let bytes =
                fs::read(&built).map_err(|error| format!("{}: {error}", built.display()))?;
            glibc = glibc.max(control::glibc_of(&bytes));
            let path = format!("{}/{program}", self.place.programs());
            self.write(&path, bytes, 0o755)?;
            run(Command::new("strip").arg(self.root.join(path.trim_start_matches('/'))))?;
        }
        let folder = self.place.programs();
        for name in crate::build::KSTAT_PROGRAMS {
            let link = format!("{folder}/{name}");
            symlink("tarn", self.root.join(link.trim_start_matches('/')))?;
        }
        if self.place.is_system() {
            symlink("zfs", self.root.join("usr/sbin/mount.zfs"))?;
            // Where OpenZFS has it, and configurations of Telegraf expect it.
            fs::create_dir_all(self.root.join("usr/libexec"))?;
            symlink("../sbin/tarn", self.root.join("usr/libexec/zpool_influxdb"))?;
        }
        let (major, minor) = glibc.ok_or("the programs need no C library, or an unknown one")?;
        Ok(format!("{major}.{minor}"))
    }

    fn units(&self) -> Outcome {
        let read =
            |name: &str| -> Outcome<String> {
                let path = checkout().join("commands/tarnd/system").join(name);
                Ok(fs::read_to_string(&path)
                    .map_err(|error| format!("{}: {error}", path.display()))?)
            };
        for unit in control::UNITS {
            // The text of the checkout is for programs that were copied to /usr/local/sbin.
            let mut text = read(unit)?.replace("/usr/local/sbin", &self.place.programs());
            if self.place.is_system() {
                text.push_str(alias_of(unit));
            }
            self.write(&format!("/usr/lib/systemd/system/{unit}"), text, 0o644)?;
        }
        self.write(
            "/usr/lib/modules-load.d/tarn.conf",
            read("modules-load.conf")?,
            0o644,
        )?;
        self.write("/etc/modprobe.d/tarn.conf", read("modprobe.conf")?, 0o644)?;
        self.write("/etc/default/tarnd", read("default")?, 0o644)
    }

    fn man_pages(&self, version: &str) -> Outcome {
        let date = date_of_change()?;
        for entry in fs::read_dir(checkout().join("docs/man"))? {
            let path = entry?.path();
            let Some(name) = path
                .file_name()
                .and_then(|name| name.to_str()?.strip_suffix(".md"))
            else {
                continue;
            };
            let page = man_page::roff(&fs::read_to_string(&path)?, &date, version)
                .map_err(|why| format!("{}: {why}", path.display()))?;
            let at = format!("{}/share/man/man8/{name}", self.place.prefix);
            self.write(&at, page, 0o644)?;
            run(Command::new("gzip")
                .arg("-9n")
                .arg(self.root.join(at.trim_start_matches('/'))))?;
        }
        Ok(())
    }

    fn completions(&self) -> Outcome {
        for name in ["zpool", "zfs", "tarn"] {
            let usage = output(Command::new(programs().join(name)).arg("help"))?;
            let program = completions::Program {
                name,
                usage: &usage,
            };
            let share = format!("{}/share", self.place.prefix);
            self.write(
                &format!("{share}/bash-completion/completions/{name}"),
                completions::bash(&program),
                0o644,
            )?;
            self.write(
                &format!("{share}/zsh/vendor-completions/_{name}"),
                completions::zsh(&program),
                0o644,
            )?;
            self.write(
                &format!("{share}/fish/vendor_completions.d/{name}.fish"),
                completions::fish(&program),
                0o644,
            )?;
        }
        Ok(())
    }

    fn licences(&self) -> Outcome {
        let mut text = String::from("Tarn may be used under either of these two licences.\n\n");
        for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
            text.push_str(&fs::read_to_string(checkout().join(name))?);
            text.push('\n');
        }
        let package = self.place.package();
        self.write(&format!("/usr/share/doc/{package}/copyright"), text, 0o644)
    }

    fn control(&self, version: &str, glibc: &str) -> Outcome {
        let kib = size_of_tree(&self.root)?.div_ceil(1 << 10);
        let text = control::control(self.place, version, &architecture()?, glibc, kib);
        self.write("/DEBIAN/control", text, 0o644)?;
        self.write(
            "/DEBIAN/conffiles",
            "/etc/default/tarnd\n/etc/modprobe.d/tarn.conf\n",
            0o644,
        )?;
        for script in control::scripts() {
            self.write(&format!("/DEBIAN/{}", script.name), script.text, 0o755)?;
        }
        Ok(())
    }
}

/// The names under which units of other packages know those of OpenZFS that do the same.
fn alias_of(unit: &str) -> &'static str {
    match unit {
        "tarnd.service" => "Alias=zfs-mount.service\n",
        "tarn-import.target" => "Alias=zfs-import.target\n",
        _ => "Alias=zfs.target\n",
    }
}

/// The day of the last change, which man pages show: two builds of one commit are the same.
fn date_of_change() -> Outcome<String> {
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%cs"])
        .current_dir(checkout());
    Ok(output(&mut git)?.trim().to_owned())
}

/// How many bytes the files of a tree have.
fn size_of_tree(folder: &Path) -> Outcome<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let facts = entry.metadata()?;
        bytes += match facts.is_dir() {
            true => size_of_tree(&entry.path())?,
            false => facts.len(),
        };
    }
    Ok(bytes)
}
