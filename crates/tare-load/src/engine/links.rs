//! Doubly linked lists through the entries of a table, by index. Entries can be inserted at the end
//! or behind another, and removed from anywhere, without allocation.

/// The neighbours of an entry in a list.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    before: u32,
    after: u32,
}

/// One list; its entries are in a [`Linked`] table.
#[derive(Clone, Copy, Debug)]
pub struct List {
    first: u32,
    last: u32,
    len: u32,
}

const NONE: u32 = u32::MAX;

impl Link {
    pub const NONE: Self = Self { before: NONE, after: NONE };
}

impl List {
    pub const EMPTY: Self = Self { first: NONE, last: NONE, len: 0 };

    pub fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub fn len(&self) -> u32 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A table whose entries can be in one list each.
pub trait Linked {
    fn link(&mut self, entry: u32) -> &mut Link;

    fn push(&mut self, list: &mut List, entry: u32) {
        self.insert_behind(list, list.last, entry);
    }

    /// Inserts an entry right behind `before`, which must be in the list.
    fn insert_behind(&mut self, list: &mut List, before: u32, entry: u32) {
        let after = match before {
            NONE => std::mem::replace(&mut list.first, entry),
            before => std::mem::replace(&mut self.link(before).after, entry),
        };
        match after {
            NONE => list.last = entry,
            after => self.link(after).before = entry,
        }
        *self.link(entry) = Link { before, after };
        list.len += 1;
    }

    /// Removes an entry, which must be in the list.
    fn remove(&mut self, list: &mut List, entry: u32) {
        let Link { before, after } = *self.link(entry);
        match before {
            NONE => list.first = after,
            before => self.link(before).after = after,
        }
        match after {
            NONE => list.last = before,
            after => self.link(after).before = before,
        }
        list.len -= 1;
    }
}

impl Linked for [Link] {
    fn link(&mut self, entry: u32) -> &mut Link {
        &mut self[entry as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(links: &[Link], list: &List) -> Vec<u32> {
        let after = |entry: &u32| Some(links[*entry as usize].after).filter(|next| *next != NONE);
        std::iter::successors(list.first(), after).collect()
    }

    #[test]
    fn entries_keep_their_order_whoever_leaves() {
        let links = &mut [Link::NONE; 5][..];
        let (mut one, mut other) = (List::EMPTY, List::EMPTY);
        for entry in 0..4 {
            links.push(&mut one, entry);
        }
        links.insert_behind(&mut one, 1, 4);
        assert_eq!((entries(links, &one), one.len()), (vec![0, 1, 4, 2, 3], 5));
        for entry in [0, 4, 3] {
            links.remove(&mut one, entry);
            links.push(&mut other, entry);
        }
        assert_eq!(entries(links, &one), [1, 2]);
        assert_eq!(entries(links, &other), [0, 4, 3]);
        links.remove(&mut one, 2);
        links.remove(&mut one, 1);
        assert!(one.is_empty() && one.first().is_none());
    }
}
