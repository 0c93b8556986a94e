//! Lists taken from documentation: RFC 8881 section 6.2 (order of entries, masks), zfsprops(7)
//! (`aclmode`, `aclinherit`), and the tables of illumos' acl(5) and of FreeBSD's `zfs_acl.c` for
//! trivial lists.

use tarn_ondisk::fuid::FuidTable;

use super::chmod::after_chmod;
use super::inherit::{InheritedAcl, inherited};
use super::*;
use crate::properties::{AclInherit, AclMode};
use crate::types::FileKind;

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const OWNERS: (Fuid, Fuid) = (Fuid::from_word(10), Fuid::from_word(20));

fn entry(kind: u16, who: AclWho, mask: u32, flags: u16) -> AclEntry {
    AclEntry {
        kind,
        flags,
        mask,
        who,
        object_types: None,
    }
}

fn allow(who: AclWho, mask: u32) -> AclEntry {
    entry(kind::ALLOW, who, mask, 0)
}

fn deny(who: AclWho, mask: u32) -> AclEntry {
    entry(kind::DENY, who, mask, 0)
}

fn user(uid: u32, groups: &[u32]) -> Credentials {
    Credentials::user(uid, groups[0], groups[1..].to_vec())
}

const READ: u32 = permission::READ_DATA;
const WRITE: u32 = permission::WRITE_DATA;

#[test]
fn the_first_entry_about_a_right_decides_and_one_that_is_not_mentioned_is_refused() {
    let list = [
        deny(AclWho::User(1), WRITE),
        allow(AclWho::Everyone, READ | WRITE),
        deny(AclWho::Everyone, READ),
    ];
    let asked = |uid, wanted| verdict(&list, &user(uid, &[99]), OWNERS, wanted);
    assert!(asked(1, READ).allows(), "allowed before it is denied");
    assert_eq!(asked(1, READ | WRITE).denied, WRITE);
    assert!(asked(2, READ | WRITE).allows());
    let unmentioned = asked(2, permission::DELETE);
    assert_eq!(
        (unmentioned.denied, unmentioned.unmentioned),
        (0, permission::DELETE)
    );
}

#[test]
fn owner_group_and_named_ones_are_told_apart() {
    let list = [
        allow(AclWho::Owner, 0x1),
        allow(AclWho::Group, 0x2),
        allow(AclWho::User(11), 0x4),
        allow(AclWho::NamedGroup(21), 0x8),
        allow(AclWho::Everyone, 0x10),
    ];
    let has = |uid, groups: &[u32]| {
        let wanted = 0x1f;
        let found = verdict(&list, &user(uid, groups), OWNERS, wanted);
        wanted & !found.unmentioned
    };
    assert_eq!(has(10, &[99]), 0x11);
    assert_eq!(has(1, &[20]), 0x12);
    assert_eq!(has(1, &[99, 20, 21]), 0x1a);
    assert_eq!(has(11, &[99]), 0x14);
    assert_eq!(has(1, &[99]), 0x10);
}

#[test]
fn entries_that_are_only_handed_down_audits_and_foreign_users_do_not_count() {
    let list = [
        entry(
            kind::ALLOW,
            AclWho::Everyone,
            READ,
            flag::INHERIT_ONLY | flag::FILE_INHERIT,
        ),
        entry(kind::AUDIT, AclWho::Everyone, READ, 0),
        allow(AclWho::User(Fuid::new(3, 1).word()), READ),
    ];
    assert!(!verdict(&list, &user(1, &[1]), OWNERS, READ).allows());
}

#[test]
fn a_group_that_the_user_may_be_in_is_denied_and_not_allowed() {
    let list = [
        allow(AclWho::NamedGroup(5), WRITE),
        deny(AclWho::NamedGroup(6), READ),
        allow(AclWho::Everyone, READ),
    ];
    let mut one = user(1, &[1]);
    assert!(verdict(&list, &one, OWNERS, READ).allows());
    one.has_all_groups = false;
    assert_eq!(verdict(&list, &one, OWNERS, READ).denied, READ);
    assert!(!verdict(&list, &one, OWNERS, WRITE).allows());
}

