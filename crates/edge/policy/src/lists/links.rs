//! Doubly linked lists of resident objects or ghosts, from the newest to the oldest.

/// The number of a resident object in its tier, or of a ghost in its table.
pub(crate) type Index = u32;

/// `N` lists. An object is in at most one of them. All operations take O(1); an object takes 24 bytes.
#[derive(Debug)]
pub(crate) struct Lists<const N: usize> {
    nodes: Vec<Node>,
    lists: [List; N],
}

#[derive(Clone, Copy, Debug)]
struct Node {
    newer: Index,
    older: Index,
    size_bytes: u64,
    /// The number of the object's list, or [`NO_LIST`].
    list: u16,
}

#[derive(Clone, Copy, Debug)]
struct List {
    newest: Index,
    oldest: Index,
    objects: usize,
    bytes: u64,
}

impl<const N: usize> Lists<N> {
    pub(crate) fn new() -> Self {
        const { assert!(N < NO_LIST as usize) };
        let empty = List {
            newest: NO_INDEX,
            oldest: NO_INDEX,
            objects: 0,
            bytes: 0,
        };
        Self {
            nodes: Vec::new(),
            lists: [empty; N],
        }
    }

    /// Adds an object that is in no list as the newest of `list`.
    pub(crate) fn push(&mut self, list: usize, index: Index, size_bytes: u64) {
        let at = index as usize;
        if at >= self.nodes.len() {
            self.nodes.resize(at + 1, Node::default());
        }
        debug_assert_eq!(self.nodes[at].list, NO_LIST, "in a list already");
        let ends = &mut self.lists[list];
        let older = std::mem::replace(&mut ends.newest, index);
        ends.objects += 1;
        ends.bytes += size_bytes;
        match older {
            NO_INDEX => ends.oldest = index,
            _ => self.nodes[older as usize].newer = index,
        }
        self.nodes[at] = Node {
            newer: NO_INDEX,
            older,
            size_bytes,
            list: list as u16,
        };
    }

    /// Removes an object from its list. Returns the number of the list, or `None` if the object is in no list.
    pub(crate) fn remove(&mut self, index: Index) -> Option<usize> {
        let list = self.list_of(index)?;
        let Node {
            newer,
            older,
            size_bytes,
            ..
        } = std::mem::take(&mut self.nodes[index as usize]);
        let ends = &mut self.lists[list];
        ends.objects -= 1;
        ends.bytes -= size_bytes;
        match newer {
            NO_INDEX => ends.newest = older,
            _ => self.nodes[newer as usize].older = older,
        }
        match older {
            NO_INDEX => self.lists[list].oldest = newer,
            _ => self.nodes[older as usize].newer = newer,
        }
        Some(list)
    }

    /// Makes an object the newest of `list`. The object must be in a list.
    pub(crate) fn move_to(&mut self, list: usize, index: Index) {
        let newest = self.lists[list].newest;
        if newest == index {
            return;
        }
        let node = self.nodes[index as usize];
        if usize::from(node.list) != list {
            self.remove(index);
            self.push(list, index, node.size_bytes);
            return;
        }
        // The object stays in its list and is not the newest, so it has a newer neighbour.
        self.nodes[node.newer as usize].older = node.older;
        match node.older {
            NO_INDEX => self.lists[list].oldest = node.newer,
            older => self.nodes[older as usize].newer = node.newer,
        }
        self.nodes[newest as usize].newer = index;
        self.lists[list].newest = index;
        let node = &mut self.nodes[index as usize];
        (node.newer, node.older) = (NO_INDEX, newest);
    }

    /// The oldest object of a list, or `None` if the list is empty.
    pub(crate) fn oldest(&self, list: usize) -> Option<Index> {
        some(self.lists[list].oldest)
    }

    /// The next newer object in the same list, or `None` for the newest object.
    pub(crate) fn newer(&self, index: Index) -> Option<Index> {
        some(self.nodes[index as usize].newer)
    }

    /// The list of an object, or `None` if it is in no list.
    pub(crate) fn list_of(&self, index: Index) -> Option<usize> {
        let list = self.nodes.get(index as usize)?.list;
        (list != NO_LIST).then_some(usize::from(list))
    }

    /// The size with which an object was added to its list.
    pub(crate) fn size_bytes(&self, index: Index) -> u64 {
        self.nodes[index as usize].size_bytes
    }

    /// The sum of the sizes of the objects of a list.
    pub(crate) fn bytes(&self, list: usize) -> u64 {
        self.lists[list].bytes
    }

    /// The number of objects of a list.
    pub(crate) fn objects(&self, list: usize) -> usize {
        self.lists[list].objects
    }

    pub(crate) fn bookkeeping_bytes(&self) -> usize {
        self.nodes.len() * size_of::<Node>()
    }
}

impl Default for Node {
    fn default() -> Self {
        Self {
            newer: NO_INDEX,
            older: NO_INDEX,
            size_bytes: 0,
            list: NO_LIST,
        }
    }
}

fn some(index: Index) -> Option<Index> {
    (index != NO_INDEX).then_some(index)
}

const NO_INDEX: Index = Index::MAX;
const NO_LIST: u16 = u16::MAX;

const _: () = assert!(size_of::<Node>() == 24);

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The lists have the same objects and order as two deques, whose front is the oldest object.
        #[test]
        fn the_lists_equal_deques(
            steps in prop::collection::vec((0usize..3, 0u32..20, 0usize..2), 0..300),
        ) {
            let mut lists = Lists::<2>::new();
            let mut deques = [VecDeque::new(), VecDeque::new()];
            for (step, index, list) in steps {
                let size_bytes = u64::from(index) + 1;
                let old = deques.iter().position(|deque| deque.contains(&index));
                if let Some(old) = old {
                    deques[old].retain(|&other| other != index);
                }
                match (step, old) {
                    (0, _) => prop_assert_eq!(lists.remove(index), old),
                    (_, None) => lists.push(list, index, size_bytes),
                    (_, Some(_)) => lists.move_to(list, index),
                }
                if step > 0 {
                    deques[list].push_back(index);
                }
                for (list, deque) in deques.iter().enumerate() {
                    let first = lists.oldest(list);
                    let forward: VecDeque<u32> = std::iter::successors(first, |&at| lists.newer(at)).collect();
                    prop_assert_eq!(&forward, deque);
                    prop_assert_eq!(lists.objects(list), deque.len());
                    let bytes: u64 = deque.iter().map(|&index| u64::from(index) + 1).sum();
                    prop_assert_eq!(lists.bytes(list), bytes);
                }
            }
        }
    }
}
