//! The memory that PHP counts for its scripts, as far as the server reports it.

use maitred_doctor::read::Counted;

use crate::measurement::{Load, Task};

/// The server's current report, or why there is none.
pub type Counts = Result<Vec<Counted>, String>;

/// Queries PHP's memory counts.
pub struct PhpMemoryProbe<'a> {
    query: &'a mut dyn FnMut() -> Counts,
    /// The report covers the whole pool since its start, not a worker's last request.
    is_of_pool: bool,
    /// Why there was no report.
    pub why_not: Option<String>,
}

impl<'a> PhpMemoryProbe<'a> {
    /// Queries with this function.
    pub fn new(is_of_pool: bool, query: &'a mut dyn FnMut() -> Counts) -> PhpMemoryProbe<'a> {
        PhpMemoryProbe { query, is_of_pool, why_not: None }
    }

    /// Queries before a measurement, if the difference shows the memory of one script.
    pub fn before(&mut self, task: &Task) -> Option<Vec<Counted>> {
        let is_alone = task.load == Load::Users(1) && !(self.is_of_pool && task.route.is_some());
        is_alone.then(|| self.now()).flatten()
    }

    /// The most memory of a script of the measurement, in bytes.
    pub fn since(&mut self, before: Option<Vec<Counted>>) -> Option<f64> {
        let before = before?;
        most(&before, &self.now()?)
    }

    fn now(&mut self) -> Option<Vec<Counted>> {
        match (self.query)() {
            Ok(counts) => Some(counts),
            Err(why) => {
                self.why_not = Some(why);
                None
            }
        }
    }
}

/// The most memory among workers that have served a request meanwhile.
fn most(before: &[Counted], after: &[Counted]) -> Option<f64> {
    let has_served = |counted: &&Counted| {
        let known = before.iter().find(|known| known.pid == counted.pid);
        known.is_none_or(|known| known.requests != counted.requests)
    };
    let memory = after.iter().filter(has_served).map(|counted| counted.memory);
    memory.max().filter(|most| *most > 0).map(|most| most as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(pid: i32, requests: u64, memory: u64) -> Counted {
        Counted { pid, requests, memory }
    }

    #[test]
    fn only_workers_that_have_served_the_route_count() {
        let before = [counted(1, 50, 90), counted(2, 7, 40)];
        let after = [counted(1, 50, 90), counted(2, 9, 20), counted(3, 1, 30)];
        assert_eq!(most(&before, &after), Some(30.0));
        assert_eq!(most(&before, &before), None, "no request was served");
        assert_eq!(most(&[], &[counted(1, 1, 0)]), None, "it runs now");
    }
}
