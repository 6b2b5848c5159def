//! A node and the members of its fleet, by the heartbeats of all nodes.
//!
//! Each node writes a record to a bucket, again and again, and watches the records of all nodes. The list of members
//! follows from the times at which the node has *received* them: a member owns no key when its record was not received
//! for as long as the record states. No time of another machine is used, so clocks may differ.
//!
//! **A node that returns to the lists has no old objects.** A member that is silent may still run and serve its
//! clients, so it stays in the list for ten times as long, as one that drains, and gets the invalidations of its
//! objects. Then it is removed. A node purges all its objects when its record returns, if the others may have removed
//! it: its own records have not returned for ten times as long as they last, it has heard a node with its name, its
//! record was deleted, it has another name, or it has served alone, before it was in any list, for longer than a record
//! lasts. This time begins when the node accepts requests, or later, when the record with its name that an earlier
//! process has left is gone. The objects that a new process finds on disk are not purged for the time in which no
//! process ran.
//!
//! **A node removes no member while the bucket may be unavailable.** The node also receives its own records. If none
//! has returned for half of the time for which records last, the node cannot know if the others still write: it keeps
//! the list, and when a record returns, each member gets its whole time again. This covers lost connections, an outage
//! of NATS, and a process that was stopped.
//!
//! **A node that starts reads the records before it accepts requests**, and announces itself when it accepts them. A
//! process that replaces another one begins with its list. Any other one announces a part of its weight at first.
//!
//! Times (each is a part of the shortest time `t` for which a record in use lasts): a heartbeat each `t/4`; the own
//! record is overdue after `t/2`; a member that is alive was received at most `t/4` before an outage, so the node
//! notices the outage before the member expires. All nodes have one `t`, so that the numbers of their heartbeats can be
//! compared.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::announcement::{
    AnnouncedState, Announcement, MEMBERS_MAX, NodeProfile, RecordError, key_of,
};
use crate::slow_start::SlowStart;

/// The decisions of a node about its membership and the list of members.
#[derive(Debug)]
pub struct Membership {
    own: NodeProfile,
    instance: u64,
    lasts: Duration,
    slow_start: SlowStart,
    is_ready: bool,
    is_draining: bool,
    /// True if the node drains whatever its settings are.
    is_leaving: bool,
    has_left: bool,
    /// True if the node does not accept requests yet.
    is_starting: bool,
    /// True if the node begins with the list of an earlier process.
    has_inherited: bool,
    /// The number of heartbeats under the present name.
    beat: u64,
    /// True after the first heartbeat, until the node gives its name up.
    is_announced: bool,
    /// The time at which the node may announce itself, though it has not received all records of the bucket. `None`
    /// before it watches the bucket.
    opens_at: Option<Duration>,
    /// True after that time. The node uses other nodes from then on, because its name may be theirs.
    is_open: bool,
    announce_at: Duration,
    /// The earliest time of a heartbeat, after the node got another name.
    named_at: Duration,
    /// The time at which a record of this process was received last, and its state.
    echo: Option<(Duration, AnnouncedState)>,
    /// The newest time at which the other nodes are known to have had this one in their lists. Before they have, the
    /// time at which the node began to serve without being kept out by its name.
    told_at: Option<Duration>,
    /// The age of `told_at` at the start of the process that has replaced another one.
    told_before_start: Duration,
    /// True if the other nodes have had this one in their lists.
    was_told: bool,
    /// True if the other nodes may have removed this one from their lists since `told_at`.
    was_removed: bool,
    others: BTreeMap<Box<str>, HeardNode>,
    /// The node that has the name of this one.
    rival: Option<HeardNode>,
    /// The number of changes of the list.
    version: u64,
    /// The version of the list that is in use or being applied. `None` after a failure.
    applied: Option<u64>,
    is_applying: bool,
    /// The earliest time of the next application.
    apply_at: Duration,
    actions: VecDeque<MembershipAction>,
}

/// An entry of the list of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The settings of the node.
    pub profile: NodeProfile,
    /// Its state.
    pub state: AnnouncedState,
}

/// The time for which the other nodes may not have told a node of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntoldTime {
    /// The time since they had it in their lists, or since it began to serve.
    pub before: Duration,
    /// False if they have never had it in their lists.
    pub was_told: bool,
}

/// A task for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipAction {
    /// Write the record of this node.
    Announce(Announcement),
    /// Delete the record with this key.
    Withdraw(String),
    /// Use this list, sorted by name and with this node, and call [`Membership::applied`].
    Apply(Vec<Member>),
    /// Purge all objects of this node: the others have not told it which ones have changed.
    PurgeAll,
}