#[test]
fn the_mode_shows_what_owner_group_and_everyone_may_do() {
    let execute = permission::EXECUTE;
    let list = [
        deny(AclWho::Group, WRITE),
        allow(AclWho::User(77), READ | WRITE),
        allow(AclWho::Owner, READ | WRITE),
        allow(AclWho::Everyone, READ | WRITE | execute),
    ];
    assert_eq!(permission_bits(&list, OWNERS), (0o757, true));
    let owner_by_number = [
        allow(AclWho::User(10), READ),
        allow(AclWho::NamedGroup(20), WRITE),
    ];
    assert_eq!(permission_bits(&owner_by_number, OWNERS), (0o420, false));
    let denied = [
        deny(AclWho::User(77), execute),
        allow(AclWho::Everyone, execute),
    ];
    assert_eq!(permission_bits(&denied, OWNERS), (0o111, false));
}

#[test]
fn a_trivial_list_comes_to_its_mode() {
    for permissions in 0..=0o777 {
        let list = trivial_entries(REGULAR | permissions);
        assert_eq!(
            permission_bits(&list, OWNERS).0,
            permissions,
            "{permissions:o}"
        );
    }
}

/// What `chmod 640` leaves of a list with an entry for a user by each value of `aclmode`.
#[test]
fn chmod_follows_aclmode() {
    let named = allow(AclWho::User(77), READ | WRITE);
    let list = [
        named,
        allow(AclWho::Owner, READ),
        allow(AclWho::Everyone, READ),
    ];
    let mode = REGULAR | 0o640;
    let after = |property| after_chmod(&list, false, mode, property);
    let trivial = trivial_entries(mode);
    assert_eq!(after(AclMode::Discard), Some(trivial.clone()));
    assert_eq!(after(AclMode::Restricted), None);
    let kept = after(AclMode::Passthrough).unwrap();
    assert_eq!(kept[0], named);
    assert_eq!(kept[1..], trivial);
    let limited = after(AclMode::GroupMask).unwrap();
    assert_eq!(limited[0].mask, READ, "the group may only read");
    assert_eq!(limited[1..], trivial);
    let of_mode = after_chmod(&trivial, true, REGULAR | 0o600, AclMode::Restricted);
    assert_eq!(of_mode, Some(trivial_entries(REGULAR | 0o600)));
}

#[test]
fn what_a_directory_hands_down_stays_through_a_chmod_that_passes_through() {
    let down = flag::FILE_INHERIT | flag::DIRECTORY_INHERIT;
    let list = [
        entry(kind::ALLOW, AclWho::Owner, READ | WRITE, down),
        entry(kind::ALLOW, AclWho::NamedGroup(5), READ, down),
        allow(AclWho::Everyone, READ),
    ];
    let mode = DIRECTORY | 0o700;
    let after = after_chmod(&list, false, mode, AclMode::Passthrough).unwrap();
    let only = entry(
        kind::ALLOW,
        AclWho::Owner,
        READ | WRITE,
        down | flag::INHERIT_ONLY,
    );
    assert_eq!(after[..2], [only, list[1]]);
    assert_eq!(after[2..], trivial_entries(mode));
    let discarded = after_chmod(&list, false, mode, AclMode::Discard);
    assert_eq!(discarded, Some(trivial_entries(mode)));
}

fn given(parent: &[AclEntry], kind: FileKind, mode: u32, inherit: AclInherit) -> InheritedAcl {
    inherited(parent, kind, mode, inherit, AclMode::Discard)
}

