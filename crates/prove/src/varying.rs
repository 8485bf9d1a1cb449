//! What varies by itself between two responses of one server: dates, nonces, ids, counters.

use std::collections::HashMap;

/// Most words of a body that are compared one by one.
const MAX_WORDS: usize = 400_000;

/// Most words between two common parts for which another common part is searched.
const MAX_GAP: usize = 4_000;

/// A text with gaps where it varies by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// The common parts, as words. Before, between and after them may be anything, but for the ends
    /// below.
    parts: Vec<Vec<String>>,
    /// Whether a text begins with the first part.
    is_start_fixed: bool,
    /// Whether a text ends with the last part.
    is_end_fixed: bool,
    /// Whether nothing could be learnt: every text fits.
    fits_all: bool,
}

/// The words of a text: letters and digits together, every other character alone.
fn words(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = None;
    for (at, letter) in text.char_indices() {
        if letter.is_alphanumeric() {
            start.get_or_insert(at);
            continue;
        }
        if let Some(begin) = start.take() {
            found.push(&text[begin..at]);
        }
        found.push(&text[at..at + letter.len_utf8()]);
    }
    if let Some(begin) = start {
        found.push(&text[begin..]);
    }
    found
}

impl Template {
    /// What two texts of the same page have in common.
    pub fn of(first: &str, second: &str) -> Template {
        let (first, second) = (words(first), words(second));
        if first.len() > MAX_WORDS || second.len() > MAX_WORDS {
            let fits_all = first != second;
            let parts = vec![first.into_iter().map(str::to_owned).collect()];
            return Template { parts, is_start_fixed: true, is_end_fixed: true, fits_all };
        }
        let mut pairs = Vec::new();
        align(&first, &second, WordOffset::default(), &mut pairs);
        let mut parts: Vec<Vec<String>> = Vec::new();
        let mut before: Option<(usize, usize)> = None;
        for (one, other) in &pairs {
            let follows = before.is_some_and(|(a, b)| a + 1 == *one && b + 1 == *other);
            match parts.last_mut().filter(|_| follows) {
                Some(part) => part.push(first[*one].to_owned()),
                None => parts.push(vec![first[*one].to_owned()]),
            }
            before = Some((*one, *other));
        }
        let end = (first.len().wrapping_sub(1), second.len().wrapping_sub(1));
        Template {
            is_start_fixed: pairs.first().map_or(first == second, |pair| *pair == (0, 0)),
            is_end_fixed: pairs.last().map_or(first == second, |pair| *pair == end),
            fits_all: false,
            parts,
        }
    }

    /// Whether nothing varies.
    pub fn is_fixed(&self) -> bool {
        !self.fits_all && self.parts.len() <= 1 && self.is_start_fixed && self.is_end_fixed
    }

    /// Whether a text fits; or else the first part that it lacks, and what it has there.
    ///
    /// # Errors
    /// The expected words, and those that are there.
    pub fn fits(&self, text: &str) -> Result<(), TemplateMismatch> {
        if self.fits_all {
            return Ok(());
        }
        let text = words(text);
        let mut at = 0;
        let last = self.parts.len().saturating_sub(1);
        for (index, part) in self.parts.iter().enumerate() {
            let is_here = |start: usize| {
                text.get(start..start + part.len())
                    .is_some_and(|here| here.iter().zip(part).all(|(one, other)| one == other))
            };
            let fixed_start = index == 0 && self.is_start_fixed;
            let fixed_end = index == last && self.is_end_fixed;
            let found = match (fixed_start, fixed_end) {
                (true, true) => Some(0).filter(|_| is_here(0) && text.len() == part.len()),
                (true, false) => Some(0).filter(|_| is_here(0)),
                (false, true) => text
                    .len()
                    .checked_sub(part.len())
                    .filter(|start| *start >= at && is_here(*start)),
                (false, false) => (at..text.len()).find(|start| is_here(*start)),
            };
            let Some(found) = found else { return Err(mismatch(part, &text, at)) };
            at = found + part.len();
        }
        match self.parts.is_empty() && self.is_start_fixed && !text.is_empty() {
            true => Err(mismatch(&[], &text, 0)),
            false => Ok(()),
        }
    }
}

