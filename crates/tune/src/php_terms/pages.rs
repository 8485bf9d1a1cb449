//! Whether a page is the same with another setting. Lines that differ between two responses of the
//! same setting, such as a nonce or the time, are left out.

/// Longest quoted part of a line.
const QUOTED: usize = 60;

/// The lines of a page that are the same in two responses of the same setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteadyPage {
    status: u16,
    lines: Vec<String>,
    /// The number of all lines, if that is the same in both.
    count: Option<usize>,
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
    /// Of two responses, in their order.
    pub fn of(first: &PageResponse, second: &PageResponse) -> SteadyPage {
        let mut others = second.body.lines();
        let mut lines = Vec::new();
        for line in first.body.lines() {
            let mut ahead = others.clone();
            if ahead.any(|other| other == line) {
                others = ahead;
                lines.push(line.to_owned());
            }
        }
        let [one, two] = [first, second].map(|page| page.body.lines().count());
        SteadyPage { status: first.status, lines, count: (one == two).then_some(one) }
    }

    /// Checks that a response has the status and all steady lines in their order, and no others.
    ///
    /// # Errors
    /// The first difference, as a part of a sentence.
    pub fn matches(&self, page: &PageResponse) -> Result<(), String> {
        if page.status != self.status {
            return Err(format!("its status is {} instead of {}", page.status, self.status));
        }
        let mut lines = page.body.lines();
        if let Some(line) = self.lines.iter().find(|line| !lines.any(|other| other == *line)) {
            let quoted: String = line.trim().chars().take(QUOTED).collect();
            return Err(format!("it lacks the line '{quoted}'"));
        }
        let count = page.body.lines().count();
        match self.count.filter(|expected| *expected != count) {
            Some(expected) => Err(format!("it has {count} lines instead of {expected}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(status: u16, body: &str) -> PageResponse {
        PageResponse { status, body: body.to_owned() }
    }

    #[test]
    fn lines_that_vary_by_themselves_are_left_out() {
        let steady = SteadyPage::of(&page(200, "a\nnonce 1\nb"), &page(200, "a\nnonce 2\nb"));
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
        let steady = SteadyPage::of(&page(200, "a\nb"), &page(200, "a\nx\nb"));
        assert_eq!(steady.matches(&page(200, "a\nx\ny\nb")), Ok(()));
    }
}
