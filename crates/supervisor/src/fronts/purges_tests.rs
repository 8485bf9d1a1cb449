use maitred_control::FromFront;
use maitred_control::purge::{Purge, PurgeMode};
use maitred_os::channel::MAX_MESSAGE_BYTES;

use super::*;
use crate::fronts::Front;

const NOW: Moment = Moment::from_secs(1);

fn done(text: &str) -> Result<Vec<String>, String> {
    Ok(vec![text.to_owned()])
}

fn begun(requester: PurgeRequester, lines: &[u32]) -> PurgeCoordinator {
    let mut purges = PurgeCoordinator::default();
    purges.begin(PurgeOrder::Company(true), requester, lines.to_vec(), NOW);
    purges
}

#[test]
fn a_purge_is_over_when_every_front_has_said_so_and_the_newest_has_the_word() {
    let mut purges = begun(PurgeRequester::Command, &[1, 2]);
    let one = &mut purges.pending[0];
    one.done_by(2, done("new"));
    assert!(!one.is_over(NOW));
    one.done_by(1, done("old"));
    assert!(one.is_over(NOW));
    assert_eq!(one.outcome, Some((2, done("new"))));
}

#[test]
fn a_command_waits_for_a_front_that_is_being_started_and_not_for_ever() {
    let purges = begun(PurgeRequester::Command, &[]);
    assert!(!purges.pending[0].is_over(NOW));
    assert!(purges.pending[0].is_over(NOW + PURGE_ANSWER));
    assert_eq!(purges.deadline(), Some(NOW + PURGE_ANSWER));
}

#[test]
fn what_a_dead_front_has_not_done_the_next_one_has_to() {
    let mut purges = begun(PurgeRequester::Command, &[1, 2]);
    let one = &mut purges.pending[0];
    one.done_by(1, done("old"));
    one.lost(2, NextFront::Comes);
    assert!(!one.is_over(NOW));
    one.done_by(2, done("new"));
    assert!(one.is_over(NOW));
    // Of a front that drains, which has left the folder, the word is not enough.
    let mut purges = begun(PurgeRequester::Command, &[1, 2]);
    let one = &mut purges.pending[0];
    one.lost(2, NextFront::Comes);
    one.done_by(1, done("old"));
    assert!(!one.is_over(NOW));
    // That of the program that is being replaced has the folder.
    let mut purges = begun(PurgeRequester::Command, &[1, 2]);
    let one = &mut purges.pending[0];
    one.lost(2, NextFront::MayCome);
    one.done_by(1, done("old"));
    assert!(one.is_over(NOW));
    let mut purges = begun(PurgeRequester::Front(2, 7), &[1]);
    let one = &mut purges.pending[0];
    one.lost(1, NextFront::None);
    assert!(one.is_over(NOW));
}

#[test]
fn a_purge_of_a_front_that_has_ended_is_confirmed_to_no_other_front_of_its_line() {
    let mut purges = begun(PurgeRequester::Front(1, 7), &[2]);
    purges.begin(PurgeOrder::Company(true), PurgeRequester::Front(2, 7), vec![1], NOW);
    let mut fronts = Fronts::new(Front::new(1, 1), Vec::new());
    purges.front_ended(1, false, &mut fronts, NOW);
    let requesters: Vec<_> = purges.pending.iter().map(|one| one.requester).collect();
    assert_eq!(requesters, [PurgeRequester::EndedFront, PurgeRequester::Front(2, 7)]);
    let orders = purges.orders_for_new_front(&fronts).len();
    assert_eq!(orders, 2, "the next front carries them out");
}

