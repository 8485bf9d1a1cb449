//! The report of the trials of PHP's settings.

use maitred_text::humanize;
use serde::Serialize;

use super::cold_start::FirstPages;
use super::{PhpCourse, PhpRatio, PhpTermResult};
use crate::site::Site;

/// The version of the report's format; it changes when a field is removed or changes its meaning.
pub const SCHEMA: &str = "maitred-tune-php/1";

/// Width of the names at the left.
const NAME: usize = 40;

/// A report. Ratios are those of the new setting to the old one.
#[derive(Debug, Clone, Serialize)]
pub struct PhpReport {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The pool and its server.
    pub subject: String,
    /// The source of the requests.
    pub load: String,
    /// Settings that the pool has already, that suffice, or that cannot apply to it, each with the
    /// reason.
    pub not_tried: Vec<String>,
    /// The trials.
    pub trials: Vec<PhpTermResult>,
    /// `gain`, `no_gain` or `nothing_to_gain`.
    pub verdict: &'static str,
    /// The lines to add to the configuration, if there is a gain.
    pub file: Option<String>,
    /// The path of the configuration.
    pub path: String,
}

impl PhpReport {
    /// Summarises the trials.
    pub fn of(site: &Site, load: &str, course: &PhpCourse, not_tried: Vec<String>) -> PhpReport {
        let accepted = course.results.iter().filter(|result| result.gain);
        let lines: Vec<String> = accepted.flat_map(|result| result.lines.clone()).collect();
        let verdict = match (lines.is_empty(), course.results.is_empty()) {
            (false, _) => "gain",
            (true, false) => "no_gain",
            (true, true) => "nothing_to_gain",
        };
        PhpReport {
            schema: SCHEMA,
            subject: format!("{} of {}", site.pool.name, site.service.name),
            load: load.to_owned(),
            not_tried: [course.stays.clone(), not_tried].concat(),
            trials: course.results.clone(),
            verdict,
            file: (!lines.is_empty())
                .then(|| format!("[pools.{}]\n{}", site.pool.section, lines.join("\n"))),
            path: site.service.files.first().cloned().unwrap_or_default(),
        }
    }

    /// The report as text.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!("maitred tune --php: {}", self.subject),
            String::new(),
            format!("{:NAME$}{}; generator on the same machine", "load", self.load),
        ];
        lines.extend(self.not_tried.iter().map(|why| format!("{:NAME$}{why}", "not tried")));
        for trial in &self.trials {
            lines.push(format!("{:NAME$}{}", trial.term.words(), trial_text(trial)));
        }
        lines.push(String::new());
        let conclusion = match self.verdict {
            "gain" => "these settings are proven to be better",
            "no_gain" => "no setting is proven to be better",
            _ => "nothing to try",
        };
        lines.push(format!("{:NAME$}{conclusion}", "verdict"));
        if let Some(file) = &self.file {
            let path = &self.path;
            lines.push(format!(
                "put this into {path}, in place of lines of the same names, and run maitred reload:"
            ));
            lines.push(file.clone());
        }
        lines
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// None that is known to happen.
    pub fn json(&self) -> Result<String, String> {
        serde_json::to_string_pretty(self).map_err(|why| why.to_string())
    }
}

fn trial_text(trial: &PhpTermResult) -> String {
    let figures = [("CPU per request", trial.cpu), ("requests/s", trial.rate)];
    let known = figures.iter().filter_map(|(name, ratio)| ratio.map(|ratio| figure(name, ratio)));
    let known: Vec<String> = known.chain(trial.first_page.map(first_pages)).collect();
    if known.is_empty() {
        return trial.why.clone();
    }
    let pairs = humanize::plural(trial.pairs as u64, "pair");
    format!("{}: {} ({pairs})", trial.why, known.join(", "))
}

fn figure(name: &str, ratio: PhpRatio) -> String {
    format!("{name} × {:.2} ({:.2}–{:.2})", ratio.mean, ratio.low, ratio.high)
}

fn first_pages(pages: FirstPages) -> String {
    let [old, new] = [pages.old_seconds, pages.new_seconds].map(humanize::duration);
    format!("{}, {old} → {new}", figure("first page", pages.ratio))
}
