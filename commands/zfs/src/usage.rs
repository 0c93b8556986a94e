//! What `zfs` says of its own use: the texts are OpenZFS's.

use tarn_engine::properties::table::PROPERTIES;
use tarn_engine::properties::value::{Change, Property};

/// What follows the list of all subcommands.
pub const END: &str = "\nEach dataset is of the form: pool/[dataset/]*dataset[@name]\n\
\nFor the property list, run: zfs set|get\n\
\nFor the delegated permission list, run: zfs allow|unallow\n\
\nFor further help on a command or topic, run: zfs help [<topic>]\n";

/// What follows the usage of one subcommand: the properties, where it is about them.
pub fn notes(subcommand: &str) -> String {
    match subcommand {
        "set" | "get" | "inherit" | "list" => properties(),
        _ => POINTERS.to_string(),
    }
}

const POINTERS: &str = "\nFor the property list, run: zfs set|get\n\
\nFor the delegated permission list, run: zfs allow|unallow\n\
\nFor further help on a command or topic, run: zfs help [<topic>]\n";

/// Properties that are asked of a user, a group, a project or a snapshot: name, whether they can be
/// set, values.
const OF_SOMEBODY: [(&str, bool, &str); 14] = [
    ("userused@...", false, "<size>"),
    ("groupused@...", false, "<size>"),
    ("projectused@...", false, "<size>"),
    ("userobjused@...", false, "<size>"),
    ("groupobjused@...", false, "<size>"),
    ("projectobjused@...", false, "<size>"),
    ("userquota@...", true, "<size> | none"),
    ("groupquota@...", true, "<size> | none"),
    ("projectquota@...", true, "<size> | none"),
    ("userobjquota@...", true, "<size> | none"),
    ("groupobjquota@...", true, "<size> | none"),
    ("projectobjquota@...", true, "<size> | none"),
    ("written@<snap>", false, "<size>"),
    ("written#<bookmark>", false, "<size>"),
];

const PROPERTIES_END: &str = "\nSizes are specified in bytes with standard units such as K, M, G, etc.\n\
\nUser-defined properties can be specified by using a name containing a colon (:).\n\
\nThe {user|group|project}[obj]{used|quota}@ properties must be appended with\n\
a user|group|project specifier of one of these forms:\n    \
POSIX name      (eg: \"matt\")\n    \
POSIX id        (eg: \"126829\")\n    \
SMB name@domain (eg: \"matt@sun\")\n    \
SMB SID         (eg: \"S-1-234-567-89\")\n";

/// The table of all properties: what only shows first, then what can be set, each by name.
fn properties() -> String {
    let heading = format!(
        "\t{:<21} {}  {}   {}\n\n",
        "PROPERTY", "EDIT", "INHERIT", "VALUES"
    );
    let mut rows: Vec<&Property> = PROPERTIES.iter().filter(|row| row.visible).collect();
    rows.sort_by_key(|row| (row.change != Change::ReadOnly, row.name));
    let line = |name: &str, can_edit: bool, inherits: bool, values: &str| {
        let edit = if can_edit { "YES    " } else { " NO    " };
        let inherit = if inherits { "  YES   " } else { "   NO   " };
        format!("\t{name:<22} {edit}{inherit}{values}\n")
    };
    let native: String = rows
        .iter()
        .map(|row| line(row.name, row.is_settable(), says_inherit(row), row.values))
        .collect();
    let of_somebody: String = OF_SOMEBODY
        .iter()
        .map(|(name, can_edit, values)| {
            let edit = if *can_edit { "YES" } else { " NO" };
            format!("\t{name:<22} {edit}       NO   {values}\n")
        })
        .collect();
    let head = "\nThe following properties are supported:\n\n";
    format!("{head}{heading}{native}{of_somebody}{PROPERTIES_END}")
}

/// What stands in the column INHERIT. Of what is fixed at creation a new dataset takes its
/// parent's, and OpenZFS calls that inherited, but where a default is shown instead.
#[doc(alias = "zfs_prop_inheritable")]
fn says_inherit(row: &Property) -> bool {
    matches!(row.change, Change::Inherit | Change::Once)
}

