//! What is to be pushed to a server, while it may be away.
//!
//! # Invariants
//! - At most [`BYTES_MAX`] wait: the oldest go first, and are counted.
//! - What a server refuses for good is not sent again; what it cannot take now is, in its order.

use crate::http_post::PostError;
use std::collections::VecDeque;

/// Bytes that wait: with a hundred KiB every ten seconds, some half an hour.
const BYTES_MAX: usize = 16 << 20;

/// Batches of lines that wait.
#[derive(Debug, Default)]
pub struct PushQueue {
    batches: VecDeque<String>,
    bytes: usize,
    dropped: u64,
}

impl PushQueue {
    /// Adds a batch.
    pub fn add(&mut self, batch: String) {
        if batch.is_empty() {
            return;
        }
        self.bytes += batch.len();
        self.batches.push_back(batch);
        while self.bytes > BYTES_MAX {
            let Some(oldest) = self.batches.pop_front() else {
                return;
            };
            self.bytes -= oldest.len();
            self.dropped += 1;
        }
    }

    /// Sends batches, the oldest first, until one cannot be sent now.
    ///
    /// # Errors
    /// Why it could not; the last of those that were refused, if that is all.
    pub fn send(
        &mut self,
        mut send: impl FnMut(&str) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        let mut refused = None;
        while let Some(oldest) = self.batches.front() {
            match send(oldest) {
                Err(error @ (PostError::Away(_) | PostError::Later(_))) => return Err(error),
                Err(error @ PostError::Refused(..)) => refused = Some(error),
                Ok(()) => {}
            }
            self.bytes -= oldest.len();
            self.batches.pop_front();
        }
        assert_eq!(self.bytes, 0, "nothing waits");
        refused.map_or(Ok(()), Err)
    }

    /// Batches that gave way, since this was last asked.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.batches.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_sent_in_its_order_when_the_server_is_back() {
        let mut queue = PushQueue::default();
        for batch in ["a", "b", "", "c"] {
            queue.add(batch.to_owned());
        }
        assert_eq!(queue.waiting(), 3);
        let away = queue.send(|_| Err(PostError::Later(503)));
        assert!(matches!(away, Err(PostError::Later(503))));
        assert_eq!(queue.waiting(), 3);
        let mut sent = Vec::new();
        let told = queue.send(|batch| {
            sent.push(batch.to_owned());
            match batch {
                "b" => Err(PostError::Refused(400, "bad".to_owned())),
                _ => Ok(()),
            }
        });
        assert!(matches!(told, Err(PostError::Refused(400, _))));
        assert_eq!(sent, ["a", "b", "c"]);
        assert_eq!((queue.waiting(), queue.bytes), (0, 0));
    }

    #[test]
    fn the_oldest_give_way() {
        let mut queue = PushQueue::default();
        let batch = |letter: &str| letter.repeat(BYTES_MAX / 4);
        for letter in ["a", "b", "c", "d", "e", "f"] {
            queue.add(batch(letter));
        }
        assert_eq!((queue.waiting(), queue.take_dropped()), (4, 2));
        assert_eq!(queue.take_dropped(), 0);
        let mut first = None;
        let sent = queue.send(|batch| {
            first.get_or_insert(batch.chars().next());
            Ok(())
        });
        assert!(sent.is_ok());
        assert_eq!(first, Some(Some('c')));
    }
}
