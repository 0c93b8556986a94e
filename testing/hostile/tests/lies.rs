//! The liar is believed because all that it tells verifies; what it tells without changing anything
//! must be the truth.

use tarn_administration::messages::pool::VdevKind;
use tarn_hostile::house::{DISKS, House};
use tarn_hostile::images::Base;
use tarn_hostile::lie::Liar;
use tarn_hostile::look::{self, Seen};

/// Every seventh block is told again as it is, with all above it, and one disk taken away: what is
/// left must be read from the other copy, or computed from the parity that the liar wrote.
fn tell_the_truth(kind: VdevKind, disks: usize) {
    let base = Base::make("truth", kind, disks);
    let machine = base.machine(1);
    let devices = base.devices(&machine);
    let mut liar = Liar::new(&devices, None).expect("a pool that was made here is walked");
    let mut told = 0;
    for index in (0..liar.blocks.len()).step_by(7) {
        let contents = liar.contents(index).expect("a sound block is read");
        told += usize::from(liar.tell(index, &contents));
    }
    assert!(told > 10, "{told} blocks were told again");
    let missing = format!("{DISKS}/{}", base.images[0].name);
    machine
        .host()
        .remove_file(missing.as_ref())
        .expect("the disk is there");
    let run = machine.run(|host| {
        let house = House::new(host);
        let imported = house.import(None, &[]).expect("a sound pool is imported");
        assert!(imported.refused.is_empty(), "{:?}", imported.refused);
        let mut seen = Seen::default();
        look::files(&house, &mut seen);
        assert_eq!(seen.error_count, 0, "{:?}", seen.errors);
        assert!(seen.files > 50, "{} files were seen", seen.files);
        house.export("tank", false).expect("it is exported");
    });
    run.expect("nobody cuts the power");
}

#[test]
fn what_is_told_of_a_mirror_is_on_every_child() {
    tell_the_truth(VdevKind::Mirror, 2);
}

#[test]
fn what_is_told_of_raidz_has_its_parity() {
    tell_the_truth(VdevKind::Raidz1, 3);
}
