//! Replication: the tree here follows renames, promotions and destructions at the sender since the
//! increment's first snapshot.
//!
//! # Mechanism
//! Before the streams of an increment of a tree come, the tree here is brought to the sender's
//! present shape ([`tree`]): clones are promoted, snapshots and file systems renamed, and with `-F`
//! those destroyed that the sender has no more. After the streams this is done once more, since a
//! rename may have to wait for its new parent. Snapshots that are here already get their present
//! properties at the sender.
//!
//! A step that fails gives a warning, and the streams are received all the same.
//!
//! A moved file system is mounted again only after all streams: mounting may change it, and then no
//! increment fits.

use super::Run;
use super::destination::destination;
use super::package::Package;
use super::planning::head_of;
use super::properties::KEY_LOCATION;
use super::tree::{self, Gone, Next, Renaming, Tree, When};
use crate::administration::Call;
use crate::command_permissions::{need, of_property};
use crate::messages::Refusal;
use crate::messages::dataset::{Destroy, Promote, ReceiveEvent, Rename};
use std::sync::Arc;
use tarn_dataset::crypto_key;
use tarn_dataset::dataset::Dataset;
use tarn_dataset::directory::Directory;
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::inherit_key::InheritKey;
use tarn_dataset::ops::set::{SetProperties, Source};
use tarn_dataset::properties::inherit::{self, Found, Given};
use tarn_dataset::properties::parse::{Checked, Setting};
use tarn_dataset::properties::table;
use tarn_dataset::properties::value::Kinds;
use tarn_engine::engine::OpenPool;

/// A tree that follows the sender's.
struct Following<'a> {
    open: Arc<OpenPool>,
    top: String,
    package: &'a Package,
    /// The short name at the sender of the increment's first snapshot.
    from: &'a str,
    when: When,
    /// A call without a command line: history has the receive itself.
    call: Call,
}

