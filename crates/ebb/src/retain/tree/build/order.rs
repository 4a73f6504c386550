//! The order of tables: strongly connected components, found by Tarjan's walk.

use std::collections::BTreeMap;

pub(super) struct Walk<'a> {
    pub(super) below: &'a BTreeMap<usize, Vec<usize>>,
    /// When a node was met, and the earliest node that it leads back to.
    pub(super) index: BTreeMap<usize, (usize, usize)>,
    pub(super) stack: Vec<usize>,
    pub(super) components: Vec<Vec<usize>>,
}

impl Walk<'_> {
    pub(super) fn visit(&mut self, node: usize) {
        let met = self.index.len();
        self.index.insert(node, (met, met));
        self.stack.push(node);
        let mut lowest = met;
        for child in self.below.get(&node).into_iter().flatten() {
            if !self.index.contains_key(child) {
                self.visit(*child);
                lowest = lowest.min(self.index[child].1);
            } else if self.stack.contains(child) {
                lowest = lowest.min(self.index[child].0);
            }
        }
        self.index.insert(node, (met, lowest));
        if lowest == met
            && let Some(at) = self.stack.iter().position(|on| *on == node)
        {
            let mut component = self.stack.split_off(at);
            component.sort_unstable();
            self.components.push(component);
        }
    }
}
