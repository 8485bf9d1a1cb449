//! Copies of booted applications, as text.

use maitred_control::admin::{Copies, PoolStatus, ServerStatus};

use maitred_text::humanize::{compact_count, plural};

use super::aligned_table::{Table, limited};
use super::cells::{counts, p50_p99};
use super::pool_table::MAX_OTHER_POOLS;

/// Columns of the pools.
const COPIES: &str = "COPIES -14 | GENERATION 10 | SPARE 5 | FORKS 8 | FORK TIME 11 | REWOUND 9 | \
    EXITED 8 | PAGES 6";

/// A table of the pools whose workers are copies; empty if there is none.
pub fn copies(server: &ServerStatus, columns: usize) -> Vec<String> {
    let pools = server.pools.iter();
    let pools = pools.filter_map(|pool| Some((&*pool.name, pool.copies.as_ref()?)));
    let pools: Vec<(&str, &Copies)> = pools.collect();
    if pools.is_empty() {
        return Vec::new();
    }
    let table = Table::new(COPIES, pools.iter().map(|(name, _)| *name), columns);
    let mut lines = Vec::from(table.head());
    let row = |(name, copies): &(&str, &Copies)| {
        vec![table.row([
            (*name).to_owned(),
            copies.generation.to_string(),
            compact_count(copies.spare, 5),
            compact_count(copies.fork_time.count, 8),
            p50_p99(&copies.fork_time),
            compact_count(copies.rewound, 9),
            compact_count(copies.not_rewound.values().sum(), 8),
            pages_each(copies),
        ])]
    };
    lines.extend(limited(&pools, MAX_OTHER_POOLS, row));
    lines.push(String::new());
    let legend = "FORK TIME p50/p99; EXITED in place of a rewind; PAGES written to by a copy";
    lines.push(legend.to_owned());
    lines
}

/// Details of a pool's copies; empty where workers are none.
pub fn details(pool: &PoolStatus) -> Vec<String> {
    let Some(copies) = &pool.copies else {
        return Vec::new();
    };
    let forks = &copies.fork_time;
    let mut lines = vec![
        format!(
            "copies          of generation {}, {} ready; each writes to {} pages",
            copies.generation,
            copies.spare,
            pages_each(copies)
        ),
        format!("  forks         {}, {} each", forks.count, p50_p99(forks)),
    ];
    let not_rewound: u64 = copies.not_rewound.values().sum();
    if copies.rewound + not_rewound > 0 {
        let (back, ended) = (plural(copies.rewound, "time"), counts(&copies.not_rewound));
        lines.push(format!("  rewound       {back}; exited instead: {ended}"));
    }
    lines
}

fn pages_each(copies: &Copies) -> String {
    match copies.private_pages {
        Some(pages) => compact_count(pages.round() as u64, 6),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_control::admin::Quantiles;

    fn pool(copies: Option<Copies>) -> PoolStatus {
        PoolStatus { name: "shop".to_owned(), copies, ..PoolStatus::default() }
    }

    #[test]
    fn copies_are_shown_where_there_are_some() {
        let forks = Quantiles { count: 1200, p50_seconds: Some(0.0009), p99_seconds: Some(0.0021) };
        let shop = pool(Some(Copies {
            generation: 3,
            spare: 10,
            fork_time: forks,
            rewound: 1180,
            not_rewound: [("forked".to_owned(), 4), ("memory".to_owned(), 0)].into(),
            private_pages: Some(160.4),
        }));
        let mut server = ServerStatus { pools: vec![pool(None)], ..ServerStatus::default() };
        assert!(copies(&server, 100).is_empty() && details(&server.pools[0]).is_empty());
        server.pools.push(shop);
        let lines = copies(&server, 100);
        assert_eq!(
            lines[1..3].join("\n"),
            "COPIES GENERATION SPARE    FORKS   FORK TIME   REWOUND   EXITED  PAGES\n\
             shop            3    10     1200 900µs/2.1ms      1180        4    160"
        );
        let all = details(&server.pools[1]);
        assert_eq!(all[1], "  forks         1200, 900µs/2.1ms each");
        assert_eq!(all[2], "  rewound       1180 times; exited instead: 4 forked");
        server.pools[1].copies = Some(Copies {
            generation: u64::from(u32::MAX),
            spare: u64::MAX,
            rewound: u64::MAX / 2,
            not_rewound: [("x".repeat(90), u64::MAX / 4)].into(),
            private_pages: Some(1e18),
            ..Copies::default()
        });
        for line in copies(&server, 80) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