impl Run<'_> {
    /// Repeats the sender's changes of the tree.
    #[doc(alias = "recv_incremental_replication")]
    pub(super) fn follow_sender(&mut self, package: &Package, when: When) -> Result<(), Refusal> {
        let Some(from) = package.from.as_deref().filter(|_| package.is_tree) else {
            return Ok(());
        };
        if self.request.dry_run {
            return Ok(());
        }
        // Only the file system's name matters here.
        let sent = format!("{}@{from}", package.base());
        let top = destination(self.request, &sent, package.base(), true)?;
        let Some(open) = self.administrator.engine.find_pool(top.pool()) else {
            return Ok(());
        };
        let following = Following {
            open,
            top: top.head().to_string(),
            package,
            from,
            when,
            call: Call {
                command: String::new(),
                ..self.call.clone()
            },
        };
        let is_whole = self.follow(&following);
        // Steps that failed may have been possible after the streams.
        self.done.is_incomplete = !is_whole;
        Ok(())
    }

    /// Repeats the sender's changes. False if a step failed.
    fn follow(&mut self, following: &Following<'_>) -> bool {
        let Some(mut tree) = self.read_tree(following) else {
            return true;
        };
        let mut is_whole = true;
        // Each promotion takes a clone one level up.
        for _ in 0..tree.count() {
            let promoted = tree.promoted();
            let mut count = 0;
            for name in &promoted {
                count += usize::from(self.promote(following, name));
            }
            is_whole = promoted.len() == count;
            if count == 0 {
                break;
            }
            // Snapshots have moved from one file system to the other.
            self.tell(ReceiveEvent::AnotherPass);
            match self.read_tree(following) {
                Some(again) => tree = again,
                None => return true,
            }
        }
        for name in tree.without_first() {
            self.tell(ReceiveEvent::WithoutFirst {
                name,
                from: following.from.to_string(),
            });
        }
        // Snapshots of a destroyed file system may have kept others.
        is_whole &= self.follow_heads(following, &mut tree);
        if self.request.force {
            for gone in tree.gone_snapshots() {
                is_whole &= self.destroy_snapshots(following, &mut tree, &gone);
            }
        }
        for renaming in tree.renamed_snapshots(self.request.force, following.when) {
            is_whole &= self.rename(following, &renaming);
        }
        if following.when == When::Before {
            // Streams bring the properties of their own snapshots.
            self.follow_snapshot_properties(following);
        }
        is_whole
    }

    /// Sets the snapshots that are here to their present properties at the sender.
    fn follow_snapshot_properties(&mut self, following: &Following<'_>) {
        // Names have changed.
        let Some(tree) = self.read_tree(following) else {
            return;
        };
        for (name, sent) in tree.with_properties() {
            let mut settings = self.received(&following.open, &name, Kinds::SNAPSHOT, &sent);
            settings.retain(|one| self.may_receive(following, &name, &one.name));
            if settings.is_empty() || self.has_received(&following.open, &name, &settings) {
                continue;
            }
            let task = SetProperties {
                name: name.clone(),
                settings,
                source: Source::Received,
            };
            match following.open.pool.run(task, self.operation) {
                Ok(()) => self.changed = true,
                Err(error) => {
                    self.warn(format!("cannot receive properties on {name}: {error}"));
                }
            }
        }
    }

    /// Whether the caller may set a property of a snapshot. If not, a warning is given.
    fn may_receive(&mut self, following: &Following<'_>, name: &str, property: &str) -> bool {
        let need = need(name, &[of_property(property)]);
        let (call, open) = (self.call, &following.open);
        let may = self.administrator.trusts(&call.caller)
            || self.administrator.may(call, open, &need, self.operation);
        if !may {
            self.warn(format!(
                "cannot receive {property} property on {name}: permission denied"
            ));
        }
        may
    }

    /// Whether a snapshot's received properties are exactly these. False where they cannot be read.
    fn has_received(&self, open: &OpenPool, name: &str, settings: &[Checked]) -> bool {
        let view = open.pool.namespace().view(self.operation);
        let given = DatasetName::parse(name).ok().and_then(|name| {
            let snapshot = view.dataset(&name).ok()?;
            inherit::given(&snapshot, Given::Received).ok()
        });
        let setting = |found: &Found| match found {
            Found::Number(number) => Setting::Number(*number),
            Found::Text(text) => Setting::Text(text.clone()),
        };
        given.is_some_and(|given| {
            let is_given = |one: &Checked| {
                let same = |(name, found): &(String, Found)| {
                    *name == one.name && setting(found) == one.setting
                };
                given.iter().any(same)
            };
            given.len() == settings.len() && settings.iter().all(is_given)
        })
    }

    fn follow_heads(&mut self, following: &Following<'_>, tree: &mut Tree<'_>) -> bool {
        let mut is_whole = true;
        let mut heads = tree.heads();
        for name in tree.without_parent(&heads) {
            if following.when == When::After {
                self.warn(format!("cannot rename '{name}': parent does not exist"));
                is_whole = false;
            }
            self.tell(ReceiveEvent::WithoutParent { name });
        }
        while let Some(next) = tree.next(&heads, self.request.force, following.when) {
            let is_done = match &next {
                Next::Destroy(gone) => self.destroy(following, gone),
                Next::Rename(renaming) => self.rename(following, renaming),
            };
            match (&next, is_done) {
                (Next::Destroy(gone), true) => tree.forget(&mut heads, &gone.head),
                (Next::Rename(renaming), true) => tree.rename(&mut heads, renaming),
                (Next::Destroy(gone), false) => tree.give_up(&mut heads, &gone.head),
                (Next::Rename(renaming), false) => tree.give_up(&mut heads, &renaming.from),
            }
            is_whole &= is_done;
        }
        is_whole
    }

    /// The present tree here; none where it does not exist, or has nothing of this package.
    fn read_tree<'f>(&mut self, following: &'f Following<'_>) -> Option<Tree<'f>> {
        let Following { open, top, .. } = following;
        let read = tree::read(open.pool.namespace(), top, self.operation);
        let heads = match read {
            Ok(heads) => heads,
            Err(DatasetError::NotFound { .. }) => return None,
            Err(error) => {
                self.warn(format!("cannot look through '{top}': {error}"));
                return None;
            }
        };
        let process = self.call.caller.pid;
        Tree::of(following.package, following.from, process, heads)
    }

    fn promote(&mut self, following: &Following<'_>, name: &str) -> bool {
        let name = name.to_string();
        self.tell(ReceiveEvent::Promoting { name: name.clone() });
        let request = Promote { name };
        let call = &following.call;
        let promoted = self.administrator.promote(call, &request, self.operation);
        self.changed |= promoted.is_ok();
        match promoted {
            Ok(_) => true,
            Err(refusal) => {
                self.warn(refusal.to_string());
                false
            }
        }
    }

    /// Destroys snapshots of one file system. Those with holds or clones are marked for deferred
    /// destruction.
    fn destroy_snapshots(
        &mut self,
        following: &Following<'_>,
        tree: &mut Tree<'_>,
        gone: &Gone,
    ) -> bool {
        let full = |short: &String| format!("{}@{short}", gone.head);
        let mut refused = self.defer(
            following,
            &format!("{}@{}", gone.head, gone.snapshots.join(",")),
        );
        let mut left = self.snapshots_of(&following.open, &gone.head);
        if refused.is_err() && gone.snapshots.len() > 1 {
            // One snapshot that cannot go keeps the others.
            refused = Ok(());
            for short in &gone.snapshots {
                refused = self.defer(following, &full(short)).and(refused);
            }
            left = self.snapshots_of(&following.open, &gone.head);
        }
        for short in &gone.snapshots {
            let name = full(short);
            self.tell(ReceiveEvent::Destroying { name: name.clone() });
            match (&refused, left.contains(short)) {
                (_, false) => self.tell(ReceiveEvent::Succeeded),
                (Ok(()), true) => {
                    self.warn(format!("cannot destroy '{name}' yet: dataset is busy"));
                }
                (Err(refusal), true) => self.tell(failed(following, refusal)),
            }
        }
        tree.keep_snapshots(&gone.head, &left);
        gone.snapshots.iter().all(|short| !left.contains(short))
    }

    fn defer(&mut self, following: &Following<'_>, name: &str) -> Result<(), Refusal> {
        let request = Destroy {
            name: name.to_string(),
            defer: true,
            ..Destroy::default()
        };
        let call = &following.call;
        let destroyed = self
            .administrator
            .destroy_dataset(call, &request, self.operation);
        self.changed |= destroyed.is_ok();
        destroyed.map(drop)
    }

    /// Short names of the snapshots of a file system.
    fn snapshots_of(&self, open: &OpenPool, head: &str) -> Vec<String> {
        let view = open.pool.namespace().view(self.operation);
        let head = head_of(view, head).ok().flatten();
        let snapshots = head.and_then(|head| head.snapshots().ok());
        let name = |one: &Dataset<'_>| one.snapshot_name().map(str::to_string);
        let names = snapshots.iter().flatten().filter_map(name);
        names.collect()
    }

    /// Destroys a file system with its snapshots, all or nothing. If a file system is below it, it
    /// stays.
    fn destroy(&mut self, following: &Following<'_>, gone: &Gone) -> bool {
        let name = gone.head.clone();
        let view = following.open.pool.namespace().view(self.operation);
        let children = view
            .directory(&name)
            .and_then(|directory| directory.child_names());
        let request = Destroy {
            name: name.clone(),
            recursive: children.is_ok_and(|children| children.is_empty()),
            force: true,
            ..Destroy::default()
        };
        let call = &following.call;
        let destroyed = self
            .administrator
            .destroy_dataset(call, &request, self.operation);
        self.changed |= destroyed.is_ok();
        if destroyed.is_ok() {
            for short in &gone.snapshots {
                let name = format!("{name}@{short}");
                self.tell(ReceiveEvent::Destroying { name });
                self.tell(ReceiveEvent::Succeeded);
            }
        }
        self.tell(ReceiveEvent::Destroying { name });
        self.tell_outcome(following, destroyed.map(drop))
    }

    fn rename(&mut self, following: &Following<'_>, renaming: &Renaming) -> bool {
        let Renaming { from, to, .. } = renaming.clone();
        if let Some(wanted) = &renaming.wanted {
            self.tell(ReceiveEvent::Renaming {
                from: from.clone(),
                to: wanted.clone(),
            });
        }
        if renaming.is_aside {
            self.tell(ReceiveEvent::RenamingAside {
                from: from.clone(),
                to: to.clone(),
            });
        }
        let request = Rename {
            from,
            to,
            force: self.request.force,
            ..Rename::default()
        };
        let call = &following.call;
        let moved = self
            .administrator
            .move_dataset(call, &request, self.operation);
        self.changed |= moved.is_ok();
        let moved = moved.map(|heads| self.taken_off.extend(heads));
        if renaming.is_aside && moved.is_ok() {
            // It is not in its place.
            return true;
        }
        self.tell_outcome(following, moved)
    }

    fn tell_outcome(&mut self, following: &Following<'_>, outcome: Result<(), Refusal>) -> bool {
        match &outcome {
            Ok(()) => self.tell(ReceiveEvent::Succeeded),
            Err(refusal) => {
                self.warn(refusal.to_string());
                self.tell(failed(following, refusal));
            }
        }
        outcome.is_ok()
    }

    /// Gives a warning, once.
    fn warn(&mut self, warning: String) {
        if !self.done.warnings.contains(&warning) {
            self.done.warnings.push(warning);
        }
    }
}

