//! `zpool set`.

use tarn_administration::messages::pool::{Describe, PoolDescription, Set, SetVdev, VdevStatus};
use tarn_api::client::{CallError, Client};
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::program::Session;

/// What OpenZFS exits with when there is no such pool or vdev.
const INVALID: u8 = 22;

/// A command line, understood.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    property: String,
    value: String,
    pool: String,
    vdev: Option<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let client = session.connect()?;
    let Some(pool) = find_pool(&client, &request.pool)? else {
        complain(format!("cannot open '{}': is not a pool", request.pool));
        return Ok(INVALID);
    };
    if let Some(vdev) = request.vdev {
        return set_vdev(&client, &pool, vdev, request.property, request.value);
    }
    let changed = client.pool_set(Set {
        name: request.pool,
        property: request.property,
        value: request.value,
    })?;
    changed.notes.iter().for_each(complain);
    Ok(0)
}

fn find_pool(client: &Client, name: &str) -> Result<Option<PoolDescription>, Failure> {
    let describe = Describe {
        names: vec![name.to_string()],
        with_errors: false,
    };
    match client.pool_describe(describe) {
        Ok(described) => Ok(described.pools.into_iter().next()),
        Err(CallError::Refused(_)) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

/// Sets a property of a vdev. One that the pool has not is refused as such.
fn set_vdev(
    client: &Client,
    pool: &PoolDescription,
    vdev: String,
    property: String,
    value: String,
) -> Outcome {
    if !is_of(pool, &vdev) {
        complain(format!(
            "cannot find '{vdev}' in '{}': device not in pool",
            pool.name
        ));
        return Ok(INVALID);
    }
    client.pool_set_vdev(SetVdev {
        name: pool.name.clone(),
        vdev,
        property,
        value,
    })?;
    Ok(0)
}

/// Whether a pool has a vdev of this name.
fn is_of(pool: &PoolDescription, vdev: &str) -> bool {
    let is_root = vdev == "root" || vdev == "root-0";
    is_root || pool.layout.iter().any(|top| has(top, vdev))
}

/// Whether a vdev or one of its members goes by this name.
fn has(vdev: &VdevStatus, name: &str) -> bool {
    vdev.name == name
        || vdev.path.as_deref() == Some(name)
        || vdev.guid.to_string() == name
        || vdev.children.iter().any(|child| has(child, name))
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    if let Some(option) = arguments.first().and_then(|word| word.strip_prefix('-')) {
        let letter = option.chars().next().map(String::from).unwrap_or_default();
        return Err(Failure::usage(format!("invalid option '{letter}'")));
    }
    let (assignment, pool, vdev) = match arguments {
        [] => return Err(Failure::usage("missing property=value argument")),
        [_] => return Err(Failure::usage("missing pool name")),
        [assignment, pool] => (assignment, pool, None),
        [assignment, pool, vdev] => (assignment, pool, Some(vdev)),
        _ => return Err(Failure::usage("too many pool names")),
    };
    let Some((property, value)) = assignment.split_once('=') else {
        return Err(Failure::usage("missing value in property=value argument"));
    };
    Ok(Request {
        property: property.to_string(),
        value: value.to_string(),
        pool: pool.clone(),
        vdev: vdev.cloned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn parsed(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn one_property_of_one_pool_is_set() {
        let request = parsed("comment=a=b tank").unwrap();
        assert_eq!(
            (request.property.as_str(), request.value.as_str()),
            ("comment", "a=b")
        );
        assert_eq!(request.pool, "tank");
        for (line, text) in [
            ("", "missing property=value argument"),
            ("comment=a", "missing pool name"),
            ("comment tank", "missing value in property=value argument"),
            ("a=b c d e", "too many pool names"),
            ("-f a=b tank", "invalid option 'f'"),
        ] {
            assert_eq!(parsed(line), Err(Failure::usage(text)), "{line}");
        }
    }

    #[test]
    fn a_vdev_is_found_by_name_path_and_guid() {
        let pool = samples::mixed();
        assert!(!is_of(&pool, "/run/9.img"));
        for vdev in ["mirror-0", "/run/0.img", "root", "103"] {
            assert!(is_of(&pool, vdev), "{vdev}");
        }
    }
}