#[test]
fn a_purge_waits_for_other_nodes_while_the_process_that_passes_it_on_runs() {
    let order = || PurgeOrder::everything();
    let mut purges = begun(PurgeRequester::Command, &[1]);
    (purges.has_log, purges.log_runs) = (true, true);
    purges.publish(1, order(), true, NOW);
    purges.pending[0].done_by(1, done("x"));
    assert!(!purges.pending[0].is_over(NOW));
    assert_eq!((purges.take_for_log(false).len(), purges.unsent().count()), (1, 0));
    purges.log_process_ended();
    assert!(!purges.pending[0].is_over(NOW));
    purges.reached(1, &PurgeReach::Missing(vec!["b".to_owned()]));
    assert!(purges.pending[0].is_over(NOW));
    assert!(matches!(purges.pending.remove(0).reply(), Reply::PurgedHere { .. }));
    let mut purges = begun(PurgeRequester::Command, &[1]);
    purges.has_log = true;
    purges.publish(1, order(), true, NOW);
    purges.pending[0].done_by(1, done("x"));
    assert!(purges.pending[0].is_over(NOW));
    let complaint = purges.pending[0].complaint();
    assert!(complaint.is_some_and(|why| why.contains("the purge log cannot be reached")));
    purges.peers = vec!["10.0.0.2:7700".to_owned()];
    purges.publish(1, order(), true, NOW);
    let complaint = purges.pending[0].complaint();
    assert_eq!(complaint.as_deref(), Some("not confirmed by 10.0.0.2:7700"));
    (0..5000).for_each(|number| purges.publish(number, order(), false, NOW));
    assert!(purges.take_for_log(false).len() <= MAX_PENDING);
}

#[test]
fn an_upgrade_waits_for_no_other_node_and_hands_over_what_those_lack() {
    let mut purges = begun(PurgeRequester::Front(1, 7), &[]);
    (purges.has_log, purges.log_runs) = (true, true);
    purges.publish(1, PurgeOrder::everything(), true, NOW);
    assert!(!purges.pending[0].is_over(NOW));
    purges.set_upgrading(true);
    assert!(purges.pending[0].is_over(NOW));
    let complaint = purges.pending[0].complaint();
    assert!(complaint.is_some_and(|why| why.contains("is being upgraded")));
    assert_eq!(purges.unsent().collect::<Vec<_>>(), [&PurgeOrder::everything()]);
    // And one that begins meanwhile does not wait, either.
    (purges.log_runs, purges.pending[0].nodes) = (false, OtherNodes::NotAwaited);
    purges.publish(1, PurgeOrder::everything(), true, NOW);
    assert_eq!(purges.pending[0].nodes, OtherNodes::Reported(PurgeReach::Upgrading));
}

#[test]
fn purges_of_a_site_beyond_its_budget_wait_for_the_one_that_stands_for_them() {
    let of_site = |site: &str| {
        let (site, how) = (site.to_owned(), PurgeMode::Hard);
        let purge = Purge::Tag("t".to_owned());
        PurgeOrder::Dropped(vec![DroppedPages { site, purge, how }])
    };
    let mut purges = PurgeCoordinator {
        has_log: true,
        log_runs: true,
        budgets: SiteBudgets::new(0),
        ..PurgeCoordinator::default()
    };
    let publish = |purges: &mut PurgeCoordinator, site: &str| {
        let requester = PurgeRequester::Front(1, 7);
        let number = purges.begin(of_site(site), requester, Vec::new(), NOW);
        purges.publish(number, of_site(site), true, NOW);
        number
    };
    for _ in 0..5000 {
        purges.last += 1;
        let number = purges.last;
        purges.publish(number, of_site("a"), false, NOW);
    }
    let sent = purges.take_for_log(false).len();
    assert!((100..1000).contains(&sent), "{sent}");
    let (first, other) = (publish(&mut purges, "a"), publish(&mut purges, "b"));
    assert_ne!(purges.pending[0].sent_as, first);
    assert_eq!(purges.take_for_log(false).len(), 1, "that of another site");
    purges.reached(other, &PurgeReach::Everywhere);
    assert!(!purges.pending[0].is_over(NOW) && purges.pending[1].is_over(NOW));
    assert_eq!(purges.unsent().count(), 1);
    let sent = purges.take_for_log(true);
    let [ToPurgeLog::Publish { number, order }] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(*order, PurgeOrder::merged([&of_site("a")]));
    purges.reached(*number, &PurgeReach::Everywhere);
    assert!(purges.pending[0].is_over(NOW));
}