/// Where a text does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateMismatch {
    /// The expected text.
    pub expected: String,
    /// The text there.
    pub found: String,
}

/// Words that are shown of a mismatch.
const SHOWN_WORDS: usize = 24;

/// Words before the first one that differs.
const SHOWN_BEFORE: usize = 6;

fn mismatch(part: &[String], text: &[&str], at: usize) -> TemplateMismatch {
    // The best place for the part is where most of its first words are.
    let length = |start: usize| {
        let here = text.get(start..).unwrap_or_default().iter();
        here.zip(part).take_while(|(one, other)| **one == other.as_str()).count()
    };
    let end = text.len().min(at + MAX_GAP).max(at + 1);
    let (common, start) =
        (at..end).map(|start| (length(start), start)).max_by_key(|(n, _)| *n).unwrap_or((0, at));
    let from = common.saturating_sub(SHOWN_BEFORE);
    let expected = part.get(from..).unwrap_or_default().iter().take(SHOWN_WORDS);
    let found = text.get(start + from..).unwrap_or_default().iter().take(SHOWN_WORDS);
    TemplateMismatch {
        expected: expected.map(String::as_str).collect::<Vec<_>>().concat(),
        found: found.copied().collect::<Vec<_>>().concat(),
    }
}

/// The place of a part in both texts, in words.
#[derive(Debug, Clone, Copy, Default)]
struct WordOffset {
    first: usize,
    second: usize,
}

/// Pairs of equal words in order: common ends, then words that both have once, as patience diff
/// does, then words that follow in both.
fn align(first: &[&str], second: &[&str], offset: WordOffset, pairs: &mut Vec<(usize, usize)>) {
    let start = first.iter().zip(second).take_while(|(a, b)| a == b).count();
    pairs.extend((0..start).map(|at| (offset.first + at, offset.second + at)));
    let (rest, other) = (&first[start..], &second[start..]);
    let end = rest.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    let (inner, inner_other) = (&rest[..rest.len() - end], &other[..other.len() - end]);
    let base = WordOffset { first: offset.first + start, second: offset.second + start };
    between(inner, inner_other, base, pairs);
    let ends = (base.first + inner.len(), base.second + inner_other.len());
    pairs.extend((0..end).map(|at| (ends.0 + at, ends.1 + at)));
}

fn between(first: &[&str], second: &[&str], offset: WordOffset, pairs: &mut Vec<(usize, usize)>) {
    if first.is_empty() || second.is_empty() {
        return;
    }
    let mut last = (0, 0);
    for (one, other) in increasing(&unique(first, second)) {
        let base = WordOffset { first: offset.first + last.0, second: offset.second + last.1 };
        in_gap(&first[last.0..one], &second[last.1..other], base, pairs);
        pairs.push((offset.first + one, offset.second + other));
        last = (one + 1, other + 1);
    }
    let base = WordOffset { first: offset.first + last.0, second: offset.second + last.1 };
    in_gap(&first[last.0..], &second[last.1..], base, pairs);
}

/// Gaps of the same length are compared word by word; others have only their ends in common.
fn in_gap(first: &[&str], second: &[&str], offset: WordOffset, pairs: &mut Vec<(usize, usize)>) {
    let is_same = |at: &usize| first[*at] == second[*at];
    if first.len() == second.len() {
        pairs.extend(
            (0..first.len()).filter(is_same).map(|at| (offset.first + at, offset.second + at)),
        );
        return;
    }
    let start = first.iter().zip(second).take_while(|(a, b)| a == b).count();
    pairs.extend((0..start).map(|at| (offset.first + at, offset.second + at)));
    let (rest, other) = (&first[start..], &second[start..]);
    let end = rest.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    let ends = (offset.first + first.len() - end, offset.second + second.len() - end);
    pairs.extend((0..end).map(|at| (ends.0 + at, ends.1 + at)));
}

