//! The counters of a pool's application, in memory of their own that the pool's processes write
//! (`php/shim/metrics.c`) and the front reads. Any of them may write anything there: what is read
//! is checked, and only what could be a series is returned.
//!
//! ```text
//!   0          mark of this layout
//!   1          number of series
//!   2 to 4     what was refused, by reason
//!   8          an index of 2048 words: a hash and whether the place is free, being named, named
//!   4096       for each word of the index a slot of 64 words: the kind, name and labels of a
//!              series (240 bytes), their length, and from word 32 on its values
//! ```

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use maitred_os::shared::{SharedMap, create_sealed, forbid_holes};
use rustix::fs::SealFlags;

/// The first word: this layout.
const MAGIC: u64 = u64::from_le_bytes(*b"aitredm1");

/// Most series of a pool.
pub const MAX_SERIES: usize = 1000;

/// Longest kind, name and labels of a series together, in bytes.
const MAX_KEY_BYTES: usize = 240;

/// Most labels of a series.
const MAX_LABELS: usize = 8;

/// Buckets of a histogram; the last one has no bound.
pub const APPLICATION_BUCKETS: usize = 17;

/// The upper bounds of the buckets of a histogram.
pub const APPLICATION_BOUNDS: [f64; APPLICATION_BUCKETS - 1] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0,
];

/// Reasons why something is not counted.
pub const APPLICATION_REFUSALS: [&str; 3] = ["invalid", "too_long", "full"];

const REFUSED_AT: usize = 2;
const INDEX_AT: usize = 8;
const PLACES: usize = 2048;
const SLOTS_AT: usize = 4096;
const SLOT_WORDS: usize = 64;
const LENGTH_AT: usize = 30;
const VALUES_AT: usize = 32;
const WORDS: usize = SLOTS_AT + PLACES * SLOT_WORDS;

/// The lowest bits of a word of the index, and their value for a place with a name.
const STATE: u64 = 3;
const NAMED: u64 = 2;

/// A value of an application.
#[derive(Debug, Clone, PartialEq)]
pub enum ApplicationValue {
    /// A sum that only grows.
    Counter(f64),
    /// A value that was set.
    Gauge(f64),
    /// The number of values in each bucket, and their sum.
    Histogram {
        /// Not cumulative.
        buckets: [u64; APPLICATION_BUCKETS],
        /// The sum.
        sum: f64,
    },
}

/// A series of an application.
#[derive(Debug, Clone, PartialEq)]
pub struct ApplicationSeries {
    /// Its name: letters, digits and `_`, at least one.
    pub name: String,
    /// Its labels, sorted by name. The names are as that of the series, values any text.
    pub labels: Vec<(String, String)>,
    /// Its value.
    pub value: ApplicationValue,
}

/// What an application has counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ApplicationReading {
    /// At most [`MAX_SERIES`], in the order of their places. Two may have the same name and labels
    /// where processes have written something else than they should.
    pub series: Vec<ApplicationSeries>,
    /// What was refused, by [`APPLICATION_REFUSALS`].
    pub refused: [u64; APPLICATION_REFUSALS.len()],
}

/// Creates the memory of a pool's application, without any series. It takes memory as series are
/// added: 1 MiB at most.
///
/// # Errors
/// When the system is out of descriptors or memory.
pub fn create_application_memory(pool: &str) -> io::Result<OwnedFd> {
    let name = format!("maitred-application-{pool}");
    let file = create_sealed(&name, WORDS * size_of::<u64>())?;
    rustix::io::pwrite(&file, &MAGIC.to_ne_bytes(), 0)?;
    // Commands and schedules get it if that succeeds: the front would wait for their holes.
    let _ = forbid_holes(&file);
    Ok(file)
}

/// Whether this file is such memory, in the layout of this version. Only a file in memory can be
/// sealed, and what is sealed keeps its length.
pub fn is_application_memory(file: BorrowedFd<'_>) -> bool {
    let mut mark = [0; 8];
    let length = SealFlags::SHRINK | SealFlags::GROW;
    let is_sealed = rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(length));
    let is_long = rustix::fs::fstat(file).is_ok_and(|stat| {
        usize::try_from(stat.st_size).is_ok_and(|bytes| bytes == WORDS * size_of::<u64>())
    });
    let is_read = rustix::io::pread(file, &mut mark, 0) == Ok(mark.len());
    is_sealed && is_long && is_read && u64::from_ne_bytes(mark) == MAGIC
}