/// zfsprops(7), `aclinherit`, by its values.
#[test]
fn a_file_gets_what_aclinherit_says() {
    let down = flag::FILE_INHERIT | flag::DIRECTORY_INHERIT;
    let full = READ | WRITE | permission::WRITE_ACL | permission::WRITE_OWNER | permission::EXECUTE;
    let parent = [
        entry(kind::DENY, AclWho::User(66), WRITE, down),
        entry(kind::ALLOW, AclWho::User(77), full, down),
        allow(AclWho::Everyone, READ),
    ];
    let mode = REGULAR | 0o640;
    let trivial = trivial_entries(mode);
    let list = |inherit| given(&parent, FileKind::Regular, mode, inherit).entries;
    assert_eq!(list(AclInherit::Discard), trivial);
    let denial = entry(kind::DENY, AclWho::User(66), WRITE, flag::INHERITED);
    let no_allow = list(AclInherit::NoAllow);
    assert_eq!((no_allow[0], &no_allow[1..]), (denial, &trivial[..]));
    let restricted = list(AclInherit::Restricted);
    let less = READ | WRITE | permission::EXECUTE;
    let allowed = entry(kind::ALLOW, AclWho::User(77), less, flag::INHERITED);
    assert_eq!(restricted[..2], [denial, allowed]);
    assert_eq!(restricted[2..], trivial);
    let through = list(AclInherit::Passthrough);
    assert_eq!(through[1].mask, full);
    let through_x = list(AclInherit::PassthroughX);
    assert_eq!(
        through_x[1].mask,
        full & !permission::EXECUTE,
        "0640 executes nothing"
    );
    let executable = given(
        &parent,
        FileKind::Regular,
        REGULAR | 0o750,
        AclInherit::PassthroughX,
    );
    assert_eq!(executable.entries[1].mask, full);
}

/// With `passthrough` entries for owner@, group@ and everyone@ make the mode, and what was asked
/// for does not matter.
#[test]
fn inherited_entries_of_the_mode_take_its_place_when_they_pass_through() {
    let parent = [
        entry(kind::ALLOW, AclWho::Owner, READ | WRITE, flag::FILE_INHERIT),
        entry(kind::ALLOW, AclWho::Everyone, READ, flag::FILE_INHERIT),
    ];
    let list = given(
        &parent,
        FileKind::Regular,
        REGULAR | 0o777,
        AclInherit::Passthrough,
    );
    assert!(!list.has_asked_mode);
    assert_eq!(permission_bits(&list.entries, OWNERS).0, 0o644);
    let asked = given(
        &parent,
        FileKind::Regular,
        REGULAR | 0o600,
        AclInherit::Restricted,
    );
    assert!(asked.has_asked_mode);
    // The inherited entries come before those that allow what the mode does.
    assert_eq!(
        asked.entries[..2]
            .iter()
            .map(|entry| entry.mask)
            .collect::<Vec<_>>(),
        [READ | WRITE, READ]
    );
}

#[test]
fn directories_hand_on_and_files_and_no_propagate_end_it() {
    let (files, directories) = (flag::FILE_INHERIT, flag::DIRECTORY_INHERIT);
    let through = |flags, kind| {
        let parent = [entry(kind::ALLOW, AclWho::User(77), READ, flags)];
        let list = given(&parent, kind, DIRECTORY | 0o700, AclInherit::Restricted).entries;
        list.iter()
            .find(|entry| entry.who == AclWho::User(77))
            .map(|entry| entry.flags & !flag::INHERITED)
    };
    let (file, directory) = (FileKind::Regular, FileKind::Directory);
    assert_eq!(through(files, file), Some(0));
    assert_eq!(through(directories, file), None);
    assert_eq!(through(files, directory), Some(files | flag::INHERIT_ONLY));
    assert_eq!(through(directories, directory), Some(directories));
    assert_eq!(
        through(directories | flag::INHERIT_ONLY, directory),
        Some(directories)
    );
    assert_eq!(
        through(directories | flag::NO_PROPAGATE, directory),
        Some(0)
    );
    assert_eq!(through(files | flag::NO_PROPAGATE, directory), None);
    assert_eq!(through(files | directories, FileKind::SymbolicLink), None);
}

fn nobody(_: wire::PrincipalKind, name: &str) -> Option<u32> {
    (name == "ann").then_some(1000)
}

