//! Folded stacks: the calls of a stack from the outermost to the innermost, separated by
//! semicolons, a space, and how often it was seen; one line each. The format of Brendan Gregg's
//! flame graphs (<https://www.brendangregg.com/flamegraphs.html>), which speedscope reads as well.

use std::collections::HashMap;
use std::fmt::{self, Display, Write};

/// Most samples per second of each worker.
pub const RATE_MAX: u32 = 999;

/// Most different stacks; all further ones count as [`OTHER`].
pub const STACKS_MAX: usize = 20_000;

/// Longest stack, in bytes. The innermost calls of longer ones are left out.
pub const STACK_BYTES_MAX: usize = 8 * 1024;

/// Most calls of a stack that is read; fewer are written.
const CALLS_MAX: usize = 128;

/// Largest file of folded stacks, in bytes.
pub const FOLDED_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// The name of further stacks.
const OTHER: &str = "[further stacks]";

/// Stacks by how often they were seen.
#[derive(Debug, Default)]
pub struct FoldedStacks {
    counts: HashMap<String, u64>,
    bytes: usize,
    /// Room for the stack that is counted.
    stack: String,
}

/// Writes a call: what separates calls and lines is not part of it.
struct CallText<'a>(&'a mut String);

impl Write for CallText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let is_separator = |c: char| c == ';' || is_invisible(c);
        if text.contains(is_separator) {
            self.0.extend(text.chars().map(|c| if is_separator(c) { '_' } else { c }));
        } else {
            self.0.push_str(text);
        }
        Ok(())
    }
}

/// Control characters, and those that separate lines or turn the direction of what follows
/// (Unicode's Bidi_Control).
fn is_invisible(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control() || ('\u{2028}'..='\u{202e}').contains(&c)
}

/// Whether a text could be that of [`FoldedStacks::lines`]: stacks of a limited length, with a
/// number each.
pub fn is_sound(text: &str) -> bool {
    let is_stack = |line: &str| {
        let Some((calls, count)) = line.rsplit_once(' ') else { return false };
        calls.len() <= STACK_BYTES_MAX
            && calls.matches(';').count() < CALLS_MAX
            && count.parse::<u64>().is_ok()
            && !calls.contains(is_invisible)
    };
    text.lines().take(STACKS_MAX + 2).all(is_stack) && text.lines().count() <= STACKS_MAX + 1
}

impl FoldedStacks {
    /// Counts a stack with these calls, the outermost first.
    pub fn count<T: Display>(&mut self, calls: impl Iterator<Item = T>) {
        self.fold(calls);
        if let Some(count) = self.counts.get_mut(&self.stack) {
            *count += 1;
            return;
        }
        let has_room = self.counts.len() < STACKS_MAX
            && self.bytes + self.stack.len() < FOLDED_BYTES_MAX as usize / 2;
        if has_room {
            self.bytes += self.stack.len();
            self.counts.insert(self.stack.clone(), 1);
        } else {
            *self.counts.entry(OTHER.to_owned()).or_default() += 1;
        }
    }

    fn fold<T: Display>(&mut self, calls: impl Iterator<Item = T>) {
        let stack = &mut self.stack;
        stack.clear();
        for call in calls {
            let before = stack.len();
            if before > 0 {
                stack.push(';');
            }
            let written = write!(CallText(stack), "{call}");
            if written.is_err() || stack.len() > STACK_BYTES_MAX {
                stack.truncate(before);
                break;
            }
        }
    }

    /// The lines, by the order of their texts.
    pub fn lines(&self) -> String {
        let mut all: Vec<(&String, &u64)> = self.counts.iter().collect();
        all.sort_unstable();
        let mut lines = String::new();
        for (stack, count) in all {
            let _ = writeln!(lines, "{stack} {count}");
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_are_one_line_and_nothing_in_a_call_ends_it() {
        let mut stacks = FoldedStacks::default();
        for inner in ["b", "c;d\n9 7", "b"] {
            stacks.count(["main", inner].into_iter());
        }
        assert_eq!(stacks.lines(), "main;b 2\nmain;c_d_9 7 1\n");
    }

    #[test]
    fn what_no_stacks_give_is_not_sound() {
        let mut stacks = FoldedStacks::default();
        stacks.count(["main", "turns\u{202e}"].into_iter());
        stacks.count(std::iter::once("other calls"));
        assert!(is_sound(&stacks.lines()) && is_sound(""), "{}", stacks.lines());
        let many = "a 1\n".repeat(STACKS_MAX + 2);
        let long = format!("{} 1\n", "x".repeat(STACK_BYTES_MAX + 1));
        let deep = format!("{} 1\n", "a;".repeat(CALLS_MAX));
        for text in ["a\n", "a b\n", "a\x1b[2J 1\n", "a\u{202e} 1\n", &many, &long, &deep] {
            assert!(!is_sound(text), "{:?}", text.chars().take(20).collect::<String>());
        }
    }

    #[test]
    fn stacks_have_their_bounds_in_number_and_length() {
        let mut stacks = FoldedStacks::default();
        for number in 0..STACKS_MAX + 5 {
            stacks.count(std::iter::once(number.to_string()));
        }
        assert!(stacks.lines().contains("[further stacks] 5\n"));
        let mut long = FoldedStacks::default();
        long.count(std::iter::repeat_n("x".repeat(1000), 20));
        assert!(long.lines().len() <= STACK_BYTES_MAX + 4);
    }
}
