//! Which lines of the log are shown. A record's further lines are indented, and go with its first.

/// Longest line, in bytes; the rest of a longer one is a line of its own.
pub const MAX_LINE_BYTES: usize = 64 * 1024;

/// What lines are to be about.
#[derive(Debug, Default)]
pub struct LineFilter {
    pool: Option<String>,
    job: Option<String>,
    request: Option<String>,
    is_shown: bool,
}

impl LineFilter {
    /// The lines about `POOL` or `POOL/NAME`, and about a request; all, if neither is given.
    pub fn of(name: Option<&str>, request: Option<&str>) -> LineFilter {
        let parts = name.map(|name| name.split_once('/').unwrap_or((name, "")));
        LineFilter {
            pool: parts.map(|(pool, _)| pool.to_owned()),
            job: parts.map(|(_, job)| job.to_owned()).filter(|job| !job.is_empty()),
            request: request.map(str::to_owned),
            is_shown: false,
        }
    }

    /// Whether a line is shown, after the ones before it.
    pub fn shows(&mut self, line: &str) -> bool {
        if !line.starts_with([' ', '\t']) {
            self.is_shown = self.is_about(line);
        }
        self.is_shown
    }

    fn is_about(&self, line: &str) -> bool {
        let is_of_pool = self.pool.as_ref().is_none_or(|pool| has_word(line, "pool ", pool));
        let is_of_job = self.job.as_ref().is_none_or(|job| {
            ["command ", "schedule "].iter().any(|kind| has_word(line, kind, job))
        });
        let is_of_request =
            self.request.as_ref().is_none_or(|id| line.contains(&format!("[request {id}]")));
        is_of_pool && is_of_job && is_of_request
    }
}

/// Whether a line has `before` and then this name, perhaps in backticks, which ends there.
fn has_word(line: &str, before: &str, name: &str) -> bool {
    line.match_indices(before).any(|(at, _)| {
        let starts = !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
        let rest = &line[at + before.len()..];
        let rest = rest.strip_prefix('`').unwrap_or(rest).strip_prefix(name);
        let is_end =
            |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || "_-".contains(c));
        starts && rest.is_some_and(is_end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: [&str; 7] = [
        "2026-11-24T01:21:26+01:00  INFO pool shop: command mails: sent 5",
        "2026-11-24T01:21:26+01:00 ERROR pool shop: /a.php: PHP Fatal error: x [request 5a0e]",
        "    #0 {main}",
        "2026-11-24T01:21:27+01:00  WARN pool shop-2: schedule mails: pool shopping",
        "2026-11-24T01:21:28+01:00 ERROR the zygote of pool `shop` is killed: it hangs",
        "2026-11-24T01:21:29+01:00  INFO pool shop: schedule mails-2: command mails2",
        "2026-11-24T01:21:30+01:00  INFO configuration: whirlpool shop",
    ];

    fn shown(name: Option<&str>, request: Option<&str>) -> Vec<usize> {
        let mut filter = LineFilter::of(name, request);
        (0..LOG.len()).filter(|at| filter.shows(LOG[*at])).collect()
    }

    #[test]
    fn lines_are_those_of_the_pool_the_job_or_the_request_with_what_belongs_to_them() {
        assert_eq!(shown(None, None), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(shown(Some("shop"), None), [0, 1, 2, 4, 5]);
        assert_eq!(shown(Some("shop/mails"), None), [0]);
        assert_eq!(shown(Some("shop-2/mails"), None), [3]);
        assert_eq!(shown(None, Some("5a0e")), [1, 2]);
        assert_eq!(shown(Some("shop-2"), Some("5a0e")), Vec::<usize>::new());
    }
}
