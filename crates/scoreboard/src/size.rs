//! What is shown of how a pool's number of workers is found.

/// How many words the figures take.
pub const SIZE_WORDS: usize = 11;

/// A number that there is not: one more is kept, and 0 is none.
fn optional(word: u64) -> Option<u64> {
    word.checked_sub(1)
}

fn word(value: Option<u64>) -> u64 {
    value.map_or(0, |value| value.saturating_add(1))
}

/// The number of workers of a pool that finds it (`pm = auto`), and what it was made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// As many there are to be; never 0.
    pub workers: u64,
    /// Which of the numbers below decides, in their order.
    pub binding: u64,
    /// As many are needed.
    pub demand: u64,
    /// As many keep the processors busy.
    pub cpu: u64,
    /// There is memory for as many; nothing: it is no limit.
    pub memory: Option<u64>,
    /// As many do something; nothing: no such limit was found.
    pub downstream: Option<u64>,
    /// As many may be (`max_children`).
    pub user: u64,
    /// Processors, in thousandths.
    pub cores: u64,
    /// What a request works, in microseconds; nothing: that is not known yet.
    pub cpu_micros: Option<u64>,
    /// What it waits for other things than a processor, in microseconds.
    pub blocked_micros: u64,
    /// Workers whose script has run for much longer than one takes.
    pub hanging: u64,
}

impl Size {
    /// Its limits, by the names they have everywhere, in the order of [`Size::binding`].
    pub fn terms(&self) -> [(&'static str, Option<u64>); 5] {
        [
            ("demand", Some(self.demand)),
            ("cpu", Some(self.cpu)),
            ("memory", self.memory),
            ("downstream", self.downstream),
            ("max_children", Some(self.user)),
        ]
    }

    /// The name of the one that decides.
    pub fn binding_name(&self) -> &'static str {
        let place = usize::try_from(self.binding).unwrap_or(usize::MAX);
        self.terms().get(place).map_or("demand", |(name, _)| *name)
    }

    pub(crate) fn words(self) -> [u64; SIZE_WORDS] {
        [
            self.workers,
            self.binding,
            self.demand,
            self.cpu,
            word(self.memory),
            word(self.downstream),
            self.user,
            self.cores,
            word(self.cpu_micros),
            self.blocked_micros,
            self.hanging,
        ]
    }

    /// Nothing, where a pool does not find its size.
    pub(crate) fn from_words(words: [u64; SIZE_WORDS]) -> Option<Size> {
        let [
            workers,
            binding,
            demand,
            cpu,
            memory,
            downstream,
            user,
            cores,
            cpu_micros,
            blocked_micros,
            hanging,
        ] = words;
        (workers > 0).then_some(Size {
            workers,
            binding,
            demand,
            cpu,
            memory: optional(memory),
            downstream: optional(downstream),
            user,
            cores,
            cpu_micros: optional(cpu_micros),
            blocked_micros,
            hanging,
        })
    }
}
