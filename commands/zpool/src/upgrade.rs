//! `zpool upgrade`.
//!
//! Pools have a version up to 28, or features. Features that are written here can be enabled;
//! versions are not raised, which the engine says.

use crate::pools;
use tarn_administration::messages::Value;
use tarn_administration::messages::pool::{PoolDescription, Upgrade};
use tarn_api::client::{CallError, Client};
use tarn_engine::features::{Feature, Support};
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: ":avV:",
    long: &[],
};

/// The version of pools with features.
const VERSION_FEATURES: u64 = 5000;

/// The newest version before features.
const VERSION_LEGACY_MAX: u64 = 28;

/// What `-v` says of the versions before features.
const LEGACY: &str = "The following legacy versions are also supported:\n\n\
VER  DESCRIPTION\n\
---  --------------------------------------------------------\n \
1   Initial ZFS version\n \
2   Ditto blocks (replicated metadata)\n \
3   Hot spares and double parity RAID-Z\n \
4   zpool history\n \
5   Compression using the gzip algorithm\n \
6   bootfs pool property\n \
7   Separate intent log devices\n \
8   Delegated administration\n \
9   refquota and refreservation properties\n \
10  Cache devices\n \
11  Improved scrub performance\n \
12  Snapshot properties\n \
13  snapused property\n \
14  passthrough-x aclinherit\n \
15  user/group space accounting\n \
16  stmf property support\n \
17  Triple-parity RAID-Z\n \
18  Snapshot user holds\n \
19  Log device removal\n \
20  Compression using zle (zero-length encoding)\n \
21  Deduplication\n \
22  Received properties\n \
23  Slim ZIL\n \
24  System attributes\n \
25  Improved scrub stats\n \
26  Improved snapshot deletion performance\n \
27  Improved snapshot creation performance\n \
28  Multiple vdev replacements\n\
\nFor more information on a particular version, including supported releases,\n\
see the ZFS Administration Guide.\n\n";

/// What stands above pools with versions.
const OLDER: &str = "The following pools are formatted with legacy version numbers and can\n\
be upgraded to use feature flags.  After being upgraded, these pools\n\
will no longer be accessible by software that does not support feature\n\
flags.\n\n\
Note that setting a pool's 'compatibility' feature to 'legacy' will\n\
inhibit upgrades.\n\n\
VER  POOL\n\
---  ------------\n";

/// What stands above features that are not enabled.
const DISABLED: &str = "\nSome supported features are not enabled on the following pools. Once a\n\
feature is enabled the pool may become incompatible with software\n\
that does not support the feature. See zpool-features(7) for details.\n\n\
Note that the pool 'compatibility' feature can be used to inhibit\n\
feature upgrades.\n\n\
POOL  FEATURE\n\
---------------\n";

/// A command line, understood.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// What could be upgraded.
    List,
    /// `-v`.
    Versions,
    /// `-a`.
    All(u64),
    /// These pools.
    Pools(Vec<String>, u64),
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why nothing could be asked.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    output::say("This system supports ZFS pool feature flags.\n\n");
    if request == Request::Versions {
        output::say(&versions());
        return Ok(0);
    }
    let client = session.connect()?;
    let names = match &request {
        Request::Pools(names, _) => names.as_slice(),
        _ => &[],
    };
    let found = pools::find(&client, names, false)?;
    match request {
        Request::List | Request::Versions => {
            output::say(&older(&found.pools));
            output::say(&disabled(&found.pools));
            Ok(0)
        }
        Request::All(version) => upgrade_all(&client, &found.pools, version),
        Request::Pools(_, version) => {
            let mut has_failed = found.has_failed;
            for pool in &found.pools {
                has_failed |= !upgrade_one(&client, pool, version)?;
            }
            Ok(u8::from(has_failed))
        }
    }
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let (mut is_all, mut shows_versions, mut version) = (false, false, None);
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "a" => is_all = true,
            "v" => shows_versions = true,
            _ => version = Some(parse_version(&value)?),
        }
    }
    let pools = options.operands();
    let is_list = !is_all && pools.is_empty();
    for (is_wrong, text) in [
        (
            version.is_some() && is_list,
            "-V option is incompatible with other arguments",
        ),
        (
            shows_versions && !is_list,
            "-v option is incompatible with other arguments",
        ),
        (
            is_all && !pools.is_empty(),
            "-a option should not be used along with a pool name",
        ),
    ] {
        if is_wrong {
            return Err(Failure::usage(text));
        }
    }
    let version = version.unwrap_or(VERSION_FEATURES);
    Ok(match (shows_versions, is_all) {
        (true, _) => Request::Versions,
        (_, true) => Request::All(version),
        _ if is_list => Request::List,
        _ => Request::Pools(pools, version),
    })
}