/// `zfs version`.
pub const VERSION: &str = "\tversion [-j]\n";
/// `zfs create`.
pub const CREATE: &str = "\tcreate [-Pnp[p]uv] [-o property=value] ... <filesystem>\n\
\tcreate [-Pnp[p]sv] [-b blocksize] [-o property=value] ... -V <size> <volume>\n";
/// `zfs destroy`.
pub const DESTROY: &str = "\tdestroy [-fnpRrv] <filesystem|volume>\n\
\tdestroy [-dnpRrv] <filesystem|volume>@<snap>[%<snap>][,...]\n\
\tdestroy <filesystem|volume>#<bookmark>\n";
/// `zfs snapshot`.
pub const SNAPSHOT: &str =
    "\tsnapshot [-r] [-o property=value] ... <filesystem|volume>@<snap> ...\n";
/// `zfs rollback`.
pub const ROLLBACK: &str = "\trollback [-rRf] <snapshot>\n";
/// `zfs clone`.
pub const CLONE: &str = "\tclone [-p[p]u] [-o property=value] ... <snapshot> <filesystem|volume>\n";
/// `zfs promote`.
pub const PROMOTE: &str = "\tpromote <clone-filesystem>\n";
/// `zfs rename`.
pub const RENAME: &str = "\trename [-f] <filesystem|volume|snapshot> <filesystem|volume|snapshot>\n\
\trename -p[p] [-f] <filesystem|volume> <filesystem|volume>\n\
\trename -u [-f] <filesystem> <filesystem>\n\
\trename -r <snapshot> <snapshot>\n";
/// `zfs bookmark`.
pub const BOOKMARK: &str = "\tbookmark [-r] <snapshot|bookmark> <newbookmark>\n";
/// `zfs diff`.
pub const DIFF: &str = "\tdiff [-FHth] <snapshot> [snapshot|filesystem]\n";
/// `zfs list`.
pub const LIST: &str = "\tlist [-Hp] [-j [--json-int]] [-r|-d max] [-o property[,...]] [-s property]...\n\
\t    [-S property]... [-t type[,...]] [filesystem|volume|snapshot] ...\n";
/// `zfs set`.
pub const SET: &str = "\tset [-u] <property=value> ... <filesystem|volume|snapshot> ...\n";
/// `zfs get`.
pub const GET: &str = "\tget [-rHp] [-j [--json-int]] [-d max] [-o \"all\" | field[,...]]\n\
\t    [-t type[,...]] [-s source[,...]]\n\
\t    <\"all\" | property[,...]> [filesystem|volume|snapshot|bookmark] ...\n";
/// `zfs inherit`.
pub const INHERIT: &str = "\tinherit [-rS] <property> <filesystem|volume|snapshot> ...\n";
/// `zfs upgrade`.
pub const UPGRADE: &str = "\tupgrade [-v]\n\
\tupgrade [-r] [-V version] <-a | filesystem ...>\n";
/// `zfs userspace`.
pub const USERSPACE: &str = "\tuserspace [-Hinp] [-o field[,...]] [-s field] ...\n\
\t    [-S field] ... [-t type[,...]] <filesystem|snapshot|path>\n";
/// `zfs groupspace`.
pub const GROUPSPACE: &str = "\tgroupspace [-Hinp] [-o field[,...]] [-s field] ...\n\
\t    [-S field] ... [-t type[,...]] <filesystem|snapshot|path>\n";
/// `zfs projectspace`.
pub const PROJECTSPACE: &str = "\tprojectspace [-Hp] [-o field[,...]] [-s field] ... \n\
\t    [-S field] ... <filesystem|snapshot|path>\n";
/// `zfs project`.
pub const PROJECT: &str = "\tproject [-d|-r] <directory|file ...>\n\
\tproject -c [-0] [-d|-r] [-p id] <directory|file ...>\n\
\tproject -C [-k] [-r] <directory ...>\n\
\tproject [-p id] [-r] [-s] <directory ...>\n";
/// `zfs mount`.
pub const MOUNT: &str = "\tmount [-j]\n\
\tmount [-flvO] [-o opts] <-a|-R filesystem|filesystem>\n";
/// `zfs unmount`.
pub const UNMOUNT: &str = "\tunmount [-fu] <-a | filesystem|mountpoint>\n";
/// `zfs share`.
pub const SHARE: &str = "\tshare [-l] <-a [nfs|smb] | filesystem>\n";
/// `zfs unshare`.
pub const UNSHARE: &str = "\tunshare <-a [nfs|smb] | filesystem|mountpoint>\n";
/// `zfs send`.
pub const SEND: &str = "\tsend [-DLPbcehnpsVvw] [-i|-I snapshot]\n\
\t     [-R [-X dataset[,dataset]...]]     <snapshot>\n\
\tsend [-DnVvPLecw] [-i snapshot|bookmark] <filesystem|volume|snapshot>\n\
\tsend [-DnPpVvLec] [-i bookmark|snapshot] --redact <bookmark> <snapshot>\n\
\tsend [-nVvPe] -t <receive_resume_token>\n\
\tsend [-PnVv] --saved filesystem\n";
/// `zfs receive`.
pub const RECEIVE: &str = "\treceive [-vMnsFhu] [-o <property>=<value>] ... [-x <property>] ...\n\
\t    <filesystem|volume|snapshot>\n\
\treceive [-vMnsFhu] [-o <property>=<value>] ... [-x <property>] ... \n\
\t    [-d | -e] <filesystem>\n\
\treceive -A <filesystem|volume>\n";
/// `zfs redact`.
pub const REDACT: &str = "\tredact <snapshot> <bookmark> <redaction_snapshot> ...\n";
/// `zfs allow`.
pub const ALLOW: &str = "\tallow <filesystem|volume>\n\
\tallow [-ldug] <\"everyone\"|user|group>[,...] <perm|@setname>[,...]\n\
\t    <filesystem|volume>\n\
\tallow [-ld] -e <perm|@setname>[,...] <filesystem|volume>\n\
\tallow -c <perm|@setname>[,...] <filesystem|volume>\n\
\tallow -s @setname <perm|@setname>[,...] <filesystem|volume>\n";
/// `zfs unallow`.
pub const UNALLOW: &str = "\tunallow [-rldug] <\"everyone\"|user|group>[,...]\n\
\t    [<perm|@setname>[,...]] <filesystem|volume>\n\
\tunallow [-rld] -e [<perm|@setname>[,...]] <filesystem|volume>\n\
\tunallow [-r] -c [<perm|@setname>[,...]] <filesystem|volume>\n\
\tunallow [-r] -s @setname [<perm|@setname>[,...]] <filesystem|volume>\n";
/// `zfs hold`.
pub const HOLD: &str = "\thold [-r] <tag> <snapshot> ...\n";
/// `zfs holds`.
pub const HOLDS: &str = "\tholds [-rHp] <snapshot> ...\n";
/// `zfs release`.
pub const RELEASE: &str = "\trelease [-r] <tag> <snapshot> ...\n";
/// `zfs load-key`.
pub const LOAD_KEY: &str = "\tload-key [-rn] [-L <keylocation>] <-a | filesystem|volume>\n";
/// `zfs unload-key`.
pub const UNLOAD_KEY: &str = "\tunload-key [-r] <-a | filesystem|volume>\n";
/// `zfs change-key`.
pub const CHANGE_KEY: &str = "\tchange-key [-l] [-o keyformat=<value>]\n\
\t    [-o keylocation=<value>] [-o pbkdf2iters=<value>]\n\
\t    <filesystem|volume>\n\
\tchange-key -i [-l] <filesystem|volume>\n";
/// `zfs program`.
pub const PROGRAM: &str = "\tprogram [-jn] [-t <instruction limit>] [-m <memory limit (b)>]\n\
\t    <pool> <program file> [lua args...]\n";
/// `zfs rewrite`.
pub const REWRITE: &str = "\trewrite [-CPSrvx] [-o <offset>] [-l <length>] <directory|file ...>\n";
/// `zfs wait`.
pub const WAIT: &str = "\twait [-t <activity>] <filesystem>\n";
/// `zfs zone`.
pub const ZONE: &str = "\tzone <nsfile> <filesystem>\n";
/// `zfs unzone`.
pub const UNZONE: &str = "\tunzone <nsfile> <filesystem>\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_properties_has_openzfs_columns() {
        let text = properties();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[3], "\tPROPERTY              EDIT  INHERIT   VALUES");
        assert_eq!(lines[5], "\tavailable               NO       NO   <size>");
        assert!(text.contains("\n\tatime                  YES      YES   on | off\n"));
        assert!(text.contains("\n\tuserquota@...          YES       NO   <size> | none\n"));
        for fixed in [
            "casesensitivity         NO      YES   sensitive",
            "utf8only                NO      YES   on | off",
            "volblocksize            NO      YES   512",
            "keyformat               NO       NO   none",
        ] {
            assert!(text.contains(&format!("\n\t{fixed}")), "{fixed}");
        }
    }

    #[test]
    fn properties_are_described_where_they_are_typed() {
        assert!(notes("get").starts_with("\nThe following properties are supported:\n"));
        assert!(notes("mount").starts_with("\nFor the property list, run: zfs set|get\n"));
    }
}
