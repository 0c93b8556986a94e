//! The `tarn` command: what Tarn has and OpenZFS has no command for.
//!
//! # Map
//! - `kstat`: the counters of the daemon; `shown`: their text forms; `asked`: which of them
//! - `slow`, `analytics`: operations that are held; `analytics_tables`: their text forms;
//!   `asked_operations`: which of them
//! - `top`: the same as a picture that goes on; `top_picture`, `heat_map`, `hit_plot`: its parts
//! - `export`: metrics and answers in the forms of other programs; `influx_program`: the same as
//!   `zpool_influxdb`, by which name this program is called, too
//! - `alert`: alerts
//! - `daemon`: starting and stopping it by hand
//! - `kstat_programs`: `zarcstat`, `zarcsummary` and `zilstat`, by which names this program is
//!   called, too
//! - `iscsi`: targets, sessions, initiators and the portal
//! - `web`: where the page for browsers is, and the tokens to log in
//! - `version`: the version of Tarn

mod alert;
mod analytics;
mod analytics_tables;
mod asked;
mod asked_operations;
mod daemon;
mod export;
mod heat_map;
mod hit_plot;
mod influx_program;
mod iscsi;
mod kstat;
mod kstat_programs;
mod shown;
mod slow;
mod stack_plot;
mod top;
mod top_picture;
mod version;
mod web;

use tarn_terminal::failure::complain;
use tarn_terminal::program::{BLANK, Program, Subcommand, text_of};

const KSTAT: &str = "\tkstat [-jlpq] [-c class] [-m module] [-i instance] [-n name] [-s statistic]\n\
\t    [interval [count]]\n\
\tkstat [-jlpq] [-c class] [module[:instance[:name[:statistic]]]] ...\n\
\t    [interval [count]]\n";

const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand {
        name: "version",
        usage: "\tversion [-j]\n",
        run: Some(version::run),
    },
    BLANK,
    Subcommand {
        name: "start",
        usage: "\tstart [-j] [--cache-size size] [--analytics on|off|size]\n\
\t    [--archive directory|off] [--archive-size size]\n\
\t    [--let-processors-sleep] [--no-admin-snapshot]\n\
\t    [--nfs-port port] [--nfs-lease seconds] [--nfs-domain domain]\n\
\t    [--nfs-keytab file]\n\
\t    [--nbd-listen address:port] ...\n\
\t    [--tls-certificate file --tls-key file [--tls-client-ca file]]\n\
\t    [--nbd-tls off|on|require|verify] [--block-devices loop|none]\n\
\t    [--web address:port|off] [--web-name name] ...\n\
\t    [--influx-push url [--influx-interval seconds] [--influx-tags tags]\n\
\t    [--influx-token file]]\n",
        run: Some(daemon::start),
    },
    Subcommand {
        name: "stop",
        usage: "\tstop [-fj]\n",
        run: Some(daemon::stop),
    },
    BLANK,
    Subcommand {
        name: "kstat",
        usage: KSTAT,
        run: Some(kstat::run),
    },
    BLANK,
    Subcommand {
        name: "slow",
        usage: slow::USAGE,
        run: Some(slow::run),
    },
    Subcommand {
        name: "top",
        usage: top::USAGE,
        run: Some(top::run),
    },
    Subcommand {
        name: "analytics",
        usage: analytics::USAGE,
        run: Some(analytics::run),
    },
    Subcommand {
        name: "export",
        usage: export::USAGE,
        run: Some(export::run),
    },
    Subcommand {
        name: "alert",
        usage: alert::USAGE,
        run: Some(alert::run),
    },
    BLANK,
    Subcommand {
        name: "iscsi",
        usage: iscsi::USAGE,
        run: Some(iscsi::run),
    },
    BLANK,
    Subcommand {
        name: "web",
        usage: web::USAGE,
        run: Some(web::run),
    },
];

const TARN: Program = Program {
    name: "tarn",
    subcommands: SUBCOMMANDS,
    aliases: &[],
    usage_end: "\nPools and datasets are administered with zpool, zfs and zdb.\n\
\nFor further help on a command, run: tarn help <command>\n",
    usage_notes: notes,
};

