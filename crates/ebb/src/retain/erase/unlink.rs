//! Ending the links of rows that stay, in however many parts. A row that does not say by its values that it was changed is
//! known by who wrote it last. Invariant: every edge changes a row once. Where several lead to a table, each statement
//! takes rows for which the same was done before and writes them apart from all others, so that who wrote them says for
//! which edges they are done.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::PgConnection;

use super::{Erase, Ready, kept};
use crate::Result;
use crate::retain::compile::Set;
use crate::retain::store::Writers;
use crate::retain::store::rows::{self, Doomed, Taken};
use crate::retain::tree::Tree;

/// Links that were ended, and by whom.
#[derive(Default)]
pub(super) struct Unlinked {
    pub(super) taken: Taken,
    pub(super) writers: Writers,
    /// Who did some of it so far; none where all is done at once.
    so_far: Option<Writers>,
}

impl Unlinked {
    /// Of subjects of whom some may go in parts.
    pub(super) fn of(ready: &[Ready]) -> Self {
        match ready.iter().any(|ready| ready.look.is_claimed()) {
            true => Self::after(ready.iter().map(|ready| &ready.look.writers)),
            false => Self::default(),
        }
    }

    /// Of what some have begun.
    pub(super) fn after<'a>(writers: impl Iterator<Item = &'a Writers>) -> Self {
        let mut so_far = Writers::default();
        writers.for_each(|writers| so_far.join(writers));
        Self { so_far: Some(so_far), ..Self::default() }
    }

    fn note(&mut self, found: BTreeSet<i64>, done: &Done) {
        for writers in [Some(&mut self.writers), self.so_far.as_mut()].into_iter().flatten() {
            match done {
                Done::Everything => writers.whole.extend(&found),
                Done::For(edges) if edges.is_empty() => {}
                Done::For(edges) => writers.partly.extend(found.iter().map(|writer| (*writer, edges.clone()))),
            }
        }
    }
}

/// What was done to a row that does not say so by its values.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Done {
    Everything,
    For(BTreeSet<String>),
}

/// Rows behind an edge that are changed by one statement.
struct Turn {
    /// What is true of those that are to be changed yet, whoever wrote them.
    unset: String,
    /// Only those that these wrote last; otherwise only those that they did not.
    theirs: bool,
    writers: BTreeSet<i64>,
    /// What will have been done to them.
    done: Done,
}

impl Turn {
    fn condition(&self) -> String {
        let by = if self.theirs { rows::written_by } else { rows::not_written_by };
        match !self.theirs && self.writers.is_empty() {
            true => self.unset.clone(),
            false => format!("{} AND {}", self.unset, by(&self.writers)),
        }
    }
}

impl Erase {
    /// Ends links behind an edge, all of them or so many, but for rows that go along; where a trigger may keep a row as it is,
    /// none may be. Returns how many there were.
    pub(super) async fn unlink(
        &self,
        connection: &mut PgConnection,
        (tree, at): (&Tree, usize),
        parents: (&Doomed, Option<&Doomed>),
        limit: Option<u64>,
        unlinked: &mut Unlinked,
    ) -> Result<i64> {
        let (edge, set) = (&tree.edges[at], &self.compiled.sets[&at]);
        let Some(so_far) = &unlinked.so_far else {
            let hindered = tree.nodes[edge.child].updates_hindered;
            let wanted = match hindered {
                true => rows::count_staying(connection, tree, edge, parents).await?,
                false => 0,
            };
            let how = (limit, set.unset.is_none());
            let changed = rows::unlink(connection, tree, (edge, set), parents, how, &mut unlinked.taken).await?;
            // What a trigger makes of other values is its concern, as long as the link ends.
            let left = match hindered && set.ends_link() {
                true => {
                    let unset = set.unset.clone().unwrap_or_else(|| rows::not_written_by(&changed.writers));
                    rows::count_staying(connection, tree, &edge.narrowed(&unset), parents).await?
                }
                false => 0,
            };
            unlinked.note(changed.writers, &Done::Everything);
            return match changed.rows < wanted || left > 0 {
                true => Err(kept(&tree.nodes[edge.child])),
                false => Ok(changed.rows),
            };
        };
        let mut all = 0;
        for turn in self.turns(tree, at, so_far) {
            let left = limit.map(|limit| limit.saturating_sub(all as u64));
            if left != Some(0) {
                all += self.take_turn(connection, (tree, at), parents, (turn, left), unlinked).await?;
            }
        }
        Ok(all)
    }

