//! Persists which chunks each peer has (the knowledge), so that these chunks are not sent again after a restart with
//! the same store.
//!
//! The endpoint has a folder with one file for each peer. The files are written periodically and at shutdown. A
//! wrong file costs only bytes: if a peer does not have a referenced chunk, it reports this and receives the
//! chunk. The files refer to chunks by the numbers of their containers in this endpoint's store, and contain only
//! chunks that are already durable there. A crash may lose a container that is not durable, and the store would then
//! give its number to a container with other chunks.
//!
//! A file has the [encoded](Knowledge::encode) knowledge. From 4 KiB on it is compressed: `EWknowz\x01`, the length of
//! the encoded knowledge (8 bytes, little-endian), and its zstd frame.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
use tokio::sync::{Semaphore, watch};

use edgeward_chunk_store::Chunks;
use edgeward_chunk_store::codec::Compressors;
use edgeward_dedup::codec::{Codec as _, Method};
use edgeward_dedup::id::{ChunkId, IdKey};
use edgeward_dedup::knowledge::Knowledge;

use crate::config::LinkConfig;
use crate::core::Core;
use crate::knowledge_pages::KnowledgePages;
use crate::peer::Peer;

/// The folder with the knowledge files of all peers.
#[derive(Debug)]
pub(crate) struct KnowledgeFiles {
    folder: PathBuf,
    id_key: IdKey,
    files_max: usize,
    /// The highest number of containers that are read from a file.
    containers_max: usize,
    pages: KnowledgePages,
    /// The right to read a file.
    load_permits: Arc<Semaphore>,
    /// The files that are being read, or were read shortly before, by name.
    loads: Mutex<HashMap<String, watch::Receiver<Loaded>>>,
    /// The hash of the last written content of each file.
    saved_hashes: Mutex<HashMap<String, ChunkId>>,
}

/// The result of a read. `None` until it has ended.
type Loaded = Option<Option<Knowledge>>;

impl KnowledgeFiles {
    /// Uses the folder of this configuration for the files of at most `files_max` peers, and `pages` for their content.
    /// Returns `None` if the configuration has no folder.
    pub(crate) fn of(
        config: &LinkConfig,
        files_max: usize,
        pages: &KnowledgePages,
    ) -> Option<Arc<Self>> {
        Some(Arc::new(Self {
            folder: config.knowledge.clone()?,
            id_key: config.store_key.clone(),
            files_max,
            containers_max: config.containers_max(),
            pages: pages.clone(),
            load_permits: Arc::new(Semaphore::new(LOADS_MAX)),
            loads: Mutex::default(),
            saved_hashes: Mutex::default(),
        }))
    }

    /// Returns the file name of a peer: a hash, by this endpoint's id key, of its certificate and its store's epoch.
    pub(crate) fn file_name(&self, certificate: Option<&[u8]>, epoch: u64) -> String {
        let identity = [certificate.unwrap_or_default(), &epoch.to_le_bytes()].concat();
        edgeward_types::to_hex(&self.id_key.id(&identity).0)
    }

    /// Reads the knowledge file with this name. Returns `None` if it does not exist or is not valid.
    pub(crate) fn load(&self, name: &str) -> Option<Knowledge> {
        let bytes = decompressed(fs::read(self.path(name)).ok()?)?;
        let mut knowledge = Knowledge::decode(&bytes, self.containers_max)?;
        // The peer connects now.
        self.touch(name);
        self.pages.share_all(&mut knowledge);
        Some(knowledge)
    }

    /// Like [`load`](Self::load), on a thread that may block. At most [`LOADS_MAX`] files are read at once. The others
    /// wait for their turn. An edge whose timeout passes meanwhile connects again and gets the result of the same read,
    /// which is kept for [`LOADED_KEPT`].
    pub(crate) async fn load_in_turn(self: Arc<Self>, name: String) -> Option<Knowledge> {
        let mut loaded = {
            let mut loads = self.loads();
            let begin = || {
                let (done, loaded) = watch::channel(None);
                tokio::spawn(Arc::clone(&self).load_and_keep(name.clone(), done));
                loaded
            };
            loads.entry(name.clone()).or_insert_with(begin).clone()
        };
        let known = loaded.wait_for(Option::is_some).await.ok()?.clone();
        known.flatten()
    }

