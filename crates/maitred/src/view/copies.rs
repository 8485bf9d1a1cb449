//! Copies of booted applications, as lines for people.

use maitred_control::admin::{Copies, PoolStatus, ServerStatus};
use maitred_text::humanize::{compact_count, shorten};

use super::{NAME_COLUMNS, both, counts, cut};

/// A table of the pools whose workers are copies; nothing if there is none.
pub fn copies(server: &ServerStatus) -> Vec<String> {
    let pools = server.pools.iter();
    let pools = pools.filter_map(|pool| Some((&*pool.name, pool.copies.as_ref()?)));
    let pools: Vec<(&str, &Copies)> = pools.collect();
    if pools.is_empty() {
        return Vec::new();
    }
    let names = pools.iter().map(|(name, _)| name.chars().count());
    let wide = names.max().unwrap_or(0).clamp(6, NAME_COLUMNS);
    let (generation, spare, forks, time) = ("GENERATION", "SPARE", "FORKS", "FORK TIME");
    let (back, ended, pages) = ("WENT BACK", "ENDED", "PAGES");
    let mut lines = vec![
        String::new(),
        format!(
            "{:wide$} {generation:>10} {spare:>5} {forks:>8} {time:>11} {back:>9} {ended:>8} {pages:>6}",
            "COPIES"
        ),
    ];
    let row = |(name, copies): &(&str, &Copies)| {
        format!(
            "{:wide$} {:>10} {:>5} {:>8} {:>11} {:>9} {:>8} {:>6}",
            shorten(name, wide),
            copies.generation,
            compact_count(copies.spare, 5),
            compact_count(copies.fork_time.count, 8),
            both(&copies.fork_time),
            compact_count(copies.went_back, 9),
            compact_count(copies.stayed.values().sum(), 8),
            pages_each(copies),
        )
    };
    lines.extend(pools.iter().map(row));
    lines.push(String::new());
    let legend = "FORK TIME p50/p99; ENDED instead of going back; PAGES of 4 kB or so that a copy has written to";
    lines.push(legend.to_owned());
    lines
}

/// What is known of a pool's copies; nothing where workers are none.
pub fn details(pool: &PoolStatus) -> Vec<String> {
    let Some(copies) = &pool.copies else {
        return Vec::new();
    };
    let forks = &copies.fork_time;
    let mut lines = vec![
        format!(
            "copies          of generation {}, {} ready; {} pages written to by each",
            copies.generation,
            copies.spare,
            pages_each(copies)
        ),
        format!("  forks         {}, {} each", forks.count, both(forks)),
    ];
    let stayed: u64 = copies.stayed.values().sum();
    if copies.went_back + stayed > 0 {
        let (back, ended) = (copies.went_back, counts(&copies.stayed));
        lines.push(format!(
            "  went back     {back} times; ended instead: {ended}"
        ));
    }
    lines.iter().map(|line| cut(line)).collect()
}

fn pages_each(copies: &Copies) -> String {
    match copies.pages {
        Some(pages) => compact_count(pages.round() as u64, 6),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::COLUMNS;
    use maitred_control::admin::Quantiles;

    fn pool(copies: Option<Copies>) -> PoolStatus {
        PoolStatus {
            name: "shop".to_owned(),
            copies,
            ..PoolStatus::default()
        }
    }

    #[test]
    fn copies_are_shown_where_there_are_some() {
        let forks = Quantiles {
            count: 1200,
            p50_seconds: Some(0.0009),
            p99_seconds: Some(0.0021),
        };
        let shop = pool(Some(Copies {
            generation: 3,
            spare: 10,
            fork_time: forks,
            went_back: 1180,
            stayed: [("forked".to_owned(), 4), ("memory".to_owned(), 0)].into(),
            pages: Some(160.4),
        }));
        let mut server = ServerStatus {
            pools: vec![pool(None)],
            ..ServerStatus::default()
        };
        assert!(copies(&server).is_empty() && details(&server.pools[0]).is_empty());
        server.pools.push(shop);
        let lines = copies(&server);
        assert_eq!(
            lines[1..3].join("\n"),
            "COPIES GENERATION SPARE    FORKS   FORK TIME WENT BACK    ENDED  PAGES\n\
             shop            3    10     1200 900µs/2.1ms      1180        4    160"
        );
        let all = details(&server.pools[1]);
        assert_eq!(all[1], "  forks         1200, 900µs/2.1ms each");
        assert_eq!(
            all[2],
            "  went back     1180 times; ended instead: 4 forked"
        );
        server.pools[1].copies = Some(Copies {
            generation: u64::from(u32::MAX),
            spare: u64::MAX,
            went_back: u64::MAX / 2,
            stayed: [("x".repeat(90), u64::MAX / 4)].into(),
            pages: Some(1e18),
            ..Copies::default()
        });
        for line in [copies(&server), details(&server.pools[1])].concat() {
            assert!(line.chars().count() <= COLUMNS, "{line}");
        }
    }
}
