//! The pools that a command is about.

use tarn_administration::messages::pool::{Describe, PoolDescription};
use tarn_api::client::{CallError, Client};
use tarn_terminal::failure::{Failure, complain};
use tarn_terminal::json::{Numbers, Object};

/// The newest versions of pools and file systems, as JSON output has them.
const POOL_VERSION: u64 = 5000;
const FILE_SYSTEM_VERSION: u64 = 5;

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// By name.
    pub pools: Vec<PoolDescription>,
    /// True when a name could not be opened; that was said.
    pub has_failed: bool,
}

/// Asks for these pools, or for all when none is named, and says which there are not.
///
/// # Errors
/// Why nothing could be asked.
pub fn find(client: &Client, names: &[String], with_errors: bool) -> Result<Found, Failure> {
    let describe = |names| client.pool_describe(Describe { names, with_errors });
    if names.is_empty() {
        let pools = describe(Vec::new())?.pools;
        return Ok(sorted(pools, false));
    }
    let (mut pools, mut has_failed) = (Vec::new(), false);
    for name in names {
        match describe(vec![name.clone()]) {
            Ok(described) => pools.extend(described.pools),
            Err(CallError::Refused(refusal)) => {
                complain(refusal);
                has_failed = true;
            }
            Err(other) => return Err(other.into()),
        }
    }
    Ok(sorted(pools, has_failed))
}

/// The names of these pools, or of all when none is named.
///
/// # Errors
/// Why nothing could be asked.
pub fn names(client: &Client, names: &[String]) -> Result<(Vec<String>, bool), Failure> {
    let found = find(client, names, false)?;
    let names = found.pools.into_iter().map(|pool| pool.name).collect();
    Ok((names, found.has_failed))
}

fn sorted(mut pools: Vec<PoolDescription>, has_failed: bool) -> Found {
    pools.sort_by(|one, other| one.name.cmp(&other.name));
    pools.dedup_by(|one, other| one.name == other.name);
    Found { pools, has_failed }
}

/// What JSON output says of a pool besides its properties.
pub fn object(pool: &PoolDescription, with_type: bool, numbers: Numbers) -> Object {
    let mut object = Object::new();
    object.insert("name".into(), pool.name.clone().into());
    if with_type {
        object.insert("type".into(), "POOL".into());
    }
    object.insert("state".into(), pool.state.clone().into());
    object.insert("pool_guid".into(), numbers.number(pool.guid));
    object.insert("txg".into(), numbers.number(pool.txg));
    object.insert("spa_version".into(), numbers.number(POOL_VERSION));
    object.insert("zpl_version".into(), numbers.number(FILE_SYSTEM_VERSION));
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn pools_are_shown_by_name_and_once() {
        let pools = ["b", "a", "b"].map(|name| samples::pool(name, Vec::new()));
        let found = sorted(pools.to_vec(), false);
        let names: Vec<&str> = found.pools.iter().map(|pool| pool.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn json_has_the_members_of_openzfs() {
        let pool = samples::pool("tank", Vec::new());
        let object = object(&pool, true, Numbers::Text);
        assert_eq!(
            serde_json::Value::from(object).to_string(),
            concat!(
                r#"{"name":"tank","type":"POOL","state":"ONLINE","pool_guid":"4711","txg":"96","#,
                r#""spa_version":"5000","zpl_version":"5"}"#
            )
        );
    }
}
