//! The layout of a pool that is not made: what `-n` prints.

use crate::vdevs::Names;
use tarn_administration::messages::pool::{VdevKind, VdevRole, VdevSpec, VdevStatus};

/// Roles of top-level vdevs in the order of printing, with the titles above them.
const CLASSES: [(VdevRole, &str); 3] = [
    (VdevRole::Dedup, "dedup"),
    (VdevRole::Special, "special"),
    (VdevRole::Log, "logs"),
];

/// The whole layout below the name of the pool.
pub fn tree(pool: &str, current: &[VdevStatus], new: &[VdevSpec], names: Names) -> String {
    let mut text = of_class(pool, VdevRole::Data, current, new, names);
    // A pool that gets only logs is still shown above them.
    if text.is_empty() {
        text = line(0, pool);
    }
    for (role, title) in CLASSES {
        text.push_str(&of_class(title, role, current, new, names));
    }
    for (role, title) in [(VdevRole::Cache, "cache"), (VdevRole::Spare, "spares")] {
        text.push_str(&of_class(title, role, current, new, names));
    }
    text
}

fn of_class(
    title: &str,
    role: VdevRole,
    current: &[VdevStatus],
    new: &[VdevSpec],
    names: Names,
) -> String {
    let mut text = String::new();
    for vdev in current
        .iter()
        .filter(|vdev| vdev.role == role && vdev.kind != "hole")
    {
        present(&mut text, vdev, 2, names);
    }
    for spec in new.iter().filter(|spec| spec.role == role) {
        planned(&mut text, spec, 2, names);
    }
    match text.is_empty() {
        true => text,
        false => line(0, title) + &text,
    }
}

/// A vdev that is there, and its members. Groups of classes are shown without their numbers.
fn present(text: &mut String, vdev: &VdevStatus, indent: usize, names: Names) {
    let name = names.of(vdev);
    let is_whole = vdev.children.is_empty() || vdev.role == VdevRole::Data;
    let shown = match is_whole || names.are_guids {
        true => name.as_str(),
        false => name.split('-').next().unwrap_or_default(),
    };
    text.push_str(&line(indent, shown));
    for child in &vdev.children {
        present(text, child, indent + 2, names);
    }
}

fn planned(text: &mut String, spec: &VdevSpec, indent: usize, names: Names) {
    let name = match (&spec.path, spec.kind) {
        (Some(path), _) => device_name(path, names),
        (None, VdevKind::Mirror) => "mirror".to_string(),
        (None, VdevKind::Raidz2) => "raidz2".to_string(),
        (None, VdevKind::Raidz3) => "raidz3".to_string(),
        (None, VdevKind::Draid) => "draid".to_string(),
        (None, VdevKind::Raidz1 | VdevKind::Leaf) => "raidz1".to_string(),
    };
    text.push_str(&line(indent, &name));
    for child in &spec.children {
        planned(text, child, indent + 2, names);
    }
}

/// A file by its path, a disk by the last part of it.
fn device_name(path: &str, names: Names) -> String {
    let is_file = std::fs::metadata(path).is_ok_and(|facts| facts.is_file());
    let kind = if is_file { "file" } else { "disk" };
    let shown = match is_file {
        true => path,
        false => path.rsplit('/').next().unwrap_or(path),
    };
    names.name(shown, kind, 0, Some(path), false)
}

fn line(indent: usize, name: &str) -> String {
    format!("\t{:indent$}{name}\n", "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn spec(kind: VdevKind, role: VdevRole, paths: &[&str]) -> VdevSpec {
        let leaf = |path: &&str| VdevSpec {
            kind: VdevKind::Leaf,
            path: Some(path.to_string()),
            children: Vec::new(),
            role,
        };
        match kind {
            VdevKind::Leaf => leaf(&paths[0]),
            kind => VdevSpec {
                kind,
                path: None,
                children: paths.iter().map(leaf).collect(),
                role,
            },
        }
    }

    #[test]
    fn a_new_pool_is_shown_by_classes() {
        let specs = [
            spec(
                VdevKind::Raidz2,
                VdevRole::Data,
                &["/dev/sda", "/dev/sdb", "/dev/sdc"],
            ),
            spec(VdevKind::Mirror, VdevRole::Log, &["/dev/sdd", "/dev/sde"]),
            spec(VdevKind::Leaf, VdevRole::Spare, &["/etc/passwd"]),
        ];
        assert_eq!(
            tree("tank", &[], &specs, Names::default()),
            "\ttank\n\t  raidz2\n\t    sda\n\t    sdb\n\t    sdc\n\
             \tlogs\n\t  mirror\n\t    sdd\n\t    sde\n\tspares\n\t  /etc/passwd\n"
        );
    }

    #[test]
    fn what_is_added_stands_behind_what_is_there() {
        let pool = samples::mixed();
        let specs = [spec(
            VdevKind::Mirror,
            VdevRole::Data,
            &["/dev/sda", "/dev/sdb"],
        )];
        let text = tree("fxmixed", &pool.layout, &specs, Names::default());
        let (data, others) = text.split_once("\tlogs\n").unwrap();
        assert!(
            data.ends_with("\t  mirror\n\t    sda\n\t    sdb\n"),
            "{data}"
        );
        assert!(
            data.starts_with("\tfxmixed\n\t  mirror-0\n\t    /run/0.img\n"),
            "{data}"
        );
        assert!(others.ends_with("\tspares\n\t  /run/6.img\n"), "{others}");
    }
}
