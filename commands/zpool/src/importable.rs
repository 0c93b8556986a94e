//! `zpool import` without a name: what could be imported.
//!
//! Beside a comment, which is a word longer than the others, all words move by a space.

use crate::status::{MESSAGES, with_features};
use crate::vdevs::{CLASSES, Names, with_role};
use tarn_administration::messages::condition::Condition;
use tarn_administration::messages::pool::{ImportablePool, VdevRole, VdevStatus};

/// How wide the column of names is at least.
const NAME_WIDTH_MIN: usize = 10;

/// What is printed of these pools.
pub fn text(pools: &[ImportablePool]) -> String {
    let texts: Vec<String> = pools.iter().map(of_pool).collect();
    texts.join("\n")
}

fn of_pool(pool: &ImportablePool) -> String {
    let indent = if pool.comment.is_some() { " " } else { "" };
    let destroyed = if pool.destroyed { " (DESTROYED)" } else { "" };
    let mut text = format!(
        "{indent}  pool: {}\n{indent}    id: {}\n{indent} state: {}{destroyed}\n",
        pool.name, pool.guid, pool.state
    );
    let indented = |lines: &str| lines.replace("\n\t", &format!("\n\t{indent}"));
    if let Some(status) = status(pool) {
        let status = with_features(&indented(&status), &pool.unsupported_features);
        text.push_str(&format!("{indent}status: {status}"));
    }
    text.push_str(&format!("{indent}action: {}\n", indented(&action(pool))));
    if let Some(comment) = &pool.comment {
        text.push_str(&format!("comment: {comment}\n"));
    }
    if pool.destroyed && pool.state == "FAULTED" && pool.remark.as_deref() == Some("corrupted data")
    {
        text.push_str(&format!(
            "\t{indent}The pool was destroyed, but can be imported using the '-Df' flags.\n"
        ));
    }
    let id = pool.condition.and_then(Condition::message_id);
    if let Some(id) = pool.see.as_deref().or(id) {
        text.push_str(&format!("{indent}   see: {MESSAGES}{id}\n"));
    }
    text.push_str(&format!("{indent}config:\n\n"));
    text.push_str(&tree(pool));
    if !pool.remarks.is_empty() {
        text.push('\n');
    }
    for remark in &pool.remarks {
        text.push_str(&format!("\t{indent}{remark}\n"));
    }
    text
}

fn status(pool: &ImportablePool) -> Option<String> {
    let given = pool.status.as_deref();
    let text = given.or_else(|| pool.condition.map(Condition::import_status))?;
    Some(text.to_string())
}

fn action(pool: &ImportablePool) -> String {
    match pool.action.is_empty() {
        true => Condition::import_action(pool.condition, &pool.state).to_string(),
        false => pool.action.clone(),
    }
}

fn tree(pool: &ImportablePool) -> String {
    let names = Names::from_environment();
    let width = names.width(&pool.name, &pool.layout).max(NAME_WIDTH_MIN);
    let mut text = line(&pool.name, &pool.state, pool.remark.as_deref(), 0, width);
    for vdev in with_role(&pool.layout, VdevRole::Data) {
        lines(&names, vdev, 2, width, &mut text);
    }
    for (role, title) in [(VdevRole::Cache, "cache"), (VdevRole::Spare, "spares")] {
        for (index, vdev) in with_role(&pool.layout, role).enumerate() {
            if index == 0 {
                text.push_str(&format!("\t{title}\n"));
            }
            text.push_str(&format!("\t  {}\n", names.of(vdev)));
        }
    }
    for (role, title) in CLASSES {
        for (index, vdev) in with_role(&pool.layout, role).enumerate() {
            if index == 0 {
                text.push_str(&format!("\t{title}\t\n"));
            }
            lines(&names, vdev, 2, width, &mut text);
        }
    }
    text
}

