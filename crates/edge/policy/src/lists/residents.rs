//! The set of resident objects from which an order without lists draws random objects.

use super::links::Index;
use crate::rng::Rng;

/// A set of resident objects. All operations take O(1); an object takes 8 bytes.
#[derive(Debug, Default)]
pub(crate) struct Residents {
    indexes: Vec<Index>,
    /// The position of each object in `indexes`, by its index. Valid while the object is resident.
    positions: Vec<u32>,
}

impl Residents {
    pub(crate) fn insert(&mut self, index: Index) {
        let at = index as usize;
        if at >= self.positions.len() {
            self.positions.resize(at + 1, 0);
        }
        self.positions[at] = self.indexes.len() as u32;
        self.indexes.push(index);
    }

    /// Removes an object, which must be in the set.
    pub(crate) fn remove(&mut self, index: Index) {
        let position = self.positions[index as usize];
        self.indexes.swap_remove(position as usize);
        if let Some(&moved) = self.indexes.get(position as usize) {
            self.positions[moved as usize] = position;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.indexes.len()
    }

    /// Returns `draws` random objects, with repetitions. If the set has at most `draws` objects, returns each of them
    /// once.
    pub(crate) fn sample(&self, draws: usize, rng: &mut Rng) -> impl Iterator<Item = Index> {
        let objects = self.indexes.len();
        (0..draws.min(objects)).map(move |n| {
            let position = match objects <= draws {
                true => n,
                false => ((u128::from(rng.bits()) * objects as u128) >> 64) as usize,
            };
            self.indexes[position]
        })
    }

    pub(crate) fn bookkeeping_bytes(&self) -> usize {
        self.positions.len() * (size_of::<Index>() + size_of::<u32>())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use edgeward_types::Seed;
    use proptest::prelude::*;

    use super::*;
    use crate::rng::Rng;

    proptest! {
        /// A sample of a small set has all its objects; each draw from a large set is one of its objects.
        #[test]
        fn a_sample_consists_of_residents(
            steps in prop::collection::vec(0u32..40, 0..200),
        ) {
            let mut residents = Residents::default();
            let mut expected = BTreeSet::new();
            let mut rng = Rng::new(Seed(1), 0);
            for index in steps {
                match expected.remove(&index) {
                    true => residents.remove(index),
                    false => {
                        expected.insert(index);
                        residents.insert(index);
                    }
                }
                prop_assert_eq!(residents.len(), expected.len());
                let all: BTreeSet<Index> = residents.sample(40, &mut rng).collect();
                prop_assert_eq!(&all, &expected);
                let few: Vec<Index> = residents.sample(5, &mut rng).collect();
                prop_assert_eq!(few.len(), expected.len().min(5));
                prop_assert!(few.iter().all(|index| expected.contains(index)));
            }
        }
    }

    #[test]
    fn each_object_is_drawn_equally_often() {
        let mut residents = Residents::default();
        (0..10).for_each(|index| residents.insert(index));
        let mut rng = Rng::new(Seed(1), 0);
        let mut draws = [0u32; 10];
        for _ in 0..20_000 {
            residents
                .sample(5, &mut rng)
                .for_each(|index| draws[index as usize] += 1);
        }
        // 10 000 per object are expected, with a standard deviation of 95. The limit is five standard deviations.
        assert!(draws.iter().all(|&n| n.abs_diff(10_000) < 475), "{draws:?}");
    }
}
