//! The notes that tell tracers of the probes, read from this program's own file as a tracer reads
//! them: sections of ELF, and `.note.stapsdt` in them.

#![cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

use std::collections::BTreeMap;
use tarn_probe::{DeviceIo, FinishedIo, IoKind, IoPriority, Operation, Stage, device_number};

/// A program of 64 bits, little-endian.
struct Elf(Vec<u8>);

#[derive(Clone, Copy, Debug)]
struct Section {
    flags: u64,
    address: u64,
    offset: usize,
    size: usize,
}

/// A probe as its note tells it.
#[derive(Debug)]
struct Note {
    location: u64,
    base: u64,
    semaphore: u64,
    arguments: Vec<String>,
}

impl Elf {
    fn number(&self, at: usize, bytes: usize) -> u64 {
        let bytes = self.0[at..at + bytes].iter().rev();
        bytes.fold(0, |number, byte| (number << 8) | u64::from(*byte))
    }

    fn place(&self, at: usize, bytes: usize) -> usize {
        usize::try_from(self.number(at, bytes)).unwrap()
    }

    fn text(&self, at: usize) -> String {
        let end = self.0[at..].iter().position(|byte| *byte == 0).unwrap();
        String::from_utf8(self.0[at..at + end].to_vec()).unwrap()
    }

    fn sections(&self) -> BTreeMap<String, Section> {
        assert_eq!(self.0[..6], *b"\x7fELF\x02\x01");
        let (table, size) = (self.place(0x28, 8), self.place(0x3a, 2));
        let head = |index: usize| table + index * size;
        let names = self.place(head(self.place(0x3e, 2)) + 0x18, 8);
        let each = (0..self.place(0x3c, 2)).map(|index| {
            let at = head(index);
            let section = Section {
                flags: self.number(at + 8, 8),
                address: self.number(at + 0x10, 8),
                offset: self.place(at + 0x18, 8),
                size: self.place(at + 0x20, 8),
            };
            (self.text(names + self.place(at, 4)), section)
        });
        each.collect()
    }

    /// The probes of a provider by their names.
    fn notes(&self, section: Section, provider: &str) -> BTreeMap<String, Note> {
        let (mut at, end) = (section.offset, section.offset + section.size);
        let mut notes = BTreeMap::new();
        let whole = |bytes: usize| bytes.next_multiple_of(4);
        while at < end {
            let (owner_bytes, bytes) = (self.place(at, 4), self.place(at + 4, 4));
            let head = (self.number(at + 8, 4), self.text(at + 12));
            assert_eq!(head, (3, "stapsdt".into()));
            let body = at + 12 + whole(owner_bytes);
            let mut texts = Vec::new();
            let mut text_at = body + 24;
            for _ in 0..3 {
                let text = self.text(text_at);
                text_at += text.len() + 1;
                texts.push(text);
            }
            assert_eq!(text_at, body + bytes, "nothing follows the arguments");
            let note = Note {
                location: self.number(body, 8),
                base: self.number(body + 8, 8),
                semaphore: self.number(body + 16, 8),
                arguments: texts[2].split(' ').map(str::to_owned).collect(),
            };
            if texts[0] == provider {
                assert!(notes.insert(texts[1].clone(), note).is_none(), "{texts:?}");
            }
            at = body + whole(bytes);
        }
        notes
    }
}

/// Calls what the probes are in, so that they are in this program.
fn pass_all_probes() {
    let operation = Operation::unmeasured();
    operation.add(Stage::Device, 1);
    let finished = FinishedIo {
        kind: IoKind::Read,
        priority: IoPriority::Scrub,
        offset: 0,
        bytes: 512,
        queue_ns: 1,
        device_ns: 1,
        is_merged: false,
        has_failed: false,
    };
    DeviceIo::record(device_number(1, "/dev/a"), &finished, &operation);
    operation.finish();
}

fn distinct<T: Ord>(values: impl Iterator<Item = T>) -> usize {
    values.collect::<std::collections::BTreeSet<T>>().len()
}

#[test]
fn tracers_find_each_probe_with_its_arguments_and_its_semaphore() {
    const WRITABLE: u64 = 1;
    const EXECUTABLE: u64 = 4;
    pass_all_probes();
    let elf = Elf(std::fs::read(std::env::current_exe().unwrap()).unwrap());
    let sections = elf.sections();
    let notes = elf.notes(sections[".note.stapsdt"], "tarn");
    let counts = notes.iter();
    let counts = counts.map(|(name, note)| (name.as_str(), note.arguments.len()));
    let expected = [
        ("device_io", 8),
        ("operation_begin", 8),
        ("operation_end", 8),
        ("stage_end", 7),
    ];
    assert!(counts.eq(expected), "{notes:#?}");
    let holds = |section: &Section, address: u64| {
        let size = u64::try_from(section.size).unwrap();
        (section.address..section.address + size).contains(&address)
    };
    let code = |section: &&Section| section.flags & EXECUTABLE != 0;
    let code: Vec<&Section> = sections.values().filter(code).collect();
    let semaphores = sections[".probes"];
    assert_ne!(semaphores.flags & WRITABLE, 0);
    for (name, note) in &notes {
        assert!(code.iter().any(|one| holds(one, note.location)), "{name}");
        assert!(holds(&semaphores, note.semaphore), "{name}");
        assert_eq!(note.base, sections[".stapsdt.base"].address, "{name}");
        let mut registers = note.arguments.iter();
        assert!(registers.all(|one| one.starts_with("8@")), "{note:?}");
        let registers = distinct(note.arguments.iter());
        assert_eq!(registers, note.arguments.len(), "each has its own");
    }
    assert_eq!(distinct(notes.values().map(|n| n.semaphore)), notes.len());
    assert_eq!(distinct(notes.values().map(|n| n.location)), notes.len());
}
