//! An LRU cache of numbered objects. Its content can be copied to try an admission rule on the next requests.

/// The resident objects in the order of their last requests, as a circular doubly linked list in an array.
#[derive(Debug)]
pub(super) struct LruList {
    /// One link per object, by its number. One more link at the end joins the newest and the oldest object.
    links: Vec<Link>,
    capacity_bytes: u64,
    used_bytes: u64,
    residents: u64,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    /// The next more recently used resident object; [`ABSENT`] if this object is not resident.
    newer: u32,
    older: u32,
}

impl LruList {
    /// Makes an empty cache for objects with numbers below `objects`.
    pub(super) fn new(objects: usize, capacity_bytes: u64) -> Self {
        let absent = Link {
            newer: ABSENT,
            older: ABSENT,
        };
        let mut links = vec![absent; objects + 1];
        let ends = objects as u32;
        links[objects] = Link {
            newer: ends,
            older: ends,
        };
        Self {
            links,
            capacity_bytes,
            used_bytes: 0,
            residents: 0,
        }
    }

    /// Copies the content of another cache for the same objects.
    pub(super) fn copy_from(&mut self, other: &Self) {
        self.links.copy_from_slice(&other.links);
        self.used_bytes = other.used_bytes;
        self.residents = other.residents;
    }

    /// Returns true if the object is resident, and makes it the most recently used object.
    pub(super) fn hit(&mut self, object: u32) -> bool {
        let is_resident = self.links[object as usize].newer != ABSENT;
        if is_resident {
            self.unlink(object);
            self.link(object);
        }
        is_resident
    }

    /// Stores an object that is not resident, unless its charge exceeds the capacity. Evicts the least recently used
    /// objects for it, and calls `evicted` for each.
    pub(super) fn store(&mut self, object: u32, charges: &[u64], mut evicted: impl FnMut(u32)) {
        let charge_bytes = charges[object as usize];
        if charge_bytes > self.capacity_bytes {
            return;
        }
        while self.capacity_bytes - self.used_bytes < charge_bytes {
            let ends = self.links.len() - 1;
            let oldest = self.links[ends].newer;
            self.unlink(oldest);
            self.links[oldest as usize].newer = ABSENT;
            self.used_bytes -= charges[oldest as usize];
            self.residents -= 1;
            evicted(oldest);
        }
        self.link(object);
        self.used_bytes += charge_bytes;
        self.residents += 1;
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(super) fn residents(&self) -> u64 {
        self.residents
    }

    pub(super) fn bookkeeping_bytes(&self) -> usize {
        self.links.len() * size_of::<Link>()
    }

    /// Takes an object out of the list.
    fn unlink(&mut self, object: u32) {
        let Link { newer, older } = self.links[object as usize];
        self.links[newer as usize].older = older;
        self.links[older as usize].newer = newer;
    }

    /// Adds an object that is not in the list as the newest.
    fn link(&mut self, object: u32) {
        let ends = self.links.len() as u32 - 1;
        let newest = self.links[ends as usize].older;
        self.links[newest as usize].newer = object;
        self.links[object as usize] = Link {
            newer: ends,
            older: newest,
        };
        self.links[ends as usize].older = object;
    }
}

/// [`Link::newer`] of an object that is not resident. All numbers of objects are smaller.
const ABSENT: u32 = u32::MAX;
