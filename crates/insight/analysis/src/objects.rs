//! Statistics over all URLs, computed from one count per URL.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::{Popularity, Sizes};

/// The counts of one URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// The number of requests.
    pub requests: u64,
    /// The bytes sent in all responses.
    pub bytes: u64,
    /// The size in bytes: that of the largest complete response (200), or of the largest response if no
    /// response was complete.
    pub size: u64,
    /// True if a response was complete, so that a cache could have stored it.
    pub complete: bool,
}

impl Object {
    /// Counts another request.
    #[inline]
    pub fn request(&mut self, bytes: u64, complete: bool) {
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.learn_size(bytes, complete);
    }

    /// Adds other counts of the same URL.
    pub fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.learn_size(other.size, other.complete);
    }

    #[inline]
    fn learn_size(&mut self, size: u64, complete: bool) {
        if complete == self.complete {
            self.size = self.size.max(size);
        } else if complete {
            self.size = size;
            self.complete = true;
        }
    }
}

/// Statistics over all URLs. Each URL is added once, with all its requests.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    urls: u64,
    requests: u64,
    once: u64,
    repeated_bytes: u64,
    popularity: Popularity,
    storable: StorableObjects,
    sizes: Sizes,
    top: BinaryHeap<Reverse<TopObject>>,
    top_max: usize,
}

/// The URLs that a cache could have stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorableObjects {
    /// The number of URLs.
    pub objects: u64,
    /// The sum of the sizes of these URLs.
    pub bytes: u64,
    /// The number of one-hit wonders among these URLs.
    pub once: u64,
    /// The sum of the sizes of these one-hit wonders.
    pub once_bytes: u64,
}

/// One of the most requested URLs. Ordered by requests and then by fingerprint, so that ties have the same
/// order on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TopObject {
    /// The number of requests.
    pub requests: u64,
    /// The fingerprint of the URL.
    pub fingerprint: u64,
    /// The bytes sent in all responses.
    pub bytes: u64,
    /// The size of the object in bytes.
    pub size: u64,
}

impl Objects {
    /// Returns empty statistics, which will contain the `top_max` most requested URLs.
    pub fn new(top_max: usize) -> Self {
        Self {
            top_max,
            ..Self::default()
        }
    }

    /// Adds a URL.
    #[inline]
    pub fn add(&mut self, fingerprint: u64, object: &Object) {
        self.urls += 1;
        self.requests += object.requests;
        let once = object.requests == 1;
        self.once += u64::from(once);
        let repeated = object.bytes.saturating_sub(object.size);
        self.repeated_bytes = self.repeated_bytes.saturating_add(repeated);
        self.popularity.add(object.requests);
        if object.complete {
            let storable = &mut self.storable;
            storable.objects += 1;
            storable.bytes = storable.bytes.saturating_add(object.size);
            if once {
                storable.once += 1;
                storable.once_bytes = storable.once_bytes.saturating_add(object.size);
            }
            self.sizes.add(object.size);
        }
        self.rank(TopObject {
            requests: object.requests,
            fingerprint,
            bytes: object.bytes,
            size: object.size,
        });
    }

    /// Adds an object to `top`, if it has more requests than the last object of a full `top`.
    #[inline]
    fn rank(&mut self, object: TopObject) {
        if self.top.len() >= self.top_max {
            match self.top.peek() {
                Some(Reverse(least)) if *least < object => _ = self.top.pop(),
                _ => return,
            }
        }
        self.top.push(Reverse(object));
    }

    /// Adds the statistics of other URLs.
    pub fn merge(&mut self, other: &Self) {
        self.urls += other.urls;
        self.requests += other.requests;
        self.once += other.once;
        self.repeated_bytes = self.repeated_bytes.saturating_add(other.repeated_bytes);
        self.popularity.merge(&other.popularity);
        let (mine, theirs) = (&mut self.storable, &other.storable);
        mine.objects += theirs.objects;
        mine.bytes = mine.bytes.saturating_add(theirs.bytes);
        mine.once += theirs.once;
        mine.once_bytes = mine.once_bytes.saturating_add(theirs.once_bytes);
        self.sizes.merge(&other.sizes);
        for Reverse(object) in &other.top {
            self.rank(*object);
        }
    }

