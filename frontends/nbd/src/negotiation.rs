//! The handshake: the client lists exports, and chooses one.

use crate::nbd_messages::{
    self, BASE_ALLOCATION, BASE_ALLOCATION_ID, ContextRequest, InfoRequest, TRANSFER_BYTES_MAX,
    export_flag, handshake_flag, info, option, option_reply, reply,
};
use crate::sending::Sender;
use std::sync::Arc;
use tarn_engine::Engine;
use tarn_engine::volumes::{HeldVolume, VolumeAccess};

/// The smallest transfer that clients should prefer.
const PREFERRED_BYTES_MIN: u64 = 4096;

/// What was agreed on so far.
#[derive(Debug, Default)]
pub(crate) struct Negotiation {
    omits_zeroes: bool,
    /// Reads are replied to in chunks.
    pub(crate) is_structured: bool,
    /// The export for which `base:allocation` was chosen.
    contexts_of: Option<String>,
    /// Block status can be asked for.
    pub(crate) tells_allocation: bool,
    /// The export that the client asked for last: mostly it chooses the same next.
    held: Option<(String, Arc<HeldVolume>)>,
}

impl Negotiation {
    /// Takes the client's flags. False when it is to be left.
    pub(crate) fn take_flags(&mut self, flags: u32) -> bool {
        let known = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        self.omits_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
        flags & !u32::from(known) == 0
    }

    /// Forgets what was agreed on by options.
    pub(crate) fn begin_again(&mut self) {
        *self = Negotiation {
            omits_zeroes: self.omits_zeroes,
            ..Negotiation::default()
        };
    }

    /// Answers an option. Gives the volume that it chooses.
    pub(crate) fn answer(
        &mut self,
        engine: &Engine,
        sender: &Sender,
        option: u32,
        data: &[u8],
    ) -> Option<Arc<HeldVolume>> {
        let say = |kind: u32, data: &[u8]| sender.send(&[&option_reply(option, kind, data)]);
        match option {
            option::EXPORT_NAME => return self.begin_by_name(engine, sender, data),
            option::ABORT => {
                say(reply::ACK, &[]);
                sender.close();
            }
            option::LIST if !data.is_empty() => say(reply::ERR_INVALID, b"LIST has no data"),
            option::LIST => list(engine, &say),
            option::INFO | option::GO => return self.inform(engine, option, data, &say),
            option::STRUCTURED_REPLY if !data.is_empty() => {
                say(reply::ERR_INVALID, b"STRUCTURED_REPLY has no data");
            }
            option::STRUCTURED_REPLY => {
                self.is_structured = true;
                say(reply::ACK, &[]);
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.choose_contexts(engine, option, data, &say);
            }
            _ => say(reply::ERR_UNSUP, b"the option is not known"),
        }
        None
    }

    /// Releases the volume that the client asked for and did not choose.
    pub(crate) fn release(&mut self, engine: &Engine) {
        if let Some((_, volume)) = self.held.take() {
            let _ = engine.release_volume(&volume);
        }
    }

    /// Holds the volume of an export; the text says why not.
    fn hold(&mut self, engine: &Engine, name: &str) -> Result<Arc<HeldVolume>, String> {
        if let Some((held, volume)) = &self.held
            && held == name
            && !volume.is_ended()
        {
            return Ok(volume.clone());
        }
        self.release(engine);
        if name.is_empty() {
            return Err("exports are volumes, by the names of their datasets".to_string());
        }
        let operation = engine.operation(0);
        let held = engine.hold_volume(name, VolumeAccess::ReadWrite, &operation);
        let volume = held.map_err(|refusal| refusal.to_string())?;
        self.held = Some((name.to_string(), volume.clone()));
        Ok(volume)
    }

    /// `EXPORT_NAME`: there is no answer but that of success.
    fn begin_by_name(
        &mut self,
        engine: &Engine,
        sender: &Sender,
        data: &[u8],
    ) -> Option<Arc<HeldVolume>> {
        let name = std::str::from_utf8(data).ok();
        let Some(volume) = name.and_then(|name| self.hold(engine, name).ok()) else {
            sender.close();
            return None;
        };
        let zeroes = match self.omits_zeroes {
            true => &[][..],
            false => &[0; 124][..],
        };
        sender.send(&[
            &volume.size_bytes().to_be_bytes(),
            &flags_of(&volume, self.is_structured).to_be_bytes(),
            zeroes,
        ]);
        self.tells_allocation = self.contexts_of.as_deref() == name;
        self.held = None;
        Some(volume)
    }

