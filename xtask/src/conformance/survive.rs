//! Pools whose devices are gone: only requests to them wait, and they can be let
//! go, or go on.
//!
//! # Mechanism
//! Two pools with threads that write files and have them made durable. The image of one of them
//!
//! - is removed: the pool goes on as long as it is open, and `zpool destroy -f` ends with 0;
//! - is cut off, and then as long as before: `zpool clear` has the pool go on, and no writer has
//!   seen an error;
//! - lies on a file system whose server does not answer any more (another host's, stopped): nothing
//!   fails, and nothing comes.
//!
//! Meanwhile commands answer within [`LIMIT`], and the other pool's threads never wait longer than
//! that. In the end every file that was made durable in a pool that went on, or was never touched,
//! is there, and OpenZFS's `zdb` finds the pools whole.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tarn_oracle::instance::Instance;
use tarn_oracle::program::Spoken;

use super::Arguments;
use crate::golden::judge_clean;
use crate::workspace::{Outcome, programs, scratch};

/// No command, and no thread of another pool, may wait longer.
const LIMIT: Duration = Duration::from_secs(2);
/// A pool must have noticed by then that its device fails: a group is stored every five seconds.
const NOTICE_LIMIT: Duration = Duration::from_secs(30);
/// How long threads write before and after.
const WORK: Duration = Duration::from_secs(2);
/// From then on a device counts as hanging.
const HUNG: Duration = Duration::from_millis(6500);
const THREADS: usize = 4;
const FILE_BYTES: usize = 64 << 10;
const IMAGE_BYTES: u64 = 512 << 20;

/// Plays all scenes.
pub fn survive(arguments: &Arguments) -> Outcome {
    for (name, scene) in [
        ("removed", removed as fn(&Scene) -> Outcome),
        ("cut off and back", cut_off),
        ("hanging", hanging),
    ] {
        let folder = scratch(&format!("conformance-survive-{}", name.replace(' ', "-")));
        let played = Scene::make(&folder).and_then(|made| {
            scene(&made)?;
            made.end()
        });
        played.map_err(|error| format!("{name}: {error}"))?;
        println!("  {name}: survived");
        if !arguments.keep {
            fs::remove_dir_all(&folder)?;
        }
    }
    Ok(())
}

/// Threads that write files of one pool.
struct Load {
    mount: PathBuf,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<std::io::Result<()>>>,
    /// Files that are durable.
    durable: Arc<Mutex<Vec<(usize, u64)>>>,
    /// The longest time in which none became durable, in milliseconds.
    longest_ms: Arc<AtomicU64>,
}

