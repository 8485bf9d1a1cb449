//! How a pool's number of workers was found, as text.

use maitred_control::admin::{PoolStatus, Size};
use maitred_control::job_status::Beside;
use maitred_text::humanize::{bytes, duration, plural};

/// The number of workers and its terms; empty where the number is fixed.
pub fn details(pool: &PoolStatus) -> Vec<String> {
    let Some(size) = &pool.size else {
        return Vec::new();
    };
    let mut lines =
        vec![format!("size            {}, by {}", plural(size.workers, "worker"), size.binding)];
    lines.extend(parts(size));
    lines.extend(pool.beside.as_ref().map(beside));
    if size.hanging > 0 {
        let hanging = size.hanging;
        lines.push(format!("  hanging       {}, not counted", plural(hanging, "worker")));
    }
    lines
}

/// How many workers `pm = "auto"` would have now, where the number is fixed.
pub fn advice(pool: &PoolStatus) -> Vec<String> {
    let name = &pool.name;
    match (&pool.size, &pool.advice) {
        (Some(_), _) => vec![String::new(), format!("{name}: pm = \"auto\" sizes it already")],
        (None, None) => vec![
            String::new(),
            format!("{name}: too few measured requests (request_accounting) for advice"),
        ],
        (None, Some(size)) => {
            let (workers, binding) = (plural(size.workers, "worker"), &size.binding);
            let first = format!("{name}: pm = \"auto\" would have {workers} now, by {binding}");
            let lines = [String::new(), first].into_iter();
            lines.chain(parts(size)).collect()
        }
    }
}

fn parts(size: &Size) -> Vec<String> {
    let terms = size.terms.iter().map(|(name, workers)| match workers {
        Some(workers) => format!("{name} {workers}"),
        None => format!("{name} -"),
    });
    let terms: Vec<String> = terms.collect();
    let mut lines = vec![
        format!("  terms         {}", terms.join(", ")),
        format!("  headroom      {}", headroom(size)),
    ];
    lines.extend(processors(size).map(|line| format!("  CPUs          {line}")));
    lines
}

/// What is left to the pool's commands and schedules.
fn beside(beside: &Beside) -> String {
    let (used, cores) = (beside.used_cores, beside.cores);
    let (memory, growth) = (bytes(beside.memory_bytes as f64), bytes(beside.growth_bytes as f64));
    format!(
        "  commands      use {used:.2} CPUs and {memory}; {cores:.2} CPUs and {growth} more are \
         left to them"
    )
}

/// What the other terms would allow.
fn headroom(size: &Size) -> String {
    let of = |name: &str| size.terms.get(name).copied().flatten();
    let memory = of("memory")
        .map_or("memory is no limit".to_owned(), |workers| format!("memory would allow {workers}"));
    let cpu = of("cpu").map(|workers| format!("CPU is saturated at {workers}"));
    let downstream = of("downstream").map(|workers| format!("more than {workers} add nothing"));
    let all = [Some(memory), cpu, downstream];
    all.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// The throughput of the CPUs, and how many would double it.
fn processors(size: &Size) -> Option<String> {
    let cpu = size.cpu_seconds.filter(|cpu| *cpu > 0.0)?;
    let capacity = size.cores / cpu;
    Some(format!(
        "{:.1} serve {capacity:.0} requests/s of {} CPU time; {:.0} would need {:.1}",
        size.cores,
        duration(cpu),
        2.0 * capacity,
        2.0 * size.cores
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size() -> Size {
        let terms = [
            ("demand", Some(25)),
            ("cpu", Some(19)),
            ("memory", Some(41)),
            ("downstream", None),
            ("max_children", Some(64)),
        ];
        Size {
            workers: 19,
            binding: "cpu".to_owned(),
            terms: terms.map(|(name, workers)| (name.to_owned(), workers)).into(),
            cores: 3.2,
            cpu_seconds: Some(0.0213),
            blocked_seconds: 0.08,
            hanging: 0,
        }
    }

    #[test]
    fn it_is_said_what_binds_and_what_it_would_take() {
        let pool = PoolStatus { size: Some(size()), ..PoolStatus::default() };
        assert_eq!(
            details(&pool),
            [
                "size            19 workers, by cpu",
                "  terms         cpu 19, demand 25, downstream -, max_children 64, memory 41",
                "  headroom      memory would allow 41; CPU is saturated at 19",
                "  CPUs          3.2 serve 150 requests/s of 21.3 ms CPU time; 300 would need 6.4",
            ]
        );
    }

    #[test]
    fn what_is_left_to_commands_is_said() {
        let beside = Beside {
            used_cores: 0.98,
            cores: 0.095,
            memory_bytes: 180 << 20,
            growth_bytes: 60 << 20,
        };
        let pool = PoolStatus { size: Some(size()), beside: Some(beside), ..PoolStatus::default() };
        assert_eq!(
            details(&pool)[4],
            "  commands      use 0.98 CPUs and 180 MiB; 0.10 CPUs and 60 MiB more are left to them"
        );
    }

    #[test]
    fn a_pool_of_a_fixed_number_is_advised_when_its_requests_were_measured() {
        let mut pool = PoolStatus { name: "www".to_owned(), ..PoolStatus::default() };
        assert!(advice(&pool)[1].starts_with("www: too few measured requests"));
        pool.advice = Some(size());
        let lines = advice(&pool);
        assert!(lines[1].starts_with("www: pm = \"auto\" would have 19 workers now, by cpu"));
        pool.size = pool.advice.take();
        assert_eq!(advice(&pool)[1], "www: pm = \"auto\" sizes it already");
    }

    #[test]
    fn a_pool_of_a_fixed_number_has_none_and_a_new_one_says_what_it_knows() {
        assert!(details(&PoolStatus::default()).is_empty());
        let new = Size { cpu_seconds: None, hanging: 3, ..size() };
        let pool = PoolStatus { size: Some(new), ..PoolStatus::default() };
        let lines = details(&pool);
        assert_eq!(lines.len(), 4);
        assert!(lines[3].starts_with("  hanging       3 workers"));
    }
}