#[derive(Debug)]
struct HeardNode {
    member: Member,
    /// The process and the number of its heartbeat. `None` for a member of the list of an earlier process.
    heartbeat: Option<(u64, u64)>,
    at: Duration,
    lasts: Duration,
    /// True if its record was not received for as long as it lasts.
    is_former: bool,
}

impl HeardNode {
    fn expires_at(&self) -> Duration {
        self.at + self.lasts
    }

    /// Returns the time at which the node changes or is removed.
    fn ends_at(&self) -> Duration {
        match self.is_former {
            true => self.expires_at() + self.lasts * FORMER,
            false => self.expires_at(),
        }
    }

    /// Returns the entry of the list.
    fn entry(&self) -> Member {
        let mut member = self.member.clone();
        if self.is_former {
            member.state = AnnouncedState::Draining;
        }
        member
    }
}

impl Membership {
    /// Returns a node that uses the list with itself alone. `instance` is a random number, and records of the node last
    /// for `lasts`.
    pub fn new(own: NodeProfile, instance: u64, lasts: Duration) -> Self {
        Self {
            own,
            instance,
            lasts,
            slow_start: SlowStart::new(Duration::ZERO),
            is_ready: false,
            is_draining: false,
            is_leaving: false,
            has_left: false,
            is_starting: false,
            has_inherited: false,
            beat: 0,
            is_announced: false,
            opens_at: None,
            is_open: false,
            announce_at: Duration::ZERO,
            named_at: Duration::ZERO,
            echo: None,
            told_at: None,
            told_before_start: Duration::ZERO,
            was_told: false,
            was_removed: false,
            others: BTreeMap::new(),
            rival: None,
            version: 0,
            applied: Some(0),
            is_applying: false,
            apply_at: Duration::ZERO,
            actions: VecDeque::new(),
        }
    }

    /// The weight of the node grows within this time after it has started or purged all its objects.
    pub fn starts_slowly(&mut self, time: Duration) {
        self.slow_start = SlowStart::new(time);
    }

    /// The node does not accept requests yet, and does not announce itself before [`accepts`](Self::accepts).
    pub fn starts(&mut self) {
        self.is_starting = true;
    }

    /// The node replaces an earlier process at the same address, which had this list of members. `told` is `None` if
    /// the other nodes may have removed that process from their lists.
    pub fn inherit(&mut self, now: Duration, list: Vec<Member>, told: Option<UntoldTime>) {
        let others = list.into_iter().filter(|member| {
            member.profile.name != self.own.name && member.profile.url != self.own.url
        });
        for member in others.take(MEMBERS_MAX - 1) {
            // The node learns the time for which its record lasts with its next record.
            let heard = HeardNode {
                at: now,
                lasts: self.lasts,
                is_former: false,
                heartbeat: None,
                member,
            };
            self.others.insert(heard.member.profile.name.clone(), heard);
        }
        self.has_inherited = true;
        self.slow_start.skip();
        self.version += u64::from(!self.others.is_empty());
        self.told_at = Some(now);
        self.was_told = told.is_none_or(|told| told.was_told);
        self.was_removed = told.is_none();
        self.told_before_start = told.map_or(Duration::ZERO, |told| told.before);
    }

    /// The node accepts requests.
    pub fn accepts(&mut self, now: Duration) {
        self.is_starting = false;
        self.announce_at = now;
        self.serves_from(now);
        self.tick(now);
    }

    /// Returns true if the node has received the records of the bucket, and the list that follows from them is in use.
    pub fn has_list(&self) -> bool {
        self.is_open && !self.is_applying && self.applied == Some(self.version)
    }

    /// Returns what a process that replaces this one needs to know about the lists of the other nodes. `None` if they
    /// may have removed this node.
    pub fn told(&self, now: Duration) -> Option<UntoldTime> {
        let told_at = self.told_at.filter(|_| !self.was_removed)?;
        Some(UntoldTime {
            before: now.saturating_sub(told_at) + self.told_before_start,
            was_told: self.was_told,
        })
    }

    /// Returns the next action.
    pub fn poll(&mut self) -> Option<MembershipAction> {
        self.actions.pop_front()
    }

    /// Returns the list of members that follows from the records.
    pub fn list(&self) -> Vec<Member> {
        let own = Member {
            profile: self.own_profile(),
            // For itself a joining node is serving: alone, it could store nothing otherwise.
            state: match self.is_draining {
                true => AnnouncedState::Draining,
                false => AnnouncedState::Serving,
            },
        };
        let others = self.others.values().map(HeardNode::entry);
        let others = others.filter(|_| self.uses_others());
        let mut list: Vec<_> = others.chain([own]).collect();
        list.sort_by(|a, b| a.profile.name.cmp(&b.profile.name));
        list
    }

