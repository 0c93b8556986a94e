//! Claiming the intent logs that an earlier run left behind, before a pool is written.
//!
//! # Mechanism
//! The import surveys the logs of all datasets; if one of them cannot be claimed, the pool is not
//! opened for writing, and nothing has changed. Then their blocks are marked as allocated, before
//! anything is allocated, blocks of files that they lead to get a reference, and the first job of
//! the first txg changes the heads: so one txg stores all.
//!
//! Before that, what was read of the logs is self-healed on the devices that lack it: the power may
//! have failed when a block was on some of them only. A device that fails meanwhile is taken out of
//! use, and perhaps it alone had the end of a log, of a commit that had not returned. So then the
//! logs are surveyed once more.
//!
//! A log holds what was committed after the newest stored txg, and nothing of what that txg stored:
//! its records were dropped when it was stored. So a rewind to an earlier txg must not replay it:
//! what the records build on is given up. Logs that were not claimed are emptied then. A log that
//! was claimed is part of the txg that is opened: it was whole before that txg was stored, and its
//! dataset has not changed since.
//!
//! Groups of the crashed run that were never stored have left their numbers in the log. Groups go
//! on behind the newest of them, so that no block is of the future.
//!
//! Logs stay claimed until their datasets are mounted and they are replayed. An import without
//! missing log devices (`-m`) gives up the logs that cannot be read; with `-o discardlog`, all that
//! cannot be claimed.

use crate::error::{ImportError, PoolError, TaskError};
use crate::import::ImportRequest;
use crate::pool::Pool;
use tarn_dataset::intent_log::StoreClaims;
use tarn_host::canary::{Canary, sings};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::objset::IntentLogHead;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::{Operation, OperationKind};
use tarn_vdev::Need;
use tarn_zil::{Claim, ClaimError, Survey, survey};

/// Logs whose blocks are allocated, and whose heads do not say so yet.
pub(crate) struct Claimed {
    /// The group that stores them.
    group: Txg,
    /// The first group that was never stored.
    first: Txg,
    heads: Vec<(ObjectId, IntentLogHead)>,
}

/// What is opened.
#[derive(Debug, Clone, Copy)]
struct Opening {
    /// The group after the one that is opened.
    first: Txg,
    /// Later groups were stored, and are given up.
    is_rewound: bool,
}

/// What a look at the logs of all datasets gives.
#[derive(Default)]
struct Found {
    /// Datasets whose logs are to be claimed.
    claims: Vec<(ObjectId, String, Claim)>,
    /// The newest group that a block of a log was born in.
    newest: Txg,
    /// Datasets whose logs all devices have to have, and what of them.
    needed: Vec<Needed>,
}

struct Needed {
    dataset: String,
    blocks: Vec<BlockPointer>,
    /// The log was claimed by an earlier import. Its damage is reported when it is replayed.
    is_claimed: bool,
}

impl Pool {
    /// Allocates the blocks of all logs that were not claimed yet. Before the first group is begun.
    ///
    /// # Errors
    /// The first log that cannot be claimed; or what could not be read.
    #[doc(alias = "spa_ld_claim_log_blocks")]
    pub(crate) fn claim_logs(
        &self,
        request: &ImportRequest<'_>,
        operation: &Operation,
    ) -> Result<Claimed, ImportError> {
        let first = self.txgs().open_txg();
        let last_stored = self.vdevs().newest_uberblock();
        let last_stored = last_stored.map_or(Txg::ZERO, |uberblock| uberblock.txg);
        let opening = Opening {
            first,
            is_rewound: last_stored >= first,
        };
        let Found { claims, newest, .. } = self.find_whole_logs(opening, request, operation)?;
        // A pool that was rewound goes on behind what was given up.
        self.txgs().skip_to(newest.max(last_stored));
        let group = self.txgs().open_txg();
        assert!(
            group >= first && group > newest.max(last_stored),
            "logs are claimed in a group behind all that was written"
        );
        let mut heads = Vec::new();
        for (id, name, claim) in claims {
            for pointer in &claim.blocks {
                let unclaimable = |why: String| ImportError::IntentLog {
                    dataset: name.clone(),
                    why,
                };
                let places = self.io().places(pointer, operation);
                for place in places.map_err(|why| unclaimable(why.to_string()))? {
                    let space = self.space();
                    space
                        .claim(place.vdev, place.offset, place.size, group)
                        .map_err(|why| unclaimable(why.to_string()))?;
                }
            }
            let leaves_clones = sings(Canary::LeaveLoggedClones);
            for pointer in claim.shared.iter().filter(|_| !leaves_clones) {
                self.io().share(pointer, group);
            }
            heads.push((id, claim.head));
        }
        Ok(Claimed {
            group,
            first,
            heads,
        })
    }

