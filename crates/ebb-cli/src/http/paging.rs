//! Lists come in pages: `limit` and `after` in the question, `next` in the answer.

use serde::Deserialize;
use utoipa::IntoParams;

use super::problem::Problem;

/// A page has no more.
const MOST: i64 = 1_000;
const USUAL: i64 = 100;

/// Which page of a list whose entries are numbered.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Page {
    /// At most so many; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// `next` of the page before.
    #[param(minimum = 1)]
    after: Option<i64>,
}

impl Page {
    pub(crate) fn limit(&self) -> Result<i64, Problem> {
        limit(self.limit)
    }

    pub(crate) fn after(&self) -> Result<Option<i64>, Problem> {
        match self.after {
            Some(after) if after < 1 => Err(Problem::field("after", "has to be the `next` of another page")),
            after => Ok(after),
        }
    }
}

/// How many entries a page has.
pub(crate) fn limit(given: Option<i64>) -> Result<i64, Problem> {
    match given.unwrap_or(USUAL) {
        limit @ 1..=MOST => Ok(limit),
        _ => Err(Problem::field("limit", format!("has to be 1 to {MOST}"))),
    }
}

/// What leads to the next page: the last entry's number, when the page is full.
pub(crate) fn next<T>(entries: &[T], limit: i64, number: impl Fn(&T) -> i64) -> Option<i64> {
    if (entries.len() as i64) < limit { None } else { entries.last().map(number) }
}
