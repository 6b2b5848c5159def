//! A model of the nodes of a fleet and their bucket in virtual time.
//!
//! Processes start, leave, are killed, get another name, and start again at the same or another address; some have the
//! name of another one. Their records last for different times. Each has a clock of its own, whose zero is anywhere.
//! Deliveries are delayed. In outages of the bucket, heartbeats and deliveries are lost; afterwards each process reads
//! the bucket again after a delay of its own. After every step:
//!
//! - A process that was in the list of another one, and that has neither left nor ended, is still in the list and may
//!   own keys, unless another process has or had its name.
//! - A process that has a name, and does not leave, loses it to no process that got the name later.
//! - No list has two entries of one name, or the URL of the process that uses it under another name, and each list has
//!   the node that uses it.
//!
//! If the faults end, all processes have equal lists: the running ones with their whole weights, and for each name
//! exactly one of them. A process that was removed from a list of another one has purged all its objects since then.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use edgeward_balance::NodeGroup;
use edgeward_fleet::{
    AnnouncedState, Announcement, Member, Membership, MembershipAction, NodeProfile, key_of,
};
use edgeward_types::SplitMix64;

/// The number of seeds in a test run. `EDGEWARD_FLEET_SEEDS=100000` runs more.
fn seeds() -> u64 {
    let seeds = std::env::var("EDGEWARD_FLEET_SEEDS").ok();
    seeds.and_then(|seeds| seeds.parse().ok()).unwrap_or(100)
}

#[test]
fn running_nodes_stay_in_all_lists_and_in_the_end_all_lists_are_equal() {
    let mut reached = ReachedCases::default();
    for seed in 0..seeds() {
        let mut model = Model::new(seed);
        model.run(1200);
        model.heal();
        model.assert_equal_lists();
        reached.outages += model.reached.outages;
        reached.kills += model.reached.kills;
        reached.leaves += model.reached.leaves;
        reached.rivals += model.reached.rivals;
        reached.renames += model.reached.renames;
        reached.taken += model.reached.taken;
        reached.removals += model.reached.removals;
        reached.purges += model.reached.purges;
    }
    // The runs reach the cases.
    let runs = seeds();
    assert!(reached.outages > runs, "{reached:?}");
    assert!(reached.kills > runs, "{reached:?}");
    assert!(reached.leaves > runs, "{reached:?}");
    assert!(reached.rivals > runs / 2, "{reached:?}");
    assert!(reached.renames > runs / 2, "{reached:?}");
    assert!(reached.taken > runs / 10, "{reached:?}");
    assert!(reached.removals > runs, "{reached:?}");
    assert!(reached.purges > runs / 5, "{reached:?}");
}

#[derive(Debug, Default)]
struct ReachedCases {
    outages: u64,
    kills: u64,
    leaves: u64,
    rivals: u64,
    renames: u64,
    /// Processes that get the name of another one.
    taken: u64,
    removals: u64,
    /// Purges of all objects of a process that was removed from a list.
    purges: u64,
}

/// A change of the bucket on its way to a process.
#[derive(Clone, Debug)]
enum Event {
    Put(String, Vec<u8>),
    Deleted(String),
    All,
}

struct Process {
    name: &'static str,
    url: Box<str>,
    machine: Membership,
    /// The difference of the clock of this process and the virtual time.
    offset: Duration,
    inbox: Vec<(Duration, Event)>,
    /// The list in use.
    list: Vec<Member>,
    applying: Option<(Duration, Vec<Member>)>,
    /// The time at which the process reads the bucket again after an outage.
    reads_at: Option<Duration>,
    leaves_at: Option<Duration>,
    has_rival: bool,
    /// The time since which the process has its name.
    has_name_since: Option<Duration>,
    /// The time at which the process got its present name, if it had another one.
    renamed_at: Option<Duration>,
    /// The URLs of the processes that the list must have.
    seen: BTreeSet<Box<str>>,
    /// The newest time at which the process began to watch the bucket.
    watches_since: Option<Duration>,
    /// The URLs of the other processes in the list.
    others: BTreeSet<Box<str>>,
    /// The newest time at which another process has removed this one from its list.
    removed_at: Option<Duration>,
    /// The newest time at which the process has purged all its objects.
    purged_at: Option<Duration>,
}

struct Model {
    seed: u64,
    random: SplitMix64,
    now: Duration,
    has_faults: bool,
    bucket: BTreeMap<String, (Vec<u8>, Duration)>,
    outage_ends_at: Option<Duration>,
    processes: Vec<Process>,
    /// The times until which the effects of an earlier process with this name, or of a second one, may last. They do
    /// not pass during outages.
    contested: BTreeMap<&'static str, Duration>,
    reached: ReachedCases,
}

