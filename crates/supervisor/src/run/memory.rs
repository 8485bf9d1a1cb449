//! The private memory of processes: the process that counts it, and who uses the counts.

use maitred_os::fork::HowEnded;

use super::Supervisor;
use crate::capacity::memory_reader::ReaderContext;
use crate::capacity::memory_reads::MemoryReading;
use crate::limits::MEMORY_READER_MESSAGES_PER_TURN;

impl Supervisor {
    /// Has the memory of all pools' processes measured, for a status or for metrics.
    pub(super) fn measure_memory(&mut self) {
        let now = self.now();
        self.admin.measure(&mut self.pools, &self.scoreboards, &mut self.memory_reader, now);
    }

    /// Orders what is to be counted. The last step of a turn: what a turn asks for is one order.
    pub(super) fn keep_memory_reader(&mut self) {
        let readings = self.memory_reader.keep(ReaderContext {
            environment: &self.plan.environment,
            restricted: self.plan.config.front_sandbox,
            may_start: self.phase.wants_workers(),
            now: self.now(),
        });
        self.take_readings(&readings);
    }

    /// Acts on the reports of the process that counts.
    pub(super) fn hear_memory_reader(&mut self) {
        for _ in 0..MEMORY_READER_MESSAGES_PER_TURN {
            let Some(readings) = self.memory_reader.hear(self.now()) else {
                return;
            };
            self.take_readings(&readings);
        }
    }

    /// The process that counts has ended.
    pub(super) fn memory_reader_ended(&mut self, how: HowEnded) {
        let is_wanted = self.phase.wants_workers();
        let readings = self.memory_reader.process_ended(how, is_wanted, self.now());
        self.take_readings(&readings);
    }

    /// Ends the process that counts: the next program starts its own.
    pub(super) fn end_memory_reader(&mut self) {
        let readings = self.memory_reader.leave();
        self.take_readings(&readings);
    }

    fn take_readings(&mut self, readings: &[MemoryReading]) {
        if readings.is_empty() {
            return;
        }
        let now = self.now();
        self.admin.take_readings(readings, &self.pools, &self.scoreboards, now);
        self.capacity.read(readings);
    }
}
