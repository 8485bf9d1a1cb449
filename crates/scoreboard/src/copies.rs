//! The copies of a booted application (`mode = "snapshot"`).

use crate::histogram::Histogram;

/// Words of the copies, without the histogram: the generation, and the counters.
pub const COPIES_WORDS: usize = 1 + CopyCounters::WORDS;

/// Why a copy exited instead of being rewound, in the order of the reasons' numbers.
pub const NOT_REWOUND: [&str; 7] =
    ["forked", "threads", "process", "memory", "persistent_call", "fatal_error", "other"];

/// The copies of a booted application. Counters start with the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copies {
    /// The generation that serves; never 0.
    pub generation: u64,
    /// Time to fork each copy.
    pub forks: Histogram,
    /// What the copies count.
    pub counters: CopyCounters,
}

/// What copies count themselves, or its increase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyCounters {
    /// Times that a copy was rewound to its booted state.
    pub rewound: u64,
    /// Copies that exited instead of being rewound, in the order of [`NOT_REWOUND`].
    pub not_rewound: [u64; NOT_REWOUND.len()],
    /// Private memory pages of copies at their exit, of those that were measured.
    pub pages: u64,
    /// How many copies were measured.
    pub measured: u64,
}

impl CopyCounters {
    const WORDS: usize = 3 + NOT_REWOUND.len();

    /// In the order of their words, which follow that of the generation.
    pub(crate) fn words(self) -> [u64; CopyCounters::WORDS] {
        let mut words = [0; CopyCounters::WORDS];
        words[..3].copy_from_slice(&[self.rewound, self.pages, self.measured]);
        words[3..].copy_from_slice(&self.not_rewound);
        words
    }
}

impl Copies {
    /// `None` if workers are no copies.
    pub(crate) fn read(words: [u64; COPIES_WORDS], forks: Histogram) -> Option<Copies> {
        let [generation, rewound, pages, measured, not_rewound @ ..] = words;
        let counters = CopyCounters { rewound, not_rewound, pages, measured };
        (generation > 0).then_some(Copies { generation, forks, counters })
    }

    /// Average private pages of a copy at its exit; `None` if none was measured.
    pub fn pages_each(&self) -> Option<f64> {
        let CopyCounters { pages, measured, .. } = self.counters;
        (measured > 0).then(|| pages as f64 / measured as f64)
    }
}