/// The words that both texts have exactly once, by their place in the first.
fn unique(first: &[&str], second: &[&str]) -> Vec<(usize, usize)> {
    let mut counts: HashMap<&str, (usize, usize, usize, usize)> = HashMap::new();
    for (at, word) in first.iter().enumerate() {
        let entry = counts.entry(word).or_default();
        (entry.0, entry.1) = (entry.0 + 1, at);
    }
    for (at, word) in second.iter().enumerate() {
        let entry = counts.entry(word).or_default();
        (entry.2, entry.3) = (entry.2 + 1, at);
    }
    let once = counts.values().filter(|(a, _, b, _)| (*a, *b) == (1, 1));
    let mut pairs: Vec<(usize, usize)> = once.map(|(_, one, _, other)| (*one, *other)).collect();
    pairs.sort_unstable();
    pairs
}

/// The longest subsequence of pairs that increases in both.
fn increasing(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut tails: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = vec![None; pairs.len()];
    for (index, (_, other)) in pairs.iter().enumerate() {
        let at = tails.partition_point(|tail| pairs[*tail].1 < *other);
        before[index] = at.checked_sub(1).map(|at| tails[at]);
        match tails.get_mut(at) {
            Some(tail) => *tail = index,
            None => tails.push(index),
        }
    }
    let mut found = Vec::new();
    let mut at = tails.last().copied();
    while let Some(index) = at {
        found.push(pairs[index]);
        at = before[index];
    }
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_varies_by_itself_may_be_anything_and_the_rest_may_not() {
        let page = |nonce: &str, seen: &str, title: &str| {
            format!("<h1>{title}</h1><input value=\"{nonce}\"><p>Seen {seen} times.</p>")
        };
        let template = Template::of(&page("a1b2", "7", "Shop"), &page("c3d4", "9", "Shop"));
        assert!(!template.is_fixed());
        assert_eq!(template.fits(&page("ffff", "8", "Shop")), Ok(()));
        assert_eq!(template.fits(&page("f-f!f", "1,000", "Shop")), Ok(()));
        let wrong = template.fits(&page("ffff", "8", "Other")).expect_err("the title differs");
        assert!(wrong.expected.contains("Shop") && wrong.found.contains("Other"), "{wrong:?}");
        assert!(template.fits(&(page("ffff", "8", "Shop") + "more")).is_err());
        assert!(template.fits("").is_err());
    }

    #[test]
    fn a_text_that_does_not_vary_has_to_be_the_same() {
        let template = Template::of("one two", "one two");
        assert!(template.is_fixed());
        assert_eq!(template.fits("one two"), Ok(()));
        assert!(template.fits("one two ").is_err());
        assert!(template.fits("one").is_err());
        let none = Template::of("", "");
        assert!(none.is_fixed() && none.fits("").is_ok() && none.fits("x").is_err());
    }

    #[test]
    fn lists_in_another_order_and_length_leave_the_frame_to_compare() {
        let template = Template::of("<ul><li>a<li>b</ul>end", "<ul><li>c</ul>end");
        assert_eq!(template.fits("<ul><li>x<li>y<li>z</ul>end"), Ok(()));
        assert!(template.fits("<ol><li>x</ol>end").is_err());
        assert!(template.fits("<ul><li>x</ul>ends").is_err());
    }

    #[test]
    fn a_template_of_two_texts_fits_both() {
        let mut random = 29_u64;
        let mut next = |most: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % most
        };
        for _ in 0..2_000 {
            let mut text = || {
                let count = next(14);
                (0..count).map(|_| ["a", "b", "c", " ", "-"][next(5) as usize]).collect::<String>()
            };
            let (first, second) = (text(), text());
            let template = Template::of(&first, &second);
            for text in [&first, &second] {
                assert_eq!(template.fits(text), Ok(()), "{first:?} {second:?} {template:?}");
            }
        }
    }
}