fn parse_version(text: &str) -> Result<u64, Failure> {
    let known =
        |version: &u64| (1..=VERSION_LEGACY_MAX).contains(version) || *version == VERSION_FEATURES;
    let version = text.parse().ok().filter(known);
    version.ok_or_else(|| Failure::usage(format!("invalid version '{text}'")))
}

/// What `-v` prints.
fn versions() -> String {
    let mut text = format!(
        "The following features are supported:\n\nFEAT DESCRIPTION\n{}\n",
        "-".repeat(61)
    );
    let supported = Feature::ALL
        .iter()
        .filter(|feature| feature.support() != Support::None);
    for feature in supported {
        let compatible = match feature.is_needed_to_read() {
            true => "",
            false => " (read-only compatible)",
        };
        text.push_str(&format!("{:<37}{compatible}\n", feature.name()));
        text.push_str(&format!("     {}\n", feature.description()));
    }
    text + "\n" + LEGACY
}

/// The version of a pool.
fn version(pool: &PoolDescription) -> u64 {
    match pool.properties.get("version").map(|answer| &answer.value) {
        Some(Value::Number(version)) => *version,
        _ => VERSION_FEATURES,
    }
}

/// Pools without features.
fn older(pools: &[PoolDescription]) -> String {
    let old: Vec<&PoolDescription> = pools
        .iter()
        .filter(|pool| version(pool) < VERSION_FEATURES)
        .collect();
    if old.is_empty() {
        return "All pools are formatted using feature flags.\n\n".to_string();
    }
    let lines = old
        .iter()
        .map(|pool| format!("{:2}   {}\n", version(pool), pool.name));
    OLDER.to_string()
        + &lines.collect::<String>()
        + "\nUse 'zpool upgrade -v' for a list of available legacy versions.\n"
}

/// Features that could be enabled.
fn disabled(pools: &[PoolDescription]) -> String {
    let mut text = String::new();
    for pool in pools
        .iter()
        .filter(|pool| version(pool) >= VERSION_FEATURES)
    {
        let mut features = Feature::ALL
            .iter()
            .filter(|feature| is_disabled(pool, **feature))
            .peekable();
        if features.peek().is_some() {
            text.push_str(&format!("{}\n", pool.name));
        }
        for feature in features {
            text.push_str(&format!("      {}\n", feature.name()));
        }
    }
    match text.is_empty() {
        true => {
            "Every feature flags pool has all supported and requested features enabled.\n".into()
        }
        false => format!("{DISABLED}{text}\n"),
    }
}

/// Whether a pool has not a feature that it could have.
fn is_disabled(pool: &PoolDescription, feature: Feature) -> bool {
    let answer = pool.properties.get(&format!("feature@{}", feature.name()));
    let is_disabled = matches!(
        answer.map(|answer| &answer.value),
        Some(Value::Text(word)) if word == "disabled"
    );
    feature.is_enabled_by_default() && is_disabled
}

fn upgrade_all(client: &Client, pools: &[PoolDescription], wanted: u64) -> Outcome {
    let mut has_changed = false;
    for pool in pools {
        if wanted < VERSION_FEATURES && version(pool) >= wanted {
            continue;
        }
        let Some(features) = upgrade(client, pool, wanted)? else {
            return Ok(1);
        };
        has_changed |= !features.is_empty();
        output::say(&enabled(&pool.name, &features));
    }
    if !has_changed {
        output::say(&match wanted {
            VERSION_FEATURES => "All pools are already formatted using feature flags.\n\n\
                 Every feature flags pool already has all supported and requested features enabled.\n"
                .to_string(),
            _ => format!("All pools are already formatted with version {wanted} or higher.\n"),
        });
    }
    Ok(0)
}

/// Upgrades a pool that was named; false when it was refused.
fn upgrade_one(client: &Client, pool: &PoolDescription, wanted: u64) -> Result<bool, Failure> {
    let name = &pool.name;
    let current = version(pool);
    if current > wanted {
        output::say(&format!(
            "Pool '{name}' is already formatted using more current version '{current}'.\n\n"
        ));
        return Ok(true);
    }
    if wanted != VERSION_FEATURES && current == wanted {
        output::say(&format!(
            "Pool '{name}' is already formatted using version {wanted}.\n\n"
        ));
        return Ok(true);
    }
    let Some(features) = upgrade(client, pool, wanted)? else {
        return Ok(false);
    };
    output::say(&match features.is_empty() {
        true => {
            format!("Pool '{name}' already has all supported and requested features enabled.\n")
        }
        false => enabled(name, &features),
    });
    Ok(true)
}