/// The memory of a pool's application, mapped for reading.
#[derive(Debug)]
pub struct ApplicationMemory {
    map: SharedMap,
}

impl ApplicationMemory {
    /// Maps a file.
    ///
    /// # Errors
    /// When it is not sealed, or has another length.
    pub fn open(file: impl AsFd) -> io::Result<ApplicationMemory> {
        let map = SharedMap::map(file)?;
        match map.words().len() == WORDS {
            true => Ok(ApplicationMemory { map }),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it has another length")),
        }
    }

    /// What is there now.
    pub fn read(&self) -> ApplicationReading {
        read_application(self.map.words())
    }
}

/// What is in these words; nothing, if they are too few.
pub fn read_application(words: &[AtomicU64]) -> ApplicationReading {
    let word = |at: usize| words.get(at).map_or(0, |word| word.load(Relaxed));
    let refused = std::array::from_fn(|reason| word(REFUSED_AT + reason));
    let index = words.get(INDEX_AT..INDEX_AT + PLACES).unwrap_or_default();
    // Only slots that are used are read, since reading takes memory, too.
    let named = index.iter().enumerate().filter(|(_, word)| word.load(Acquire) & STATE == NAMED);
    let series = named.filter_map(|(place, _)| {
        let start = SLOTS_AT + place * SLOT_WORDS;
        series(words.get(start..start + SLOT_WORDS)?)
    });
    ApplicationReading { series: series.take(MAX_SERIES).collect(), refused }
}

/// The series of a slot, if what is there can be one.
fn series(slot: &[AtomicU64]) -> Option<ApplicationSeries> {
    // A copy: what is checked must not change afterwards.
    let slot: Vec<u64> = slot.iter().map(|word| word.load(Relaxed)).collect();
    let length = usize::try_from(*slot.get(LENGTH_AT)?).ok()?;
    let bytes: Vec<u8> =
        slot.get(..LENGTH_AT)?.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let key = bytes.get(..length).filter(|_| length <= MAX_KEY_BYTES)?;
    let (kind, rest) = key.split_first()?;
    let (name, mut rest) = text(rest)?;
    let name = valid_name(name)?;
    let mut labels: Vec<(String, String)> = Vec::new();
    while !rest.is_empty() {
        let (label, more) = text(rest)?;
        let (value, more) = text(more)?;
        let label = valid_name(label)?;
        let is_reserved = label.starts_with("__") || label == "pool" || label == "le";
        let is_sorted = labels.last().is_none_or(|(last, _)| *last < label);
        if is_reserved || !is_sorted || labels.len() >= MAX_LABELS {
            return None;
        }
        labels.push((label, String::from_utf8_lossy(value).into_owned()));
        rest = more;
    }
    let value = value(*kind, slot.get(VALUES_AT..)?)?;
    Some(ApplicationSeries { name, labels, value })
}

/// A text behind its length, and what follows it.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked((*length).into())
}

fn valid_name(bytes: &[u8]) -> Option<String> {
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    let is_valid = bytes.first().is_some_and(is_letter)
        && bytes.iter().all(|byte| is_letter(byte) || byte.is_ascii_digit());
    is_valid.then(|| String::from_utf8_lossy(bytes).into_owned())
}

