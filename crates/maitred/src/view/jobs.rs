//! The table of commands and schedules.

use std::time::Duration;

use maitred_control::job_status::JobStatus;
use maitred_text::humanize;

use super::aligned_table::Table;

const COLUMNS: &str =
    "NAME -24 | STATE -20 | STARTS 7 | FAILED 6 | MEMORY 8? | NEXT 10 | LAST EXIT -30";

/// One line for each, below a head; nothing without any.
pub fn jobs(jobs: &[JobStatus], columns: usize) -> Vec<String> {
    if jobs.is_empty() {
        return Vec::new();
    }
    let names: Vec<String> = jobs.iter().map(|job| format!("{}/{}", job.pool, job.name)).collect();
    let table = Table::new(COLUMNS, names.iter().map(String::as_str), columns);
    let mut lines = table.head().to_vec();
    for (job, name) in jobs.iter().zip(&names) {
        let memory: u64 = job.processes.iter().filter_map(|process| process.memory_bytes).sum();
        lines.push(table.row([
            name.clone(),
            job.state.clone(),
            job.starts.to_string(),
            job.failures.to_string(),
            if memory > 0 { humanize::bytes(memory as f64) } else { "-".to_owned() },
            job.next_in_seconds.map_or("-".to_owned(), |seconds| {
                format!("in {}", humanize::lasted(Duration::from_secs_f64(seconds.max(0.0))))
            }),
            last_exit(job),
        ]));
    }
    lines
}

fn last_exit(job: &JobStatus) -> String {
    match (&job.last_exit, job.last_exit_seconds_ago) {
        (Some(how), Some(ago)) => {
            let ago = humanize::lasted(Duration::from_secs_f64(ago.max(0.0)));
            format!("{how} {ago} ago")
        }
        _ => "-".to_owned(),
    }
}