    /// Returns a number that changes with the list.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns true if the records of this node return, so that the list is up to date.
    pub fn is_current(&self, now: Duration) -> bool {
        self.echo.is_some_and(|(at, _)| now <= at + self.pace() / 2)
    }

    /// Returns the shortest time for which a record of the list lasts.
    fn pace(&self) -> Duration {
        let others = self.others.values().filter(|heard| !heard.is_former);
        let others = others.map(|heard| heard.lasts);
        others.min().unwrap_or(self.lasts).min(self.lasts)
    }

    /// Returns the URL of the node that has the name of this one, and therefore keeps this node out of the fleet.
    pub fn rival(&self) -> Option<&str> {
        self.rival.as_ref().map(|rival| &*rival.member.profile.url)
    }

    /// Returns true if the others have learned that this node drains, and this node uses that itself.
    pub fn has_drained(&self) -> bool {
        let is_announced = matches!(self.echo, Some((_, AnnouncedState::Draining)));
        is_announced && !self.is_applying && self.applied == Some(self.version)
    }

    /// Returns the time of the next call of [`tick`](Self::tick).
    pub fn wake_at(&self, now: Duration) -> Duration {
        let heartbeat = match self.is_open {
            true if self.may_announce() => Some(self.announce_at.max(self.named_at)),
            true => None,
            false => self.opens_at,
        };
        let rival = self.rival.as_ref().map(HeardNode::expires_at);
        let others = self.others.values().map(HeardNode::ends_at).min();
        let others = others.filter(|_| self.is_current(now));
        let has_change = !self.is_applying && self.applied != Some(self.version);
        let apply = has_change.then_some(self.apply_at);
        let growth = self.slow_start.wake_at();
        let times = [heartbeat, rival, others, apply, growth]
            .into_iter()
            .flatten();
        times.min().unwrap_or(now + self.lasts)
    }

    /// The node watches the bucket. Its records follow.
    pub fn watching(&mut self, now: Duration) {
        self.opens_at.get_or_insert(now + OPEN_AFTER);
    }

    /// The node has received all records that the bucket had.
    pub fn received_all(&mut self, now: Duration) {
        if !self.is_open {
            self.opens_at = Some(now);
        }
        self.tick(now);
    }

    /// The node has all purges of the fleet: it may own keys.
    pub fn ready(&mut self, now: Duration) {
        if !std::mem::replace(&mut self.is_ready, true) {
            if !self.has_inherited && self.slow_start.begin(now) {
                self.weight_changed(now);
            }
            self.announce_at = now;
            self.tick(now);
        }
    }

    /// The settings of the node have changed. `is_draining` is true if it owns no key. A node that is about to leave
    /// owns no key in any case.
    pub fn set_own(&mut self, now: Duration, own: NodeProfile, is_draining: bool) {
        let is_draining = is_draining || self.is_leaving;
        if own.name != self.own.name {
            self.withdraw();
            self.echo = None;
            self.was_removed = true;
            self.set_rival(None);
            // Another node may have the name. It is heard first, and keeps it, because it has sent more heartbeats.
            let holder = self.others.remove(&own.name);
            let lasts = holder.map_or(self.lasts, |holder| holder.lasts.max(self.lasts));
            self.beat = 0;
            self.named_at = now + lasts / 2;
        }
        if (&own, is_draining) != (&self.own, self.is_draining) {
            self.own = own;
            self.is_draining = is_draining;
            self.version += 1;
        }
        self.announce_at = now;
        self.tick(now);
    }

    /// The node is about to leave: it owns no key from now on.
    pub fn drain(&mut self, now: Duration) {
        self.is_leaving = true;
        if !std::mem::replace(&mut self.is_draining, true) {
            self.version += 1;
        }
        self.announce_at = now;
        self.tick(now);
    }

    /// The node leaves.
    pub fn leave(&mut self) {
        self.withdraw();
        self.has_left = true;
    }

    /// A record was received.
    pub fn heard(&mut self, now: Duration, record: Announcement) -> Result<(), RecordError> {
        let is_own_url = record.profile.url == self.own.url;
        let result = match record.profile.name == self.own.name {
            true => self.heard_own_name(now, record),
            // This node had another name, and its record is deleted or expires. A node does not ask itself.
            false if record.instance == self.instance => Ok(()),
            false if is_own_url => Err(RecordError::Unusable(
                "it has the URL of this node".to_owned(),
            )),
            false => self.heard_other(now, record),
        };
        self.tick(now);
        result
    }

