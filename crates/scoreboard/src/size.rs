//! How `pm = auto` chose a pool's number of workers.

use crate::word_record::record;

record! {
    /// The number of workers that `pm = auto` chose, and its terms.
    pub struct Size {
        /// Workers the pool is to have; never 0.
        pub workers: u64,
        /// Index in [`Size::terms`] of the term that decides.
        pub binding: u64,
        /// Workers the load needs.
        pub demand: u64,
        /// Workers that saturate the CPUs.
        pub cpu: u64,
        /// Workers that memory allows; `None`: memory is no limit.
        pub memory: Option<u64>,
        /// Workers beyond which throughput stops growing; `None`: no such limit was found.
        pub downstream: Option<u64>,
        /// `max_children`.
        pub user: u64,
        /// CPUs, in thousandths.
        pub cores: u64,
        /// CPU time of a request, in microseconds; `None`: not known yet.
        pub cpu_micros: Option<u64>,
        /// Time a request is blocked on anything but a CPU, in microseconds.
        pub blocked_micros: u64,
        /// Workers whose script has run far longer than usual.
        pub hanging: u64,
    }
}

impl Size {
    /// Its terms by name.
    pub fn terms(&self) -> [(&'static str, Option<u64>); 5] {
        [
            ("demand", Some(self.demand)),
            ("cpu", Some(self.cpu)),
            ("memory", self.memory),
            ("downstream", self.downstream),
            ("max_children", Some(self.user)),
        ]
    }

    /// The name of the term that decides.
    pub fn binding_name(&self) -> &'static str {
        let index = usize::try_from(self.binding).unwrap_or(usize::MAX);
        self.terms().get(index).map_or("demand", |(name, _)| *name)
    }
}
