//! What the daemon has counted, as the programs of this folder read it.

use super::arc_fields::{Counted, Moment};
use super::zil_fields::Log;
use tarn_administration::messages::statistics::{Kstat, KstatGroup};
use tarn_api::client::Client;
use tarn_terminal::connection;
use tarn_terminal::failure::Failure;

/// What datasets' statistics are called, before the number of the object.
const OF_DATASET: &str = "objset-";

/// A way to the daemon. These programs start none: nothing is counted where none runs.
///
/// # Errors
/// None runs.
pub fn connect(program: &str) -> Result<Client, Failure> {
    let instance = connection::instance()?;
    let client = Client::new(&instance.socket(), program);
    match client.is_reachable() {
        true => Ok(client),
        false => Err(Failure::error(format!(
            "tarnd does not run: nobody answers at {}; start it with 'tarn start'",
            instance.socket().display()
        ))),
    }
}

fn groups(client: &Client, pattern: &str) -> Result<Vec<KstatGroup>, Failure> {
    let request = Kstat {
        pattern: pattern.to_owned(),
    };
    Ok(client.statistics_kstat(request)?.groups)
}

/// The numbers of a group.
fn numbers(group: &KstatGroup) -> Counted {
    let number = |value: &serde_json::Value| {
        let signed = value.as_i64().map(i128::from);
        signed.or_else(|| value.as_u64().map(i128::from))
    };
    let each = group.data.iter();
    each.filter_map(|(name, value)| Some((name.clone(), number(value)?)))
        .collect()
}

/// The numbers of one group of the whole process; none where it does not count.
pub fn of_process(client: &Client, name: &str) -> Result<Counted, Failure> {
    let found = groups(client, &format!("zfs:0:{name}"))?;
    Ok(found.first().map(numbers).unwrap_or_default())
}

/// What the cache and its prefetchers have counted.
pub fn of_cache(client: &Client) -> Result<Moment, Failure> {
    Ok(Moment {
        cache: of_process(client, "arcstats")?,
        prefetch: of_process(client, "zfetchstats")?,
    })
}

/// All intent logs together.
pub fn of_all_logs(client: &Client) -> Result<Log, Failure> {
    Ok(Log {
        counted: of_process(client, "zil")?,
        ..Log::default()
    })
}

/// The intent log of each dataset that is open, by pool and object.
pub fn of_logs(client: &Client) -> Result<Vec<Log>, Failure> {
    let groups = groups(client, &format!("zfs/*:0:{OF_DATASET}*"))?;
    Ok(groups.iter().filter_map(log_of).collect())
}

fn log_of(group: &KstatGroup) -> Option<Log> {
    let dataset = group.data.get("dataset_name")?.as_str()?;
    Some(Log {
        pool: group.module.strip_prefix("zfs/")?.to_owned(),
        dataset: dataset.to_owned(),
        objset: group.name.strip_prefix(OF_DATASET)?.to_owned(),
        counted: numbers(group),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_dataset_is_a_log_with_its_pool_and_object() {
        let data = json!({ "dataset_name": "tank/home", "zil_commit_count": 5, "x_ns": {} });
        let group = KstatGroup {
            module: "zfs/tank".to_owned(),
            name: "objset-0x52".to_owned(),
            data: data.as_object().unwrap().clone(),
            ..KstatGroup::default()
        };
        let log = log_of(&group).unwrap();
        assert_eq!((log.pool.as_str(), log.objset.as_str()), ("tank", "0x52"));
        assert_eq!(log.dataset, "tank/home");
        assert_eq!(
            log.counted.into_iter().collect::<Vec<_>>(),
            [("zil_commit_count".into(), 5)]
        );
        assert_eq!(log_of(&KstatGroup::default()), None);
    }
}