/// Whether a pool has everything that it could be upgraded to.
fn is_complete(pool: &PoolDescription) -> bool {
    let mut features = Feature::ALL.iter();
    version(pool) == VERSION_FEATURES && !features.any(|feature| is_disabled(pool, *feature))
}

/// The features that were enabled; none when it was refused, which was said.
fn upgrade(
    client: &Client,
    pool: &PoolDescription,
    wanted: u64,
) -> Result<Option<Vec<String>>, Failure> {
    // Every user may ask for what changes nothing.
    if wanted == VERSION_FEATURES && is_complete(pool) {
        return Ok(Some(Vec::new()));
    }
    let upgrade = Upgrade {
        names: vec![pool.name.clone()],
        version: (wanted != VERSION_FEATURES).then_some(wanted),
    };
    match client.pool_upgrade(upgrade) {
        Ok(upgraded) => {
            let features = upgraded
                .pools
                .into_iter()
                .flat_map(|(_, features)| features);
            Ok(Some(features.collect()))
        }
        Err(CallError::Refused(refusal)) => {
            complain(refusal);
            Ok(None)
        }
        Err(other) => Err(other.into()),
    }
}

fn enabled(pool: &str, features: &[String]) -> String {
    if features.is_empty() {
        return String::new();
    }
    let lines = features.iter().map(|name| format!("  {name}\n"));
    format!(
        "Enabled the following features on '{pool}':\n{}\n",
        lines.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn parsed(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    fn with(name: &str, value: Value) -> PoolDescription {
        let mut pool = samples::pool("tank", Vec::new());
        let answer = samples::answer(value, tarn_administration::messages::Source::Local);
        pool.properties.insert(name.to_string(), answer);
        pool
    }

    #[test]
    fn arguments_say_which_pools_and_which_version() {
        assert_eq!(parsed(""), Ok(Request::List));
        assert_eq!(parsed("-v"), Ok(Request::Versions));
        assert_eq!(parsed("-a"), Ok(Request::All(5000)));
        assert_eq!(
            parsed("-V 28 tank"),
            Ok(Request::Pools(vec!["tank".to_string()], 28))
        );
        for (line, text) in [
            ("-V 29 tank", "invalid version '29'"),
            ("-V", "missing argument for 'V' option"),
            ("-V 28", "-V option is incompatible with other arguments"),
            ("-v tank", "-v option is incompatible with other arguments"),
            (
                "-a tank",
                "-a option should not be used along with a pool name",
            ),
        ] {
            assert_eq!(parsed(line), Err(Failure::usage(text)), "{line}");
        }
    }

    #[test]
    fn pools_that_could_be_upgraded_are_listed() {
        let old = with("version", Value::Number(28));
        assert!(older(&[old]).contains("VER  POOL\n---  ------------\n28   tank\n\nUse "));
        let new = with("version", Value::Absent);
        assert_eq!(
            older(std::slice::from_ref(&new)),
            "All pools are formatted using feature flags.\n\n"
        );
        assert_eq!(
            disabled(&[new]),
            "Every feature flags pool has all supported and requested features enabled.\n"
        );
        let lacking = with("feature@lz4_compress", Value::Text("disabled".to_string()));
        assert!(disabled(&[lacking]).ends_with("tank\n      lz4_compress\n\n"));
    }

    #[test]
    fn a_pool_that_lacks_nothing_is_complete() {
        assert!(is_complete(&with("version", Value::Absent)));
        assert!(!is_complete(&with("version", Value::Number(28))));
        let disabled = Value::Text("disabled".to_string());
        assert!(!is_complete(&with("feature@lz4_compress", disabled)));
    }

    #[test]
    fn features_are_described() {
        let text = versions();
        assert!(text.contains(
            "\nasync_destroy                         (read-only compatible)\n     \
             Destroy filesystems asynchronously.\n"
        ));
        assert!(text.contains("\n---  --------------------------------------------------------\n 1   Initial ZFS version\n"));
        assert!(text.contains("\n 28  Multiple vdev replacements\n\nFor more"));
    }
}
