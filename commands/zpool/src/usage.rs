//! What `zpool` says of its own use: the texts are OpenZFS's.

use tarn_engine::properties::pool_table::POOL_PROPERTIES;
use tarn_engine::properties::value::{Change, Property};

/// What follows the list of all subcommands.
pub const END: &str = "\nFor further help on a command or topic, run: zpool help [<topic>]\n";

/// What follows the usage of one subcommand: the properties, where it is about them.
pub fn notes(subcommand: &str) -> String {
    match subcommand {
        "set" | "get" | "list" => properties(),
        _ => String::new(),
    }
}

/// The table of all properties: what only shows first, then what can be set, each by name.
fn properties() -> String {
    let mut rows: Vec<&Property> = POOL_PROPERTIES.iter().filter(|row| row.visible).collect();
    rows.sort_by_key(|row| (row.change != Change::ReadOnly, row.name));
    let line = |row: &&Property| {
        let edit = match row.change {
            Change::ReadOnly => "  NO   ",
            _ => " YES   ",
        };
        let values = if row.values.is_empty() {
            "-"
        } else {
            row.values
        };
        format!("\t{:<19}  {edit}{values}\n", row.name)
    };
    let heading = format!(
        "\nthe following properties are supported:\n\n\t{:<19}  EDIT   VALUES\n\n",
        "PROPERTY"
    );
    let body: String = rows.iter().map(line).collect();
    let features = format!(
        "\t{:<19}   YES   disabled | enabled | active\n",
        "feature@..."
    );
    heading
        + &body
        + &features
        + "\nThe feature@ properties must be appended with a feature name.\nSee zpool-features(7).\n"
}

