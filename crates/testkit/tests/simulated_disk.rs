//! Tests the simulated disk: a crash loses or tears only writes after the last sync, and injected faults take effect.

use std::io;
use std::sync::Arc;

use edgeward_store::disk::Device;
use edgeward_testkit::Gate;
use edgeward_testkit::disk::{Errno, Fault, Harm, SimulatedDisk};
use edgeward_types::Seed;

const BLOCK: usize = 4096;

/// Returns a disk with two writes, a sync and three writes, and the boundary after the sync. A boundary is the number
/// of writes and syncs so far.
fn disk_with_history() -> (Arc<SimulatedDisk>, usize) {
    let disk = SimulatedDisk::new(16 * BLOCK);
    disk.write_at(&[1; 4 * BLOCK], 0)
        .expect("the disk has no fault");
    disk.write_at(&[2; 2 * BLOCK], 0)
        .expect("the disk has no fault");
    disk.sync().expect("the disk has no fault");
    let synced = disk.boundary();
    disk.write_at(&[3; BLOCK], 0)
        .expect("the disk has no fault");
    disk.write_at(&[4; 2 * BLOCK], 0)
        .expect("the disk has no fault");
    disk.write_at(&[5; BLOCK], 8 * BLOCK as u64)
        .expect("the disk has no fault");
    (disk, synced)
}

/// Data that was written before a sync survives every later crash. A sector that was written after the sync has
/// one of its versions.
///
/// Method: compute all kinds of crashes (`Harm`) at all boundaries with many seeds. Each version of each sector must
/// occur at least once.
#[test]
fn a_crash_keeps_synced_data_and_tears_unsynced_writes() {
    let (disk, synced) = disk_with_history();
    let mut versions = std::collections::BTreeSet::new();
    for seed in 0..60 {
        let mut crashes = disk.crashes(Seed(seed));
        for boundary in crashes.boundaries() {
            for harm in Harm::ALL {
                let image = crashes.image(boundary, harm);
                assert_eq!(image.len() as u64, disk.len());
                // With noise, a sector has random bytes instead of one of its versions.
                if boundary < synced || harm == Harm::AddNoise {
                    continue;
                }
                assert!(image[2 * BLOCK..4 * BLOCK].iter().all(|&byte| byte == 1));
                assert!(image[4 * BLOCK..8 * BLOCK].iter().all(|&byte| byte == 0));
                for (number, sector) in image.chunks(512).enumerate() {
                    assert!(
                        sector.iter().all(|&byte| byte == sector[0]),
                        "sector {number}"
                    );
                    let allowed: &[u8] = match number / (BLOCK / 512) {
                        0 => &[2, 3, 4],
                        1 => &[2, 4],
                        2 | 3 => &[1],
                        8 => &[0, 5],
                        _ => &[0],
                    };
                    assert!(allowed.contains(&sector[0]), "{} in {number}", sector[0]);
                    versions.insert((number, sector[0]));
                }
                match harm {
                    Harm::KeepUnsynced if boundary == disk.boundary() => {
                        assert_eq!(image, disk.content());
                    }
                    Harm::LoseUnsynced => assert_eq!(image[..BLOCK], [2; BLOCK]),
                    _ => {}
                }
            }
        }
    }
    // Each sector of block 0 has three versions, each sector of blocks 1 and 8 two, and each sector of the
    // other 13 blocks one.
    assert_eq!(versions.len(), 8 * (3 + 2 + 2) + (16 - 3) * 8);
}

#[test]
fn the_same_seed_tears_the_same_sectors() {
    let (disk, _) = disk_with_history();
    let image = |seed| {
        disk.crashes(Seed(seed))
            .image(disk.boundary(), Harm::TearSectors)
    };
    assert_eq!(image(3), image(3));
    assert!((4..20).any(|seed| image(seed) != image(3)));
}

#[test]
fn faults_last_until_the_disk_is_healed_and_are_counted() {
    let disk = SimulatedDisk::new(4 * BLOCK);
    let mut buffer = [0; BLOCK];
    disk.write_at(&[7; BLOCK], 0)
        .expect("the disk has no fault");

    disk.inject(Fault::Reads(Errno::Io));
    let error = disk
        .read_at(&mut buffer, 0)
        .expect_err("the read fails with EIO");
    assert_eq!(error.raw_os_error(), Some(5));
    disk.heal();
    disk.inject(Fault::ShortReads);
    let error = disk
        .read_at(&mut buffer, 0)
        .expect_err("half of the bytes are missing");
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    disk.heal();
    disk.inject(Fault::ReadsWait);
    assert_eq!(
        disk.read_now_at(&mut buffer, 0)
            .expect("the read must not wait and returns no bytes"),
        0
    );
    disk.read_at(&mut buffer, 0)
        .expect("a read that may wait returns all bytes");
    assert_eq!(buffer, [7; BLOCK]);
    disk.heal();

    disk.inject(Fault::Writes(Errno::NoSpace));
    let error = disk.write_at(&[8; BLOCK], 0).expect_err("the disk is full");
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(disk.content()[..BLOCK], [7; BLOCK]);
    disk.heal();
    disk.inject(Fault::ShortWrites);
    disk.write_at(&[8; BLOCK], 0)
        .expect_err("half of the bytes are missing");
    assert_eq!(
        disk.content()[..BLOCK],
        [[8; BLOCK / 2], [7; BLOCK / 2]].concat()
    );
    disk.heal();

    let boundary = disk.boundary();
    disk.inject(Fault::Syncs(Errno::ReadOnly));
    let error = disk.sync().expect_err("the sync fails with EROFS");
    assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(disk.boundary(), boundary, "a failed sync is not recorded");
    disk.heal();
    disk.sync().expect("the fault was removed");
    // For each of the six faults, one operation failed or returned no bytes because it must not wait.
    assert_eq!(disk.failures(), 6);

    disk.flip(1, 0x80);
    assert_eq!(disk.content()[1], 8 ^ 0x80);
}

#[test]
fn a_slow_write_waits_at_its_gate() {
    let disk = SimulatedDisk::new(4 * BLOCK);
    let gate = Gate::new();
    disk.inject(Fault::WritesWait(gate.clone()));
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| disk.write_at(&[1; BLOCK], 0));
        gate.wait_reached(1);
        assert_eq!(disk.boundary(), 0);
        gate.open();
        writing
            .join()
            .expect("the thread does not panic")
            .expect("the write succeeds");
    });
    assert_eq!(disk.boundary(), 1);
}
