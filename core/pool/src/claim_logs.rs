//! Claims the intent logs that a crash left, before a pool is written.
//!
//! # Mechanism
//! The import surveys the logs of all datasets, in some threads; if one of them cannot be claimed,
//! the pool is not opened for writing, and nothing has changed. Then the logs' blocks are marked as
//! allocated, before any allocation, blocks that their records refer to get a reference, and the
//! first job of the first txg changes the log headers: so one txg stores all.
//!
//! Before that, the log blocks that were read are self-healed on devices that lack them: at the
//! power failure a block may have been on some devices only. A device that fails meanwhile is taken
//! out of use, and perhaps it alone had the end of a log, for a commit that had not returned. So
//! the logs are surveyed once more then.
//!
//! A log holds records committed after the newest stored txg, and none that this txg stored: those
//! were dropped when it was stored. So a rewind to an earlier txg must not replay it, since the
//! records build on txgs that are discarded. Unclaimed logs are emptied then. A claimed log is part
//! of the txg that is opened: it was complete before that txg was stored, and its dataset has not
//! changed since.
//!
//! The same holds for a pool that is rewound to its checkpoint: blocks of an unclaimed log that
//! were born after the checkpoint may have been overwritten since, and those before are freed.
//!
//! Txgs of the crashed run that were never stored have left their numbers in the log. The pool goes
//! on after the newest of them, so that no block was born in the future.
//!
//! Logs stay claimed until their datasets are mounted, which replays them. An import without
//! missing log devices (`-m`) discards the logs that cannot be read; with `-o discardlog`, all that
//! cannot be claimed.

use crate::error::{ImportError, PoolError, TaskError};
use crate::import::ImportRequest;
use crate::pool::Pool;
use tarn_dataset::dataset::Dataset;
use tarn_dataset::intent_log::StoreClaims;
use tarn_host::canary::{Canary, sings};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::objset::IntentLogHead;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::{Operation, OperationKind};
use tarn_vdev::Need;
use tarn_zil::{Claim, ClaimError, Survey, survey};

/// So many logs are surveyed at the same time. A guess: most have nothing, and their heads are read
/// from the devices one by one.
const THREADS: usize = 8;

/// Logs whose blocks are allocated, and whose headers are not changed yet.
pub(crate) struct Claimed {
    /// The txg that stores them.
    group: Txg,
    /// The first txg that was never stored.
    first: Txg,
    heads: Vec<(ObjectId, IntentLogHead)>,
}

/// The state that is opened.
#[derive(Debug, Clone, Copy)]
struct Opening {
    /// The txg after the one that is opened.
    first: Txg,
    /// Later txgs were stored, and are discarded.
    is_rewound: bool,
}

/// The result of a survey of all logs.
#[derive(Default)]
struct Found {
    /// Datasets whose logs are to be claimed.
    claims: Vec<(ObjectId, String, Claim)>,
    /// The newest birth of a log block.
    newest: Txg,
    /// Datasets whose logs must be on all devices, with those logs.
    needed: Vec<Needed>,
    /// Datasets whose logs are claimed, or to be claimed.
    claimed: Vec<String>,
    /// Datasets whose logs are given up.
    given_up: Vec<String>,
}

/// What a look at one log gives.
struct Surveyed {
    head: ObjectId,
    dataset: String,
    /// An earlier import has claimed it.
    is_claimed: bool,
    survey: Survey,
    is_given_up: bool,
}

struct Needed {
    dataset: String,
    blocks: Vec<BlockPointer>,
    /// An earlier import claimed the log. Its replay reports damage.
    is_claimed: bool,
}

