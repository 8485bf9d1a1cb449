//! Purges between this node and others: the process that passes them on, its reports and its end.

use maitred_control::ToFront;
use maitred_control::purge_log::FromPurgeLog;
use maitred_os::clock::since_boot_millis;
use maitred_os::fork::HowEnded;

use super::Supervisor;
use crate::fronts::purge_log::PurgeLogContext;
use crate::limits::PURGE_LOG_MESSAGES_PER_TURN;

impl Supervisor {
    /// Whether the process is to run. The next program would not know it, and starts its own.
    pub(super) fn wants_purge_log(&self) -> bool {
        self.phase.wants_front() && !self.upgrader.holds_still()
    }

    /// Starts the process when it is due, and sends it what it is to know.
    pub(super) fn keep_purge_log(&mut self) {
        if self.plan.config.purge_log.is_none() {
            // That of a program before this one.
            return self.purge_log.close_listener();
        }
        let now = self.now();
        let are_fronts_gone = !self.phase.wants_front() && self.fronts.iter().next().is_none();
        if are_fronts_gone {
            // What their last requests have purged.
            self.pass_purge_log_orders(true);
            self.purge_log.leave();
        }
        let is_ending = self.phase.is_ending();
        let is_wanted = self.wants_purge_log();
        self.purge_log.keep(&PurgeLogContext {
            config: &self.plan.config,
            environment: &self.plan.environment,
            identity: self.plan.front_identity.as_ref(),
            // A server that ends still passes on what its last requests purge.
            is_wanted: is_wanted || (is_ending && self.purge_log.is_running()),
            now,
        });
        self.purges.set_log_runs(self.purge_log.is_running());
        self.pass_purge_log_orders(false);
    }

    fn pass_purge_log_orders(&mut self, is_last: bool) {
        if self.purge_log.is_running() {
            let mut orders = self.purges.take_for_log(is_last);
            orders.extend(self.jobs.take_claims());
            orders.extend(self.purge_log.take_announcement());
            self.purge_log.say(orders);
        }
    }

    /// Acts on the reports of the process.
    pub(super) fn hear_purge_log(&mut self) {
        let now = self.now();
        for _ in 0..PURGE_LOG_MESSAGES_PER_TURN {
            match self.purge_log.hear() {
                None => return,
                Some(FromPurgeLog::Apply { mark, order }) => {
                    if !self.purges.purge_of_node(mark, order, &mut self.fronts, now) {
                        return self.purge_log.kill();
                    }
                }
                Some(FromPurgeLog::Lease { until }) => {
                    self.fronts.tell_all(&ToFront::SetPurgeLease { until }, &[]);
                }
                Some(FromPurgeLog::State(state)) => {
                    self.fronts.tell_all(&ToFront::ShowPurgeLog { state }, &[]);
                }
                Some(FromPurgeLog::Published { number, reach }) => {
                    self.purges.reached(number, &reach);
                }
                Some(FromPurgeLog::Nodes { outcome }) => {
                    let line = self.fronts.line();
                    self.fronts.tell(line, ToFront::ShowNodes { outcome });
                }
                Some(FromPurgeLog::Claimed { number, outcome }) => {
                    self.run_is_decided(number, outcome);
                }
            }
        }
    }

    /// The process has ended.
    pub(super) fn purge_log_ended(&mut self, how: HowEnded) {
        let is_wanted = self.wants_purge_log();
        let now = self.now();
        self.purge_log.process_ended(how, is_wanted, now);
        self.purges.log_process_ended();
        if let Some(state) = self.purge_log.state().cloned() {
            self.fronts.tell_all(&ToFront::ShowPurgeLog { state }, &[]);
        }
        let nodes = self.purge_log.nodes(since_boot_millis());
        if let Some(problem) = nodes.and_then(|nodes| nodes.problem) {
            let line = self.fronts.line();
            self.fronts.tell(line, ToFront::ShowNodes { outcome: Err(problem) });
        }
    }
}
