//! Whatever ranges a client wants of a file: the parts lie in it, do not touch each other, and are
//! few. The first two bytes are the length of the file.

#![no_main]

use libfuzzer_sys::fuzz_target;

mod http {
    pub mod content {
        /// As the front has it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Slice {
            pub offset: u64,
            pub len: u64,
        }

        impl Slice {
            pub fn end(&self) -> u64 {
                self.offset + self.len
            }
        }
    }
}

#[allow(dead_code, reason = "the front's own file")]
#[path = "../../crates/front/src/site/files/ranges.rs"]
mod ranges;

use ranges::{MOST_PARTS, WantedRange, parse};

fuzz_target!(|input: (u16, &str)| {
    for len in [u64::from(input.0), u64::MAX] {
        let WantedRange::Parts(parts) = parse(input.1, len) else { continue };
        assert!((1..=MOST_PARTS).contains(&parts.len()));
        for (at, part) in parts.iter().enumerate() {
            assert!(part.len > 0 && part.offset < len && part.len <= len - part.offset);
            let others = parts.iter().skip(at + 1);
            let is_apart = |other: &http::content::Slice| {
                other.offset > part.end() || other.end() < part.offset
            };
            assert!(others.clone().all(is_apart), "{parts:?}");
        }
    }
});
