//! What a command or a schedule needs, and what excludes each other.

use std::ops::Range;

use toml::de::DeTable;

use crate::mistakes::Fault;
use crate::model::job::{Job, Missed, Overlap, Schedule};
use crate::read::directives::jobs::JobDraft;

/// Most commands and schedules of a configuration.
const MAX_JOBS: usize = 1000;

/// The settings of which a schedule has one.
const TIMES: [&str; 3] = ["every", "at", "cron"];

/// The settings of `processes = "auto"`.
const SCALING: [&str; 5] =
    ["probe", "probe_interval", "min_processes", "max_processes", "jobs_per_process"];

/// The job of a section; `before` are those that were read before it. A setting that is there and
/// wrong has a fault already.
pub(crate) fn settle_job(
    draft: JobDraft,
    pool: &str,
    table: &DeTable<'_>,
    span: Range<usize>,
    before: &[Job],
) -> Result<Job, Option<Fault>> {
    let fault = |sentence: String| Err(Some(Fault::new(span.clone(), sentence)));
    let times: Vec<&str> = TIMES.into_iter().filter(|name| table.contains_key(*name)).collect();
    let is_schedule = draft.is_schedule;
    let kind = if is_schedule { "schedule" } else { "command" };
    for name in ["name", "command"] {
        if !table.contains_key(name) {
            return fault(format!("this {kind} has no `{name}`"));
        }
    }
    if ["process_priority", "cpu_weight"].iter().all(|name| table.contains_key(*name)) {
        return fault(format!(
            "this {kind} has both `process_priority` and `cpu_weight`; leave one out"
        ));
    }
    if let Some(sentence) = scaling_fault(&draft, table) {
        return fault(sentence);
    }
    let JobDraft { job, when, timezone, overlap, timeout, jitter, .. } = draft;
    let JobDraft { missed, one_node, is_scaled, scaling, .. } = draft;
    let job = Job { scaling: is_scaled.then_some(scaling), ..job };
    let mut job = Job { pool: pool.to_owned(), ..job };
    if job.name.is_empty() || job.command.is_empty() {
        return Err(None);
    }
    if before.iter().any(|other| other.pool == pool && other.name == job.name) {
        let name = &job.name;
        return fault(format!("pool `{pool}` has another command or schedule `{name}`"));
    }
    if before.len() >= MAX_JOBS {
        return fault(format!("there are more than {MAX_JOBS} commands and schedules"));
    }
    if is_schedule {
        match (times.as_slice(), when) {
            ([], _) => {
                return fault("this schedule has no time; add `every`, `at` or `cron`".to_owned());
            }
            ([_], Some(when)) => {
                let overlap = overlap.unwrap_or(Overlap::Skip);
                if one_node && missed == Missed::Once {
                    return fault(
                        "this schedule has both `one_node` and `missed`; leave one out: the other \
                         nodes run what this one misses"
                            .to_owned(),
                    );
                }
                job.schedule =
                    Some(Schedule { when, timezone, overlap, timeout, jitter, missed, one_node });
            }
            ([_], None) => return Err(None),
            ([first, second, ..], _) => {
                return fault(format!(
                    "this schedule has both `{first}` and `{second}`; leave one out"
                ));
            }
        }
    }
    Ok(job)
}

/// What the settings of `processes = "auto"` lack, or exclude.
fn scaling_fault(draft: &JobDraft, table: &DeTable<'_>) -> Option<String> {
    let scaling = &draft.scaling;
    if !draft.is_scaled {
        let set = SCALING.into_iter().find(|name| table.contains_key(*name))?;
        return Some(format!("`{set}` has no effect without `processes = \"auto\"`; add that"));
    }
    if !table.contains_key("probe") {
        return Some(
            "`processes = \"auto\"` needs a `probe`, which prints how many jobs wait".into(),
        );
    }
    (scaling.min_processes > scaling.max_processes).then(|| {
        format!(
            "`min_processes` is {}, more than `max_processes`, which is {}; lower it",
            scaling.min_processes, scaling.max_processes
        )
    })
}