    /// All logs, when each device in use has what was found of them.
    fn find_whole_logs(
        &self,
        opening: Opening,
        request: &ImportRequest<'_>,
        operation: &Operation,
    ) -> Result<Found, ImportError> {
        // Each time a device was taken out of use meanwhile, or nothing would be different.
        let mut attempts_left = self.vdevs().leaves().len();
        loop {
            let found = self.find_logs(opening, request, operation)?;
            match self.heal_logs(&found, operation) {
                Ok(()) => return Ok(found),
                Err(refusal) if attempts_left == 0 => return Err(refusal),
                Err(_) => attempts_left -= 1,
            }
        }
    }

    /// Sees to it that each device in use has what was found of the logs.
    fn heal_logs(&self, found: &Found, operation: &Operation) -> Result<(), ImportError> {
        // That a device lacks the end of a log is no fault of it.
        let search = Operation::internal(operation.clock(), OperationKind::LogSearch);
        for needed in &found.needed {
            for pointer in &needed.blocks {
                let healed = self.io().self_heal(pointer, &search);
                if let Err(why) = healed
                    && !needed.is_claimed
                {
                    return Err(ImportError::IntentLog {
                        dataset: needed.dataset.clone(),
                        why: why.to_string(),
                    });
                }
            }
        }
        // Readers have repaired what they found, too.
        Ok(self.vdevs().flush(&search).map_err(PoolError::from)?)
    }

    /// The logs that are to be claimed, with their datasets.
    fn find_logs(
        &self,
        opening: Opening,
        request: &ImportRequest<'_>,
        operation: &Operation,
    ) -> Result<Found, ImportError> {
        let view = self.namespace().view(operation);
        let mut found = Found::default();
        self.given_up_logs.lock().clear();
        let mut pending = vec![view.root().map_err(PoolError::from)?];
        while let Some(directory) = pending.pop() {
            pending.extend(directory.children().map_err(PoolError::from)?);
            let Some(head) = directory.head().map_err(PoolError::from)? else {
                continue;
            };
            let log = self.log_of(&head, operation)?;
            let dataset = directory.name().to_string();
            let survey = self.survey_log(&log, &dataset, opening, request, operation)?;
            found.newest = found.newest.max(survey.newest);
            if !survey.needed.is_empty() {
                found.needed.push(Needed {
                    dataset: dataset.clone(),
                    blocks: survey.needed,
                    is_claimed: survey.claim.is_none(),
                });
            }
            if let Some(claim) = survey.claim {
                found.claims.push((head.id(), dataset, claim));
            }
        }
        Ok(found)
    }

    /// What is to be done with a log.
    fn survey_log(
        &self,
        log: &IntentLogHead,
        dataset: &str,
        opening: Opening,
        request: &ImportRequest<'_>,
        operation: &Operation,
    ) -> Result<Survey, ImportError> {
        let nothing = Survey {
            claim: Some(Claim::NOTHING),
            newest: Txg::ZERO,
            needed: Vec::new(),
        };
        let survey = survey(self.io(), log, opening.first, operation);
        if opening.is_rewound && log.claim_txg.is_zero() {
            // What is encrypted is not changed without its key, and refused where it has something.
            let is_emptied = match &survey {
                Ok(survey) => survey.claim.is_some(),
                Err(why) => !matches!(why, ClaimError::Encrypted),
            };
            if is_emptied {
                return Ok(nothing);
            }
        }
        let is_given_up = match &survey {
            Ok(_) => false,
            Err(ClaimError::Unreadable { .. }) if request.need == Need::AllButLogs => true,
            Err(_) => request.discards_logs,
        };
        if is_given_up {
            self.given_up_logs.lock().push(dataset.to_string());
            return Ok(nothing);
        }
        survey.map_err(|why| ImportError::IntentLog {
            dataset: dataset.to_string(),
            why: why.to_string(),
        })
    }
}

impl Claimed {
    /// Asks for the heads to be changed in the first group. To be called before that is begun.
    pub(crate) fn store_in_first_group(self, pool: &Pool) -> Result<(), TaskError> {
        if self.heads.is_empty() {
            return Ok(());
        }
        let group = self.group;
        let task = StoreClaims {
            heads: self.heads,
            first: self.first,
        };
        pool.leave_for_sync(move |scope| {
            assert_eq!(
                scope.writer.tx.txg(),
                group,
                "logs are claimed in the first group"
            );
            tarn_dataset::task::SyncTask::apply(task, scope.context)?;
            Ok(())
        })
    }
}