/// What follows the usage of one subcommand.
fn notes(subcommand: &str) -> String {
    match subcommand {
        "start" => "\n\
\t-j                      JSON\n\
\t--cache-size size       memory for cached blocks; a quarter of all memory unless given\n\
\t--analytics on|off|size\n\
\t                        whether operations are kept for 'tarn slow' and 'tarn analytics', in\n\
\t                        512M of memory (on) or in that much; on unless given\n\
\t--archive directory|off where statistics are archived; analytics below TARN_DIR unless given\n\
\t--archive-size size     what they take there at most; 4G unless given\n\
\t--let-processors-sleep  never keep idle processors awake\n\
\t--no-admin-snapshot     names in .zfs/snapshot cannot be changed\n\
\t--nfs-port port         TCP port for NFS; 2049 unless given\n\
\t--nfs-lease seconds     time for which NFS version 4 keeps what a silent client has\n\
\t                        open and locked; 90 unless given\n\
\t--nfs-domain domain     NFS version 4 shows owners as name@domain, not as numbers\n\
\t--nfs-keytab file       keys of nfs/HOST for Kerberos; /etc/krb5.keytab unless given\n\
\t--nbd-listen address:port\n\
\t                        volumes are served by NBD at this TCP address, too\n\
\t--tls-certificate file, --tls-key file\n\
\t                        certificate and key for TLS of NFS and NBD, in PEM\n\
\t--tls-client-ca file    certificates of the authorities of clients\n\
\t--nbd-tls off|on|require|verify\n\
\t                        whether clients of NBD on TCP may begin TLS, must, or must\n\
\t                        show a certificate, too\n\
\t--block-devices loop|none\n\
\t                        whether volumes are block devices below /dev/zvol\n\
\t--web address:port|off  where the page for browsers is served; 127.0.0.1:8470 unless given\n\
\t--web-name name         a name by which browsers reach it\n\
\t--influx-push url       metrics are pushed to this InfluxDB, by http\n\
\t--influx-interval seconds\n\
\t                        how often; every 10 seconds unless given\n\
\t--influx-tags tags, --influx-token file\n\
\t                        tags of what is pushed, and the token that it wants\n\
\nThe command ends when the daemon answers, with its pools imported and mounted. One that\n\
runs already is no error, unless options are given.\n\
\nExit codes: 0 it runs, 1 it does not, 2 wrong usage.\n"
            .to_string(),
        "stop" => "\n\
\t-f  also with pools that cannot be stored: what they have not stored is lost\n\
\t-j  JSON\n\
\nFile systems are unmounted, pools stored and closed; the next start imports them again.\n\
The command ends when the daemon has. None that runs is no error.\n\
\nExit codes: 0 it does not run, 1 it still does or could not store everything (which\n\
is told), 2 wrong usage.\n"
            .to_string(),
        "iscsi" => iscsi::NOTES.to_string(),
        "slow" => slow::NOTES.to_string(),
        "top" => top::NOTES.to_string(),
        "analytics" => analytics::NOTES.to_string(),
        "export" => export::NOTES.to_string(),
        "alert" => alert::NOTES.to_string(),
        "web" => web::NOTES.to_string(),
        "kstat" => "\n\
\t-c class  only groups of this class: misc or table\n\
\t-j        JSON, one array a line\n\
\t-l        only the names\n\
\t-p        one statistic a line: its name, a tab, its value\n\
\t-q        no output; the exit code tells whether anything was found\n\
\nEvery part of a name may be a pattern: * ? [a-z] [!a-z]. A part that is empty or\n\
missing means any; \\: stands for a colon.\n\
\nExit codes: 0 found, 1 nothing found, 2 wrong usage, 3 tarnd does not run or answer.\n"
            .to_string(),
        _ => String::new(),
    }
}

