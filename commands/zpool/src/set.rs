//! `zpool set`.

use tarn_administration::messages::pool::{Describe, PoolDescription, Set, VdevStatus};
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
    if let Some(vdev) = &request.vdev {
        return refuse_vdev(&pool, vdev);
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

/// Properties of vdevs are not built; one that the pool has not is refused as such.
fn refuse_vdev(pool: &PoolDescription, vdev: &str) -> Outcome {
    let is_root = vdev == "root" || vdev == "root-0";
    if !is_root && !pool.layout.iter().any(|top| has(top, vdev)) {
        complain(format!(
            "cannot find '{vdev}' in '{}': device not in pool",
            pool.name
        ));
        return Ok(INVALID);
    }
    Err(Failure::error(format!(
        "cannot set property for '{vdev}' in '{}': \
         properties of vdevs are not supported by this version of Tarn",
        pool.name
    )))
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
    fn a_vdev_is_looked_for_before_its_properties_are_refused() {
        let pool = samples::mixed();
        assert_eq!(refuse_vdev(&pool, "/run/9.img"), Ok(INVALID));
        for vdev in ["mirror-0", "/run/0.img", "root", "103"] {
            assert!(
                matches!(refuse_vdev(&pool, vdev), Err(Failure::Error(_))),
                "{vdev}"
            );
        }
    }
}