fn failed(following: &Following<'_>, refusal: &Refusal) -> ReceiveEvent {
    ReceiveEvent::Failed {
        kind: refusal.kind,
        is_again: following.when == When::Before,
    }
}

impl Run<'_> {
    /// Key inheritance: a received dataset whose key was inherited at the sender inherits it again.
    #[doc(alias = "recv_fix_encryption_hierarchy")]
    pub(super) fn follow_keys(&mut self, package: &Package) {
        let Some(top) = self
            .top
            .clone()
            .filter(|_| package.is_raw && !self.request.dry_run)
        else {
            return;
        };
        let Some(open) = self
            .administrator
            .engine
            .find_pool(top.split('/').next().unwrap_or(&top))
        else {
            return;
        };
        let view = open.pool.namespace().view(self.operation);
        let (mut roots, mut locations) = (Vec::new(), Vec::new());
        let found = view
            .directory(&top)
            .and_then(|directory| find_roots(&directory, package, &mut roots, &mut locations));
        if let Err(error) = found {
            let warning = format!("cannot look through '{top}': {error}");
            self.done.warnings.push(warning);
        }
        for name in roots.into_iter().filter(|name| *name != top) {
            let task = InheritKey { name: name.clone() };
            if let Err(error) = open.pool.run(task, self.operation) {
                let warning = format!("cannot have '{name}' inherit its key: {error}");
                self.done.warnings.push(warning);
            }
        }
        for (name, location) in locations {
            let task = SetProperties {
                name: name.clone(),
                settings: vec![Checked {
                    name: KEY_LOCATION.to_string(),
                    property: table::find(KEY_LOCATION),
                    setting: Setting::Text(location),
                }],
                source: Source::Local,
            };
            if let Err(error) = open.pool.run(task, self.operation) {
                let warning = format!("cannot say where the key of '{name}' is: {error}");
                self.done.warnings.push(warning);
            }
        }
    }
}

/// The encryption roots here that inherit at the sender, the higher first; and those that are roots
/// there too, with their `keylocation`.
fn find_roots(
    directory: &Directory<'_>,
    package: &Package,
    roots: &mut Vec<String>,
    locations: &mut Vec<(String, String)>,
) -> Result<(), DatasetError> {
    if let Some(head) = head_of(directory.view(), directory.name())?
        && crypto_key::is_root(directory)?
    {
        let mut sent = None;
        for snapshot in head.snapshots()? {
            sent = sent.or(package.find(snapshot.stored()?.guid.get()));
        }
        match sent {
            Some(sent) if sent.is_key_root => {
                let location = sent.key_location();
                locations.extend(location.map(|location| (head.name(), location)));
            }
            Some(_) => roots.push(head.name()),
            None => {}
        }
    }
    for child in directory.children()? {
        find_roots(&child, package, roots, locations)?;
    }
    Ok(())
}