#[test]
fn a_list_is_shown_and_taken_as_the_linux_client_has_it() {
    let list = [
        allow(AclWho::Owner, READ),
        entry(kind::DENY, AclWho::NamedGroup(1000), WRITE, flag::INHERITED),
    ];
    let bytes = wire::encode(&list, &FuidTable::default());
    let expected: &[u8] = &[
        0, 0, 0, 2, // two entries
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 6, b'O', b'W', b'N', b'E', b'R', b'@', 0, 0,
        0, 0, 0, 1, 0, 0, 0, 0xc0, 0, 0, 0, 2, 0, 0, 0, 4, b'1', b'0', b'0', b'0',
    ];
    assert_eq!(bytes, expected);
    let taken = wire::decode(&bytes, false, &FuidTable::default(), &nobody);
    assert_eq!(taken.unwrap(), list);
}

/// A list of one entry.
fn single(kind: u32, flags: u32, mask: u32, principal: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let length = u32::try_from(principal.len()).unwrap();
    for word in [1, kind, flags, mask, length] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.extend(principal.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[test]
fn principals_are_numbers_names_and_users_of_domains() {
    let mut domains = FuidTable::default();
    domains.index("S-1-5-21-9").unwrap();
    let who = |flags, principal| {
        let bytes = single(0, flags, 1, principal);
        wire::decode(&bytes, false, &domains, &nobody).map(|list| list[0].who)
    };
    assert_eq!(who(0, "1000@example.com").unwrap(), AclWho::User(1000));
    assert_eq!(who(0x40, "1000").unwrap(), AclWho::NamedGroup(1000));
    assert_eq!(who(0, "ann@example.com").unwrap(), AclWho::User(1000));
    let foreign = AclWho::User(Fuid::new(1, 500).word());
    assert_eq!(who(0, "500@S-1-5-21-9").unwrap(), foreign);
    let shown = wire::encode(&[allow(foreign, 1)], &domains);
    assert_eq!(
        wire::decode(&shown, false, &domains, &nobody).unwrap()[0].who,
        foreign
    );
    let unknown = wire::encode(&[allow(foreign, 1)], &FuidTable::default());
    let again = wire::decode(&unknown, false, &FuidTable::default(), &nobody);
    assert_eq!(again.unwrap()[0].who, foreign);
    assert!(who(0, "bob").is_err());
}

#[test]
fn what_is_no_list_is_refused() {
    let decode = |bytes: &[u8], is_directory| {
        wire::decode(bytes, is_directory, &FuidTable::default(), &nobody)
    };
    let good = single(0, 0, 1, "EVERYONE@");
    assert!(decode(&good, false).is_ok());
    for end in 0..good.len() {
        assert!(decode(&good[..end], false).is_err(), "cut at {end}");
    }
    assert!(decode(&[&good[..], &[0]].concat(), false).is_err());
    assert!(decode(&[0, 0, 0, 0], false).is_err(), "a list has an entry");
    assert!(decode(&[0xff; 4], false).is_err());
    let long = [&single(0, 0, 1, "x")[..16], &[0xff; 4][..], b"x"].concat();
    assert!(decode(&long, false).is_err());
    for (kind, flags, mask) in [(4, 0, 1), (0, 0x1000, 1), (0, 0, 0x800), (0, 0x8, 1)] {
        assert!(decode(&single(kind, flags, mask, "OWNER@"), true).is_err());
    }
    let handed_down = single(0, 3, 1, "OWNER@");
    assert!(decode(&handed_down, true).is_ok());
    assert!(
        decode(&handed_down, false).is_err(),
        "files hand nothing down"
    );
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_taken_or_refused(bytes in proptest::collection::vec(0_u8.., 0..200)) {
        let taken = wire::decode(&bytes, true, &FuidTable::default(), &nobody);
        if let Ok(list) = taken {
            let shown = wire::encode(&list, &FuidTable::default());
            let again = wire::decode(&shown, true, &FuidTable::default(), &nobody);
            proptest::prop_assert_eq!(again.unwrap(), list);
        }
    }
}