    /// The number of URLs.
    pub const fn urls(&self) -> u64 {
        self.urls
    }

    /// The number of requests.
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// The number of one-hit wonders.
    pub const fn once(&self) -> u64 {
        self.once
    }

    /// The bytes that were sent repeatedly: for each URL, the sent bytes minus its size. 0 if only requests were
    /// counted, without sizes.
    pub const fn repeated_bytes(&self) -> u64 {
        self.repeated_bytes
    }

    /// Returns the share of one-hit wonders among the URLs, or 0 without URLs.
    pub fn once_share(&self) -> f64 {
        share(self.once, self.urls)
    }

    /// The histogram of requests per URL.
    pub const fn popularity(&self) -> &Popularity {
        &self.popularity
    }

    /// The URLs that a cache could have stored. Empty if only requests were counted, without sizes.
    pub const fn storable(&self) -> &StorableObjects {
        &self.storable
    }

    /// The sizes of the URLs that a cache could have stored.
    pub const fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Returns the most requested URLs, sorted by their requests; the most requested URL is first.
    pub fn top(&self) -> Vec<TopObject> {
        let mut top: Vec<TopObject> = self.top.iter().map(|Reverse(object)| *object).collect();
        top.sort_unstable_by(|a, b| b.cmp(a));
        top
    }
}

impl StorableObjects {
    /// Returns the share of bytes that an unlimited cache with second-hit admission does not write: the bytes
    /// of one-hit wonders.
    pub fn writes_avoided(&self) -> f64 {
        share(self.once_bytes, self.bytes)
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(requests: u64, size: u64) -> Object {
        let mut object = Object::default();
        (0..requests).for_each(|_| object.request(size, true));
        object
    }

    #[test]
    fn the_size_is_that_of_the_largest_complete_response() {
        let mut object = Object::default();
        for (bytes, complete) in [(900, false), (500, true), (700, false), (600, true)] {
            object.request(bytes, complete);
        }
        assert_eq!((object.size, object.bytes, object.requests), (600, 2700, 4));
        let mut partial = Object::default();
        partial.request(10, false);
        assert_eq!((partial.size, partial.complete), (10, false));
        partial.merge(&object);
        assert_eq!((partial.size, partial.requests), (600, 5));
        object.merge(&Object {
            requests: 1,
            bytes: 10_000,
            size: 10_000,
            complete: false,
        });
        assert_eq!(object.size, 600);
    }

    #[test]
    fn merged_statistics_equal_those_of_all_urls() {
        let (mut one, mut two) = (Objects::new(3), Objects::new(3));
        let mut whole = Objects::new(3);
        for n in 1..=20u64 {
            let object = object(n % 7 + 1, n * 100);
            whole.add(n, &object);
            if n % 2 == 0 { &mut one } else { &mut two }.add(n, &object);
        }
        one.merge(&two);
        assert_eq!((one.urls(), one.requests(), one.once()), (20, 83, 2));
        assert_eq!(one.top(), whole.top());
        assert_eq!(
            one.top().iter().map(|t| t.requests).collect::<Vec<_>>(),
            [7, 7, 7]
        );
        assert_eq!(one.repeated_bytes(), whole.repeated_bytes());
        // A URL with n % 7 + 1 requests has n % 7 repeated ones.
        let repeated = (1..=20u64).map(|n| n % 7 * n * 100).sum::<u64>();
        assert_eq!(whole.repeated_bytes(), repeated);
        assert_eq!(one.storable(), whole.storable());
        assert_eq!(one.popularity(), whole.popularity());
        // The one-hit wonders have 700 and 1400 of 21,000 bytes.
        assert!((one.storable().writes_avoided() - 0.1).abs() < 1e-12);
    }
}