/// `zpool version`.
pub const VERSION: &str = "\tversion [-j]\n";
/// `zpool create`.
pub const CREATE: &str = "\tcreate [-fnd] [-o property=value] ... \n\
\t    [-O file-system-property=value] ... \n\
\t    [-m mountpoint] [-R root] <pool> <vdev> ...\n";
/// `zpool destroy`.
pub const DESTROY: &str = "\tdestroy [-f] <pool>\n";
/// `zpool add`.
pub const ADD: &str = "\tadd [-afgLnP] [-o property=value] <pool> <vdev> ...\n";
/// `zpool remove`.
pub const REMOVE: &str = "\tremove [-npsw] <pool> <device> ...\n";
/// `zpool labelclear`.
pub const LABELCLEAR: &str = "\tlabelclear [-f] <vdev>\n";
/// `zpool checkpoint`.
pub const CHECKPOINT: &str = "\tcheckpoint [-d [-w]] <pool> ...\n";
/// `zpool prefetch`.
pub const PREFETCH: &str = "\tprefetch -t <type> [<type opts>] <pool>\n\
\t    -t ddt <pool>\n";
/// `zpool list`.
pub const LIST: &str = "\tlist [-gHLpPv] [-o property[,...]] [-j [--json-int, --json-pool-key-guid]] ...\n\
\t    [-T d|u] [pool] [interval [count]]\n";
/// `zpool iostat`.
pub const IOSTAT: &str = "\tiostat [[[-c [script1,script2,...][-lq]]|[-rw]] [-T d | u] [-ghHLpPvy]\n\
\t    [[pool ...]|[pool vdev ...]|[vdev ...]] [[-n] interval [count]]\n";
/// `zpool status`.
pub const STATUS: &str = "\tstatus [--power] [-j [--json-int, --json-flat-vdevs, ...\n\
\t    --json-pool-key-guid]] [-c [script1,script2,...]] [-dDegiLpPstvx] ...\n\
\t    [-T d|u] [pool] [interval [count]]\n";
/// `zpool online`.
pub const ONLINE: &str = "\tonline [--power][-e] <pool> <device> ...\n";
/// `zpool offline`.
pub const OFFLINE: &str = "\toffline [--power]|[[-f][-t]] <pool> <device> ...\n";
/// `zpool clear`.
pub const CLEAR: &str = "\tclear [[--power]|[-nF]] <pool> [device]\n";
/// `zpool reopen`.
pub const REOPEN: &str = "\treopen [-n] <pool>\n";
/// `zpool attach`.
pub const ATTACH: &str = "\tattach [-fsw] [-o property=value] <pool> <device> <new-device>\n";
/// `zpool detach`.
pub const DETACH: &str = "\tdetach <pool> <device>\n";
/// `zpool replace`.
pub const REPLACE: &str = "\treplace [-fsw] [-o property=value] <pool> <device> [new-device]\n";
/// `zpool split`.
pub const SPLIT: &str = "\tsplit [-gLnPl] [-R altroot] [-o mntopts]\n\
\t    [-o property=value] <pool> <newpool> [<device> ...]\n";
/// `zpool initialize`.
pub const INITIALIZE: &str = "\tinitialize [-c | -s | -u] [-w] <pool> [<device> ...]\n";
/// `zpool resilver`.
pub const RESILVER: &str = "\tresilver <pool> ...\n";
/// `zpool scrub`.
pub const SCRUB: &str = "\tscrub [-e | -s | -p | -C | -E | -S] [-w] <-a | <pool> [<pool> ...]>\n";
/// `zpool trim`.
pub const TRIM: &str = "\ttrim [-dw] [-r <rate>] [-c | -s] <pool> [<device> ...]\n";
/// `zpool import`.
pub const IMPORT: &str = "\timport [-d dir] [-D]\n\
\timport [-o mntopts] [-o property=value] ... \n\
\t    [-d dir | -c cachefile] [-D] [-l] [-f] [-m] [-N] [-R root] [-F [-n]] -a\n\
\timport [-o mntopts] [-o property=value] ... \n\
\t    [-d dir | -c cachefile] [-D] [-l] [-f] [-m] [-N] [-R root] [-F [-n]]\n\
\t    [--rewind-to-checkpoint] <pool | id> [newpool]\n";
/// `zpool export`.
pub const EXPORT: &str = "\texport [-af] <pool> ...\n";
/// `zpool upgrade`.
pub const UPGRADE: &str = "\tupgrade\n\
\tupgrade -v\n\
\tupgrade [-V version] <-a | pool ...>\n";
/// `zpool reguid`.
pub const REGUID: &str = "\treguid [-g guid] <pool>\n";
/// `zpool history`.
pub const HISTORY: &str = "\thistory [-il] [<pool>] ...\n";
/// `zpool events`.
pub const EVENTS: &str = "\tevents [-vHf [pool] | -c]\n";
/// `zpool get`.
pub const GET: &str = "\tget [-Hp] [-j [--json-int, --json-pool-key-guid]] ...\n\
\t    [-o \"all\" | field[,...]] <\"all\" | property[,...]> <pool> ...\n";
/// `zpool set`.
pub const SET: &str = "\tset <property=value> <pool>\n\
\tset <vdev_property=value> <pool> <vdev>\n";
/// `zpool sync`.
pub const SYNC: &str = "\tsync [pool] ...\n";
/// `zpool wait`.
pub const WAIT: &str = "\twait [-Hp] [-T d|u] [-t <activity>[,...]] <pool> [interval]\n";
/// `zpool ddtprune`.
pub const DDTPRUNE: &str = "\tddtprune -d|-p <amount> <pool>\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_properties_has_openzfs_columns() {
        let text = notes("get");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[3], "\tPROPERTY             EDIT   VALUES");
        assert_eq!(lines[5], "\tallocated              NO   <size>");
        assert!(text.contains("\n\tfailmode              YES   wait | continue | panic\n"));
        assert!(text.contains("\n\tfeature@...           YES   disabled | enabled | active\n"));
        assert_eq!(notes("import"), "");
    }
}