#[test]
fn long_purges_that_wait_for_the_process_of_the_log_are_bounded_and_none_is_lost() {
    let mut purges = PurgeCoordinator { has_log: true, ..PurgeCoordinator::default() };
    let long = |site: &str, number: u64| {
        let (site, how) = (site.to_owned(), PurgeMode::Hard);
        let purge = Purge::Tag(format!("{number}{}", "x".repeat(40_000)));
        PurgeOrder::Dropped(vec![DroppedPages { site, purge, how }])
    };
    purges.for_log.push(ToPurgeLog::Applied { mark: 1, is_done: true });
    for number in 0..1000 {
        purges.pass_on(number, long(["a", "b"][usize::from(number > 500)], number));
        let bytes: usize = purges.unsent().map(bytes_of).sum();
        assert!(bytes <= MAX_FOR_LOG_BYTES, "{bytes}");
        assert_eq!(bytes, purges.for_log_bytes);
    }
    let sent = purges.take_for_log(false);
    assert!(sent.contains(&ToPurgeLog::Applied { mark: 1, is_done: true }));
    let both = PurgeOrder::merged([&long("a", 0), &long("b", 0)]);
    assert_eq!(sent.iter().find_map(published), Some(&both), "no other site is purged");
    assert!(matches!(sent.last(), Some(ToPurgeLog::Publish { number: 999, .. })));
    assert_eq!(purges.for_log_bytes, 0);
}

#[test]
fn a_purge_of_another_node_waits_for_a_front_that_is_being_started() {
    let purges = begun(PurgeRequester::Node(0, 7), &[]);
    assert!(!purges.pending[0].is_over(NOW));
    assert!(purges.pending[0].is_over(NOW + PURGE_ANSWER));
}

#[test]
fn purges_of_other_nodes_are_not_pending_without_limit() {
    let mut purges = PurgeCoordinator::default();
    let mut fronts = Fronts::new(Front::new(1, 1), Vec::new());
    let mut purge = |mark| purges.purge_of_node(mark, PurgeOrder::Company(true), &mut fronts, NOW);
    let accepted = (0..100_000).filter(|mark| purge(*mark)).count();
    assert_eq!((accepted, purges.pending.len()), (MAX_OF_NODES, MAX_OF_NODES));
    purges.finish(&mut fronts, NOW + PURGE_ANSWER);
    assert!(purges.purge_of_node(1, PurgeOrder::Company(true), &mut fronts, NOW));
}

#[test]
fn a_front_that_is_alone_waits_for_nobody() {
    let purges = begun(PurgeRequester::Front(1, 7), &[]);
    assert!(purges.pending[0].is_over(NOW));
}

/// The pages of a report that is as long as one may be.
fn longest_report(site: &str) -> Vec<DroppedPages> {
    let report = |pages: usize, rest: usize| {
        let of = |page: usize| DroppedPages {
            site: format!("{site}{page}"),
            purge: Purge::Tag("x".repeat(if page == 0 { rest } else { 1 })),
            how: PurgeMode::Soft,
        };
        let dropped: Vec<DroppedPages> = (0..pages).map(of).collect();
        // A front need not write what is the default.
        let json = serde_json::json!({ "PagesDropped": { "dropped": dropped, "mark": 1 } });
        (dropped, json.to_string())
    };
    let (_, short) = report(1000, 0);
    let (dropped, json) = report(1000, MAX_MESSAGE_BYTES - short.len());
    assert_eq!(json.len(), MAX_MESSAGE_BYTES);
    assert!(serde_json::from_str::<FromFront>(&json).is_ok());
    dropped
}

#[test]
fn the_longest_report_of_pages_leads_to_orders_that_fit_into_messages() {
    let fits = |order: Vec<u8>| assert!(order.len() <= MAX_MESSAGE_BYTES, "{}", order.len());
    let mut purges = PurgeCoordinator {
        has_log: true,
        log_runs: true,
        budgets: SiteBudgets::new(0),
        ..PurgeCoordinator::default()
    };
    let mut fronts = Fronts::new(Front::new(1, 1), Vec::new());
    // Beyond the budget of a site they are merged.
    for mark in 0..200 {
        let dropped = longest_report(&format!("a{}.", mark % 7));
        let (awaits_nodes, by_method) = (true, false);
        let report = PagesDropped { line: 2, mark, dropped, awaits_nodes, by_method };
        purges.dropped(report, &mut fronts, NOW);
    }
    let order = PurgeOrder::Dropped(longest_report("b."));
    assert!(purges.purge_of_node(1, order, &mut fronts, NOW));
    assert!(purges.pending.len() > 200);
    for one in &purges.pending {
        let (order, mark) = (one.order.clone(), u64::MAX);
        fits(serde_json::to_vec(&ToFront::Purge { order, mark }).unwrap());
    }
    let sent = purges.take_for_log(true);
    assert!(sent.len() > 2);
    for order in sent.iter().filter_map(published).cloned() {
        let number = u64::MAX;
        fits(serde_json::to_vec(&ToPurgeLog::Publish { number, order }).unwrap());
    }
}
