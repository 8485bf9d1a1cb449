//! What is shown of a pool whose workers are copies of a booted application.

use crate::histogram::Histogram;

/// How many words the figures take, without the histogram.
pub const COPIES_WORDS: usize = 4 + NOT_REWOUND.len();

/// Why a copy ended that was to go back to what it was, in the order of their numbers.
pub const NOT_REWOUND: [&str; 7] = [
    "forked",
    "threads",
    "process",
    "memory",
    "persistent_call",
    "fatal_error",
    "other",
];

/// The copies of a booted application. Counters are since the server was started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copies {
    /// The generation that serves; never 0.
    pub generation: u64,
    /// How long it took to fork each copy.
    pub forks: Histogram,
    /// Times that a copy has gone back to what it was.
    pub rewound: u64,
    /// Copies that were to go back and ended instead, in the order of [`NOT_REWOUND`].
    pub not_rewound: [u64; NOT_REWOUND.len()],
    /// Pages of memory that copies had for themselves at their end, of those that were measured.
    pub pages: u64,
    /// How many those were.
    pub measured: u64,
}

/// What copies count of themselves, or how much more of it there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyCounters {
    /// As [`Copies::rewound`].
    pub rewound: u64,
    /// As [`Copies::not_rewound`].
    pub not_rewound: [u64; NOT_REWOUND.len()],
    /// As [`Copies::pages`].
    pub pages: u64,
    /// As [`Copies::measured`].
    pub measured: u64,
}

impl CopyCounters {
    /// In the order in which they lie on the page, behind the generation.
    pub(crate) fn words(self) -> [u64; COPIES_WORDS - 1] {
        let mut words = [0; COPIES_WORDS - 1];
        words[..3].copy_from_slice(&[self.rewound, self.pages, self.measured]);
        words[3..].copy_from_slice(&self.not_rewound);
        words
    }
}

impl Copies {
    /// Nothing, where workers are no copies.
    pub(crate) fn read(words: [u64; COPIES_WORDS], forks: Histogram) -> Option<Copies> {
        let [generation, rewound, pages, measured, not_rewound @ ..] = words;
        (generation > 0).then_some(Copies {
            generation,
            forks,
            rewound,
            not_rewound,
            pages,
            measured,
        })
    }

    /// Pages that a copy has for itself at its end, on average; nothing if none was measured.
    pub fn pages_each(&self) -> Option<f64> {
        (self.measured > 0).then(|| self.pages as f64 / self.measured as f64)
    }
}
