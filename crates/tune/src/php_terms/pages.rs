//! Whether a page is the same with another setting. Lines that differ between two responses of the
//! same setting, such as a nonce or the time, are left out.

use std::collections::HashMap;

use maitred_text::humanize::printable_pattern;

/// Longest quoted part of a line.
const QUOTED: usize = 60;

/// A page of fewer lines is taken apart.
const FEW_LINES: usize = 20;

/// Most parts of a page; the last one is all the rest. The page is a tenant's, and may be nothing
/// but commas.
const MOST_PARTS: usize = 20_000;

/// The lines of a page that are the same in two responses of the same setting. A page of few lines,
/// such as one of JSON, is taken apart at its tags and commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteadyPage {
    status: u16,
    lines: Vec<String>,
    /// The number of all lines, if that is the same in both.
    count: Option<usize>,
    is_split: bool,
}

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageResponse {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: String,
}

impl SteadyPage {
    /// Of two responses, in their order. None if they have nothing in common.
    pub fn of(first: &PageResponse, second: &PageResponse) -> Option<SteadyPage> {
        if first.status != second.status {
            return None;
        }
        let is_split = first.body.lines().count() < FEW_LINES;
        let [one, two] = [first, second].map(|page| parts(&page.body, is_split));
        let lines = common(&one, &two);
        let count = (one.len() == two.len()).then_some(one.len());
        let steady = SteadyPage { status: first.status, lines, count, is_split };
        (!steady.lines.is_empty()).then_some(steady)
    }

    /// Checks that a response has the status and all steady lines in their order, and no others.
    ///
    /// # Errors
    /// The first difference, as a part of a sentence.
    pub fn matches(&self, page: &PageResponse) -> Result<(), String> {
        if page.status != self.status {
            return Err(format!("its status is {} instead of {}", page.status, self.status));
        }
        let found = parts(&page.body, self.is_split);
        let mut lines = found.iter();
        if let Some(line) = self.lines.iter().find(|line| !lines.any(|other| other == *line)) {
            let quoted: String = line.trim().chars().take(QUOTED).collect();
            return Err(format!("it lacks the line '{}'", printable_pattern(&quoted)));
        }
        match self.count.filter(|expected| *expected != found.len()) {
            Some(expected) => Err(format!("it has {} lines instead of {expected}", found.len())),
            None => Ok(()),
        }
    }
}

fn parts(body: &str, is_split: bool) -> Vec<&str> {
    let ends: &[char] = if is_split { &['\n', '<', ','] } else { &['\n'] };
    body.strip_suffix('\n').unwrap_or(body).splitn(MOST_PARTS, ends).collect()
}

/// The parts of `one` that `two` has, too, each after the one before.
fn common(one: &[&str], two: &[&str]) -> Vec<String> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (place, part) in two.iter().enumerate() {
        places.entry(part).or_default().push(place);
    }
    let (mut lines, mut next) = (Vec::new(), 0);
    for part in one {
        let places = places.get(part).map_or(&[][..], Vec::as_slice);
        let ahead = places.partition_point(|place| *place < next);
        if let Some(place) = places.get(ahead) {
            lines.push((*part).to_owned());
            next = place + 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(status: u16, body: &str) -> PageResponse {
        PageResponse { status, body: body.to_owned() }
    }

    fn steady(first: &str, second: &str) -> SteadyPage {
        SteadyPage::of(&page(200, first), &page(200, second)).unwrap()
    }

    #[test]
    fn lines_that_vary_by_themselves_are_left_out() {
        let steady = steady("a\nnonce 1\nb", "a\nnonce 2\nb");
        assert_eq!(steady.lines, ["a", "b"]);
        assert_eq!(steady.matches(&page(200, "a\nnonce 3\nb")), Ok(()));
        let why = steady.matches(&page(200, "a\nnonce 3")).unwrap_err();
        assert_eq!(why, "it lacks the line 'b'");
        assert!(steady.matches(&page(200, "b\nnonce 3\na")).is_err(), "the order counts");
        let why = steady.matches(&page(200, "a\nnonce 3\nWarning\nb")).unwrap_err();
        assert_eq!(why, "it has 4 lines instead of 3");
        let why = steady.matches(&page(500, "a\nnonce 3\nb")).unwrap_err();
        assert_eq!(why, "its status is 500 instead of 200");
    }

    #[test]
    fn a_page_whose_length_varies_may_be_of_any_length() {
        let steady = steady("a\nb", "a\nx\nb");
        assert_eq!(steady.matches(&page(200, "a\nx\ny\nb")), Ok(()));
    }

    #[test]
    fn a_page_of_one_line_is_compared_by_its_parts() {
        let steady = steady("{\"goods\":3,\"time\":1}", "{\"goods\":3,\"time\":2}");
        assert_eq!(steady.matches(&page(200, "{\"goods\":3,\"time\":9}")), Ok(()));
        assert!(steady.matches(&page(200, "{\"error\":\"gone\",\"time\":9}")).is_err());
    }

    #[test]
    fn pages_of_nothing_but_separators_are_compared_as_others_are() {
        let body = |part: &str| part.repeat((1 << 20) / part.len());
        let commas = body(",");
        let steady = steady(&commas, &commas);
        assert_eq!(steady.lines.len(), MOST_PARTS);
        assert_eq!(steady.matches(&page(200, &commas)), Ok(()));
        assert!(steady.matches(&page(200, &commas[1..])).is_err(), "the rest is compared, too");
        assert_eq!(SteadyPage::of(&page(200, &body("a,")), &page(200, &body("b,"))), None);
    }

    #[test]
    fn a_quoted_line_has_no_control_characters() {
        let steady = steady("a\n\x1b]52;c;cm0K\x07\u{9b}2J", "a\n\x1b]52;c;cm0K\x07\u{9b}2J");
        let why = steady.matches(&page(200, "a\nb")).unwrap_err();
        assert_eq!(why, "it lacks the line '\\u{1b}]52;c;cm0K\\u{7}\\u{9b}2J'");
    }

    #[test]
    fn responses_without_anything_in_common_cannot_be_compared() {
        assert_eq!(SteadyPage::of(&page(200, "1"), &page(200, "2")), None);
        assert_eq!(SteadyPage::of(&page(200, "1"), &page(500, "1")), None);
        assert!(SteadyPage::of(&page(204, ""), &page(204, "")).is_some());
    }
}
