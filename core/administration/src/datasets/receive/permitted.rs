//! The permissions that a user needs to receive a stream.

use super::Run;
use super::planning::Plan;
use crate::command_permissions::{need, of_property, parent_of, permission, user_of};
use crate::datasets::create::nearest;
use crate::messages::{Refusal, RefusalKind};
use tarn_dataset::delegation::would_be_granted;
use tarn_dataset::ops::on_behalf::{Growth, OnBehalf};
use tarn_dataset::ops::receive::ReceiveSettings;
use tarn_engine::engine::OpenPool;

impl Run<'_> {
    /// Refuses a caller without permission to receive this stream. Received properties that the
    /// caller may not set are left out, with a warning.
    #[doc(alias = "zfs_secpolicy_recv")]
    pub(super) fn permit(&mut self, open: &OpenPool, plan: &mut Plan) -> Result<(), Refusal> {
        let (administrator, call, operation) = (self.administrator, self.call, self.operation);
        if administrator.trusts(&call.caller) {
            return Ok(());
        }
        let target = plan.target().to_string();
        let into = match plan.makes_new {
            true => parent_of(&target).unwrap_or(&target),
            false => &target,
        };
        let there = nearest(open, &target, operation);
        if plan.makes_new && there != into {
            return self.permit_far_below(open, plan, there);
        }
        let receive = match self.request.force {
            true => permission::RECEIVE,
            // Without `-F` the stream only adds, so `receive:append` suffices.
            false
                if administrator.may(
                    call,
                    open,
                    &need(into, &[permission::RECEIVE]),
                    operation,
                ) =>
            {
                permission::RECEIVE
            }
            false => permission::RECEIVE_APPEND,
        };
        let needed = [receive, permission::MOUNT, permission::CREATE];
        let needs = [need(into, &needed)];
        administrator.permit(call, open, plan.action(), &needs, operation)?;
        self.permit_settings(open, plan)
    }

    /// The same where parents are missing: they are created, and the stream needs its permissions
    /// at the nearest existing ancestor.
    fn permit_far_below(
        &mut self,
        open: &OpenPool,
        plan: &mut Plan,
        there: &str,
    ) -> Result<(), Refusal> {
        let (administrator, call, operation) = (self.administrator, self.call, self.operation);
        let action = plan.action();
        administrator.permit_below(call, open, action, plan.target(), operation)?;
        let granted = |permission| {
            administrator.permit_new(call, open, action, there, &[permission], operation)
        };
        match granted(permission::RECEIVE) {
            // Without `-F` the stream only adds, so `receive:append` suffices.
            Err(_) if !self.request.force => granted(permission::RECEIVE_APPEND)?,
            outcome => outcome?,
        }
        self.permit_settings(open, plan)
    }

    /// Refuses properties of the request that the caller may not set. Received ones are left out,
    /// with a warning.
    fn permit_settings(&mut self, open: &OpenPool, plan: &mut Plan) -> Result<(), Refusal> {
        let target = plan.target().to_string();
        let ReceiveSettings {
            local,
            received,
            mut inherited,
        } = std::mem::take(&mut plan.settings);
        if let Some(refused) = local
            .iter()
            .find(|one| !self.may_set(open, plan, &one.name))
        {
            let reason = "permission denied";
            let refusal = Refusal::new(RefusalKind::Denied, plan.action(), reason);
            let hint = format!("cannot set property '{}' for '{target}'", refused.name);
            return Err(refusal.with_hint(hint));
        }
        let (kept, left): (Vec<_>, Vec<_>) = received
            .into_iter()
            .partition(|one| self.may_set(open, plan, &one.name));
        inherited.retain(|one| self.may_set(open, plan, one));
        for one in left {
            let name = one.name;
            let warning = format!("cannot receive {name} property on {target}: permission denied");
            self.done.warnings.push(warning);
        }
        plan.settings = ReceiveSettings {
            local,
            received: kept,
            inherited,
        };
        Ok(())
    }

    fn may_set(&self, open: &OpenPool, plan: &Plan, property: &str) -> bool {
        let permission = of_property(property);
        if !plan.makes_new {
            let need = need(plan.target(), &[permission]);
            return self
                .administrator
                .may(self.call, open, &need, self.operation);
        }
        let view = open.pool.namespace().view(self.operation);
        let there = view.directory(nearest(open, plan.target(), self.operation));
        there.is_ok_and(|parent| {
            let granted = would_be_granted(&parent, permission, &user_of(&self.call.caller));
            granted.unwrap_or(false)
        })
    }

    /// Refuses a caller without permission to destroy and rename below the target: a forced receive
    /// of a whole tree does both.
    pub(super) fn permit_following(&self, is_tree: bool) -> Result<(), Refusal> {
        let (administrator, call) = (self.administrator, self.call);
        if administrator.trusts(&call.caller) || !is_tree || !self.request.force {
            return Ok(());
        }
        let action = "cannot receive";
        let target = self.request.target.split('@').next().unwrap_or_default();
        let open = administrator.engine.require_pool_of(target)?;
        let needed = [
            permission::DESTROY,
            permission::RENAME,
            permission::PROMOTE,
            permission::MOUNT,
            permission::CREATE,
        ];
        let needs = [need(target, &needed)];
        administrator.permit(call, &open, action, &needs, self.operation)?;
        let view = open.pool.namespace().view(self.operation);
        let may_below = view.directory(target).and_then(|directory| {
            let user = user_of(&call.caller);
            for permission in needed {
                if !would_be_granted(&directory, permission, &user)? {
                    return Ok(false);
                }
            }
            Ok(true)
        });
        match may_below {
            Ok(true) => Ok(()),
            _ => Err(Refusal::new(
                RefusalKind::Denied,
                action,
                "permission denied",
            )),
        }
    }

    /// The task that begins a receive, bound by limits.
    pub(super) fn on_behalf<T>(&self, plan: &Plan, task: T) -> OnBehalf<T> {
        let target = plan.target();
        let (growth, created) = match plan.makes_new {
            true => {
                let parent = parent_of(target).unwrap_or(target).to_string();
                let growth = vec![Growth::Filesystem(parent.clone()), Growth::Snapshot(parent)];
                (growth, vec![target.to_string()])
            }
            false => (vec![Growth::Snapshot(target.to_string())], Vec::new()),
        };
        self.administrator
            .on_behalf(self.call, task, growth, created)
    }
}
