//! Tests of purges that wait for the device at the same time.

use std::io;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use edgeward_store::disk::{Device, DiskCache, DiskSettings};
use edgeward_testkit::disk::SimulatedDisk;
use edgeward_types::KeyHash;

/// The longest time to wait for the writer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A disk whose syncs can be blocked.
#[derive(Debug)]
struct BlockedSyncs {
    disk: Arc<SimulatedDisk>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// True while the test blocks syncs.
    syncs_blocked: bool,
    /// True while a sync of the device waits for the test.
    sync_waits: bool,
}

impl BlockedSyncs {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Waits until `condition` is true for the state.
    fn wait_until(&self, condition: impl Fn(&State) -> bool) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(state, TIMEOUT, |state| !condition(state));
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(condition(&state), "timeout: {state:?}");
    }
}

impl Device for BlockedSyncs {
    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.read_at(buffer, offset)
    }

    fn read_now_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.read_now_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.change(|state| state.sync_waits = true);
        self.wait_until(|state| !state.syncs_blocked);
        self.change(|state| state.sync_waits = false);
        self.disk.sync()
    }

    fn name(&self) -> String {
        "a disk with blocked syncs".to_owned()
    }
}

#[test]
fn purges_during_a_sync_share_the_next_sync() {
    const OBJECTS: u64 = 500;
    let device = Arc::new(BlockedSyncs {
        disk: SimulatedDisk::new(64 << 20),
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    let hour = Duration::from_secs(3600);
    let settings = DiskSettings {
        flush_interval: hour,
        sync_interval: hour,
        ..DiskSettings::default()
    };
    let devices: Vec<Arc<dyn Device>> = vec![Arc::<BlockedSyncs>::clone(&device)];
    let (cache, _) = DiskCache::open_with_devices(settings, devices).expect("the cache opens");
    for key in 0..OBJECTS {
        let write = cache.begin(KeyHash(key), &key.to_le_bytes(), "head".into(), Some(4));
        let mut write = write.expect("the write begins");
        write.push("body".into()).expect("the push succeeds");
        write.finish().expect("the body is complete");
    }
    cache.sync().expect("the sync succeeds");
    let syncs = || cache.counters().devices[0].syncs;
    let before = syncs();
    device.change(|state| state.syncs_blocked = true);
    let (done, all_done) = mpsc::channel();
    let purge = |key: u64| {
        let done = done.clone();
        cache.purge_then(KeyHash(key), &key.to_le_bytes(), move |result| {
            done.send(result).expect("the test waits");
        });
    };
    purge(0);
    device.wait_until(|state| state.sync_waits);
    (1..OBJECTS).for_each(purge);
    device.change(|state| state.syncs_blocked = false);
    for _ in 0..OBJECTS {
        let result = all_done
            .recv_timeout(TIMEOUT)
            .expect("the purge completes before the timeout");
        assert!(result.is_ok(), "{result:?}");
    }
    assert_eq!(
        syncs() - before,
        2,
        "one sync for the first purge, one for all others"
    );
}
