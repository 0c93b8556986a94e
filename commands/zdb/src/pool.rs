//! The parts of a pool that are printed, in order.

use crate::blocks;
use crate::checkpoint;
use crate::config;
use crate::dedup;
use crate::dtl;
use crate::features::Uses;
use crate::history;
use crate::look::Look;
use crate::metaslab_view;
use crate::mos_leaks;
use crate::options::{ObjectRange, number};
use crate::out::Out;
use crate::set::{self, SetView};
use crate::uberblock;
use tarn_engine::inspect::InspectError;
use tarn_object::ObjectError;
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::features::Feature;
use tarn_ondisk::pool_directory as name;
use tarn_ondisk::units::ObjectId;

/// A stored count is wrong.
const EXIT_MISCOUNTED: u8 = 2;

/// Something is damaged.
const EXIT_CORRUPT: u8 = 3;

/// The first pool version that frees snapshots from a list.
const VERSION_DEADLISTS: u64 = 26;

/// Prints the pool or dataset that `target` names. Returns the exit code.
pub fn show(out: &mut Out, look: &Look<'_>, target: &str) -> Result<u8, InspectError> {
    let rest = &look.options.operands[1..];
    let mut ranges = Vec::new();
    if look.options.has('d') {
        for text in rest {
            match ObjectRange::parse(text) {
                Ok(range) => ranges.push(range),
                Err(why) => {
                    out.complain(format_args!("zdb: Bad object or range: '{text}': {why}"));
                    return Ok(1);
                }
            }
        }
    }
    let code = match (dataset_of(look, target)?, ranges.is_empty()) {
        (Some(view), _) => show_set(out, look, &view, &ranges)?,
        (None, false) if !look.options.has('m') => {
            show_set(out, look, &SetView::of_mos(look)?, &ranges)?
        }
        (None, _) => whole(out, look)?,
    };
    Ok(match code {
        0 if look.is_corrupt.get() => EXIT_CORRUPT,
        code => code,
    })
}

/// The dataset that a target names: by name, or by its object number. None for the pool itself.
fn dataset_of(look: &Look<'_>, target: &str) -> Result<Option<SetView>, InspectError> {
    let target = target.strip_suffix('/').unwrap_or(target);
    let Some((_, tail)) = target.split_once(['/', '@']) else {
        return Ok(None);
    };
    let not_found = || InspectError::NoSuchDataset {
        name: target.to_string(),
    };
    let by_number = number(tail).filter(|_| target.contains('/'));
    if by_number == Some(0) {
        return Ok(None);
    }
    let mut found = None;
    // The pool may be given by its guid.
    let name = format!(
        "{}{}",
        look.pool().name(),
        &target[target.len() - tail.len() - 1..]
    );
    set::for_each_dataset(look, &mut |id, dataset| {
        let is_named = dataset == name && !look.options.has('N');
        if is_named || found.is_none() && by_number.map(ObjectId::new) == Some(id) {
            found = Some((id, dataset));
        }
        Ok(())
    })?;
    let (id, name) = found.ok_or_else(not_found)?;
    SetView::of_dataset(look, id, name).map(Some)
}

fn show_set(
    out: &mut Out,
    look: &Look<'_>,
    view: &SetView,
    ranges: &[ObjectRange],
) -> Result<u8, InspectError> {
    match set::show(out, look, view, ranges) {
        Err(InspectError::Object {
            cause: ObjectError::NoSuchObject { .. },
            ..
        }) => {
            out.complain("zdb: dmu_object_info() failed, errno 2");
            Ok(1)
        }
        Err(error) => Err(error),
        Ok(()) => Ok(0),
    }
}

/// Prints the pool as a whole.
fn whole(out: &mut Out, look: &Look<'_>) -> Result<u8, InspectError> {
    let options = look.options;
    if options.has('S') {
        return dedup::show(out, look);
    }
    if options.has('C') {
        config::show(out, options, look.inspection)?;
    }
    if options.has('u') {
        writeln!(out, "\nUberblock:");
        uberblock::show(out, &look.pool().uberblock(), options.level('u'));
        writeln!(out);
    }
    let shows_maps = look.depth() > 2 || options.has('m');
    if shows_maps && let Some(code) = metaslab_view::show(out, look)? {
        return Ok(code);
    }
    if options.has('M') {
        metaslab_view::show_groups(out, look)?;
    }
    if shows_maps {
        metaslab_view::show_logs(out, look)?;
    }
    let mut code = 0;
    if options.has('d') || options.has('i') {
        code = datasets(out, look)?;
    }
    if code == 0 && (options.has('b') || options.has('c')) {
        code = blocks::show(out, look)?;
    }
    if code == 0 && !metaslab_view::verify_counts(out, look)? {
        code = EXIT_MISCOUNTED;
    }
    if options.has('h') {
        history::show(out, look)?;
    }
    if code == 0 {
        checkpoint::show(out, look)?;
    }
    Ok(code)
}

/// Prints all object sets, and verifies stored counts.
fn datasets(out: &mut Out, look: &Look<'_>) -> Result<u8, InspectError> {
    let mos = SetView::of_mos(look)?;
    set::show(out, look, &mos, &[])?;
    if look.depth() >= 3 {
        pool_lists(out, look)?;
        dtl::show(out, look);
    }
    let mut uses = Uses::default();
    set::for_each_dataset(look, &mut |id, name| {
        // A dataset that cannot be read must not hide the others.
        match SetView::of_dataset(look, id, name.clone()) {
            Ok(view) => {
                uses.count(look, &view)?;
                set::show(out, look, &view, &[])
            }
            Err(error) => {
                look.is_corrupt.set(true);
                out.complain(format_args!("failed to hold dataset '{name}': {error}"));
                Ok(())
            }
        }
    })?;
    uses.count_deleted_clones(look)?;
    let mut is_right = true;
    if !look.options.has('L') {
        is_right &= mos_leaks::verify(out, look)?;
    }
    is_right &= uses.verify(out, look)?;
    if is_right {
        is_right = uses.verify_removal(out, look)?;
    }
    Ok(if is_right { 0 } else { EXIT_MISCOUNTED })
}

/// Lists of blocks that wait to be freed.
fn pool_lists(out: &mut Out, look: &Look<'_>) -> Result<(), InspectError> {
    let directory = look.directory();
    if let Some(id) = directory.find(name::SYNC_POINTER_LIST)? {
        set::show_list(out, look, id, "Deferred frees", 0)?;
    }
    if look.pool().uberblock().version >= VERSION_DEADLISTS
        && let Some(id) = directory.find(name::FREE_POINTER_LIST)?
    {
        set::show_list(out, look, id, "Pool snapshot frees", 0)?;
    }
    if let Some(id) = directory.find(name::OBSOLETE_POINTER_LIST)? {
        set::show_list(out, look, id, "Pool obsolete blocks", 0)?;
    }
    let is_destroying = look
        .pool()
        .features()
        .is_active(Feature::AsyncDestroy.guid());
    if let Some(id) = directory.find(name::BLOCK_TREE)?.filter(|_| is_destroying) {
        use tarn_ondisk::declare::Stored;
        let object = directory.object(id)?;
        let head = tarn_ondisk::bptree::BlockTreeHead::from_short_bytes(
            &object.bonus(),
            ByteOrder::Little,
        )
        .map_err(|cause| tarn_pool::PoolError::Corrupt { object: id, cause })?;
        writeln!(
            out,
            "\n    Pool dataset frees: {} datasets, {}",
            head.end.saturating_sub(head.begin),
            look.nice(head.allocated.get())
        );
    }
    Ok(())
}
