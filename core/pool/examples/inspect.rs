//! Imports a pool read-only and prints its datasets with all their native properties.
//!
//! `cargo run --example inspect FOLDER POOL`: for a look at a pool without a daemon.

use std::path::PathBuf;
use tarn_cache::{Cache, CacheOptions};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::properties::native::{self, Shown, ShownSource};
use tarn_host::{Host, RealOptions};
use tarn_pool::{ImportRequest, Mode, Pool, PoolOwner};
use tarn_probe::{Operation, OperationKind, registry};
use tarn_vdev::Need;
use tarn_vdev::import_search::{DevicePaths, pools, search};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (folder, name) = match (arguments.next(), arguments.next()) {
        (Some(folder), Some(name)) => (PathBuf::from(folder), name),
        _ => return Err("usage: inspect FOLDER POOL".into()),
    };
    let host = Host::real(RealOptions::from_environment()?);
    let cache = Cache::new(&host, CacheOptions::default(), registry());
    let result = search(&host, &[folder]);
    let (candidates, refused) = pools(&result);
    for (guid, why) in refused {
        eprintln!("pool {guid}: {why}");
    }
    let paths = DevicePaths::of(&result);
    let candidate = candidates
        .iter()
        .find(|candidate| candidate.facts.name.to_string() == name)
        .ok_or("no such pool")?;
    let operation = Operation::internal(tarn_host::monotonic_ns, OperationKind::Assembly);
    let request = ImportRequest {
        candidate,
        paths: &paths,
        name: None,
        mode: Mode::ReadOnly,
        need: Need::All,
        owner: PoolOwner::default(),
    };
    let pool = Pool::import(&host, &cache, &request, &operation)?;
    let view = pool.namespace().view(&operation);
    let mut waiting = vec![view.root()?];
    while let Some(directory) = waiting.pop() {
        let mut children = directory.children()?;
        children.reverse();
        waiting.extend(children);
        let Some(head) = directory.head()? else {
            continue;
        };
        print(&head)?;
        for snapshot in head.snapshots()? {
            print(&snapshot)?;
        }
    }
    Ok(())
}

fn print(dataset: &Dataset<'_>) -> Result<(), Box<dyn std::error::Error>> {
    for value in native::of_dataset(dataset, |row| row.visible)? {
        let source = match value.source {
            ShownSource::None => "-".to_string(),
            ShownSource::Default => "default".to_string(),
            ShownSource::Set(place) => format!("{place:?}"),
        };
        let shown = match value.value {
            Shown::Number(number) => number.to_string(),
            Shown::Text(text) => text,
        };
        println!(
            "{}\t{}\t{shown}\t{source}",
            dataset.name(),
            value.property.name
        );
    }
    Ok(())
}
