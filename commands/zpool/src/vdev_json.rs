//! What JSON output says of a vdev before anything else.

use tarn_administration::messages::pool::{VdevRole, VdevStatus};
use tarn_terminal::json::{Numbers, Object};

/// The members that every vdev has.
pub fn object(name: &str, vdev: &VdevStatus, numbers: Numbers) -> Object {
    let mut object = Object::new();
    object.insert("name".into(), name.into());
    object.insert("vdev_type".into(), vdev.kind.clone().into());
    object.insert("guid".into(), numbers.number(vdev.guid));
    if let Some(path) = &vdev.path {
        object.insert("path".into(), path.clone().into());
    }
    object.insert("class".into(), class(vdev.role).into());
    let state = state(&vdev.state, vdev.remark.as_deref());
    object.insert("state".into(), state.into());
    object
}

fn class(role: VdevRole) -> &'static str {
    match role {
        VdevRole::Data => "normal",
        VdevRole::Log => "log",
        VdevRole::Spare => "spare",
        VdevRole::Cache => "l2cache",
        VdevRole::Special => "special",
        VdevRole::Dedup => "dedup",
    }
}

/// The state by its name in OpenZFS's sources, which is not the word that people read.
fn state(word: &str, remark: Option<&str>) -> String {
    match (word, remark) {
        ("AVAIL" | "INUSE", _) => "ONLINE",
        ("UNAVAIL" | "SPLIT", _) => "CANT_OPEN",
        ("FAULTED", Some("corrupted data" | "bad intent log")) => "CANT_OPEN",
        (other, _) => other,
    }
    .to_string()
}

/// What is behind a bad state, by its name in OpenZFS's sources.
pub fn reason(remark: &str) -> &'static str {
    match remark {
        "cannot open" => "OPEN_FAILED",
        "insufficient replicas" => "NO_REPLICAS",
        "missing device" => "BAD_GUID_SUM",
        "invalid label" => "BAD_LABEL",
        "newer version" => "VERSION_NEWER",
        "unsupported feature(s)" => "UNSUP_FEAT",
        "unsupported minimum blocksize" => "ASHIFT_TOO_BIG",
        "too many errors" | "too many slow I/Os" => "ERR_EXCEEDED",
        "experienced I/O failures" => "IO_FAILURE",
        "bad intent log" => "BAD_LOG",
        "external device fault" => "EXTERNAL",
        "split into new pool" => "SPLIT_POOL",
        "currently in use" => "ACTIVE",
        "all children offline" => "CHILDREN_OFFLINE",
        _ => "CORRUPT_DATA",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn a_vdev_has_its_class_and_state() {
        assert_eq!(
            serde_json::Value::from(object("a", &samples::leaf(0), Numbers::Text)).to_string(),
            concat!(
                r#"{"name":"a","vdev_type":"file","guid":"100","path":"/run/0.img","#,
                r#""class":"normal","state":"ONLINE"}"#
            )
        );
        assert_eq!(state("UNAVAIL", Some("cannot open")), "CANT_OPEN");
        assert_eq!(state("FAULTED", Some("too many errors")), "FAULTED");
        assert_eq!(reason("cannot open"), "OPEN_FAILED");
    }
}
