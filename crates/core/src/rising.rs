//! A map for what comes and goes in order.
//!
//! Arrivals and calls have rising numbers, and mostly the oldest one is the next to be done. A row of entries serves that best:
//! what is new goes to the end, and what is looked for is at one of the ends. Where it is not, it is found by halving.

use alloc::collections::{VecDeque, vec_deque};
use core::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
};

/// A map that is fast where keys are inserted in rising order and removed in about the same order.
///
/// It compares, hashes and prints as a `BTreeMap` with the same entries does.
///
/// ```
/// let mut map = lastword_core::Rising::default();
/// map.insert(1, "one");
/// map.insert(2, "two");
/// assert_eq!(map.remove(&1), Some("one"));
/// assert_eq!(map.iter().collect::<Vec<_>>(), [(&2, &"two")]);
/// ```
#[derive(Clone)]
pub struct Rising<K, V> {
    /// In the order of the keys. What was removed between others leaves an empty place, so that nothing needs to move;
    /// neither end is empty, and at most half of all places are.
    places: VecDeque<(K, Option<V>)>,
    len: usize,
}

impl<K, V> Default for Rising<K, V> {
    fn default() -> Self {
        Self { places: VecDeque::new(), len: 0 }
    }
}

impl<K: Ord, V> Rising<K, V> {
    /// Inserts a value, and gives the one that had its key.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if self.places.back().is_none_or(|(last, _)| *last < key) {
            self.places.push_back((key, Some(value)));
            self.len += 1;
            return None;
        }
        match self.places.binary_search_by(|(other, _)| other.cmp(&key)) {
            Ok(at) => {
                let old = self.places[at].1.replace(value);
                self.len += usize::from(old.is_none());
                old
            }
            Err(at) => {
                self.places.insert(at, (key, Some(value)));
                self.len += 1;
                None
            }
        }
    }

    /// Takes a value out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.find(key)?;
        let value = self.places[at].1.take()?;
        self.len -= 1;
        while self.places.front().is_some_and(|(_, value)| value.is_none()) {
            self.places.pop_front();
        }
        while self.places.back().is_some_and(|(_, value)| value.is_none()) {
            self.places.pop_back();
        }
        if self.places.len() > 2 * self.len {
            self.places.retain(|(_, value)| value.is_some());
        }
        Some(value)
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        self.places[self.find(key)?].1.as_ref()
    }

    /// The value of a key.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let at = self.find(key)?;
        self.places[at].1.as_mut()
    }

    /// Whether there is such a key.
    #[must_use]
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Where a key has its place, which may be empty.
    fn find(&self, key: &K) -> Option<usize> {
        match key.cmp(&self.places.front()?.0) {
            Ordering::Less => None,
            Ordering::Equal => Some(0),
            Ordering::Greater if self.places.back()?.0 == *key => Some(self.places.len() - 1),
            Ordering::Greater => self.places.binary_search_by(|(other, _)| other.cmp(key)).ok(),
        }
    }
}

impl<K, V> Rising<K, V> {
    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All entries, in the order of their keys.
    #[must_use]
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter(self.places.iter())
    }

    /// All entries, in the order of their keys.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.places.iter_mut().filter_map(|(key, value)| Some((&*key, value.as_mut()?)))
    }
}

/// The entries of a [`Rising`] map.
pub struct Iter<'a, K, V>(vec_deque::Iter<'a, (K, Option<V>)>);

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.find_map(|(key, value)| Some((key, value.as_ref()?)))
    }
}

impl<'a, K, V> IntoIterator for &'a Rising<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Iter<'a, K, V> {
        self.iter()
    }
}

impl<K, V> IntoIterator for Rising<K, V> {
    type Item = (K, V);
    type IntoIter = core::iter::FilterMap<vec_deque::IntoIter<(K, Option<V>)>, fn((K, Option<V>)) -> Option<(K, V)>>;

    fn into_iter(self) -> Self::IntoIter {
        self.places.into_iter().filter_map(|(key, value)| Some((key, value?)))
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for Rising<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other)
    }
}

impl<K: Eq, V: Eq> Eq for Rising<K, V> {}

impl<K: PartialOrd, V: PartialOrd> PartialOrd for Rising<K, V> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.iter().partial_cmp(other)
    }
}

impl<K: Ord, V: Ord> Ord for Rising<K, V> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.iter().cmp(other)
    }
}

impl<K: Hash, V: Hash> Hash for Rising<K, V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len.hash(state);
        for entry in self {
            entry.hash(state);
        }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Rising<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{collections::BTreeMap, format, vec::Vec};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_the_same_as_a_map_whatever_the_order(steps in prop::collection::vec((any::<bool>(), 0u8..12), 0..60)) {
            let (mut rising, mut map) = (Rising::default(), BTreeMap::new());
            for (at, (inserts, key)) in steps.into_iter().enumerate() {
                if inserts {
                    prop_assert_eq!(rising.insert(key, at), map.insert(key, at));
                } else {
                    prop_assert_eq!(rising.remove(&key), map.remove(&key));
                }
                prop_assert_eq!(rising.len(), map.len());
                prop_assert!(rising.places.len() <= 2 * map.len());
                prop_assert!((0..12).all(|key| rising.get(&key) == map.get(&key)));
                prop_assert!(rising.iter().eq(map.iter()));
                prop_assert_eq!(format!("{rising:?}"), format!("{map:?}"));
                // Made anew it has no empty places, and still it is equal.
                let mut anew = Rising::default();
                for (key, value) in &map {
                    anew.insert(*key, *value);
                }
                prop_assert!(anew == rising && anew.cmp(&rising) == Ordering::Equal);
                prop_assert_eq!(rising.clone().into_iter().collect::<Vec<_>>(), map.clone().into_iter().collect::<Vec<_>>());
            }
        }
    }
}