impl Load {
    fn begin(mount: &Path) -> Load {
        let (stop, longest_ms) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let durable = Arc::new(Mutex::new(Vec::new()));
        let threads = (0..THREADS).map(|thread| {
            let (stop, longest, durable) = (stop.clone(), longest_ms.clone(), durable.clone());
            let mount = mount.to_path_buf();
            thread::spawn(move || {
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    write_durably(&mount, thread, number)?;
                    durable
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((thread, number));
                    let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                    longest.fetch_max(took, Ordering::Relaxed);
                    number += 1;
                }
                Ok(())
            })
        });
        let threads = threads.collect();
        Load {
            mount: mount.to_path_buf(),
            stop,
            threads,
            durable,
            longest_ms,
        }
    }

    /// How many files are durable.
    fn count(&self) -> usize {
        let durable = self.durable.lock();
        durable.unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Waits for all threads; how many of them met an error.
    fn end(&mut self, limit: Duration) -> Outcome<usize> {
        self.stop.store(true, Ordering::Relaxed);
        let began = Instant::now();
        while self.threads.iter().any(|thread| !thread.is_finished()) {
            if began.elapsed() > limit {
                return Err(format!("a thread of {} hangs", self.mount.display()).into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        let ended = self.threads.drain(..).map(JoinHandle::join);
        let failed = ended.filter(|ended| !matches!(ended, Ok(Ok(()))));
        Ok(failed.count())
    }

    /// Every file that is durable is as it was written.
    fn check(&self) -> Outcome {
        let durable = self.durable.lock().unwrap_or_else(PoisonError::into_inner);
        for (thread, number) in durable.iter() {
            let path = file(&self.mount, *thread, *number);
            let found = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            if found != contents(*thread, *number) {
                return Err(format!("{} is not as it was written", path.display()).into());
            }
        }
        Ok(())
    }
}

fn file(mount: &Path, thread: usize, number: u64) -> PathBuf {
    mount.join(format!("{thread}-{number}"))
}

fn contents(thread: usize, number: u64) -> Vec<u8> {
    let line = format!("thread {thread}, file {number}\n");
    line.bytes().cycle().take(FILE_BYTES).collect()
}

fn write_durably(mount: &Path, thread: usize, number: u64) -> std::io::Result<()> {
    let mut file = File::create(file(mount, thread, number))?;
    file.write_all(&contents(thread, number))?;
    file.sync_all()
}

/// Two pools and their threads.
struct Scene {
    folder: PathBuf,
    instance: Instance,
    other: Mutex<Load>,
}

impl Scene {
    fn make(folder: &Path) -> Outcome<Scene> {
        let instance = Instance::new(&programs(), folder)?;
        fs::create_dir_all(folder.join("other"))?;
        fs::create_dir_all(folder.join("images"))?;
        let mount = make_pool(&instance, "other", &folder.join("other/image"))?;
        Ok(Scene {
            folder: folder.to_path_buf(),
            instance,
            other: Mutex::new(Load::begin(&mount)),
        })
    }

    /// Where the victim's image lies.
    fn image(&self) -> PathBuf {
        self.folder.join("images/image")
    }

    /// A command that must answer in time.
    fn ask(&self, program: &str, line: &str) -> Outcome<Spoken> {
        let words: Vec<&str> = line.split(' ').collect();
        let spoken = self.instance.run(program, &words)?;
        if spoken.duration > LIMIT {
            let took = spoken.duration.as_millis();
            return Err(format!("{program} {line} took {took} ms").into());
        }
        Ok(spoken)
    }

    /// Commands that only read, and those that change the other pool, are answered in time.
    fn ask_all(&self) -> Outcome {
        for (program, line) in [
            ("zpool", "list"),
            ("zpool", "status"),
            ("zpool", "status victim"),
            ("zpool", "iostat"),
            ("zfs", "list"),
            ("zfs", "mount"),
        ] {
            self.ask(program, line)?;
        }
        for (program, line) in [
            ("zfs", "create other/made"),
            ("zfs", "set compression=zstd other/made"),
            ("zfs", "destroy other/made"),
        ] {
            self.ask(program, line)?.expect_success()?;
        }
        Ok(())
    }

    fn expect_suspended(&self) -> Outcome {
        let began = Instant::now();
        loop {
            let spoken = self
                .ask("zpool", "list -H -o health victim")?
                .expect_success()?;
            if spoken.stdout.trim() == "SUSPENDED" {
                return Ok(());
            }
            if began.elapsed() > NOTICE_LIMIT {
                return Err(format!("the pool is still {}", spoken.stdout.trim()).into());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// The victim ends in time, and so do requests that wait for it.
    fn expect_let_go(&self, load: &mut Load) -> Outcome {
        self.ask("zpool", "export -f victim")?.expect_success()?;
        let failed = load.end(LIMIT)?;
        if failed != THREADS {
            return Err(format!("{failed} of {THREADS} writers were told").into());
        }
        let listed = self.ask("zpool", "list victim")?;
        match listed.stderr.contains("no such pool") {
            true => Ok(()),
            false => Err(format!("after the export: {}", listed.stderr).into()),
        }
    }

    /// The other pool was never disturbed, and is whole.
    fn end(&self) -> Outcome {
        let mut other = self.other.lock().unwrap_or_else(PoisonError::into_inner);
        match other.end(LIMIT)? {
            0 => {}
            failed => return Err(format!("{failed} threads of the other pool failed").into()),
        }
        let longest = Duration::from_millis(other.longest_ms.load(Ordering::Relaxed));
        if longest > LIMIT {
            return Err(format!("a thread of the other pool waited {longest:?}").into());
        }
        other.check()?;
        println!(
            "  the other pool stored {} files, none in more than {longest:?}",
            other.count()
        );
        self.instance.zpool("export other")?;
        judge_clean(&self.folder.join("other"), "other")
    }
}

fn make_pool(instance: &Instance, name: &str, image: &Path) -> Outcome<PathBuf> {
    File::create(image)?.set_len(IMAGE_BYTES)?;
    let mount = instance.root().join(name);
    let (mountpoint, image) = (mount.display().to_string(), image.display().to_string());
    instance.must("zpool", &["create", "-m", &mountpoint, name, &image])?;
    Ok(mount)
}

/// The image is removed while it is written.
fn removed(scene: &Scene) -> Outcome {
    let mount = make_pool(&scene.instance, "victim", &scene.image())?;
    let mut load = Load::begin(&mount);
    thread::sleep(WORK);
    fs::remove_file(scene.image())?;
    let before = load.count();
    thread::sleep(WORK);
    if load.count() <= before {
        return Err("nothing becomes durable on the file that was removed".into());
    }
    scene.ask_all()?;
    load.end(LIMIT)?;
    load.check()?;
    scene.ask("zpool", "destroy -f victim")?.expect_success()?;
    Ok(())
}

/// The image loses its end while it is written, and is then as long as before.
fn cut_off(scene: &Scene) -> Outcome {
    let image = scene.image();
    let mount = make_pool(&scene.instance, "victim", &image)?;
    let mut load = Load::begin(&mount);
    thread::sleep(WORK);
    let file = OpenOptions::new().write(true).open(&image)?;
    // The last label.
    file.set_len(IMAGE_BYTES - (256 << 10))?;
    scene.expect_suspended()?;
    scene.ask_all()?;
    let status = scene
        .ask("zpool", "status victim")?
        .expect_success()?
        .stdout;
    for expected in [
        " state: SUSPENDED",
        "One or more devices are faulted in response to IO failures.",
        "then run 'zpool clear'.",
    ] {
        if !status.contains(expected) {
            return Err(format!("zpool status does not say '{expected}': {status}").into());
        }
    }
    file.set_len(IMAGE_BYTES)?;
    scene.ask("zpool", "clear victim")?.expect_success()?;
    let before = load.count();
    thread::sleep(WORK);
    if load.count() <= before {
        return Err("nothing is stored after 'zpool clear'".into());
    }
    match load.end(LIMIT)? {
        0 => {}
        failed => return Err(format!("{failed} writers met an error").into()),
    }
    load.check()?;
    println!("  it went on with {} files", load.count());
    scene.instance.zpool("export victim")?;
    judge_clean(&scene.folder.join("images"), "victim")?;
    let images = scene.folder.join("images").display().to_string();
    scene
        .instance
        .must("zpool", &["import", "-d", &images, "victim"])?;
    load.check()?;
    scene.instance.zpool("export victim")?;
    Ok(())
}

/// A stopped process, which goes on when this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn stop(process: i32) -> Outcome<Stopped> {
        let process = Pid::from_raw(process).ok_or("a process has a number")?;
        kill_process(process, Signal::STOP)?;
        Ok(Stopped(process))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It is gone, if this fails.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// The image is on a file system that does not answer any more.
fn hanging(scene: &Scene) -> Outcome {
    let below = scene.instance.other_host(&scene.folder.join("below"))?;
    let mount_below = make_pool(&below, "below", &scene.image())?;
    let image = mount_below.join("image");
    let mount = make_pool(&scene.instance, "victim", &image)?;
    let mut load = Load::begin(&mount);
    thread::sleep(WORK);
    let daemon = below.daemon().ok_or("the host below has no daemon")?;
    let stopped = Stopped::stop(daemon)?;
    let began = Instant::now();
    while began.elapsed() < HUNG {
        scene.ask_all()?;
    }
    scene.expect_let_go(&mut load)?;
    scene.ask_all()?;
    drop(stopped);
    // What hung answers now, and lets go of the image.
    let images = mount_below.display().to_string();
    let began = Instant::now();
    loop {
        let imported = scene
            .instance
            .run("zpool", &["import", "-d", &images, "victim"])?;
        if imported.succeeded() {
            break;
        }
        if began.elapsed() > NOTICE_LIMIT {
            return Err(format!("it cannot be imported again: {}", imported.stderr).into());
        }
        thread::sleep(Duration::from_millis(200));
    }
    load.check()?;
    println!("  it came back with {} files", load.count());
    scene.instance.zpool("export victim")?;
    judge_clean(&mount_below, "victim")?;
    below.zpool("export below")?;
    Ok(())
}
