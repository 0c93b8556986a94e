//! The name of a received snapshot, made of the request's target and the sender's name.

use crate::messages::dataset::{Receive, ReceiveNames};
use crate::messages::{Refusal, RefusalKind};
use tarn_dataset::names::{DatasetName, NameKind};

/// The full name of the received snapshot. `sent` is its full name at the sender; `base` is the
/// file system that was sent, with which `sent` begins. In a package there are several streams.
#[doc(alias = "zfs_receive_one")]
pub(super) fn destination(
    request: &Receive,
    sent: &str,
    base: &str,
    is_package: bool,
) -> Result<DatasetName, Refusal> {
    let refuse = |reason: &str| Refusal::new(RefusalKind::Invalid, "cannot receive", reason);
    let names_snapshot = request.target.contains('@');
    let rest = match request.names {
        ReceiveNames::Last if names_snapshot => {
            return Err(refuse("invalid argument - snapshot not allowed with -e"));
        }
        ReceiveNames::AllButPool if names_snapshot => {
            return Err(refuse("invalid argument - snapshot not allowed with -d"));
        }
        ReceiveNames::Last => match base.rfind('/') {
            Some(at) => sent[at..].to_string(),
            None => format!("/{sent}"),
        },
        ReceiveNames::AllButPool => {
            let at = sent.find('/').or_else(|| sent.find('@'));
            sent[at.unwrap_or(sent.len())..].to_string()
        }
        ReceiveNames::AsGiven if !names_snapshot => sent[base.len()..].to_string(),
        ReceiveNames::AsGiven if is_package => {
            return Err(refuse(
                "cannot specify snapshot name for multi-snapshot stream",
            ));
        }
        ReceiveNames::AsGiven => String::new(),
    };
    let name = format!("{}{rest}", request.target);
    match DatasetName::parse(&name) {
        Ok(parsed) if parsed.kind() == NameKind::Snapshot => Ok(parsed),
        Ok(_) => Err(refuse("invalid name")),
        Err(bad) => Err(refuse(&format!("invalid name '{name}': {bad}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(target: &str, names: ReceiveNames, sent: &str, base: &str) -> Result<String, String> {
        let request = Receive {
            target: target.to_string(),
            names,
            ..Receive::default()
        };
        let found = destination(&request, sent, base, false);
        found
            .map(|name| name.to_string())
            .map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn a_name_is_made_of_what_was_named_and_what_was_sent() {
        use ReceiveNames::{AllButPool, AsGiven, Last};
        let sent = ("src/a/kid@s", "src/a");
        let ok = |name: &str| Ok(name.to_string());
        assert_eq!(name("tank/b", AsGiven, sent.0, sent.1), ok("tank/b/kid@s"));
        assert_eq!(
            name("tank/b", AllButPool, sent.0, sent.1),
            ok("tank/b/a/kid@s")
        );
        assert_eq!(name("tank/b", Last, sent.0, sent.1), ok("tank/b/a/kid@s"));
        assert_eq!(
            name("tank/b@t", AsGiven, "src/a@s", "src/a"),
            ok("tank/b@t")
        );
        assert_eq!(name("tank", AllButPool, "src@s", "src"), ok("tank@s"));
        assert_eq!(name("tank", Last, "src@s", "src"), ok("tank/src@s"));
        assert_eq!(
            name("tank/b@t", AllButPool, "src/a@s", "src/a").unwrap_err(),
            "cannot receive: invalid argument - snapshot not allowed with -d"
        );
    }
}