impl Pool {
    /// Allocates the blocks of all unclaimed logs. Called before the first txg begins.
    ///
    /// # Errors
    /// The first log that cannot be claimed; or a read error.
    #[doc(alias = "spa_ld_claim_log_blocks")]
    pub(crate) fn claim_logs(
        &self,
        request: &ImportRequest<'_>,
        operation: &Operation,
    ) -> Result<Claimed, ImportError> {
        let (opening, last_stored) = self.opening();
        let first = opening.first;
        let found = self.find_whole_logs(opening, request, operation)?;
        let Found { claims, newest, .. } = found;
        *self.claimed_logs.lock() = found.claimed;
        *self.given_up_logs.lock() = found.given_up;
        // A rewound pool goes on after the discarded txgs.
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

    /// The state that is opened, and the newest txg that was ever stored.
    #[doc(alias = "spa_min_claim_txg")]
    fn opening(&self) -> (Opening, Txg) {
        let last_stored = self.vdevs().newest_uberblock();
        let last_stored = last_stored.map_or(Txg::ZERO, |uberblock| uberblock.txg);
        let uberblock = self.uberblock();
        let opening = match uberblock.is_checkpoint() {
            true => Opening {
                first: uberblock.checkpoint_txg.next(),
                is_rewound: true,
            },
            false => {
                let first = self.txgs().open_txg();
                Opening {
                    first,
                    is_rewound: last_stored >= first,
                }
            }
        };
        (opening, last_stored)
    }

    /// Fails where claiming would fail because of the contents of a log. Writes nothing.
    ///
    /// # Errors
    /// The first log that cannot be claimed; or a read error.
    pub(crate) fn check_logs(
        &self,
        request: &ImportRequest<'_>,
        operation: &Operation,
    ) -> Result<(), ImportError> {
        let (opening, _) = self.opening();
        self.find_logs(opening, request, operation).map(drop)
    }

    /// All logs, once each device in use has the blocks that were found.
    fn find_whole_logs(
        &self,
        opening: Opening,
        request: &ImportRequest<'_>,
        operation: &Operation,
    ) -> Result<Found, ImportError> {
        // Each further attempt follows the loss of a device.
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

    /// Writes the found log blocks to devices in use that lack them.
    fn heal_logs(&self, found: &Found, operation: &Operation) -> Result<(), ImportError> {
        // A device that lacks the end of a log has no error for that.
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
        // Reads have self-healed blocks, too.
        Ok(self.vdevs().flush(&search).map_err(PoolError::from)?)
    }

    /// The logs to claim, with their datasets.
    fn find_logs(
        &self,
        opening: Opening,
        request: &ImportRequest<'_>,
        operation: &Operation,
    ) -> Result<Found, ImportError> {
        let heads = self.all_heads(operation)?;
        let surveyed = self.host().map_in_threads(heads, THREADS, |head| {
            self.survey_log(&head, opening, request, operation)
        });
        let mut found = Found::default();
        for surveyed in surveyed {
            let Surveyed {
                head,
                dataset,
                is_claimed,
                survey,
                is_given_up,
            } = surveyed?;
            found.newest = found.newest.max(survey.newest);
            if is_claimed || survey.claim.is_some() {
                found.claimed.push(dataset.clone());
            }
            if is_given_up {
                found.given_up.push(dataset.clone());
            }
            if !survey.needed.is_empty() {
                found.needed.push(Needed {
                    dataset: dataset.clone(),
                    blocks: survey.needed,
                    is_claimed: survey.claim.is_none(),
                });
            }
            if let Some(claim) = survey.claim {
                found.claims.push((head, dataset, claim));
            }
        }
        Ok(found)
    }

    /// The heads of all datasets.
    fn all_heads<'a>(&'a self, operation: &'a Operation) -> Result<Vec<Dataset<'a>>, PoolError> {
        let mut heads = Vec::new();
        let mut pending = vec![self.namespace().view(operation).root()?];
        while let Some(directory) = pending.pop() {
            pending.extend(directory.children()?);
            heads.extend(directory.head()?);
        }
        Ok(heads)
    }

    /// Looks at the log of a dataset, and says what is to be done with it.
    fn survey_log(
        &self,
        head: &Dataset<'_>,
        opening: Opening,
        request: &ImportRequest<'_>,
        operation: &Operation,
    ) -> Result<Surveyed, ImportError> {
        let log = self.log_of(head, operation)?;
        let surveyed = |survey, is_given_up| Surveyed {
            head: head.id(),
            dataset: head.name(),
            is_claimed: !log.claim_txg.is_zero(),
            survey,
            is_given_up,
        };
        let nothing = Survey {
            claim: Some(Claim::NOTHING),
            newest: Txg::ZERO,
            needed: Vec::new(),
        };
        let survey = survey(self.io(), &log, opening.first, operation);
        if opening.is_rewound && log.claim_txg.is_zero() {
            // Without its key an encrypted log is not changed, and refused if it has records.
            let is_emptied = match &survey {
                Ok(survey) => survey.claim.is_some(),
                Err(why) => !matches!(why, ClaimError::Encrypted),
            };
            if is_emptied {
                return Ok(surveyed(nothing, false));
            }
        }
        let is_given_up = match &survey {
            Ok(_) => false,
            Err(ClaimError::Unreadable { .. }) if request.need == Need::AllButLogs => true,
            Err(_) => request.discards_logs,
        };
        if is_given_up {
            return Ok(surveyed(nothing, true));
        }
        let survey = survey.map_err(|why| ImportError::IntentLog {
            dataset: head.name(),
            why: why.to_string(),
        });
        Ok(surveyed(survey?, false))
    }
}

impl Claimed {
    /// Changes the log headers in the first txg. Called before that begins.
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