fn value(kind: u8, words: &[u64]) -> Option<ApplicationValue> {
    let number = |at: usize| words.get(at).copied().map(f64::from_bits);
    match kind {
        b'c' => {
            let whole = *words.first()?;
            let sum = whole as f64 + number(1)?;
            (sum.is_finite() && sum >= 0.0).then_some(ApplicationValue::Counter(sum))
        }
        b'g' => Some(ApplicationValue::Gauge(number(0)?)),
        b'h' => {
            let buckets = words.get(..APPLICATION_BUCKETS)?.try_into().ok()?;
            let sum = number(APPLICATION_BUCKETS)?;
            sum.is_finite().then_some(ApplicationValue::Histogram { buckets, sum })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a series into a place.
    fn put(words: &[AtomicU64], place: usize, key: &[u8], values: &[u64]) {
        let slot = &words[SLOTS_AT + place * SLOT_WORDS..][..SLOT_WORDS];
        for (word, bytes) in slot.iter().zip(key.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(padded), Relaxed);
        }
        slot[LENGTH_AT].store(key.len() as u64, Relaxed);
        for (word, value) in slot[VALUES_AT..].iter().zip(values) {
            word.store(*value, Relaxed);
        }
        words[INDEX_AT + place].store(0x1230 | NAMED, Relaxed);
    }

    fn memory() -> ApplicationMemory {
        let file = create_application_memory("www").unwrap();
        assert!(is_application_memory(file.as_fd()));
        ApplicationMemory::open(file).unwrap()
    }

    #[test]
    fn series_of_each_kind_are_read_as_they_were_written() {
        let memory = memory();
        assert_eq!(memory.read(), ApplicationReading::default());
        let words = memory.map.words();
        put(words, 7, b"c\x06orders\x04kind\x03b2b", &[5, 0.5f64.to_bits()]);
        put(words, 2047, b"g\x04left\x01a\x00\x01b\x02\xffx", &[(-2.5f64).to_bits()]);
        let mut values = [0; APPLICATION_BUCKETS + 1];
        (values[3], values[16], values[17]) = (2, 1, 1000.25f64.to_bits());
        put(words, 8, b"h\x07seconds", &values);
        words[REFUSED_AT + 2].store(3, Relaxed);
        let reading = memory.read();
        assert_eq!(reading.refused, [0, 0, 3]);
        let [orders, seconds, left] = &reading.series[..] else { panic!("{reading:?}") };
        assert_eq!(orders.name, "orders");
        assert_eq!(orders.labels, [("kind".to_owned(), "b2b".to_owned())]);
        assert_eq!(orders.value, ApplicationValue::Counter(5.5));
        assert_eq!(left.labels[1].1, "\u{fffd}x");
        assert_eq!(left.value, ApplicationValue::Gauge(-2.5));
        let ApplicationValue::Histogram { buckets, sum } = seconds.value else { panic!() };
        assert_eq!((buckets[3], buckets[16], sum), (2, 1, 1000.25));
    }

    #[test]
    fn what_cannot_be_a_series_is_left_out() {
        let wrong: [&[u8]; 13] = [
            b"",
            b"c",
            b"c\x00",
            b"c\x09orders",
            b"x\x06orders",
            b"c\x06ord rs",
            b"c\x026x",
            b"c\x01a\x04pool\x01x",
            b"c\x01a\x02le\x01x",
            b"c\x01a\x03__a\x01x",
            b"c\x01a\x01b\x01x\x01a\x01x",
            b"c\x01a\x01b\x01x\x01b\x01x",
            b"c\x01a\x01b\xffx",
        ];
        let memory = memory();
        for (place, key) in wrong.iter().enumerate() {
            put(memory.map.words(), place, key, &[1, 0]);
        }
        let long = [b"c\x01a\x01b".as_slice(), &[0xff; 300]].concat();
        put(memory.map.words(), 100, &long[..240], &[1, 0]);
        let slot = &memory.map.words()[SLOTS_AT + 100 * SLOT_WORDS..];
        for length in [241, 4096, u64::MAX] {
            slot[LENGTH_AT].store(length, Relaxed);
            assert_eq!(memory.read().series, []);
        }
        let named = &memory.map.words()[INDEX_AT..][..PLACES];
        named.iter().for_each(|word| word.store(u64::MAX, Relaxed));
        assert_eq!(memory.read().series, [], "a place that is being named has no series");
    }

    #[test]
    fn whatever_is_written_there_is_read_without_harm() {
        let memory = memory();
        let words = memory.map.words();
        let mut state = 1u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for round in 0..20 {
            for word in words {
                // Bytes of names and short lengths, so that some of it can be read.
                let value = random();
                let value = if round % 2 == 0 { value } else { value & 0x0161_0161_0161_0163 };
                word.store(value, Relaxed);
            }
            let reading = memory.read();
            assert!(reading.series.len() <= MAX_SERIES);
            for series in &reading.series {
                assert!(valid_name(series.name.as_bytes()).is_some());
                assert!(series.labels.len() <= MAX_LABELS);
            }
        }
        put(words, 0, b"c\x01a", &[1, 0]);
        assert!(memory.read().series.iter().any(|series| series.name == "a"));
    }

    #[test]
    fn other_files_are_not_taken() {
        let short = create_sealed("test", 4096).unwrap();
        assert!(!is_application_memory(short.as_fd()));
        assert!(ApplicationMemory::open(short).is_err());
        let zero = create_sealed("test", WORDS * 8).unwrap();
        assert!(!is_application_memory(zero.as_fd()));
        let mut contents = vec![0; WORDS * 8];
        contents[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        let open = maitred_os::shared::file_with("test", &contents).unwrap();
        assert!(!is_application_memory(open.as_fd()), "it could be shortened");
    }
}
