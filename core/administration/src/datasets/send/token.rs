//! `zfs send -t`: the request in a resume token.

use super::super::cannot_open;
use super::plan::facts_of;
use crate::administrator::Administrator;
use crate::bounded_text::{TooLong, bounded};
use crate::messages::dataset::{ReadToken, ResumePoint, Send, TokenRead};
use crate::messages::{Refusal, RefusalKind};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::directory::Directory;
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::DatasetName;
use tarn_ondisk::nvlist::NvList;
use tarn_probe::Operation;
use tarn_stream::token;

/// The action of all refusals here.
const ACTION: &str = "cannot resume send";

/// Largest text of a token's contents, in bytes. Real ones have some lines and name snapshots.
const TEXT_BYTES_MAX: usize = 4 << 20;

impl Administrator {
    pub(crate) fn read_token(
        &self,
        request: &ReadToken,
        operation: &Operation,
    ) -> Result<TokenRead, Refusal> {
        let list = token::decode(&request.token)
            .map_err(|bad| Refusal::new(RefusalKind::Invalid, ACTION, bad.to_string()))?;
        let text = bounded(list.printed(), TEXT_BYTES_MAX).map_err(|TooLong { .. }| {
            let reason = "resume token is corrupt (its contents are too long)";
            Refusal::new(RefusalKind::Invalid, ACTION, reason)
        })?;
        let (send, refused) = match self.resumed(&list, operation) {
            Ok(send) => (Some(send), None),
            Err(refusal) => (None, Some(refusal)),
        };
        Ok(TokenRead {
            text,
            send,
            refused,
        })
    }

    /// The request to resume, if its snapshots exist.
    fn resumed(&self, list: &NvList, operation: &Operation) -> Result<Send, Refusal> {
        let refuse = |kind, reason: &str| Refusal::new(kind, ACTION, reason);
        let corrupt = || refuse(RefusalKind::Invalid, "resume token is corrupt");
        let number = |name: &str| list.u64(name).map_err(|_| corrupt());
        let to_name = list.string("toname").map_err(|_| corrupt())?;
        let to_guid = number("toguid")?;
        let resume = ResumePoint {
            object: number("object")?,
            offset: number("offset")?,
            bytes: number("bytes")?,
        };
        if list.contains("redact_snaps") || list.contains("book_redact_snaps") {
            let reason = "redacted streams are not supported by this version";
            return Err(refuse(RefusalKind::Unsupported, reason));
        }
        let Some(name) = self.named_by_guid(to_name, to_guid, Marks::Sendable, operation)? else {
            let reason = match self.exists(to_name, operation) {
                true => {
                    format!("'{to_name}' is no longer the same snapshot used in the initial send")
                }
                false => format!("'{to_name}' used in the initial send no longer exists"),
            };
            return Err(refuse(RefusalKind::NotFound, &reason));
        };
        let from = match list.optional_u64("fromguid").map_err(|_| corrupt())? {
            None | Some(0) => None,
            Some(guid) => {
                let found = self.named_by_guid(to_name, guid, Marks::Bases, operation)?;
                Some(found.ok_or_else(|| {
                    let reason = format!("incremental source {guid:#x} no longer exists");
                    refuse(RefusalKind::NotFound, &reason)
                })?)
            }
        };
        Ok(Send {
            name,
            from,
            large_blocks: list.contains("largeblockok"),
            embedded: list.contains("embedok"),
            compressed: list.contains("compressok"),
            raw: list.contains("rawok"),
            resume: Some(resume),
            ..Send::default()
        })
    }

    fn exists(&self, name: &str, operation: &Operation) -> bool {
        let Ok(parsed) = DatasetName::parse(name) else {
            return false;
        };
        self.engine.require_pool_of(name).is_ok_and(|open| {
            let namespace = open.pool.namespace();
            namespace.view(operation).dataset(&parsed).is_ok()
        })
    }

    /// The dataset with this guid: under the given name, or anywhere below the file systems above
    /// it.
    #[doc(alias = "guid_to_name")]
    fn named_by_guid(
        &self,
        near: &str,
        guid: u64,
        marks: Marks,
        operation: &Operation,
    ) -> Result<Option<String>, Refusal> {
        let head = near.split('@').next().unwrap_or_default();
        let Ok(open) = self.engine.require_pool_of(head) else {
            return Ok(None);
        };
        let namespace = open.pool.namespace();
        let found = namespace.consistently(|| {
            let view = namespace.view(operation);
            let mut name = head;
            loop {
                match view.directory(name) {
                    Ok(directory) => {
                        if let Some(found) = search(&directory, guid, marks)? {
                            return Ok(Some(found));
                        }
                    }
                    Err(DatasetError::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
                match name.rsplit_once('/') {
                    Some((above, _)) => name = above,
                    None => return Ok(None),
                }
            }
        });
        found.map_err(|error| cannot_open(head, &error))
    }
}

/// What may have the guid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marks {
    /// Snapshots, and heads that are not mounted: the stream of a head has the head's guid.
    Sendable,
    /// Snapshots and bookmarks, as bases of a stream.
    Bases,
}

fn search(
    directory: &Directory<'_>,
    guid: u64,
    marks: Marks,
) -> Result<Option<String>, DatasetError> {
    if let Some(head) = directory.head()?
        && let Some(found) = search_head(&head, guid, marks)?
    {
        return Ok(Some(found));
    }
    for child in directory.children()? {
        if let Some(found) = search(&child, guid, marks)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn search_head(
    head: &Dataset<'_>,
    guid: u64,
    marks: Marks,
) -> Result<Option<String>, DatasetError> {
    let snapshots = facts_of(head)?;
    if let Some(found) = snapshots.iter().find(|one| one.guid == guid) {
        return Ok(Some(format!("{}@{}", head.name(), found.short)));
    }
    if marks == Marks::Sendable {
        let is_it = head.stored()?.guid.get() == guid;
        return Ok(is_it.then(|| head.name()));
    }
    let bookmarks = head.bookmarks()?;
    let found = bookmarks.iter().find(|one| one.stored.guid.get() == guid);
    Ok(found.map(|found| format!("{}#{}", head.name(), found.name)))
}