    /// `INFO`, and `GO`, which chooses.
    fn inform(
        &mut self,
        engine: &Engine,
        option: u32,
        data: &[u8],
        say: &dyn Fn(u32, &[u8]),
    ) -> Option<Arc<HeldVolume>> {
        let Some(request) = InfoRequest::parse(data) else {
            say(reply::ERR_INVALID, b"the data is malformed");
            return None;
        };
        let volume = match self.hold(engine, &request.name) {
            Ok(volume) => volume,
            Err(why) => {
                say(reply::ERR_UNKNOWN, why.as_bytes());
                return None;
            }
        };
        let flags = flags_of(&volume, self.is_structured);
        let facts = [
            &info::EXPORT.to_be_bytes()[..],
            &volume.size_bytes().to_be_bytes(),
            &flags.to_be_bytes(),
        ];
        say(reply::INFO, &facts.concat());
        if request.wanted.contains(&info::NAME) {
            let name = [&info::NAME.to_be_bytes()[..], request.name.as_bytes()];
            say(reply::INFO, &name.concat());
        }
        if request.wanted.contains(&info::BLOCK_SIZE) {
            let preferred = volume.block_size().max(PREFERRED_BYTES_MIN);
            let preferred = u32::try_from(preferred).unwrap_or(TRANSFER_BYTES_MAX);
            let sizes = [
                &info::BLOCK_SIZE.to_be_bytes()[..],
                &1_u32.to_be_bytes(),
                &preferred.to_be_bytes(),
                &TRANSFER_BYTES_MAX.to_be_bytes(),
            ];
            say(reply::INFO, &sizes.concat());
        }
        if option == option::INFO {
            say(reply::ACK, &[]);
            return None;
        }
        self.tells_allocation = self.contexts_of.as_ref() == Some(&request.name);
        self.held = None;
        say(reply::ACK, &[]);
        Some(volume)
    }

    fn choose_contexts(
        &mut self,
        engine: &Engine,
        option: u32,
        data: &[u8],
        say: &dyn Fn(u32, &[u8]),
    ) {
        let is_list = option == option::LIST_META_CONTEXT;
        let Some(request) = ContextRequest::parse(data) else {
            return say(reply::ERR_INVALID, b"the data is malformed");
        };
        if !self.is_structured && !is_list {
            return say(reply::ERR_INVALID, b"structured replies come first");
        }
        if let Err(why) = self.hold(engine, &request.name) {
            return say(reply::ERR_UNKNOWN, why.as_bytes());
        }
        let is_wanted = request.wants_allocation(is_list);
        if is_wanted {
            let id = BASE_ALLOCATION_ID.to_be_bytes();
            let context = [&id[..], BASE_ALLOCATION.as_bytes()];
            say(reply::META_CONTEXT, &context.concat());
        }
        if !is_list {
            self.contexts_of = is_wanted.then_some(request.name);
        }
        say(reply::ACK, &[]);
    }
}

/// `LIST`: each export in a reply of its own.
fn list(engine: &Engine, say: &dyn Fn(u32, &[u8])) {
    let operation = engine.operation(0);
    let listed = match engine.list_volumes(&operation) {
        Ok(listed) => listed,
        Err(refusal) => return say(reply::ERR_SHUTDOWN, refusal.to_string().as_bytes()),
    };
    for volume in listed {
        let length = u32::try_from(volume.name.len()).unwrap_or(0);
        let export = [&length.to_be_bytes()[..], volume.name.as_bytes()];
        say(reply::SERVER, &export.concat());
    }
    say(reply::ACK, &[]);
}

fn flags_of(volume: &HeldVolume, is_structured: bool) -> u16 {
    let writing = export_flag::SEND_FLUSH
        | export_flag::SEND_FUA
        | export_flag::SEND_TRIM
        | export_flag::SEND_WRITE_ZEROES
        | export_flag::SEND_FAST_ZERO;
    let common = export_flag::HAS_FLAGS | export_flag::CAN_MULTI_CONN | export_flag::SEND_CACHE;
    let of_writing = match volume.is_read_only() {
        true => export_flag::READ_ONLY | export_flag::SEND_FLUSH,
        false => writing,
    };
    let of_replies = match is_structured {
        true => nbd_messages::export_flag::SEND_DF,
        false => 0,
    };
    common | of_writing | of_replies
}
