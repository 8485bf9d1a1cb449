//! What PHP itself counts of its scripts' memory, as far as the server tells it.

use maitred_doctor::read::Counted;

use crate::measurement::{Load, Task};

/// What the server tells now; or why it does not.
pub type Counts = Result<Vec<Counted>, String>;

/// Who is asked what PHP counts.
pub struct PhpMemoryProbe<'a> {
    ask: &'a mut dyn FnMut() -> Counts,
    /// What is told is of the whole pool since its start, and of no single worker's last request.
    is_of_pool: bool,
    /// Why nothing was told.
    pub why_not: Option<String>,
}

impl<'a> PhpMemoryProbe<'a> {
    /// By this.
    pub fn new(is_of_pool: bool, ask: &'a mut dyn FnMut() -> Counts) -> PhpMemoryProbe<'a> {
        PhpMemoryProbe {
            ask,
            is_of_pool,
            why_not: None,
        }
    }

    /// Before a measurement, if what one script had can be told from it.
    pub fn before(&mut self, task: &Task) -> Option<Vec<Counted>> {
        let is_alone = task.load == Load::Users(1) && !(self.is_of_pool && task.route.is_some());
        is_alone.then(|| self.now()).flatten()
    }

    /// The most that a script of the measurement had, in bytes.
    pub fn since(&mut self, before: Option<Vec<Counted>>) -> Option<f64> {
        let before = before?;
        most(&before, &self.now()?)
    }

    fn now(&mut self) -> Option<Vec<Counted>> {
        match (self.ask)() {
            Ok(counts) => Some(counts),
            Err(why) => {
                self.why_not = Some(why);
                None
            }
        }
    }
}

/// The most of those who have served something meanwhile.
fn most(before: &[Counted], after: &[Counted]) -> Option<f64> {
    let has_served = |counted: &&Counted| {
        let known = before.iter().find(|known| known.pid == counted.pid);
        known.is_none_or(|known| known.requests != counted.requests)
    };
    let memory = after
        .iter()
        .filter(has_served)
        .map(|counted| counted.memory);
    memory
        .max()
        .filter(|most| *most > 0)
        .map(|most| most as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(pid: i32, requests: u64, memory: u64) -> Counted {
        Counted {
            pid,
            requests,
            memory,
        }
    }

    #[test]
    fn only_workers_that_have_served_the_route_count() {
        let before = [counted(1, 50, 90), counted(2, 7, 40)];
        let after = [counted(1, 50, 90), counted(2, 9, 20), counted(3, 1, 30)];
        assert_eq!(most(&before, &after), Some(30.0));
        assert_eq!(most(&before, &before), None, "nobody was asked");
        assert_eq!(most(&[], &[counted(1, 1, 0)]), None, "it runs now");
    }
}