    async fn load_and_keep(self: Arc<Self>, name: String, done: watch::Sender<Loaded>) {
        let permit = Arc::clone(&self.load_permits).acquire_owned().await;
        let (this, of) = (Arc::clone(&self), name.clone());
        let load = move || {
            let _permit = permit;
            this.load(&of)
        };
        let known = tokio::task::spawn_blocking(load).await.ok().flatten();
        let is_known = known.is_some();
        done.send_replace(Some(known));
        // The result belongs to those who wait for it.
        drop(done);
        if is_known {
            tokio::time::sleep(LOADED_KEPT).await;
        }
        self.forget_load(&name);
    }

    /// Releases the result of a read that has become the knowledge of a peer.
    pub(crate) fn forget_load(&self, name: &str) {
        self.loads().remove(name);
    }

    fn loads(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<Loaded>>> {
        self.loads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Persists which durable chunks these peers have. Then removes the files of the peers whose last connections are
    /// the oldest, until at most `files_max` files remain.
    pub(crate) async fn save(
        self: &Arc<Self>,
        peers: &[(String, Arc<Peer>)],
        store: &Chunks,
    ) -> io::Result<()> {
        let mut connected = Vec::new();
        for (name, peer) in peers {
            if peer.state().connections > 0 {
                connected.push(name.clone());
            }
            // Only containers before the open one are encoded: the open container is not written yet.
            let end = store.open_container_number();
            let known = peer.call(move |core| core.take_unsaved_knowledge(end));
            // `None` also if the task of the peer has ended.
            let Some(known) = known.await.flatten() else {
                continue;
            };
            let (this, name, store) = (Arc::clone(self), name.clone(), store.clone());
            let written = move || this.write(name, &known, end, &store);
            let written = tokio::task::spawn_blocking(written);
            let written = written.await.map_err(io::Error::other).flatten();
            if written.is_err() {
                peer.call(Core::set_knowledge_unsaved).await;
                return written;
            }
        }
        let this = Arc::clone(self);
        let removed = tokio::task::spawn_blocking(move || {
            connected.iter().for_each(|name| this.touch(name));
            this.remove_oldest()
        });
        removed.await.map_err(io::Error::other)?
    }

    /// Writes the file of a peer if its content would change. The file refers to containers below `end`.
    fn write(&self, name: String, known: &Knowledge, end: u32, store: &Chunks) -> io::Result<()> {
        let bytes = &known.encode(end);
        // The lock is held until the end, because the call at shutdown may overlap a periodic call.
        let mut saved_hashes = self.saved_hashes();
        let id = self.id_key.id(bytes);
        if saved_hashes.get(&name) == Some(&id) {
            return Ok(());
        }
        // The containers of the chunks are written but possibly not durable. The sync makes them durable before
        // a file refers to them.
        store.sync(end)?;
        fs::create_dir_all(&self.folder)?;
        let new = self.folder.join(format!("{name}{UNFINISHED}"));
        fs::write(&new, &*compressed(bytes))?;
        fs::rename(&new, self.path(&name))?;
        saved_hashes.insert(name, id);
        Ok(())
    }

    /// Records the time of a peer's last connection: the modification time of its file. A failure makes the file seem
    /// older.
    pub(crate) fn touch(&self, name: &str) {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        _ = utimensat(CWD, self.path(name), &times, AtFlags::empty());
    }

    /// Removes the oldest files until at most `files_max` remain. A peer with a new store gets a new file, so
    /// old files would accumulate.
    fn remove_oldest(&self) -> io::Result<()> {
        let mut saved_hashes = self.saved_hashes();
        let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
        let entries = match fs::read_dir(&self.folder) {
            // No file was written yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            if name.as_encoded_bytes().ends_with(UNFINISHED.as_bytes()) {
                // A process was killed before it renamed this file. This process renames its files under the lock.
                fs::remove_file(entry.path())?;
                continue;
            }
            files.push((entry.metadata()?.modified()?, entry.path()));
        }
        files.sort_unstable();
        let surplus = files.len().saturating_sub(self.files_max);
        files.drain(..surplus).try_for_each(|(_, path)| {
            // If the peer returns with the same knowledge, its file is written again.
            if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
                saved_hashes.remove(name);
            }
            fs::remove_file(path)
        })
    }

