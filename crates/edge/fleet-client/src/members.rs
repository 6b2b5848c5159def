//! The thread that announces a node to its fleet and watches the other nodes.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_nats::jetstream::Context;
use edgeward_fleet::{
    Announcement, DirectoryFacts, FleetDirectory, Member, MemberList, Membership, MembershipAction,
    NodeProfile, PurgeStream, RecordError, UntoldTime, key_of,
};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet, LocalSet};

use crate::bucket::{self, Bucket, BucketEvent, BucketWrite};
use crate::driver::StartError;
use crate::faults::{Fault, Faults};
use crate::settings::{MemberSettings, NatsSettings};

/// Announces a node to its fleet, and has an edge use the list of members. [`leave`](Self::leave), [`stop`](Self::stop)
/// or dropping this value ends its thread.
#[derive(Debug)]
pub struct MembersClient {
    facts: Arc<Mutex<DirectoryFacts>>,
    commands: mpsc::Sender<Command>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A node that is announced to its fleet.
pub struct AnnouncedNode {
    /// The settings that the other nodes get.
    pub profile: NodeProfile,
    /// True if the node owns no key.
    pub is_draining: bool,
    /// True if the node replaces an earlier process, and owns keys at once. Otherwise it owns keys when it has all
    /// purges of the fleet.
    pub is_ready: bool,
    /// The edge that uses the lists.
    pub list: Arc<dyn MemberList>,
    /// The purges of the fleet.
    pub purges: Arc<dyn PurgeStream>,
    /// The members that an earlier process knew, if the node replaces one.
    pub inherited: Option<InheritedMembers>,
}

/// The members that an earlier process of the node knew.
#[derive(Clone, Debug)]
pub struct InheritedMembers {
    /// Its list.
    pub list: Vec<Member>,
    /// The time for which the other nodes may not have told it of changes. `None` if they may have removed it from
    /// their lists.
    pub told: Option<UntoldTime>,
}

enum Command {
    /// The sender is called when the list is in use.
    Join(AnnouncedNode, SyncSender<()>),
    Announce,
    ApplyAgain,
    SetOwn(NodeProfile, bool),
    Drain(SyncSender<()>),
    Stop {
        /// The longest time to delete the record. `None`: the record stays.
        leave_max: Option<Duration>,
    },
}

impl MembersClient {
    /// Starts the thread, which connects to NATS.
    pub fn start(settings: NatsSettings, members: MemberSettings) -> Result<Self, StartError> {
        let (commands, received) = mpsc::channel(COMMANDS_MAX);
        let facts = Arc::<Mutex<DirectoryFacts>>::default();
        let published = Arc::clone(&facts);
        let thread = std::thread::Builder::new()
            .name("edgeward-members".to_owned())
            .spawn(move || run(settings, members, received, published))
            .map_err(StartError)?;
        Ok(Self {
            facts,
            commands,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Begins to follow the members. Returns when the node uses the list of the records that the bucket has, or after
    /// `wait_max`. Only the first call counts.
    pub fn join(&self, node: AnnouncedNode, wait_max: Duration) {
        let (done, joined) = sync_channel(1);
        self.send(Command::Join(node, done));
        // An error means that the thread has ended or that the time is over.
        _ = joined.recv_timeout(wait_max);
    }

    /// Announces the node: it accepts requests.
    pub fn announce(&self) {
        self.send(Command::Announce);
    }

    /// Tries the list again after a pause: the edge does not use it, although [`MemberList::apply`] has accepted it.
    pub fn apply_again(&self) {
        self.send(Command::ApplyAgain);
    }

    /// Announces other settings of the node.
    pub fn set_own(&self, profile: NodeProfile, is_draining: bool) {
        self.send(Command::SetOwn(profile, is_draining));
    }

    /// Announces that the node is about to leave, so that it owns no key. Returns when the bucket has this, or after
    /// `wait_max`.
    pub fn drain(&self, wait_max: Duration) {
        let (done, drained) = sync_channel(1);
        self.send(Command::Drain(done));
        // An error means that the thread has ended or that the time is over.
        _ = drained.recv_timeout(wait_max);
    }

    /// Deletes the record of the node, for `wait_max` at most, and ends the thread.
    pub fn leave(&self, wait_max: Duration) {
        self.end(Some(wait_max));
    }

    /// Ends the thread. The record stays, and another process continues it.
    pub fn stop(&self) {
        self.end(None);
    }

    fn end(&self, leave_max: Option<Duration>) {
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            self.send(Command::Stop { leave_max });
            _ = thread.join();
        }
    }

    /// The thread reads the commands at once, so the queue is never full.
    fn send(&self, command: Command) {
        _ = self.commands.try_send(command);
    }
}

impl Drop for MembersClient {
    fn drop(&mut self) {
        self.stop();
    }
}

impl FleetDirectory for MembersClient {
    fn facts(&self) -> DirectoryFacts {
        let facts = self.facts.lock();
        facts.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The result of a task of the thread.
enum Done {
    Connected(Result<Context, String>),
    Opened(Result<Arc<Bucket>, String>),
    /// The watch with this number has ended.
    WatchEnded(u64, Option<String>),
    Written(BucketWrite, Result<(), String>),
    Applied(Result<(), String>),
}

/// The watch under way.
struct Watch {
    number: u64,
    events: mpsc::Receiver<BucketEvent>,
    task: AbortHandle,
    began_at: Duration,
}

/// The announced node and the decisions about it.
struct Joined {
    machine: Membership,
    /// Present until the first list is in use.
    done: Option<SyncSender<()>>,
    is_ready: bool,
    list: Arc<dyn MemberList>,
    purges: Arc<dyn PurgeStream>,
}

/// The state of the thread.
struct Driver {
    start: Instant,
    settings: NatsSettings,
    members: MemberSettings,
    joined: Option<Joined>,
    context: Option<Context>,
    bucket: Option<Arc<Bucket>>,
    /// True while a task opens the bucket.
    is_opening: bool,
    /// The earliest time to open the bucket again.
    open_at: Duration,
    watch: Option<Watch>,
    watches: u64,
    /// The writes that wait. A node has one record, so there are few.
    writes: VecDeque<BucketWrite>,
    is_writing: bool,
    /// The earliest time of the next write, after a deletion that has failed.
    write_at: Duration,
    /// The time from which a failed deletion is not tried again: the record has expired.
    delete_until: Duration,
    draining: Vec<SyncSender<()>>,
    tasks: JoinSet<Done>,
    published: Arc<Mutex<DirectoryFacts>>,
    facts: DirectoryFacts,
    /// The version of the list in the facts.
    listed: Option<u64>,
    faults: Faults,
    /// The errors that the server reports. `Ok` stands for a new connection.
    reports: mpsc::Receiver<Result<(), String>>,
    reporter: mpsc::Sender<Result<(), String>>,
    /// The kinds of records that were logged as ignored, since the bucket was opened.
    logged_refusals: [bool; RecordError::NAMES.len()],
}

fn run(
    settings: NatsSettings,
    members: MemberSettings,
    commands: mpsc::Receiver<Command>,
    published: Arc<Mutex<DirectoryFacts>>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // A list is applied by a thread of its own, because that may take seconds.
        .max_blocking_threads(BLOCKING_THREADS)
        .build();
    match runtime {
        Ok(runtime) => {
            let (reporter, reports) = mpsc::channel(REPORTS_MAX);
            let driver = Driver {
                start: Instant::now(),
                settings,
                members,
                joined: None,
                context: None,
                bucket: None,
                is_opening: false,
                open_at: Duration::ZERO,
                watch: None,
                watches: 0,
                writes: VecDeque::new(),
                is_writing: false,
                write_at: Duration::ZERO,
                delete_until: Duration::ZERO,
                draining: Vec::new(),
                tasks: JoinSet::new(),
                published,
                facts: DirectoryFacts::default(),
                listed: None,
                faults: Faults::default(),
                reports,
                reporter,
                logged_refusals: Default::default(),
            };
            LocalSet::new().block_on(&runtime, driver.drive(commands));
            // A look-up of a name that is under way would be awaited.
            runtime.shutdown_background();
        }
        Err(error) => tracing::error!(%error, "the members of the fleet cannot be followed"),
    }
}

impl Driver {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    async fn drive(mut self, mut commands: mpsc::Receiver<Command>) {
        self.connect(Duration::ZERO);
        loop {
            self.open_if_needed();
            self.carry_out();
            self.publish_facts();
            let wait = self.wake_at().saturating_sub(self.now());
            tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::Stop { leave_max }) => return self.stop(leave_max).await,
                    Some(command) => self.command(command),
                    None => return,
                },
                Some(done) = self.tasks.join_next() => {
                    if let Ok(done) = done {
                        self.task_done(done);
                    }
                }
                Some(event) = next_event(&mut self.watch) => self.event(event),
                Some(report) = self.reports.recv() => match report {
                    Ok(()) => self.faults.recovered(Fault::Connection),
                    Err(error) => self.faults.log(Fault::Connection, &error),
                },
                () = tokio::time::sleep(wait) => {}
            }
            let now = self.now();
            if let Some(joined) = &mut self.joined {
                joined.is_ready |= joined.purges.is_current();
                if joined.is_ready {
                    joined.machine.ready(now);
                }
                joined.machine.tick(now);
            }
        }
    }

    fn command(&mut self, command: Command) {
        let now = self.now();
        match (command, &mut self.joined) {
            (Command::Join(node, done), None) => {
                let instance = RandomState::new().build_hasher().finish();
                let mut machine =
                    Membership::new(node.profile.clone(), instance, self.members.lasts);
                machine.starts_slowly(self.members.slow_start);
                machine.starts();
                if let Some(InheritedMembers { list, told }) = node.inherited {
                    machine.inherit(now, list, told);
                }
                if node.is_draining {
                    machine.set_own(now, node.profile, true);
                }
                self.joined = Some(Joined {
                    machine,
                    done: Some(done),
                    is_ready: node.is_ready,
                    list: node.list,
                    purges: node.purges,
                });
            }
            (Command::Announce, Some(joined)) => joined.machine.accepts(now),
            (Command::ApplyAgain, Some(joined)) => joined.machine.apply_again(now),
            (Command::SetOwn(profile, is_draining), Some(joined)) => {
                joined.machine.set_own(now, profile, is_draining);
            }
            (Command::Drain(done), Some(joined)) => {
                // During an outage, the waiting function returns at once, because its channel is dropped.
                if joined.machine.is_current(now) {
                    self.draining.push(done);
                }
                joined.machine.drain(now);
            }
            _ => {}
        }
    }

    /// Deletes the record, if the node leaves, within a bounded time.
    async fn stop(mut self, leave_max: Option<Duration>) {
        let (Some(joined), Some(leave_max)) = (&mut self.joined, leave_max) else {
            return;
        };
        joined.machine.leave();
        let withdrawn = async {
            loop {
                self.carry_out();
                let is_done = !self.is_writing && self.writes.is_empty();
                if is_done || self.bucket.is_none() {
                    return;
                }
                let wait = self.write_at.saturating_sub(self.now());
                tokio::select! {
                    Some(done) = self.tasks.join_next() => {
                        if let Ok(done) = done {
                            self.task_done(done);
                        }
                    }
                    () = tokio::time::sleep(wait), if !self.is_writing => {}
                    else => return,
                }
            }
        };
        _ = tokio::time::timeout(leave_max, withdrawn).await;
    }

    /// Begins to connect after a pause.
    fn connect(&mut self, pause: Duration) {
        let (settings, reporter) = (self.settings.clone(), self.reporter.clone());
        self.tasks.spawn_local(async move {
            tokio::time::sleep(pause).await;
            let context = bucket::start(&settings, reporter).await;
            Done::Connected(context.map_err(|error| error.to_string()))
        });
    }

    /// Opens the bucket if it is not open, or if it is watched and the records of this node do not return.
    fn open_if_needed(&mut self) {
        let (Some(joined), Some(context)) = (&self.joined, &self.context) else {
            return;
        };
        let now = self.now();
        let is_silent = |watch: &Watch| {
            let has_rival = joined.machine.rival().is_some();
            !has_rival
                && !joined.machine.is_current(now)
                && now >= watch.began_at + self.members.lasts
        };
        let needs = self.watch.as_ref().is_none_or(is_silent);
        if !needs || self.is_opening || now < self.open_at {
            return;
        }
        if let Some(watch) = self.watch.take() {
            watch.task.abort();
        }
        self.is_opening = true;
        self.open_at = now + OPEN_AGAIN_AFTER;
        let (context, settings, members) = (context.clone(), self.settings.clone(), self.members);
        self.tasks.spawn_local(async move {
            let opened = Bucket::open(&context, &settings, &members).await;
            Done::Opened(opened.map(Arc::new).map_err(|error| error.to_string()))
        });
    }

    fn watch(&mut self, bucket: Arc<Bucket>) {
        self.watches += 1;
        let number = self.watches;
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let task = self.tasks.spawn_local(async move {
            let ended = bucket.watch(sender).await;
            Done::WatchEnded(number, ended.err().map(|error| error.to_string()))
        });
        self.watch = Some(Watch {
            number,
            events,
            task,
            began_at: self.now(),
        });
    }

    fn task_done(&mut self, done: Done) {
        let now = self.now();
        match done {
            Done::Connected(Ok(context)) => self.context = Some(context),
            Done::Connected(Err(error)) => {
                self.faults.log(Fault::Connection, &error);
                self.connect(OPEN_AGAIN_AFTER);
            }
            Done::Opened(opened) => {
                self.is_opening = false;
                match opened {
                    Ok(bucket) => {
                        self.faults.recovered(Fault::Open);
                        self.bucket = Some(Arc::clone(&bucket));
                        self.logged_refusals = Default::default();
                        self.watch(bucket);
                    }
                    Err(error) => self.faults.log(Fault::Open, &error),
                }
            }
            Done::WatchEnded(number, error) => {
                if let Some(error) = error {
                    self.faults.log(Fault::Watch, &error);
                }
                if self
                    .watch
                    .as_ref()
                    .is_some_and(|watch| watch.number == number)
                {
                    self.watch = None;
                }
            }
            Done::Written(write, result) => {
                self.is_writing = false;
                match result {
                    Ok(()) => {
                        self.faults.recovered(Fault::Heartbeat);
                        let is_heartbeat = matches!(write, BucketWrite::Put { .. });
                        self.facts.heartbeats += u64::from(is_heartbeat);
                    }
                    Err(error) => {
                        self.faults.log(Fault::Heartbeat, &error);
                        self.repeat(write);
                    }
                }
            }
            Done::Applied(result) => {
                let is_applied = result.is_ok();
                match result {
                    Ok(()) => {
                        self.faults.recovered(Fault::List);
                        self.facts.lists += 1;
                    }
                    Err(error) => self.faults.log(Fault::List, &error),
                }
                if let Some(joined) = &mut self.joined {
                    joined.machine.applied(now, is_applied);
                }
            }
        }
    }

    fn event(&mut self, event: BucketEvent) {
        let now = self.now();
        let Some(joined) = &mut self.joined else {
            return;
        };
        let machine = &mut joined.machine;
        match event {
            BucketEvent::Watching => machine.watching(now),
            BucketEvent::All => machine.received_all(now),
            BucketEvent::Deleted { key } => machine.deleted(now, &key),
            BucketEvent::Put { key, value } => {
                self.faults.recovered(Fault::Watch);
                let heard = Announcement::parse(&key, &value).and_then(|record| {
                    let usable = joined.list.check(&record.profile);
                    usable.map_err(RecordError::Unusable)?;
                    machine.heard(now, record)
                });
                if let Err(error) = heard {
                    self.refuse(&key, &error);
                }
            }
        }
    }

    /// Counts a record that is ignored, and logs the first one of its kind.
    fn refuse(&mut self, key: &str, error: &RecordError) {
        let kind = error.index();
        self.facts.refused[kind] += 1;
        if std::mem::replace(&mut self.logged_refusals[kind], true) {
            return;
        }
        let is_out = self
            .joined
            .as_ref()
            .is_some_and(|joined| joined.machine.rival().is_some());
        match error {
            RecordError::Duplicate { url } if is_out => tracing::error!(
                key,
                %url,
                "another node of the fleet has the name of this node: this node stays out of the fleet until one of \
                 them has another fleet.name"
            ),
            _ => tracing::warn!(key, %error, "a record of a node of the fleet is ignored"),
        }
    }

    fn carry_out(&mut self) {
        while let Some(action) = self
            .joined
            .as_mut()
            .and_then(|joined| joined.machine.poll())
        {
            match action {
                MembershipAction::Announce(record) => self.queue(BucketWrite::Put {
                    key: key_of(&record.profile.name),
                    value: record.encode(),
                }),
                MembershipAction::Withdraw(key) => {
                    self.delete_until = self.now() + self.members.lasts;
                    self.queue(BucketWrite::Delete { key });
                }
                MembershipAction::Apply(members) => self.apply(members),
                MembershipAction::PurgeAll => {
                    if let Some(joined) = &self.joined {
                        joined.purges.purge_own();
                    }
                }
            }
        }
        if !self.is_writing
            && self.now() >= self.write_at
            && let Some(bucket) = self.bucket.clone()
            && let Some(write) = self.writes.pop_front()
        {
            self.is_writing = true;
            self.tasks.spawn_local(async move {
                let written = bucket.write(write.clone()).await;
                Done::Written(write, written.map_err(|error| error.to_string()))
            });
        }
        let Some(joined) = &mut self.joined else {
            return;
        };
        if joined.machine.has_list()
            && let Some(done) = joined.done.take()
        {
            _ = done.try_send(());
        }
        if joined.machine.has_drained() {
            for done in self.draining.drain(..) {
                _ = done.try_send(());
            }
        }
    }

    /// Adds a write, which replaces an earlier one of the same record.
    fn queue(&mut self, write: BucketWrite) {
        self.writes.retain(|queued| queued.key() != write.key());
        self.writes.push_back(write);
    }

    /// Queues a deletion again that has failed, after a pause. A heartbeat follows by itself.
    fn repeat(&mut self, write: BucketWrite) {
        let now = self.now();
        let is_deletion = matches!(write, BucketWrite::Delete { .. });
        let has_later = self.writes.iter().any(|later| later.key() == write.key());
        if is_deletion && !has_later && now < self.delete_until {
            self.writes.push_back(write);
            self.write_at = now + WRITE_AGAIN_AFTER;
        }
    }

    fn apply(&mut self, members: Vec<Member>) {
        let Some(joined) = &self.joined else {
            return;
        };
        let names: Vec<_> = members.iter().map(|member| &*member.profile.name).collect();
        tracing::info!(
            members = names.join(", "),
            "the list of the fleet's members has changed"
        );
        let list = Arc::clone(&joined.list);
        self.tasks
            .spawn_blocking(move || Done::Applied(list.apply(members)));
    }

    fn wake_at(&self) -> Duration {
        let now = self.now();
        let Some(joined) = &self.joined else {
            return now + IDLE;
        };
        // A node that joins owns keys as soon as it has all purges.
        let limit = match joined.is_ready {
            true => now + IDLE,
            false => now + READY_INTERVAL,
        };
        let write_at = match self.writes.is_empty() || self.is_writing || self.bucket.is_none() {
            true => limit,
            false => self.write_at,
        };
        joined.machine.wake_at(now).min(limit).min(write_at)
    }

    fn publish_facts(&mut self) {
        let now = self.now();
        let Some(joined) = &self.joined else {
            return;
        };
        let is_current = joined.machine.is_current(now);
        if is_current != self.facts.is_current {
            match is_current {
                true => tracing::info!("this node is announced to its fleet"),
                false => tracing::warn!(
                    "the heartbeats of this node do not return from NATS: the list of the fleet's members stays as it is"
                ),
            }
        }
        let rival = joined.machine.rival().map(Box::from);
        if self.facts.rival.is_some() && rival.is_none() {
            tracing::info!("the name of this node is free: it joins the fleet");
        }
        self.facts.is_current = is_current;
        self.facts.told = joined.machine.told(now);
        self.facts.rival = rival;
        if self.listed != Some(joined.machine.version()) {
            self.listed = Some(joined.machine.version());
            self.facts.members = joined.machine.list();
        }
        let mut published = self
            .published
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        published.clone_from(&self.facts);
    }
}

/// Returns the next change of the bucket. Waits for ever without a watch.
async fn next_event(watch: &mut Option<Watch>) -> Option<BucketEvent> {
    watch.as_mut()?.events.recv().await
}

/// The most commands that wait.
const COMMANDS_MAX: usize = 64;

/// The most changes of the bucket that wait between the watch and the thread.
const EVENTS_MAX: usize = 64;

/// The most reports of the connection that wait for the thread.
const REPORTS_MAX: usize = 16;

/// The pause after a deletion that has failed.
const WRITE_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// The pause before the bucket is opened again.
const OPEN_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The longest sleep of the thread.
const IDLE: Duration = Duration::from_secs(1);

/// The pause between two questions if the node has all purges.
const READY_INTERVAL: Duration = Duration::from_millis(50);

/// The threads that apply lists and resolve names.
const BLOCKING_THREADS: usize = 2;
