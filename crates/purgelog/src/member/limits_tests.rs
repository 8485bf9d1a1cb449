//! What a member remembers, and where that ends.

use super::known_entries::KnownEntries;
use super::others::Others;
use super::outgoing_purges::{Outcome, OutgoingPurges, Sight};
use super::{Member, MemberSettings, Remark, RoundReply, Start, Step};
use crate::log_entry::{Entry, EntryId, MAX_NAME_BYTES};

fn id(millis: u64) -> EntryId {
    EntryId { millis, number: 0 }
}

#[test]
fn an_entry_is_known_until_4096_others_have_come() {
    let mut known = KnownEntries::default();
    assert!(known.add(id(0), "a") && !known.add(id(0), "a") && known.add(id(0), "b"));
    let mut known = KnownEntries::default();
    (0..4096).for_each(|millis| assert!(known.add(id(millis), "a")));
    assert!(!known.add(id(0), "a"));
    assert!(known.add(id(4096), "a"));
    assert!(known.add(id(0), "a"), "the oldest is forgotten");
    assert!(!known.add(id(2), "a"));
}

fn registered(others: &mut Others, names: &[String], now: u64) {
    let all = names.iter().map(|name| (name.clone(), "i 1 live".to_owned())).collect();
    others.saw(all, "me", now);
}

#[test]
fn neither_this_node_nor_a_name_without_end_is_another_node() {
    let mut others = Others::default();
    let names = ["me".to_owned(), "n".repeat(MAX_NAME_BYTES), "n".repeat(MAX_NAME_BYTES + 1)];
    registered(&mut others, &names, 0);
    assert_eq!(others.live(0, 1).collect::<Vec<_>>(), [&names[1]]);
}

#[test]
fn more_nodes_than_are_remembered_are_not_forgotten_silently() {
    let mut others = Others::default();
    let names: Vec<String> = (0..257).map(|number| format!("n{number}")).collect();
    registered(&mut others, &names[..256], 0);
    registered(&mut others, &names[..256], 0);
    assert!(!others.are_too_many());
    registered(&mut others, &names, 0);
    assert!(others.are_too_many());
    assert_eq!(others.live(0, 1).count(), 256);
}

#[test]
fn a_registration_is_removed_an_hour_after_its_last_change() {
    let mut others = Others::default();
    registered(&mut others, &["n".to_owned()], 5);
    assert!(others.forget(5 + 3_600_000).is_empty());
    assert_eq!(others.forget(6 + 3_600_000), ["n"]);
    assert!(others.forget(u64::MAX).is_empty(), "once");
}

#[test]
fn a_purge_is_waited_for_until_its_time_and_said_once() {
    let mut others = Others::default();
    registered(&mut others, &["n".to_owned()], 0);
    let sight = Sight { others: &others, era: (1, "e"), sure_at: 0, sent: 0, wait: 100 };
    let mut purges = OutgoingPurges::default();
    purges.submit(1, "{}".to_owned(), 10);
    purges.submit(2, "{}".to_owned(), 30);
    assert_eq!((purges.deadline(), purges.awaited_until()), (Some(10), Some(30)));
    assert_eq!((purges.queued(), purges.is_queued()), (2, true));
    purges.added(&[(1, id(1))], sight);
    assert_eq!(purges.queued(), 1);
    assert!(purges.settle(sight).is_empty());
    assert!(purges.overdue(9, false).is_empty());
    let missing = Outcome::Missing(vec!["n".to_owned()]);
    assert_eq!(purges.overdue(10, false), [(1, missing)]);
    assert!(purges.overdue(29, false).is_empty());
    assert_eq!(purges.deadline(), Some(30));
    assert_eq!(purges.overdue(30, false), [(2, Outcome::Queued)]);
    assert_eq!((purges.deadline(), purges.awaited_until()), (None, None));
    // The lease of the other node has ended.
    let later = Sight { sent: 100, ..sight };
    assert_eq!(purges.settle(later), [(1, Outcome::Everywhere)]);
    purges.added(&[(2, id(2))], later);
    assert!(!purges.is_queued());
    let unsure = Sight { sure_at: 101, ..later };
    purges.submit(3, "{}".to_owned(), 200);
    purges.added(&[(3, id(3))], unsure);
    assert_eq!(purges.settle(unsure), [(2, Outcome::Everywhere)]);
    assert_eq!(purges.overdue(150, true), [(3, Outcome::Uncertain)]);
}