    fn saved_hashes(&self) -> MutexGuard<'_, HashMap<String, ChunkId>> {
        let saved_hashes = self.saved_hashes.lock();
        saved_hashes.unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Returns the content of the file with this encoded knowledge.
fn compressed(encoded: &[u8]) -> Cow<'_, [u8]> {
    if encoded.len() >= COMPRESSED_BYTES_MIN {
        let mut file = COMPRESSED.to_vec();
        file.extend_from_slice(&(encoded.len() as u64).to_le_bytes());
        if Compressors::new().compress(Method::Zstd, &[], encoded, &mut file) {
            return file.into();
        }
    }
    encoded.into()
}

/// Returns the encoded knowledge of a file, or `None` if the file is corrupt.
fn decompressed(file: Vec<u8>) -> Option<Vec<u8>> {
    let Some(compressed) = file.strip_prefix(&COMPRESSED) else {
        return Some(file);
    };
    let (raw_bytes, compressed) = compressed.split_first_chunk()?;
    let raw_bytes = usize::try_from(u64::from_le_bytes(*raw_bytes)).ok()?;
    let mut encoded = Vec::new();
    // Fails if the length is corrupt and no memory has this size.
    encoded.try_reserve_exact(raw_bytes).ok()?;
    let mut codec = Compressors::new();
    let decompressed = codec.decompress(Method::Zstd, &[], compressed, raw_bytes, &mut encoded);
    decompressed.is_ok().then_some(encoded)
}

/// The start of a compressed file.
const COMPRESSED: [u8; 8] = *b"EWknowz\x01";

/// Shorter knowledge is not compressed: its file takes a block of the file system in any case.
const COMPRESSED_BYTES_MIN: usize = 4096;

/// The highest number of files that are read at once. A file of a full store of 1 TB takes 46 MB until its pages are
/// shared, and after a restart of a gateway all edges connect at the same time.
const LOADS_MAX: usize = 4;

/// How long the result of a read is kept for an edge that did not wait for it. Edges connect again within 15 s.
const LOADED_KEPT: Duration = Duration::from_secs(60);

/// The suffix of a file name until the file is complete.
const UNFINISHED: &str = ".new";