fn lines(names: &Names, vdev: &VdevStatus, depth: usize, width: usize, text: &mut String) {
    if matches!(vdev.kind.as_str(), "missing" | "hole") {
        return;
    }
    let remark = vdev.remark.as_deref();
    text.push_str(&line(&names.of(vdev), &vdev.state, remark, depth, width));
    for child in &vdev.children {
        lines(names, child, depth + 2, width, text);
    }
}

fn line(name: &str, state: &str, remark: Option<&str>, depth: usize, width: usize) -> String {
    let width = width.saturating_sub(depth);
    let remark = remark
        .map(|remark| format!("  {remark}"))
        .unwrap_or_default();
    format!("\t{:depth$}{name:width$}  {state}{remark}\n", "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    fn mixed() -> ImportablePool {
        ImportablePool {
            name: "fxmixed".into(),
            guid: 4711,
            state: "ONLINE".into(),
            layout: samples::mixed().layout,
            ..ImportablePool::default()
        }
    }

    #[test]
    fn a_healthy_pool_has_its_configuration() {
        assert_eq!(
            text(&[mixed()]),
            concat!(
                "  pool: fxmixed\n    id: 4711\n state: ONLINE\n",
                "action: The pool can be imported using its name or numeric identifier.\n",
                "config:\n\n",
                "\tfxmixed         ONLINE\n",
                "\t  mirror-0      ONLINE\n",
                "\t    /run/0.img  ONLINE\n",
                "\t    /run/1.img  ONLINE\n",
                "\t  mirror-1      ONLINE\n",
                "\t    /run/2.img  ONLINE\n",
                "\t    /run/3.img  ONLINE\n",
                "\tspares\n",
                "\t  /run/6.img\n",
                "\tlogs\t\n",
                "\t  mirror-2      ONLINE\n",
                "\t    /run/4.img  ONLINE\n",
                "\t    /run/5.img  ONLINE\n"
            )
        );
    }

    #[test]
    fn a_comment_moves_all_words() {
        let mut pool = mixed();
        pool.comment = Some("ours".into());
        pool.condition = Some(Condition::FeaturesDisabled);
        pool.layout.clear();
        assert_eq!(
            text(&[pool]),
            concat!(
                "   pool: fxmixed\n     id: 4711\n  state: ONLINE\n",
                " status: Some supported features are not enabled on the pool.\n",
                "\t (Note that they may be intentionally disabled if the\n",
                "\t 'compatibility' property is set.)\n",
                " action: The pool can be imported using its name or numeric identifier, though\n",
                "\t some features will not be available without an explicit 'zpool upgrade'.\n",
                "comment: ours\n config:\n\n\tfxmixed     ONLINE\n"
            )
        );
    }

    #[test]
    fn a_pool_that_cannot_be_imported_says_why() {
        let mut pool = mixed();
        pool.state = "UNAVAIL".into();
        pool.remark = Some("missing device".into());
        pool.condition = Some(Condition::BadGuidSum);
        pool.remarks =
            vec!["Additional devices are known to be part of this pool, though their".into()];
        let text = text(&[pool]);
        assert!(
            text.contains("status: One or more devices are missing from the system.\n"),
            "{text}"
        );
        assert!(
            text.contains("   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-6X\n"),
            "{text}"
        );
        assert!(
            text.contains("\tfxmixed         UNAVAIL  missing device\n"),
            "{text}"
        );
        assert!(text.ends_with(
            "\n\n\tAdditional devices are known to be part of this pool, though their\n"
        ));
    }

    #[test]
    fn pools_are_an_empty_line_apart_and_destroyed_ones_say_so() {
        let destroyed = ImportablePool {
            destroyed: true,
            ..mixed()
        };
        let text = text(&[mixed(), destroyed]);
        assert!(
            text.contains("ONLINE\n\n  pool: fxmixed\n    id: 4711\n state: ONLINE (DESTROYED)\n")
        );
    }
}