#[test]
fn what_no_node_confirms_is_remembered_4096_times() {
    let mut others = Others::default();
    registered(&mut others, &["n".to_owned()], 0);
    let sight = Sight { others: &others, era: (1, "e"), sure_at: 0, sent: 0, wait: 100 };
    let mut purges = OutgoingPurges::default();
    for number in 1..=4100 {
        purges.submit(number, "{}".to_owned(), 10);
        purges.added(&[(number, id(number))], sight);
        purges.overdue(10, false);
        purges.bound();
    }
    let after = Sight { sent: 100, ..sight };
    let settled = purges.settle(after);
    let numbers: Vec<u64> = settled.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (5..=4100).collect::<Vec<u64>>(), "the oldest are forgotten");
}

/// A member of era `e` that has read the stream up to entry 1-0, at a time of 2 ms.
fn member() -> Member {
    let settings = MemberSettings {
        node: "me".to_owned(),
        instance: "i".to_owned(),
        lease: 8000,
        timeout: 500,
        everything: "all".to_owned(),
    };
    let mut member = Member::new(settings, Start::Cold);
    (0..3).for_each(|now| drop(next(&mut member, now, reply(1, Vec::new()))));
    member
}

/// A reply while the stream ends with this entry.
fn reply(last: u64, entries: Vec<Entry>) -> RoundReply {
    let era = Some("e".to_owned());
    let nodes = vec![("other".to_owned(), "j 1 live".to_owned())];
    RoundReply { era, ends: Some((id(1), id(last))), entries, nodes, ..RoundReply::default() }
}

/// A round at this time, and its reply.
fn next(member: &mut Member, now: u64, reply: RoundReply) -> Vec<Step> {
    member.round(now);
    member.replied(reply, now)
}

#[test]
fn rounds_are_rare_until_there_is_news_and_frequent_while_a_purge_is_waited_for() {
    let mut member = member();
    assert_eq!(member.round_at(), 2 + 1000, "an eighth of the lease");
    member.hint();
    assert_eq!(member.round_at(), 3);
    next(&mut member, 3, reply(1, Vec::new()));
    assert_eq!(member.round_at(), 3 + 1000);
    member.submit(1, "{}".to_owned(), 3);
    assert_eq!(member.round_at(), 4);
    let own = Entry { id: id(2), token: "i:1".to_owned(), payload: "{}".to_owned() };
    next(&mut member, 4, RoundReply { added: vec![id(2)], ..reply(2, vec![own]) });
    assert_eq!(member.round_at(), 5, "others have to learn how far it is");
    for (now, expected) in [(5, 7), (102, 104), (103, 123)] {
        next(&mut member, now, reply(2, Vec::new()));
        assert_eq!(member.round_at(), expected);
    }
    next(&mut member, 503, reply(2, Vec::new()));
    assert_eq!(member.round_at(), 503 + 1000, "its outcome was reported");
}

#[test]
fn no_more_is_read_while_256_purges_are_being_applied() {
    let mut member = member();
    let entries = |from: u64| {
        let numbers = from..from + 64;
        let entry = |millis| {
            let token = format!("j:{millis}");
            Entry { id: id(millis), token, payload: "{}".to_owned() }
        };
        numbers.map(entry).collect()
    };
    for part in 0..4 {
        assert!(member.round(10 + part).read_after.is_some());
        member.replied(reply(1000, entries(2 + part * 64)), 10 + part);
    }
    assert_eq!(member.round(20).read_after, None);
    // What is applied meanwhile says nothing of what there is to read.
    member.replied(reply(1000, Vec::new()), 20);
    assert_eq!(member.round_at(), 20 + 1000);
    member.applied(1);
    assert_eq!(member.round_at(), 21);
    assert_eq!(member.round(21).read_after, Some(id(257)));
}

#[test]
fn another_server_of_the_same_name_is_named_once_and_ends_the_lease() {
    let mut member = member();
    let mut logged = |now| {
        let registered = Some("k 5 live".to_owned());
        let steps = next(&mut member, now, RoundReply { registered, ..reply(1, Vec::new()) });
        assert!(steps.contains(&Step::Lease(0)));
        assert!(!steps.iter().any(|step| matches!(step, Step::Lease(1..))));
        steps.iter().filter(|step| **step == Step::Say(Remark::NameTaken)).count()
    };
    assert_eq!(logged(10), 0, "it may be the last word of this node's former process");
    assert_eq!(logged(20), 1);
    assert_eq!(logged(30), 0, "once");
}