impl Model {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            random: SplitMix64(seed),
            now: Duration::ZERO,
            has_faults: true,
            bucket: BTreeMap::new(),
            outage_ends_at: None,
            processes: Vec::new(),
            contested: BTreeMap::new(),
            reached: ReachedCases::default(),
        }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.below(end)
    }

    fn millis(&mut self, end: u64) -> Duration {
        Duration::from_millis(self.below(end))
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.fault();
            self.step();
        }
    }

    /// Ends the faults, and waits until all times have passed.
    fn heal(&mut self) {
        self.has_faults = false;
        self.outage_ends_at = self.outage_ends_at.map(|_| self.now);
        for _ in 0..(4 * LASTS_MAX.as_millis() / STEP.as_millis()) {
            self.step();
        }
    }

    fn fault(&mut self) {
        match self.below(400) {
            0..=5 => self.start(),
            6..=7 if !self.processes.is_empty() => {
                let at = self.below(self.processes.len() as u64) as usize;
                let killed = self.processes.remove(at);
                // Its record may be removed after the next process with this name has started.
                self.contested.insert(killed.name, self.now + 3 * LASTS_MAX);
                self.reached.kills += 1;
            }
            8..=9 if !self.processes.is_empty() => {
                let at = self.below(self.processes.len() as u64) as usize;
                let leaves_at = self.now + self.millis(3000);
                let process = &mut self.processes[at];
                self.contested
                    .insert(process.name, leaves_at + 3 * LASTS_MAX);
                process.machine.drain(self.now + process.offset);
                process.leaves_at.get_or_insert(leaves_at);
                self.reached.leaves += 1;
            }
            11..=12 if !self.processes.is_empty() => self.rename(),
            10 if self.outage_ends_at.is_none() => {
                let length = self.millis(3 * LASTS_MIN.as_millis() as u64);
                self.outage_ends_at = Some(self.now + length);
                self.reached.outages += 1;
                for process in &mut self.processes {
                    process.inbox.clear();
                    process.reads_at = None;
                    process.watches_since = None;
                }
            }
            _ => {}
        }
    }

    fn start(&mut self) {
        if self.processes.len() >= 6 {
            return;
        }
        let name = NAMES[self.below(NAMES.len() as u64) as usize];
        // Two processes with one address are not a duplicate, and cannot run at the same time.
        let port = self.below(3);
        let url = Box::from(format!("http://{name}:{port}"));
        if self.processes.iter().any(|process| process.url == url) {
            return;
        }
        let offset = Duration::from_millis(self.below(1_000_000_000));
        let profile = NodeProfile {
            name: name.into(),
            url: url.clone(),
            group: NodeGroup::Edge,
            weight: 100,
        };
        // The instances are random numbers.
        let instance = self.random.draw();
        let lasts = LASTS_MIN * (1 + self.below(3) as u32);
        let mut machine = Membership::new(profile, instance, lasts);
        machine.starts_slowly(self.millis(LASTS_MAX.as_millis() as u64));
        let reads_at = match self.outage_ends_at {
            Some(_) => None,
            None => Some(self.now + self.millis(500)),
        };
        self.processes.push(Process {
            name,
            url,
            list: machine.list(),
            machine,
            offset,
            inbox: Vec::new(),
            applying: None,
            reads_at,
            leaves_at: None,
            has_rival: false,
            has_name_since: None,
            renamed_at: None,
            seen: BTreeSet::new(),
            watches_since: None,
            others: BTreeSet::new(),
            removed_at: None,
            purged_at: None,
        });
    }

    fn rename(&mut self) {
        let at = self.below(self.processes.len() as u64) as usize;
        let name = NAMES[self.below(NAMES.len() as u64) as usize];
        let process = &self.processes[at];
        if process.name == name || process.leaves_at.is_some() {
            return;
        }
        let is_taken = self.processes.iter().any(|process| process.name == name);
        self.reached.renames += 1;
        self.reached.taken += u64::from(is_taken);
        let process = &mut self.processes[at];
        for name in [process.name, name] {
            self.contested.insert(name, self.now + 3 * LASTS_MAX);
        }
        process.name = name;
        process.has_name_since = None;
        process.renamed_at = Some(self.now);
        let profile = NodeProfile {
            name: name.into(),
            url: process.url.clone(),
            group: NodeGroup::Edge,
            weight: 100,
        };
        let local = self.now + process.offset;
        process.machine.set_own(local, profile, false);
    }

    fn step(&mut self) {
        self.now += STEP;
        if self.outage_ends_at.is_some_and(|at| self.now >= at) {
            self.outage_ends_at = None;
            for at in 0..self.processes.len() {
                let wait = self.millis(2000);
                self.processes[at].reads_at = Some(self.now + wait);
            }
        }
        if self.outage_ends_at.is_some() {
            self.contested.values_mut().for_each(|until| *until += STEP);
        }
        let now = self.now;
        self.bucket.retain(|_, (_, at)| now < *at + LASTS_MIN);
        for at in 0..self.processes.len() {
            self.drive(at);
        }
        let now = self.now;
        let has_left = |process: &Process| process.leaves_at.is_some_and(|at| now >= at + 2 * STEP);
        self.processes.retain(|process| !has_left(process));
        self.assert_laws();
    }

    /// Lets a process receive, tick and act.
    fn drive(&mut self, at: usize) {
        let now = self.now;
        let process = &mut self.processes[at];
        let local = now + process.offset;
        if process.reads_at.is_some_and(|at| now >= at) {
            process.reads_at = None;
            process.watches_since = Some(now);
            process.machine.watching(local);
            let values = self.bucket.iter();
            let values =
                values.map(|(key, (value, _))| (now, Event::Put(key.clone(), value.clone())));
            process.inbox.splice(0..0, values);
            // A bucket without records does not say so.
            if !process.inbox.is_empty() {
                process.inbox.push((now, Event::All));
            }
        }
        // Deliveries of one subject stay in order.
        let inbox = std::mem::take(&mut process.inbox);
        let (due, later): (Vec<_>, Vec<_>) = inbox.into_iter().partition(|(at, _)| now >= *at);
        process.inbox = later;
        for (_, event) in due {
            match event {
                Event::Put(key, value) => {
                    let record = Announcement::parse(&key, &value).expect("a record");
                    _ = process.machine.heard(local, record);
                }
                Event::Deleted(key) => process.machine.deleted(local, &key),
                Event::All => process.machine.received_all(local),
            }
        }
        process.machine.ready(local);
        if process.applying.as_ref().is_some_and(|(at, _)| now >= *at) {
            let (_, list) = process.applying.take().expect("it is some");
            process.list = list;
            process.machine.applied(local, true);
        }
        process.machine.tick(local);
        if process.leaves_at.is_some_and(|at| now >= at) {
            process.machine.leave();
        }
        let has_rival = process.machine.rival().is_some();
        if has_rival && process.leaves_at.is_none() {
            self.assert_older(at);
        }
        let process = &mut self.processes[at];
        match has_rival {
            true => process.has_name_since = None,
            false if process.machine.is_current(local) => {
                process.has_name_since.get_or_insert(now);
            }
            false => {}
        }
        self.reached.rivals +=
            u64::from(has_rival && !std::mem::replace(&mut process.has_rival, has_rival));
        process.has_rival = has_rival;
        while let Some(action) = self.processes[at].machine.poll() {
            match action {
                MembershipAction::Announce(record) => {
                    let key = key_of(&record.profile.name);
                    self.write(&key, Some(record.encode()));
                }
                MembershipAction::PurgeAll => {
                    let process = &mut self.processes[at];
                    process.purged_at = Some(now);
                    self.reached.purges += u64::from(process.removed_at.is_some());
                }
                MembershipAction::Withdraw(key) => self.write(&key, None),
                MembershipAction::Apply(list) => {
                    let done_at = now + self.millis(300);
                    let process = &mut self.processes[at];
                    let is_less = owners(&list).count() < owners(&process.list).count();
                    self.reached.removals += u64::from(is_less);
                    process.applying = Some((done_at, list));
                }
            }
        }
    }

    /// Checks that a process has not lost its name to one that got the name later.
    fn assert_older(&self, at: usize) {
        let process = &self.processes[at];
        let url = process.machine.rival();
        let rival = self.processes.iter().find(|p| Some(&*p.url) == url);
        let renamed_at = rival.filter(|rival| rival.name == process.name);
        let renamed_at = renamed_at.and_then(|rival| rival.renamed_at);
        if let (Some(since), Some(renamed_at)) = (process.has_name_since, renamed_at) {
            let context = format!("seed {} at {:?}", self.seed, self.now);
            let own = &process.url;
            assert!(
                renamed_at < since,
                "{context}: {own} lost its name to {url:?}"
            );
        }
    }

    /// Writes to the bucket, and delivers to all processes that watch it.
    fn write(&mut self, key: &str, value: Option<Vec<u8>>) {
        if self.outage_ends_at.is_some() {
            return;
        }
        let event = match &value {
            Some(value) => Event::Put(key.to_owned(), value.clone()),
            None => Event::Deleted(key.to_owned()),
        };
        match value {
            Some(value) => _ = self.bucket.insert(key.to_owned(), (value, self.now)),
            None => _ = self.bucket.remove(key),
        }
        for at in 0..self.processes.len() {
            let arrives = self.now + self.millis(DELAY_MAX_MS);
            let process = &mut self.processes[at];
            if process.reads_at.is_none() {
                let last = process.inbox.last().map_or(Duration::ZERO, |(at, _)| *at);
                process.inbox.push((arrives.max(last), event.clone()));
            }
        }
    }

    fn assert_laws(&mut self) {
        let context = format!("seed {} at {:?}", self.seed, self.now);
        let now = self.now;
        let mut running = BTreeMap::new();
        for process in &self.processes {
            let name = process.name;
            if self.processes.iter().filter(|p| p.name == name).count() > 1 {
                self.contested.insert(name, now + 3 * LASTS_MAX);
            }
            let is_contested = self.contested.get(name).is_some_and(|until| now < *until);
            let has_left = process.leaves_at.is_some();
            running.insert(process.url.clone(), !has_left && !is_contested);
        }
        let mut removed = BTreeSet::new();
        for process in &mut self.processes {
            let list = process.machine.list();
            let names: BTreeSet<_> = list.iter().map(|member| &member.profile.name).collect();
            assert_eq!(names.len(), list.len(), "{context}: {list:?}");
            assert!(names.contains(&Box::from(process.name)), "{context}");
            let urls = list.iter().map(|member| &member.profile.url);
            let own = urls.clone().filter(|url| **url == process.url);
            assert_eq!(own.count(), 1, "{context}: {list:?}");
            if process.has_rival {
                process.seen.clear();
                process.others.clear();
                continue;
            }
            let others: BTreeSet<_> = urls.cloned().collect();
            // A process that takes the name of another one has it in no list until it gives the name up.
            let is_renamed = process.renamed_at.is_some_and(|at| now < at + LASTS_MAX);
            if !is_renamed {
                removed.extend(process.others.difference(&others).cloned());
            }
            process.others = others;
            let urls: BTreeSet<_> = owners(&list)
                .map(|member| member.profile.url.clone())
                .collect();
            process.seen.retain(|url| running.get(url) == Some(&true));
            for url in &process.seen {
                let own = &process.url;
                assert!(urls.contains(url), "{context}: {own} lost {url}: {list:?}");
            }
            process.seen.extend(urls);
        }
        for process in &mut self.processes {
            // A list may have an earlier process with this URL. A process that does not watch the bucket does not hear
            // that another one writes its record.
            let watches = process
                .watches_since
                .is_some_and(|since| now >= since + EVENTS_MAX);
            if watches && removed.contains(&process.url) {
                process.removed_at = Some(now);
            }
        }
    }

    fn assert_equal_lists(&self) {
        let context = format!("seed {}", self.seed);
        let members: Vec<_> = self.processes.iter().filter(|p| !p.has_rival).collect();
        let names: BTreeSet<_> = self.processes.iter().map(|p| p.name).collect();
        let kept: BTreeSet<_> = members.iter().map(|p| p.name).collect();
        assert_eq!(members.len(), names.len(), "{context}: one for each name");
        assert_eq!(kept, names, "{context}");
        let mut urls: Vec<_> = members.iter().map(|p| p.url.clone()).collect();
        urls.sort();
        for process in members {
            let mut known: Vec<_> = owners(&process.list)
                .map(|m| m.profile.url.clone())
                .collect();
            known.sort();
            assert_eq!(known, urls, "{context}: the list of {}", process.url);
            let is_serving = |member: &Member| {
                member.state == AnnouncedState::Serving && member.profile.weight == 100
            };
            assert!(owners(&process.list).all(is_serving), "{context}");
        }
        for process in self.processes.iter().filter(|p| p.has_rival) {
            assert_eq!(process.list.len(), 1, "{context}: alone");
        }
        for process in self.processes.iter().filter(|p| !p.has_rival) {
            let purged_at = process.purged_at.map(|at| at + EVENTS_MAX);
            let (url, removed_at) = (&process.url, process.removed_at);
            assert!(
                purged_at >= removed_at,
                "{context}: {url} at {removed_at:?}"
            );
        }
    }
}

/// Returns the members that have neither expired nor begun to leave.
fn owners(list: &[Member]) -> impl Iterator<Item = &Member> {
    let drains = |member: &&Member| member.state == AnnouncedState::Draining;
    list.iter().filter(move |member| !drains(member))
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// The shortest time for which records last, and the age of the bucket's records.
const LASTS_MIN: Duration = Duration::from_secs(8);

/// The longest time for which records last.
const LASTS_MAX: Duration = Duration::from_secs(24);

const STEP: Duration = Duration::from_millis(50);

/// The longest time of a delivery: an eighth of `LASTS_MIN`.
const DELAY_MAX_MS: u64 = 1000;

/// The longest time between the events of two processes that follow from one write, without an outage.
const EVENTS_MAX: Duration = Duration::from_secs(3);
