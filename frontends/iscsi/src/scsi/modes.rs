//! Mode pages: the write cache switch, write protection, the format of sense data.

use crate::scsi::fields::{low_u16, put, u16_at};
use crate::scsi::logical_unit::{Done, LogicalUnit, Outcome, Refused, Request, refused_by};
use crate::scsi::sense::codes as asc;
use crate::scsi::{Cdb, SECTOR_BYTES, Sense, SenseFormat, codes};

/// What MODE SELECT can change, for all initiators. The write cache switch can be saved (SP=1),
/// with the volume: a reset and a restart bring back what was saved, and the defaults of everything
/// else. Without that an initiator that has switched the write cache off, and does not hear that
/// the target was started anew, would take acknowledged writes for durable that are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Modes {
    /// WCE of the caching page.
    write_cache: bool,
    /// SWP of the control page.
    write_protected: bool,
    /// D_SENSE of the control page.
    sense_format: SenseFormat,
}

impl Default for Modes {
    fn default() -> Modes {
        Modes::with_write_cache(true)
    }
}

impl Modes {
    /// The defaults, but for the write cache.
    pub fn with_write_cache(is_on: bool) -> Modes {
        Modes {
            write_cache: is_on,
            write_protected: false,
            sense_format: SenseFormat::Fixed,
        }
    }
}

/// Which values of a page are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Control {
    Current,
    Changeable,
    Default,
    Saved,
}

const RECOVERY: u8 = 0x01;
const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const EXCEPTIONS: u8 = 0x1c;
const ALL: u8 = 0x3f;
const PAGES: [u8; 4] = [RECOVERY, CACHING, CONTROL, EXCEPTIONS];

impl Modes {
    /// Acknowledged writes may be in memory.
    pub fn is_write_cache_on(&self) -> bool {
        self.write_cache
    }

    /// An initiator set SWP.
    pub fn is_write_protected(&self) -> bool {
        self.write_protected
    }

    /// The format of sense data.
    pub fn sense_format(&self) -> SenseFormat {
        self.sense_format
    }

    /// A page with its values.
    fn page(&self, code: u8) -> Vec<u8> {
        let mut page = match code {
            CACHING => vec![0; 20],
            _ => vec![0; 12],
        };
        page[0] = match code {
            // PS: it can be saved.
            CACHING => code | 0x80,
            _ => code,
        };
        page[1] = u8::try_from(page.len() - 2).expect("pages are short");
        match code {
            RECOVERY => {}
            CACHING if self.write_cache => page[2] = 0x04,
            CONTROL => {
                page[2] = match self.sense_format {
                    SenseFormat::Fixed => 0,
                    SenseFormat::Descriptors => 0x04,
                };
                // Tasks may be carried out in another order.
                page[3] = 0x10;
                if self.write_protected {
                    page[4] = 0x08;
                }
                // No busy timeout is known.
                put(&mut page, 8, &[0xff, 0xff]);
            }
            _ => {}
        }
        page
    }

    /// Which bits of a page can be changed.
    fn changeable(code: u8) -> Vec<u8> {
        let mut page = Modes::default().page(code);
        page[2..].fill(0);
        match code {
            CACHING => page[2] = 0x04,
            CONTROL => (page[2], page[4]) = (0x04, 0x08),
            _ => {}
        }
        page
    }

    fn page_of(&self, code: u8, control: Control, saved: &Modes) -> Vec<u8> {
        match control {
            Control::Current => self.page(code),
            Control::Changeable => Modes::changeable(code),
            Control::Default => Modes::default().page(code),
            Control::Saved => saved.page(code),
        }
    }

    /// Takes the values of a page. Bits that cannot be changed must be as they are.
    fn change(&mut self, page: &[u8], at: usize) -> Result<(), Refused> {
        let code = page[0] & 0x3f;
        let (current, mask) = (self.page(code), Modes::changeable(code));
        for index in 2..page.len() {
            if (page[index] ^ current[index]) & !mask[index] != 0 {
                return Err(Sense::in_parameters(at + index).into());
            }
        }
        match code {
            CACHING => self.write_cache = page[2] & 0x04 != 0,
            CONTROL => {
                self.sense_format = match page[2] & 0x04 {
                    0 => SenseFormat::Fixed,
                    _ => SenseFormat::Descriptors,
                };
                self.write_protected = page[4] & 0x08 != 0;
            }
            _ => {}
        }
        Ok(())
    }
}