    async fn take_turn(
        &self,
        connection: &mut PgConnection,
        (tree, at): (&Tree, usize),
        parents: (&Doomed, Option<&Doomed>),
        (mut turn, limit): (Turn, Option<u64>),
        unlinked: &mut Unlinked,
    ) -> Result<i64> {
        let (whole, set) = (&tree.edges[at], &self.compiled.sets[&at]);
        let edge = whole.narrowed(&turn.condition());
        let hindered = tree.nodes[edge.child].updates_hindered;
        let before = match hindered {
            true => rows::count_staying(connection, tree, &edge, parents).await?,
            false => 0,
        };
        let told = set.unset.is_none() || self.is_mixed(tree, at);
        if told {
            rows::apart(connection).await?;
        }
        let changed = rows::unlink(connection, tree, (&edge, set), parents, (limit, told), &mut unlinked.taken).await?;
        if told {
            rows::end_apart(connection).await?;
        }
        if hindered {
            let wanted = limit.map_or(before, |limit| before.min(limit as i64));
            // Those that were changed are looked at again where their values tell.
            if turn.theirs == set.unset.is_some() {
                turn.writers.extend(&changed.writers);
            }
            let rest = whole.narrowed(&turn.condition());
            let left = rows::count_staying(connection, tree, &rest, parents).await?;
            if changed.rows < wanted || left > before - wanted {
                return Err(kept(&tree.nodes[edge.child]));
            }
        }
        unlinked.note(changed.writers, &turn.done);
        Ok(changed.rows)
    }

    /// Which statements change all rows behind an edge that are to be changed yet.
    fn turns(&self, tree: &Tree, at: usize, so_far: &Writers) -> Vec<Turn> {
        let Set { unset, .. } = &self.compiled.sets[&at];
        let name = tree.name_of(&tree.edges[at]);
        let turn = |theirs: bool, writers: BTreeSet<i64>, done: Done| {
            let unset = unset.clone().unwrap_or_else(|| "true".to_owned());
            Turn { unset, theirs, writers, done }
        };
        if !self.is_mixed(tree, at) {
            let mine = so_far.partly.iter().filter(|(_, edges)| edges.contains(&name)).map(|(writer, _)| *writer);
            let writers = match unset {
                Some(_) => BTreeSet::new(),
                None => so_far.whole.iter().copied().chain(mine).collect(),
            };
            return vec![turn(false, writers, Done::Everything)];
        }
        let mut before: BTreeMap<Done, BTreeSet<i64>> = BTreeMap::new();
        before.insert(Done::Everything, so_far.whole.clone());
        for (writer, edges) in &so_far.partly {
            before.entry(Done::For(edges.clone())).or_default().insert(*writer);
        }
        before.retain(|_, writers| !writers.is_empty());
        let known = before.values().flatten().copied().collect();
        let mine = || unset.is_none().then(|| name.clone());
        let mut turns = vec![turn(false, known, Done::For(mine().into_iter().collect()))];
        for (done, writers) in before {
            match done {
                Done::Everything if unset.is_none() => {}
                Done::For(edges) if unset.is_none() && edges.contains(&name) => {}
                Done::Everything => turns.push(turn(true, writers, Done::Everything)),
                Done::For(edges) => {
                    turns.push(turn(true, writers, Done::For(edges.into_iter().chain(mine()).collect())));
                }
            }
        }
        turns
    }

    /// Whether others change rows of the same table, and not all of them can be told by their values.
    fn is_mixed(&self, tree: &Tree, at: usize) -> bool {
        let sets: Vec<&Set> =
            tree.into(tree.edges[at].child).filter_map(|(at, _)| self.compiled.sets.get(&at)).collect();
        sets.len() > 1 && sets.iter().any(|set| set.unset.is_none())
    }
}