/// Saves the knowledge periodically, until the task is aborted.
pub(crate) async fn save_periodically(
    files: Arc<KnowledgeFiles>,
    store: Chunks,
    interval: Duration,
    peers: impl Fn() -> Vec<(String, Arc<Peer>)>,
) {
    loop {
        tokio::time::sleep(interval).await;
        if let Err(error) = files.save(&peers(), &store).await {
            tracing::warn!(%error, "cannot persist the chunks that peers have");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};

    use edgeward_chunk_store::{ChunkSettings, ScratchDevice};
    use edgeward_dedup::endpoint::Endpoint;
    use edgeward_dedup::receiver::Sharing;
    use edgeward_dedup::store::ChunkLocation;
    use edgeward_store::disk::Device;

    use crate::config::Encryption;
    use crate::core::CoreConfig;
    use crate::driver::Driver;

    fn files(folder: &Path, key: [u8; 32]) -> KnowledgeFiles {
        KnowledgeFiles {
            folder: folder.to_owned(),
            id_key: IdKey::new(key),
            files_max: 3,
            containers_max: 1000,
            pages: KnowledgePages::new(usize::MAX, 1),
            load_permits: Arc::new(Semaphore::new(LOADS_MAX)),
            loads: Mutex::default(),
            saved_hashes: Mutex::default(),
        }
    }

    /// Different peers have different file names.
    #[test]
    fn file_names_distinguish_peers() {
        let folder = Path::new("/nowhere");
        let (files, others) = (files(folder, [1; 32]), files(folder, [2; 32]));
        let names = [
            files.file_name(None, 1),
            files.file_name(None, 2),
            files.file_name(Some(b"certificate"), 1),
            others.file_name(None, 1),
        ];
        for (nth, name) in names.iter().enumerate() {
            assert_eq!(name.len(), 32);
            assert!(!names[..nth].contains(name));
        }
        assert!(files.load(&names[0]).is_none());
    }

    /// A device that counts syncs.
    #[derive(Debug)]
    struct SyncCounter(ScratchDevice, AtomicU64);

    impl Device for SyncCounter {
        fn len(&self) -> u64 {
            self.0.len()
        }

        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            self.0.read_at(buffer, offset)
        }

        fn read_now_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.0.read_now_at(buffer, offset)
        }

        fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
            self.0.write_at(bytes, offset)
        }

        fn sync(&self) -> io::Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.sync()
        }

        fn name(&self) -> String {
            self.0.name()
        }
    }

    fn peer(store: &Chunks, pages: &KnowledgePages) -> (Arc<Peer>, Driver) {
        let config = LinkConfig::new(Encryption::Off, IdKey::new([1; 32]), store.clone());
        let endpoint = config
            .endpoint(Sharing::Exchanged, true, 1)
            .expect("the configuration is valid");
        let core = CoreConfig {
            accepts: false,
            dedup: true,
            probe: false,
            unacked_max: 1 << 20,
        };
        let core = Core::new(core, Endpoint::new(endpoint), store.clone(), pages.clone());
        let (peer, driver, _) = Peer::new(core);
        (peer, driver)
    }

    /// The task of a peer adds the pages of its knowledge to the table of all peers.
    #[tokio::test]
    async fn the_task_of_a_peer_shares_its_pages() {
        let device = ScratchDevice::new(&std::env::temp_dir(), 16 << 20);
        let device = Arc::new(device.expect("the file can be created"));
        let store = Chunks::open(device, ChunkSettings::new(8 << 10, 7));
        let pages = KnowledgePages::new(usize::MAX, 1);
        let (peer, driver) = peer(&store.expect("the store opens"), &pages);
        let _task = tokio::spawn(driver.run());
        let mut known = Knowledge::new(1000);
        (0..1000).for_each(|container| known.add(ChunkLocation { container, slot: 0 }));
        peer.call(|core| core.set_knowledge(known)).await;
        assert!(pages.status().bytes > 0);
    }

    /// Knowledge that could not be saved is saved the next time, although it has not changed since then.
    #[tokio::test]
    async fn a_failed_save_is_repeated() {
        let folder = tempfile::tempdir().expect("the folder can be created");
        let device = ScratchDevice::new(folder.path(), 16 << 20).expect("the file can be created");
        let store = Chunks::open(Arc::new(device), ChunkSettings::new(8 << 10, 7));
        let store = store.expect("the store opens");
        let (peer, driver) = peer(&store, &KnowledgePages::new(usize::MAX, 1));
        let _task = tokio::spawn(driver.run());
        let peers = [("peer".to_owned(), peer)];
        let path = folder.path().join("knowledge");
        let files = Arc::new(files(&path, [1; 32]));
        // A file in place of the folder.
        fs::write(&path, "").expect("the file can be written");
        assert!(files.save(&peers, &store).await.is_err());
        fs::remove_file(&path).expect("the file can be removed");
        let saved = files.save(&peers, &store).await;
        saved.expect("the files can be saved");
        assert!(files.load("peer").is_some());
    }

    /// If [`LOADS_MAX`] files are being read, the next one waits. An edge that has not waited for the read connects
    /// again, and the file is not read a second time.
    #[tokio::test]
    async fn reads_are_bounded_and_their_results_are_kept() {
        let folder = tempfile::tempdir().expect("the folder can be created");
        let files = Arc::new(files(folder.path(), [1; 32]));
        let file = files.path("peer");
        fs::write(&file, Knowledge::new(1).encode(0)).expect("the file can be written");
        let load = || Arc::clone(&files).load_in_turn("peer".to_owned());
        let permits = Arc::clone(&files.load_permits).acquire_many_owned(LOADS_MAX as u32);
        let permits = permits.await.expect("the semaphore is not closed");
        let given_up = tokio::time::timeout(Duration::from_millis(50), load()).await;
        assert!(given_up.is_err(), "one more file is read");
        drop(permits);
        assert!(load().await.is_some());
        fs::remove_file(&file).expect("the file can be removed");
        assert!(load().await.is_some(), "the result is kept");
        files.forget_load("peer");
        assert!(load().await.is_none());
        while !files.loads().is_empty() {
            // The task of the read ends after it has sent that the file is absent.
            tokio::task::yield_now().await;
        }
    }

    /// The device is synced and a file is written only if the content of the file would change. Chunks in a container
    /// that is not written yet do not change it.
    #[tokio::test]
    async fn unchanged_knowledge_is_not_written_again() {
        let folder = tempfile::tempdir().expect("the folder can be created");
        let scratch = ScratchDevice::new(folder.path(), 64 << 20).expect("the file can be created");
        let device = Arc::new(SyncCounter(scratch, AtomicU64::new(0)));
        let ids = IdKey::new([1; 32]);
        let store = Chunks::open(device.clone(), ChunkSettings::new(8 << 10, 7));
        let store = &store.expect("the store opens");
        let syncs = || device.1.swap(0, Ordering::Relaxed);
        syncs();

        let pages = KnowledgePages::new(usize::MAX, 1);
        let (peer, driver) = peer(store, &pages);
        let _task = tokio::spawn(driver.run());
        let peers = [("peer".to_owned(), peer)];
        let epoch = store.epoch();
        let set_known = async |locations: &[ChunkLocation]| {
            let mut known = Knowledge::new(10);
            known.set_own_epoch(epoch);
            locations.iter().for_each(|&location| known.add(location));
            peers[0].1.call(|core| core.set_knowledge(known)).await;
        };
        let files = Arc::new(files(&folder.path().join("knowledge"), [1; 32]));
        let save = async |store: &Chunks| {
            let saved = files.save(&peers, store).await;
            saved.expect("the files can be saved");
            let known = files.load("peer");
            // The number of syncs, and of containers in the file.
            (syncs(), known.map_or(0, |known| known.containers()))
        };
        assert_eq!(save(store).await, (1, 0), "an empty file is written once");
        assert_eq!(save(store).await, (0, 0));
        let location = store
            .insert(ids.id(&[7; 5000]), &[7; 5000])
            .expect("the chunk fits in a container");
        set_known(&[location]).await;
        assert_eq!(save(store).await, (0, 0), "its container is not written");
        store.flush().expect("the file can be written");
        syncs();
        assert_eq!(save(store).await, (1, 1));
        assert_eq!(save(store).await, (0, 1));
        set_known(&[location, location.plus(1)]).await;
        assert_eq!(save(store).await, (1, 1));
    }

    /// A long file takes less than a quarter of the encoded knowledge. It is refused if it is corrupt. A file of an
    /// earlier version, which is not compressed, is read.
    #[test]
    fn long_files_are_compressed() {
        let folder = tempfile::tempdir().expect("the folder can be created");
        let files = files(folder.path(), [1; 32]);
        let mut known = Knowledge::new(1000);
        for container in 0..1000 {
            // The usual number of chunks is 113.
            for slot in 0..105 + (container * 7 % 17) as u16 {
                known.add(ChunkLocation { container, slot });
            }
        }
        let encoded = known.encode(u32::MAX);
        let file = compressed(&encoded);
        assert!(file.len() < encoded.len() / 4, "{} bytes", file.len());
        let load = |content: &[u8]| {
            fs::write(files.path("peer"), content).expect("the file can be written");
            files.load("peer").map(|known| known.encode(u32::MAX))
        };
        assert!(load(&file).as_ref() == Some(&encoded));
        assert!(load(&encoded).as_ref() == Some(&encoded));
        assert_eq!(load(&file[..file.len() - 1]), None);
        for at in 8..20 {
            let mut corrupt = file.to_vec();
            corrupt[at] ^= 0x81;
            assert_eq!(load(&corrupt), None, "byte {at}");
        }
    }

    #[test]
    fn the_number_of_files_is_bounded() {
        let folder = tempfile::tempdir().expect("the folder can be created");
        let files = files(folder.path(), [1; 32]);
        for n in 0..5_u64 {
            let path = files.path(&files.file_name(None, n));
            let file = fs::File::create(path).expect("the file can be written");
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(n);
            file.set_modified(time).expect("the time can be set");
        }
        let unfinished = folder.path().join(format!("peer{UNFINISHED}"));
        fs::write(&unfinished, "half").expect("the file can be written");
        files.remove_oldest().expect("the file can be removed");
        assert!(!unfinished.exists());
        let exists = |n| files.path(&files.file_name(None, n)).exists();
        assert_eq!(
            [0, 1, 2, 3, 4].map(exists),
            [false, false, true, true, true]
        );
    }
}
