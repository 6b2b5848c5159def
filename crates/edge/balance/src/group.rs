//! The servers of one origin, and the choice between them.

use std::num::NonZeroU32;

use edgeward_types::{Timestamp, mix64};

use super::health::{Health, HealthSettings, HealthState, Verdict};
use super::method::Method;
use super::server::{Query, Server, ServerId};

/// The settings of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupSettings {
    /// The method of balancing.
    pub method: Method,
    /// The limits of the health of servers.
    pub health: HealthSettings,
    /// The choice if no server is usable.
    pub all_down: AllDown,
}

/// The choice if no server is usable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllDown {
    /// The server whose last failure is the oldest. Default: health may be wrong, and a request that may succeed is
    /// better than an error.
    #[default]
    Try,
    /// No server, so that clients get an error at once.
    Refuse,
}

/// A server that is to be in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The id.
    pub id: ServerId,
    /// A hash of the server's name, which selects its cache keys for [`Method::Hash`].
    pub key: u64,
    /// True if the server gets requests only if no other server is usable.
    pub is_backup: bool,
    /// The share of requests, in relation to the weights of the other servers. At most [`WEIGHT_MAX`].
    pub weight: NonZeroU32,
}

/// The largest weight. The sum of the weights of 4,096 servers times a number of 32 bits then fits into 64 bits.
pub const WEIGHT_MAX: u32 = 1 << 20;

/// A server that was chosen for a request. The request counts as under way until [`Group::finish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the request counts as under way until it is finished"]
pub struct Selection {
    /// The server.
    pub server: ServerId,
    /// True if the server was not usable when it was chosen. A success then shows that it has recovered.
    pub is_trial: bool,
}

/// The state of a server for status pages and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerView {
    /// The server.
    pub id: ServerId,
    /// True for a backup server.
    pub is_backup: bool,
    /// The state of its health.
    pub state: HealthState,
    /// Requests under way.
    pub under_way: u32,
    /// Ejections since the server was last up for long.
    pub ejections: u32,
}

/// The servers of one origin.
#[derive(Clone, Debug)]
pub struct Group {
    settings: GroupSettings,
    servers: Vec<Server>,
    /// The largest turn that was served, so that a server that was absent does not make up for missed turns.
    virtual_time: u64,
}

/// The distance between two turns of a server with weight 1. A server with the largest weight still advances.
const STRIDE: u64 = 1 << 32;
const _: () = assert!(STRIDE / WEIGHT_MAX as u64 >= 4096);

impl Group {
    /// Returns a group without servers.
    pub const fn new(settings: GroupSettings) -> Self {
        Self {
            settings,
            servers: Vec::new(),
            virtual_time: 0,
        }
    }

    /// Changes the servers. A server that stays keeps its state. A server that joins a group in use has a slow start.
    pub fn set_members(&mut self, members: &[Member], now: Timestamp) {
        let is_in_use = !self.servers.is_empty();
        let mut old = std::mem::take(&mut self.servers);
        for member in members {
            let weight = u64::from(member.weight.get().min(WEIGHT_MAX));
            let known = old.iter().position(|server| server.id == member.id);
            let health = || match is_in_use {
                true => Health::joining(now),
                false => Health::default(),
            };
            self.servers.push(match known {
                Some(at) => Server {
                    is_backup: member.is_backup,
                    weight,
                    ..old.swap_remove(at)
                },
                None => Server {
                    id: member.id,
                    key: mix64(member.key),
                    is_backup: member.is_backup,
                    weight,
                    health: health(),
                    under_way: 0,
                    turn: 0,
                },
            });
        }
    }

    /// Gives a server the health of a server of another group, whose times have the same start.
    pub fn adopt(&mut self, id: ServerId, from: &Self, other: ServerId, now: Timestamp) {
        let settings = self.settings.health;
        let other = from.servers.iter().find(|server| server.id == other);
        if let (Some(other), Some(server)) = (other, self.server(id)) {
            server.health = other.health.adopted(&settings, now);
        }
    }

    /// Returns the server for a request, or `None` if no server is left.
    ///
    /// The order of preference: a server that is to be probed; a usable server; a usable backup; a server in its slow
    /// start beyond its share; and if no server is usable, as [`AllDown`] says.
    pub fn choose(&mut self, query: &Query<'_>) -> Option<Selection> {
        if let [only] = &self.servers[..]
            && self.settings.all_down == AllDown::Try
        {
            // All rules below lead to the only server. Most origins have one.
            let is_tried = query.tried.contains(&only.id);
            return (!is_tried).then(|| self.select(0, query.now));
        }
        let primaries = self.usable(query, false);
        if query.may_probe
            && let Some(index) = self.half_open(query, primaries.is_empty())
        {
            return Some(self.select(index, query.now));
        }
        let is_up = |&index: &usize| self.state(index, query.now) == HealthState::Up;
        let is_any_up = primaries.iter().any(is_up);
        let chosen = match self.pick(&primaries, query) {
            Ok(index) => Some(index),
            // The bound of the load excludes the servers that are up.
            Err(spared) if is_any_up => spared,
            Err(spared) => match self.pick(&self.usable(query, true), query) {
                Ok(index) => Some(index),
                Err(spared_backup) => spared.or(spared_backup),
            },
        };
        if let Some(index) = chosen {
            return Some(self.select(index, query.now));
        }
        let index = match self.settings.all_down {
            AllDown::Refuse => return None,
            AllDown::Try => self.least_recently_failed(query)?,
        };
        Some(self.select(index, query.now))
    }