    /// A record was deleted.
    pub fn deleted(&mut self, now: Duration, key: &str) {
        if key == key_of(&self.own.name) {
            // The other node with this name has left, or an earlier process of this node, whose deletion came late.
            self.was_removed |= self.echo.is_some();
            self.name_is_free(now);
        } else {
            self.retain_others(|name, _| key_of(name) != key);
        }
        self.tick(now);
    }

    /// The list of the action under way is in use, or cannot be used. It is then tried again after a pause.
    pub fn applied(&mut self, now: Duration, is_applied: bool) {
        self.is_applying = false;
        if !is_applied {
            self.applied = None;
            self.apply_at = now + APPLY_AGAIN_AFTER;
        }
        self.tick(now);
    }

    /// The edge does not use the list of an earlier action, although it was reported as applied. The list is tried
    /// again after a pause.
    pub fn apply_again(&mut self, now: Duration) {
        self.applied = None;
        self.apply_at = now + APPLY_AGAIN_AFTER;
        self.tick(now);
    }

    /// Sends heartbeats, and removes members that have sent none.
    pub fn tick(&mut self, now: Duration) {
        self.told_at.get_or_insert(now);
        if self
            .rival
            .as_ref()
            .is_some_and(|rival| now >= rival.expires_at())
        {
            self.name_is_free(now);
        }
        if self.is_current(now) {
            self.expire(now);
        }
        if self.slow_start.tick(now) {
            self.weight_changed(now);
        }
        if !self.is_open && self.opens_at.is_some_and(|at| now >= at) {
            let was_used = self.uses_others();
            self.is_open = true;
            if !was_used && !self.others.is_empty() {
                self.others_changed();
            }
        }
        if self.is_open && self.may_announce() && now >= self.announce_at.max(self.named_at) {
            self.announce(now);
        }
        if !self.is_applying && self.applied != Some(self.version) && now >= self.apply_at {
            self.is_applying = true;
            self.apply_at = now + APPLY_PAUSE;
            self.applied = Some(self.version);
            self.actions.push_back(MembershipAction::Apply(self.list()));
        }
    }

    fn heard_own_name(&mut self, now: Duration, record: Announcement) -> Result<(), RecordError> {
        if record.instance == self.instance {
            if !self.is_announced {
                // The node has given the name up since, and may want it again.
                return Ok(());
            }
            if !self.is_current(now) {
                for heard in self.others.values_mut() {
                    heard.at = now;
                }
            }
            self.echo = Some((now, record.state));
            // Before its first record, a node is in no list.
            let missed_max = match std::mem::replace(&mut self.was_told, true) {
                true => self.lasts * FORMER,
                false => self.lasts,
            };
            let told_at = self.told_at.replace(now).unwrap_or(now);
            let told_before_start = std::mem::take(&mut self.told_before_start);
            let was_silent = now + told_before_start > told_at + missed_max;
            if std::mem::take(&mut self.was_removed) || was_silent {
                self.actions.push_back(MembershipAction::PurgeAll);
                if self.slow_start.begin(now) {
                    self.weight_changed(now);
                }
            }
            return Ok(());
        }
        // An earlier process at the same address, or the one that replaces this one.
        if record.profile.url == self.own.url {
            return Ok(());
        }
        let url = record.profile.url.clone();
        let is_older = (record.beat, record.instance) > (self.beat, self.instance);
        // The others have the other node in place of this one. A single record may be of an earlier process of this
        // node that was killed and had another URL: until it expires, it is like a longer start. The bucket delivers it
        // again when the node watches it again.
        let heartbeat = Some((record.instance, record.beat));
        let is_other = |rival: &HeardNode| rival.heartbeat != heartbeat;
        self.was_removed |= self.was_told || self.rival.as_ref().is_some_and(is_other);
        if !self.is_announced || is_older {
            self.is_announced = false;
            self.echo = None;
            self.set_rival(Some(HeardNode::new(now, record)));
        }
        Err(RecordError::Duplicate { url })
    }

