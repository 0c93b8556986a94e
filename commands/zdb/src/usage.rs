//! The usage as OpenZFS 2.3 prints it. It includes options that this version does not support,
//! which are refused by name.

/// The usage.
pub const USAGE: &str = "\
Usage:\tzdb [-AbcdDFGhikLMPsvXy] [-e [-V] [-p <path> ...]] [-I <inflight I/Os>]
\t\t[-o <var>=<value>]... [-t <txg>] [-U <cache>] [-x <dumpdir>]
\t\t[-K <key>]
\t\t[<poolname>[/<dataset | objset id>] [<object | range> ...]]
\tzdb [-AdiPv] [-e [-V] [-p <path> ...]] [-U <cache>] [-K <key>]
\t\t[<poolname>[/<dataset | objset id>] [<object | range> ...]
\tzdb -B [-e [-V] [-p <path> ...]] [-I <inflight I/Os>]
\t\t[-o <var>=<value>]... [-t <txg>] [-U <cache>] [-x <dumpdir>]
\t\t[-K <key>] <poolname>/<objset id> [<backupflags>]
\tzdb [-v] <bookmark>
\tzdb -C [-A] [-U <cache>] [<poolname>]
\tzdb -l [-Aqu] <device>
\tzdb -m [-AFLPX] [-e [-V] [-p <path> ...]] [-t <txg>] [-U <cache>]
\t\t<poolname> [<vdev> [<metaslab> ...]]
\tzdb -O [-K <key>] <dataset> <path>
\tzdb -r [-K <key>] <dataset> <path> <destination>
\tzdb -R [-A] [-e [-V] [-p <path> ...]] [-U <cache>]
\t\t<poolname> <vdev>:<offset>:<size>[:<flags>]
\tzdb -E [-A] word0:word1:...:word15
\tzdb -S [-AP] [-e [-V] [-p <path> ...]] [-U <cache>] <poolname>

    Dataset name must include at least one separator character '/' or '@'
    If dataset name is specified, only that dataset is dumped
    If object numbers or object number ranges are specified, only those
    objects or ranges are dumped.

    Object ranges take the form <start>:<end>[:<flags>]
        start    Starting object number
        end      Ending object number, or -1 for no upper bound
        flags    Optional flags to select object types:
            A     All objects (this is the default)
            d     ZFS directories
            f     ZFS files 
            m     SPA space maps
            z     ZAPs
            -     Negate effect of next flag

    Options to control amount of output:
        -b --block-stats             block statistics
        -B --backup                  backup stream
        -c --checksum                checksum all metadata (twice for all data) blocks
        -C --config                  config (or cachefile if alone)
        -d --datasets                dataset(s)
        -D --dedup-stats             dedup statistics
        -E --embedded-block-pointer=INTEGER
                                     decode and display block from an embedded block pointer
        -h --history                 pool history
        -i --intent-logs             intent logs
        -l --label                   read label contents
        -k --checkpointed-state      examine the checkpointed state of the pool
        -L --disable-leak-tracking   disable leak tracking (do not load spacemaps)
        -m --metaslabs               metaslabs
        -M --metaslab-groups         metaslab groups
        -O --object-lookups          perform object lookups by path
        -r --copy-object             copy an object by path to file
        -R --read-block              read and display block from a device
        -s --io-stats                report stats on zdb's I/O
        -S --simulate-dedup          simulate dedup to measure effect
        -v --verbose                 verbose (applies to all others)
        -y --livelist                perform livelist and metaslab validation on any livelists being deleted

    Below options are intended for use with other options:
        -A --ignore-assertions       ignore assertions (-A), enable panic recovery (-AA) or both (-AAA)
        -e --exported                pool is exported/destroyed/has altroot/not in a cachefile
        -F --automatic-rewind        attempt automatic rewind within safe range of transaction groups
        -G --dump-debug-msg          dump zfs_dbgmsg buffer before exiting
        -I --inflight=INTEGER        specify the maximum number of checksumming I/Os [default is 200]
        -K --key=KEY                 decryption key for encrypted dataset
        -o --option=\"OPTION=INTEGER\" set global variable to an unsigned 32-bit integer
        -p --path==PATH              use one or more with -e to specify path to vdev dir
        -P --parseable               print numbers in parseable form
        -q --skip-label              don't print label contents
        -t --txg=INTEGER             highest txg to use when searching for uberblocks
        -T --brt-stats               BRT statistics
        -u --uberblock               uberblock
        -U --cachefile=PATH          use alternate cachefile
        -V --verbatim                do verbatim import
        -x --dump-blocks=PATH        dump all read blocks into specified directory
        -X --extreme-rewind          attempt extreme rewind (does not work with dataset)
        -Y --all-reconstruction      attempt all reconstruction combinations for split blocks
        -Z --zstd-headers            show ZSTD headers 
Specify an option more than once (e.g. -bb) to make only that option verbose
Default is to dump everything non-verbosely
";