    /// Records the result of a request. Returns true if its server is ejected now.
    pub fn record(&mut self, selection: Selection, verdict: Verdict, now: Timestamp) -> bool {
        let settings = self.settings.health;
        self.server(selection.server).is_some_and(|server| {
            let health = &mut server.health;
            health.record(&settings, verdict, selection.is_trial, now)
        })
    }

    /// Records that a request has ended. Without a recorded result, its result is unknown.
    pub fn finish(&mut self, selection: Selection, now: Timestamp) {
        if let Some(server) = self.server(selection.server) {
            server.under_way -= 1;
            if selection.is_trial {
                server.health.end_probe(now);
            }
        }
    }

    /// Records the result of an active check. Returns true if the checks now have another result than before.
    pub fn record_check(&mut self, server: ServerId, is_ok: bool, now: Timestamp) -> bool {
        let settings = self.settings.health;
        let server = self.server(server);
        server.is_some_and(|server| server.health.record_check(&settings, is_ok, now))
    }

    /// Returns the state of each server.
    pub fn views(&self, now: Timestamp) -> impl Iterator<Item = ServerView> {
        let settings = &self.settings.health;
        self.servers.iter().map(move |server| ServerView {
            id: server.id,
            is_backup: server.is_backup,
            state: server.health.state(settings, now),
            under_way: server.under_way,
            ejections: server.health.ejections(),
        })
    }

    fn server(&mut self, id: ServerId) -> Option<&mut Server> {
        self.servers.iter_mut().find(|server| server.id == id)
    }

    fn state(&self, index: usize, now: Timestamp) -> HealthState {
        let settings = &self.settings.health;
        self.servers[index].health.state(settings, now)
    }

    fn untried(&self, query: &Query<'_>) -> impl Iterator<Item = usize> {
        let is_untried = |index: &usize| !query.tried.contains(&self.servers[*index].id);
        (0..self.servers.len()).filter(is_untried)
    }

    /// Returns the indexes of the usable servers, either of the backups or of the others.
    fn usable(&self, query: &Query<'_>, are_backups: bool) -> Vec<usize> {
        self.untried(query)
            .filter(|&index| self.servers[index].is_backup == are_backups)
            .filter(|&index| self.state(index, query.now).is_usable())
            .collect()
    }

    /// Returns a server that is to be probed. Backups are probed only if they are needed.
    fn half_open(&self, query: &Query<'_>, needs_backups: bool) -> Option<usize> {
        self.untried(query)
            .filter(|&index| needs_backups || !self.servers[index].is_backup)
            .find(|&index| self.state(index, query.now) == HealthState::HalfOpen)
    }

    /// Picks one of the candidates. Returns the first choice as an error if all that were picked are in the slow start
    /// and have had their share.
    fn pick(&mut self, candidates: &[usize], query: &Query<'_>) -> Result<usize, Option<usize>> {
        let mut left = candidates.to_vec();
        let mut first_choice = None;
        let mut query = *query;
        let (method, health) = (self.settings.method, self.settings.health);
        while let Some(index) =
            method.pick(&self.servers, candidates, &left, self.virtual_time, &query)
        {
            let server = &mut self.servers[index];
            self.virtual_time = self.virtual_time.max(server.turn);
            server.turn = self.virtual_time + STRIDE / server.weight;
            if server.health.takes_request(&health, query.now) {
                return Ok(index);
            }
            first_choice.get_or_insert(index);
            left.retain(|other| *other != index);
            query.random = mix64(query.random);
        }
        Err(first_choice)
    }

    fn least_recently_failed(&self, query: &Query<'_>) -> Option<usize> {
        self.untried(query)
            .min_by_key(|&index| self.servers[index].health.last_failure())
    }

    fn select(&mut self, index: usize, now: Timestamp) -> Selection {
        let state = self.state(index, now);
        let server = &mut self.servers[index];
        server.under_way += 1;
        if state == HealthState::HalfOpen {
            server.health.begin_probe();
        }
        Selection {
            server: server.id,
            is_trial: !state.is_usable(),
        }
    }
}