    fn heard_other(&mut self, now: Duration, record: Announcement) -> Result<(), RecordError> {
        let is_known = self.others.contains_key(&record.profile.name);
        if !is_known && self.others.len() + 1 >= MEMBERS_MAX {
            let formers = self.others.iter().filter(|(_, heard)| heard.is_former);
            let oldest = formers.min_by_key(|(_, heard)| heard.at);
            let oldest = oldest.map(|(name, _)| name.clone());
            self.others.remove(&oldest.ok_or(RecordError::Full)?);
        }
        let heard = HeardNode::new(now, record);
        let is_unchanged = |known: &HeardNode| known.entry() == heard.member;
        if !self
            .others
            .get(&heard.member.profile.name)
            .is_some_and(is_unchanged)
        {
            self.others_changed();
        }
        let last_at = self.announce_at.saturating_sub(self.pace() / 4);
        self.others.insert(heard.member.profile.name.clone(), heard);
        // The record may be shorter than the others.
        self.announce_at = self.announce_at.min(last_at + self.pace() / 4);
        Ok(())
    }

    fn expire(&mut self, now: Duration) {
        self.retain_others(|_, heard| !heard.is_former || now < heard.ends_at());
        let mut has_changed = false;
        for heard in self.others.values_mut() {
            if !heard.is_former && now >= heard.expires_at() {
                has_changed |= heard.member.state != AnnouncedState::Draining;
                heard.is_former = true;
            }
        }
        if has_changed {
            self.others_changed();
        }
    }

    fn retain_others(&mut self, keeps: impl Fn(&str, &HeardNode) -> bool) {
        let before = self.others.len();
        self.others.retain(|name, heard| keeps(name, heard));
        if self.others.len() < before {
            self.others_changed();
        }
    }

    /// Announces another share of the weight.
    fn weight_changed(&mut self, now: Duration) {
        self.version += 1;
        self.announce_at = now;
    }

    /// Returns the profile with the present share of the weight.
    fn own_profile(&self) -> NodeProfile {
        NodeProfile {
            weight: self.slow_start.of(self.own.weight),
            ..self.own.clone()
        }
    }

    /// Counts a change of the list, unless the others are not in it.
    fn others_changed(&mut self) {
        if self.uses_others() {
            self.version += 1;
        }
    }

    fn uses_others(&self) -> bool {
        (self.is_open || self.has_inherited) && self.rival.is_none()
    }

    /// No other node has the name of this one any more.
    fn name_is_free(&mut self, now: Duration) {
        if self.rival.is_some() {
            self.serves_from(now);
        }
        self.set_rival(None);
        self.announce_at = now;
    }

    /// Nothing keeps the node out of the fleet from now on. The time in which a node that no other node has in its list
    /// may miss changes begins.
    fn serves_from(&mut self, now: Duration) {
        if !self.was_told && !self.has_inherited {
            self.told_at = Some(now);
        }
    }

    /// A node with a rival uses no other node.
    fn set_rival(&mut self, rival: Option<HeardNode>) {
        let was_used = self.uses_others();
        self.rival = rival;
        if was_used != self.uses_others() && !self.others.is_empty() {
            self.version += 1;
        }
    }

    fn announce(&mut self, now: Duration) {
        self.is_announced = true;
        self.beat += 1;
        self.announce_at = now + self.pace() / 4;
        let state = match (self.is_draining, self.is_ready) {
            (true, _) => AnnouncedState::Draining,
            (false, true) => AnnouncedState::Serving,
            (false, false) => AnnouncedState::Joining,
        };
        let record = Announcement {
            profile: self.own_profile(),
            state,
            instance: self.instance,
            beat: self.beat,
            lasts: self.lasts,
        };
        self.actions.push_back(MembershipAction::Announce(record));
    }

    fn withdraw(&mut self) {
        if std::mem::replace(&mut self.is_announced, false) {
            let key = key_of(&self.own.name);
            self.actions.push_back(MembershipAction::Withdraw(key));
        }
    }

    fn may_announce(&self) -> bool {
        self.rival.is_none() && !self.has_left && !self.is_starting
    }
}

impl HeardNode {
    fn new(at: Duration, record: Announcement) -> Self {
        Self {
            at,
            lasts: record.lasts,
            is_former: false,
            heartbeat: Some((record.instance, record.beat)),
            member: Member {
                profile: record.profile,
                state: record.state,
            },
        }
    }
}

/// The longest wait for the records of the bucket before the first heartbeat. An empty bucket delivers none.
const OPEN_AFTER: Duration = Duration::from_secs(1);

/// The time for which a member stays in the list after its record has expired, as a multiple of the time for which the
/// record lasts.
const FORMER: u32 = 10;

/// The shortest time between two lists. Each list is a reload of the edge, and 256 nodes that start one after the other
/// make 512 lists.
const APPLY_PAUSE: Duration = Duration::from_millis(500);

/// The pause after a list that could not be used.
const APPLY_AGAIN_AFTER: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