fn main() -> std::process::ExitCode {
    match text_of(std::env::args_os()) {
        Ok(arguments) if influx_program::is_called(&arguments) => {
            std::process::ExitCode::from(influx_program::run(&arguments))
        }
        Ok(arguments) => {
            let code = kstat_programs::run_by_name(&arguments);
            let code = code.unwrap_or_else(|| TARN.run(&plain_help(arguments)));
            std::process::ExitCode::from(code)
        }
        Err(refusal) => {
            complain(format!("tarn: {refusal}"));
            std::process::ExitCode::FAILURE
        }
    }
}

/// `tarn kstat --help` is `tarn help kstat`: help that was asked for is no error.
fn plain_help(mut arguments: Vec<String>) -> Vec<String> {
    if let [_, subcommand, flag] = arguments.as_mut_slice()
        && matches!(flag.as_str(), "--help" | "-?")
    {
        *flag = std::mem::replace(subcommand, "help".to_string());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(words: &[&str]) -> u8 {
        TARN.run(&plain_help(
            words.iter().map(|word| word.to_string()).collect(),
        ))
    }

    #[test]
    fn help_is_no_error_and_nonsense_is() {
        assert_eq!(code(&["tarn", "--help"]), 0);
        assert_eq!(code(&["tarn", "kstat", "--help"]), 0);
        assert_eq!(code(&["tarn", "help", "version"]), 0);
        assert_eq!(code(&["tarn", "version"]), 0);
        assert_eq!(code(&["tarn", "version", "-j"]), 0);
        assert_eq!(code(&["tarn"]), 2);
        assert_eq!(code(&["tarn", "frobnicate"]), 2);
        assert_eq!(code(&["tarn", "kstat", "-x"]), 2);
        assert_eq!(code(&["tarn", "version", "now"]), 2);
        assert_eq!(code(&["tarn", "help", "start"]), 0);
        assert_eq!(code(&["tarn", "stop", "--help"]), 0);
        assert_eq!(code(&["tarn", "start", "now"]), 2);
        assert_eq!(code(&["tarn", "stop", "-x"]), 2);
        assert_eq!(code(&["tarn", "slow", "--help"]), 0);
        assert_eq!(code(&["tarn", "slow", "-x"]), 2);
        assert_eq!(code(&["tarn", "help", "top"]), 0);
        assert_eq!(code(&["tarn", "top", "-x"]), 2);
        assert_eq!(code(&["tarn", "help", "analytics"]), 0);
        assert_eq!(code(&["tarn", "analytics"]), 2);
        assert_eq!(code(&["tarn", "analytics", "frobnicate"]), 2);
        assert_eq!(code(&["tarn", "analytics", "query"]), 2);
        assert_eq!(code(&["tarn", "help", "export"]), 0);
        assert_eq!(code(&["tarn", "export", "-x"]), 2);
        assert_eq!(code(&["tarn", "export", "-f", "xml"]), 2);
        assert_eq!(code(&["tarn", "export", "-f", "prometheus", "nfs.ops"]), 2);
        assert_eq!(code(&["tarn", "help", "alert"]), 0);
        assert_eq!(code(&["tarn", "alert"]), 2);
        assert_eq!(code(&["tarn", "alert", "add", "slow"]), 2);
        assert_eq!(
            code(&["tarn", "alert", "add", "slow", "p99", "x", ">", "10parsec"]),
            2
        );
        assert_eq!(code(&["tarn", "help", "iscsi"]), 0);
        assert_eq!(code(&["tarn", "iscsi"]), 2);
        assert_eq!(code(&["tarn", "iscsi", "frobnicate"]), 2);
        assert_eq!(code(&["tarn", "iscsi", "add"]), 2);
        assert_eq!(code(&["tarn", "iscsi", "known-only", "maybe"]), 2);
        assert_eq!(code(&["tarn", "help", "web"]), 0);
        assert_eq!(code(&["tarn", "web"]), 2);
        assert_eq!(code(&["tarn", "web", "frobnicate"]), 2);
        assert_eq!(code(&["tarn", "web", "token", "-x"]), 2);
    }
}
