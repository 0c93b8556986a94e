//! `zfs inherit`: properties of a dataset, or of all datasets below it too, go back to inherited or
//! received values.

use super::cannot_open;
use super::kind_of;
use super::set::{decides_on_devices, kind_named};
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::command_permissions::{Need, need, of_property};
use crate::messages::dataset::{DatasetKind, Inherit};
use crate::messages::{Changed, Refusal};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::error::DatasetError;
use tarn_dataset::ops::inherit::{BackTo, InheritProperty};
use tarn_dataset::properties::table;
use tarn_dataset::properties::value::Kinds;
use tarn_engine::engine::OpenPool;
use tarn_engine::mounting::mount_values::Values;
use tarn_engine::mounting::remount::{Back, Extent, all_below, followers};
use tarn_engine::mounting::share::SHARENFS;
use tarn_engine::refusals::of_task;
use tarn_pool::{Mode, TaskError};
use tarn_probe::Operation;

/// How many datasets change in one txg: see [`destroy`](super::destroy).
const TASKS_MAX: usize = 1000;

impl Administrator {
    pub(crate) fn inherit_dataset(
        &self,
        call: &Call,
        request: &Inherit,
        operation: &Operation,
    ) -> Result<Changed, Refusal> {
        let name = &request.name;
        let open = self.engine.require_pool_of(name)?;
        kind_named(&open, name, operation)?;
        let action = |name: &str| format!("cannot inherit {} for '{name}'", request.property);
        if open.pool.mode() == Mode::ReadOnly {
            return Err(of_task(action(name), &TaskError::ReadOnly));
        }
        let property = table::find(&request.property).map_or(&*request.property, |row| row.name);
        let moves = property == "mountpoint";
        let concerns_mounts = moves || property == SHARENFS || Values::concerns(property);
        let turn = concerns_mounts.then(|| self.engine.turn(&open));
        let _turn = turn.transpose()?;
        let names = match request.recursive {
            true => names_below(&open, request, operation),
            false => Ok(vec![name.clone()]),
        };
        let names = names.map_err(|error| cannot_open(name, &error))?;
        let needs: Vec<Need<'_>> = names
            .iter()
            .map(|name| need(name, &[of_property(property)]))
            .collect();
        self.permit(call, &open, action(name), &needs, operation)?;
        let followers = match (moves, request.recursive) {
            (false, _) => Ok(Vec::new()),
            (true, true) => all_below(&open, name, operation),
            (true, false) => followers(&open, name, operation),
        };
        let followers = followers.map_err(|error| cannot_open(name, &error))?;
        self.permit_moves(call, &open, followers.iter().map(|one| one.name.as_str()))?;
        let unmounted = self.engine.take_off(
            self.beneficiary(call),
            &open,
            &followers,
            Extent::Here,
            operation,
        )?;
        let outcome = self.inherit_all(call, &open, request, &names, &action, operation);
        let back = match &outcome {
            Ok(()) if moves && self.trusts(&call.caller) => Back::AllThatMay,
            _ => Back::WhatWas,
        };
        let mounted = self.engine.put_back(
            self.beneficiary(call),
            &open,
            &followers,
            &unmounted,
            back,
            operation,
        );
        outcome?;
        if decides_on_devices(property) {
            open.touch_volumes(name);
        }
        if Values::concerns(property) {
            self.engine
                .refresh_mounts(self.beneficiary(call), &open, name, property, operation)?;
        }
        let mut warnings = Vec::from_iter(mounted.err().map(|refusal| refusal.to_string()));
        if property == SHARENFS {
            let shared = self.engine.refresh_shares(&open, name, operation);
            warnings.extend(shared.err().map(|refusal| refusal.to_string()));
        }
        Ok(Changed { warnings })
    }

    /// Clears the property on all of these datasets. Returns the first refusal; the datasets
    /// without refusals are changed.
    fn inherit_all(
        &self,
        call: &Call,
        open: &OpenPool,
        request: &Inherit,
        names: &[String],
        action: &dyn Fn(&str) -> String,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        let back_to = match request.received {
            true => BackTo::Received,
            false => BackTo::Parent,
        };
        let mut first = Ok(());
        for part in names.chunks(TASKS_MAX) {
            let command = (part.last() == names.last()).then(|| self.command_record(call));
            let tasks = part.iter().map(|name| InheritProperty {
                name: name.clone(),
                property: request.property.clone(),
                back_to,
            });
            let outcomes = open.pool.run_each(tasks.collect(), command, operation);
            let outcomes = outcomes.map_err(|error| of_task(action(&part[0]), &error))?;
            for (name, outcome) in part.iter().zip(outcomes) {
                let told = |refusal| of_task(action(name), &TaskError::Refused(refusal));
                first = first.and(outcome.map_err(told));
            }
        }
        first
    }
}

/// The dataset and the datasets below it that can have the property.
#[doc(alias = "inherit_recurse_cb")]
fn names_below(
    open: &OpenPool,
    request: &Inherit,
    operation: &Operation,
) -> Result<Vec<String>, DatasetError> {
    let row = table::find(&request.property);
    let may_have = |dataset: &Dataset<'_>| {
        let kinds = match kind_of(dataset)? {
            DatasetKind::Volume => Kinds::VOLUME,
            _ => Kinds::FILESYSTEM,
        };
        Ok::<_, DatasetError>(row.is_none_or(|row| row.kinds.meets(kinds)))
    };
    let namespace = open.pool.namespace();
    namespace.consistently(|| {
        let mut names = Vec::new();
        let mut waiting = vec![namespace.view(operation).directory(&request.name)?];
        while let Some(directory) = waiting.pop() {
            let mut children = directory.children()?;
            children.reverse();
            waiting.extend(children);
            let Some(head) = directory.head()? else {
                continue;
            };
            if may_have(&head)? {
                names.push(head.name());
            }
            // Snapshots have no native properties of their own.
            if row.is_none() {
                for snapshot in head.snapshots()? {
                    if !snapshot.stored()?.snapshot_properties.is_zero() {
                        names.push(snapshot.name());
                    }
                }
            }
        }
        Ok(names)
    })
}