impl LogicalUnit {
    /// MODE SENSE (6) and (10).
    pub(crate) fn mode_sense(&self, cdb: &Cdb) -> Outcome {
        let is_short = cdb[0] == codes::MODE_SENSE_6;
        let control = match cdb[2] >> 6 {
            0 => Control::Current,
            1 => Control::Changeable,
            2 => Control::Default,
            _ => Control::Saved,
        };
        let (code, subpage) = (cdb[2] & 0x3f, cdb[3]);
        let is_one = PAGES.contains(&code) && subpage == 0;
        let is_all = code == ALL && matches!(subpage, 0 | 0xff);
        if control == Control::Saved && code != CACHING {
            return Err(Sense::illegal(asc::SAVING_NOT_SUPPORTED).into());
        }
        if !(is_one || is_all) {
            return Err(Sense::in_cdb(2).into());
        }
        let state = self.state();
        let pages: Vec<u8> = PAGES
            .iter()
            .filter(|page| code == ALL || code == **page)
            .flat_map(|page| state.modes.page_of(*page, control, &state.saved_modes))
            .collect();
        let is_protected = self.storage.is_read_only() || state.modes.write_protected;
        // DPOFUA.
        let device = 0x10 | if is_protected { 0x80 } else { 0 };
        let is_long = !is_short && cdb[1] & 0x10 != 0;
        let descriptor = match cdb[1] & 0x08 {
            0 => self.block_descriptor(is_long),
            _ => Vec::new(),
        };
        let mut bytes = vec![0; if is_short { 4 } else { 8 }];
        if is_short {
            bytes[2] = device;
            bytes[3] = u8::try_from(descriptor.len()).expect("a descriptor is short");
        } else {
            bytes[3] = device;
            bytes[4] = u8::from(is_long);
            put(&mut bytes, 6, &low_u16(descriptor.len()).to_be_bytes());
        }
        bytes.extend(descriptor);
        bytes.extend(pages);
        if is_short {
            bytes[0] = u8::try_from(bytes.len() - 1).expect("all pages have fewer than 256 bytes");
            Ok(Done::cut(bytes, usize::from(cdb[4])))
        } else {
            let told = low_u16(bytes.len() - 2).to_be_bytes();
            put(&mut bytes, 0, &told);
            Ok(Done::cut(bytes, usize::from(u16_at(cdb, 7))))
        }
    }

    /// The number of blocks and their size, in the short or the long form.
    fn block_descriptor(&self, is_long: bool) -> Vec<u8> {
        let sector = u32::try_from(SECTOR_BYTES).expect("512").to_be_bytes();
        match is_long {
            true => {
                let mut bytes = vec![0; 16];
                put(&mut bytes, 0, &self.blocks().to_be_bytes());
                put(&mut bytes, 12, &sector);
                bytes
            }
            false => {
                let mut bytes = vec![0; 8];
                let blocks = u32::try_from(self.blocks()).unwrap_or(u32::MAX);
                put(&mut bytes, 0, &blocks.to_be_bytes());
                put(&mut bytes, 5, &sector[1..]);
                bytes
            }
        }
    }

    /// MODE SELECT (6) and (10).
    pub(crate) fn mode_select(&self, request: &Request<'_>) -> Outcome {
        let (cdb, data) = (request.cdb, request.data);
        if cdb[1] & 0x10 == 0 {
            return Err(Sense::bit_in_cdb(1, 4).into());
        }
        let is_saved = cdb[1] & 1 != 0;
        let (length, header) = match cdb[0] {
            codes::MODE_SELECT_6 => (usize::from(cdb[4]), 4),
            _ => (usize::from(u16_at(cdb, 7)), 8),
        };
        if length == 0 {
            return Ok(Done::nothing());
        }
        if data.len() < header {
            return Err(Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR).into());
        }
        let descriptor = match header {
            4 => usize::from(data[3]),
            _ => usize::from(u16_at(data, 6)),
        };
        let mut changed = self.state().modes.clone();
        let before = changed.clone();
        let mut at = header + descriptor;
        while at < data.len() {
            let page = page_at(data, at)?;
            changed.change(page, at)?;
            at += page.len();
        }
        let turned_off = before.write_cache && !changed.write_cache;
        if is_saved {
            // Only this is; SP says nothing of pages that cannot be saved.
            let kept = self.storage.save_write_cache(changed.write_cache);
            kept.map_err(|error| refused_by(error, true))?;
        }
        let mut state = self.state();
        if is_saved {
            state.saved_modes = Modes::with_write_cache(changed.write_cache);
        }
        if changed != before {
            state.modes = changed;
            state.tell_others(Some(request.nexus), asc::MODE_PARAMETERS_CHANGED);
        }
        // Writes that were acknowledged before are durable when the switch is off.
        Ok(Done::flushed(turned_off))
    }
}

/// The page that begins at a place of a parameter list.
fn page_at(data: &[u8], at: usize) -> Result<&[u8], Refused> {
    let code = data[at] & 0x3f;
    if data[at] & 0x40 != 0 || !PAGES.contains(&code) {
        return Err(Sense::in_parameters(at).into());
    }
    let told = usize::from(data.get(at + 1).copied().unwrap_or(0)) + 2;
    if told != Modes::changeable(code).len() {
        return Err(Sense::in_parameters(at + 1).into());
    }
    let page = data.get(at..at + told);
    page.ok_or_else(|| Sense::illegal(asc::PARAMETER_LIST_LENGTH_ERROR).into())
}
