//! Import of OpenZFS's pools with unsupported parts: the refusal names them, and never tells users
//! to destroy the pool.
//!
//! The fixtures were made by OpenZFS. Without them the test checks nothing.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::Notebook;
use tarn_administration::Administrator;
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::condition::Condition;
use tarn_administration::messages::pool::{self, ImportablePool, Search};
use tarn_engine::engine::{Engine, EngineOptions};
use tarn_engine::instance::Instance;
use tarn_engine::{Host, RealOptions};
use tarn_golden::Fixtures;

/// The expected texts for a fixture.
struct Said {
    fixture: &'static str,
    /// Images that are left out.
    without: &'static [&'static str],
    /// The refusal of an import: its reason, and a part of its hints. None where it can be
    /// imported.
    refusal: Option<(&'static str, &'static str)>,
    /// Whether it can be imported read-only.
    is_readable: bool,
}

const UNSUPPORTED: &str = "unsupported version or feature";
const UNAVAILABLE: &str = "one or more devices is currently unavailable";

const fn imported(fixture: &'static str) -> Said {
    Said {
        fixture,
        without: &[],
        refusal: None,
        is_readable: true,
    }
}

const fn only_readable(fixture: &'static str, reason: &'static str, hint: &'static str) -> Said {
    Said {
        refusal: Some((reason, hint)),
        ..imported(fixture)
    }
}

const fn refused(fixture: &'static str, reason: &'static str, hint: &'static str) -> Said {
    Said {
        is_readable: false,
        ..only_readable(fixture, reason, hint)
    }
}

const TABLE: &[Said] = &[
    imported("basic"),
    imported("checkpoint"),
    imported("degraded"),
    imported("encrypted"),
    imported("mixed"),
    imported("special"),
    imported("v28"),
    refused(
        "draid",
        UNSUPPORTED,
        "\torg.openzfs:draid (Support for distributed spare RAID)",
    ),
    refused(
        "expand",
        UNSUPPORTED,
        "\torg.openzfs:raidz_expansion (Support for raidz expansion)",
    ),
    refused(
        "removed",
        UNSUPPORTED,
        "\tcom.delphix:device_removal (Top-level vdevs can be removed, reducing logical pool size.)",
    ),
    only_readable(
        "dedup",
        "deduplicated blocks can be read and not be freed",
        "The pool can be imported using '-o readonly=on'.",
    ),
    only_readable(
        "fastdedup",
        UNSUPPORTED,
        "\tcom.klarasystems:fast_dedup (Support for advanced deduplication)",
    ),
    Said {
        without: &["0.img", "1.img"],
        ..refused("raidz1", UNAVAILABLE, "")
    },
];

fn engine(folder: &Path) -> Arc<Engine> {
    let options = EngineOptions {
        cache_bytes: Some(64 << 20),
        ..EngineOptions::default()
    };
    let host = Host::real(RealOptions::default());
    Engine::new(
        host,
        Instance::at(folder),
        Arc::<Notebook>::default(),
        options,
    )
}

fn search(folder: &Path) -> Search {
    Search {
        places: vec![folder.display().to_string()],
        ..Search::default()
    }
}

fn import(
    administrator: &Administrator,
    folder: &Path,
    name: &str,
    is_read_only: bool,
) -> Result<(), String> {
    let given = is_read_only.then(|| ("readonly".to_string(), "on".to_string()));
    let request = pool::Import {
        search: search(folder),
        pool: Some(name.to_string()),
        properties: given.into_iter().collect(),
        force: true,
        no_mount: true,
        ..pool::Import::default()
    };
    let imported = administrator.pool_import(&Call::default(), request);
    imported.map(drop).map_err(|refusal| refusal.to_string())
}

fn listed(administrator: &Administrator, folder: &Path) -> Vec<ImportablePool> {
    let request = pool::FindImportable {
        search: search(folder),
    };
    let found = administrator.pool_find_importable(&Call::default(), request);
    found.unwrap().pools
}

/// All texts of a listed pool.
fn text_of(pool: &ImportablePool) -> String {
    let of_condition = pool.condition.map(Condition::import_status);
    let action = match pool.action.is_empty() {
        true => Condition::import_action(pool.condition, &pool.state),
        false => &pool.action,
    };
    format!(
        "{} {} {action} {:?}",
        pool.status.as_deref().unwrap_or_default(),
        of_condition.unwrap_or_default(),
        pool.unsupported_features
    )
}

fn tells_to_destroy(text: &str) -> bool {
    ["estroy", "backup", "ecreate", "e-create"]
        .iter()
        .any(|word| text.contains(word))
}

#[test]
fn unsupported_parts_never_lead_to_the_advice_to_destroy_a_pool() {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let unpacked = checkout.join("target/fixtures-of-administration");
    let Ok(fixtures) = Fixtures::find(&checkout, &unpacked) else {
        return;
    };
    let mut wrong = Vec::new();
    for said in TABLE {
        let scratch = tempfile::tempdir().unwrap();
        let images = scratch.path().join("images");
        let fixture = fixtures.unpack(said.fixture).unwrap();
        fixture.working_copy(&images).unwrap();
        for image in said.without {
            std::fs::remove_file(images.join(image)).unwrap();
        }
        let engine = engine(scratch.path());
        let administrator = Administrator::new(engine.clone());
        let name = fixture.pool();
        let mut note = |what: &str, text: &str| wrong.push(format!("{name}: {what}: {text}"));

        let before = contents(&images);
        let pools = listed(&administrator, &images);
        match pools.as_slice() {
            [pool] if tells_to_destroy(&text_of(pool)) => note("listed", &text_of(pool)),
            [pool] if said.refusal.is_some() && !said.is_readable && pool.state == "ONLINE" => {
                note("listed", "as if it could be imported");
            }
            [_] => {}
            _ => note("listed", "not at all"),
        }
        let outcome = import(&administrator, &images, &name, false);
        match (&outcome, said.refusal) {
            (Ok(()), None) => {}
            (Err(text), Some((reason, hint)))
                if text.starts_with(&format!("cannot import '{name}': {reason}"))
                    && text.contains(hint)
                    && !tells_to_destroy(text)
                    && contents(&images) == before => {}
            (outcome, _) => note("import", &format!("{outcome:?}")),
        }
        if outcome.is_err() {
            let outcome = import(&administrator, &images, &name, true);
            match (&outcome, said.is_readable) {
                (Ok(()), true) => {}
                (Err(text), false) if !tells_to_destroy(text) => {}
                (outcome, _) => note("import read-only", &format!("{outcome:?}")),
            }
        }
        engine.stop();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The images' last labels and the bytes after their first labels, to see whether a pool is
/// unchanged.
fn contents(images: &Path) -> Vec<(PathBuf, u64)> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    use std::io::Read;
    let entries = std::fs::read_dir(images).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let sum = |path: &PathBuf| {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).unwrap();
        file.take(8 << 20).read_to_end(&mut bytes).unwrap();
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        hasher.finish()
    };
    let sums = paths.iter().map(sum).collect::<Vec<_>>();
    paths.into_iter().zip(sums).collect()
}
