//! `maitred profile`: counts what the scripts of a pool run, and draws it as a flame graph.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use inferno::flamegraph;
use maitred_control::ProfileSamples;
use maitred_control::admin::{Reply, Request};
use maitred_control::folded::RATE_MAX;
use maitred_text::humanize::plural;

use crate::client::{Client, UNEXPECTED};
use crate::command::Reach;
use crate::exit_code::{EXIT_SUCCESS, fail, print_line, refuse};
use crate::report_file;

/// Longest profile, in seconds.
const SECONDS_MAX: u32 = 600;

/// Functions that the summary names.
const FUNCTIONS_NAMED: usize = 10;

/// Arguments of `maitred profile`.
#[derive(Debug, Args)]
pub struct ProfileOptions {
    /// The pool
    #[arg(value_name = "POOL")]
    pub pool: String,
    /// How long, such as 30s or 2m
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = seconds)]
    pub duration: u32,
    /// Samples per second of each worker
    #[arg(long, value_name = "N", default_value_t = 99,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(RATE_MAX)))]
    pub rate: u32,
    /// A flame graph if the name ends with .svg, or else folded stacks, which speedscope opens
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reach: Reach,
}

/// Reads a time in seconds or minutes.
fn seconds(text: &str) -> Result<u32, String> {
    let (number, unit) = match (text.strip_suffix('s'), text.strip_suffix('m')) {
        (_, Some(minutes)) => (minutes, 60),
        (Some(seconds), None) => (seconds, 1),
        (None, None) => (text, 1),
    };
    let seconds = number.parse::<u32>().ok().and_then(|number| number.checked_mul(unit));
    let is_in_range = |seconds: &u32| (1..=SECONDS_MAX).contains(seconds);
    seconds
        .filter(is_in_range)
        .ok_or_else(|| format!("expected a time from 1s to {SECONDS_MAX}s such as 30s or 2m"))
}

/// Makes a profile, writes it and prints what took the most time.
pub fn profile(asked: &ProfileOptions) -> ExitCode {
    if let Some(Err(why)) = asked.output.as_deref().map(report_file::check) {
        return refuse(&why);
    }
    let mut client = match Client::reach(&asked.reach) {
        Ok(client) => client,
        Err(why) => return fail(&why),
    };
    let (pool, rate, seconds) = (asked.pool.clone(), asked.rate, asked.duration);
    match client.ask_patiently(&Request::Profile { pool, rate, seconds }) {
        Ok(Reply::Profiled { samples, stacks }) => {
            let written = asked.output.as_deref().map(|file| write(file, &asked.pool, &stacks));
            if let Some(Err(why)) = written {
                return fail(&why);
            }
            print_line(&summary(asked, samples, &stacks));
            ExitCode::from(EXIT_SUCCESS)
        }
        Ok(Reply::Refused { why }) => refuse(&why),
        Ok(Reply::Failed { why }) | Err(why) => fail(&why),
        Ok(_) => fail(&UNEXPECTED),
    }
}

fn write(file: &Path, pool: &str, stacks: &str) -> Result<(), String> {
    let is_svg = file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
    if !is_svg {
        return report_file::write(file, stacks);
    }
    report_file::write(file, &graph(pool, stacks)?)
}

/// The flame graph of a profile with at least one stack.
///
/// # Errors
/// One sentence, when there is nothing to draw.
fn graph(pool: &str, stacks: &str) -> Result<String, String> {
    if stacks.is_empty() {
        return Err("no script ran in that time, so there is nothing to draw".to_owned());
    }
    let mut options = flamegraph::Options::default();
    options.title = format!("Scripts of pool {pool}");
    options.count_name = "samples".to_owned();
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, stacks.lines(), &mut svg)
        .map_err(|why| format!("the flame graph could not be drawn: {why}"))?;
    String::from_utf8(svg).map_err(|why| why.to_string())
}

/// How often a function was seen.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Seen {
    /// As the innermost call.
    itself: u64,
    /// Anywhere in the stack.
    inclusive: u64,
}

/// The functions of folded stacks, those with the most samples of their own first.
fn functions(stacks: &str) -> Vec<(&str, Seen)> {
    let mut functions: HashMap<&str, Seen> = HashMap::new();
    for line in stacks.lines() {
        let Some((stack, count)) = line.rsplit_once(' ') else {
            continue;
        };
        let count: u64 = count.parse().unwrap_or(0);
        let mut calls: Vec<&str> = stack.split(';').collect();
        if let Some(innermost) = calls.last() {
            functions.entry(innermost).or_default().itself += count;
        }
        calls.sort_unstable();
        calls.dedup();
        for call in calls {
            functions.entry(call).or_default().inclusive += count;
        }
    }
    let mut all: Vec<(&str, Seen)> = functions.into_iter().collect();
    all.sort_unstable_by(|(a, seen), (b, other)| {
        (other.itself, other.inclusive, a).cmp(&(seen.itself, seen.inclusive, b))
    });
    all
}

fn summary(asked: &ProfileOptions, samples: ProfileSamples, stacks: &str) -> String {
    let ProfileSamples { looks, stacks: count } = samples;
    let mut lines = vec![format!(
        "{} of running scripts in {} within {} s; share of their own and in total, waits included:",
        plural(count, "stack"),
        plural(looks, "sample"),
        asked.duration
    )];
    let share = |part: u64| 100.0 * part as f64 / count.max(1) as f64;
    lines.extend(functions(stacks).into_iter().take(FUNCTIONS_NAMED).map(|(name, seen)| {
        format!("{:5.1}% {:5.1}%  {name}", share(seen.itself), share(seen.inclusive))
    }));
    lines.extend(asked.output.iter().map(|file| format!("written to {}", file.display())));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_seconds_or_minutes_and_has_a_bound() {
        assert_eq!(seconds("30s"), Ok(30));
        assert_eq!(seconds("45"), Ok(45));
        assert_eq!(seconds("2m"), Ok(120));
        for wrong in ["0s", "11m", "601", "x", "-1s", "", "4294967295m"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn functions_are_counted_once_a_stack_and_those_that_run_themselves_come_first() {
        let stacks = "main;a;b;a 3\nmain;c 5\nmain 1\n";
        let all = functions(stacks);
        assert_eq!(all[0], ("c", Seen { itself: 5, inclusive: 5 }));
        assert_eq!(all[1], ("a", Seen { itself: 3, inclusive: 3 }));
        assert_eq!(all[2], ("main", Seen { itself: 1, inclusive: 9 }));
    }

    #[test]
    fn the_graph_has_each_function_and_no_markup_of_the_profile() {
        let svg = graph("www", "main;<script>;b 3\nmain;c 5\n").unwrap();
        assert!(svg.contains("<svg") && svg.contains("c (5 samples"), "{svg}");
        assert!(svg.contains("&lt;script&gt;"));
        assert!(graph("www", "").is_err());
    }
}
