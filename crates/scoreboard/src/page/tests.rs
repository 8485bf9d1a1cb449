use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn took(script: Duration) -> RequestTimes {
    RequestTimes {
        waited: SECOND,
        boot: SECOND / 2,
        script: Some(script),
        cpu: Some(script / 4),
        core_wait: Some(script / 8),
        blocked: Some(script - script / 4 - script / 8),
        children: SECOND,
        peak_memory: 2 << 20,
    }
}

fn again(page: &Page) -> Page {
    Page::open(page.as_fd().try_clone_to_owned().unwrap()).unwrap()
}

#[test]
fn what_one_process_counts_another_reads_and_a_third_goes_on_with() {
    let ours = Page::create("www", 2).unwrap();
    let first = again(&ours);
    first.thread(0).count(RequestOutcome::Responded);
    first.thread(1).count(RequestOutcome::QueueFull);
    first.thread(0).observe(&took(2 * SECOND), now());
    let queues = [QueueShare::new(1), QueueShare::new(1), QueueShare::new(2)];
    queues[0].show(&first, 7, 3);
    queues[1].show(&first, 1, 1);
    queues[2].show(&ours, 1, 1);
    queues[0].show(&first, 0, 1);
    first.add(Counter::LimitReached);
    first.add_time(Counter::LifoTime, SECOND);
    first.add_time(Counter::LifoTime, SECOND);
    ours.workers().show((0, 0), (4, 0));
    ours.workers().show((4, 0), (3, 1));
    ours.workers().add(Counter::WorkersStarted);
    ours.workers().ended(Cause::Signal, Some(11));
    drop(first);
    let second = again(&ours);
    second.thread(0).count(RequestOutcome::Responded);
    let waited = RequestTimes { waited: SECOND, ..RequestTimes::default() };
    second.thread(9).observe(&waited, now());
    let read = ours.read();
    assert_eq!(read.outcomes[RequestOutcome::Responded as usize], 2);
    assert_eq!(read.outcomes[RequestOutcome::QueueFull as usize], 1);
    assert_eq!((read.total.waits.count(), read.total.scripts.count()), (2, 1));
    assert_eq!(read.total.waits.sum(), 2 * SECOND);
    let parts = [&read.total.scripts, &read.total.cpu, &read.total.core_waits, &read.total.blocked];
    let sums = parts.map(|times| times.sum().as_millis());
    assert_eq!(sums, [2000, 500, 250, 1250]);
    let recent = [&read.recent.cpu, &read.recent.blocked];
    assert_eq!(recent.map(Histogram::count), [1, 1]);
    let count = |counter| read.counters.count(counter);
    assert_eq!((count(Counter::ChildrenCpu), count(Counter::BootWait)), (1_000_000, 500_000));
    assert_eq!((read.peak_memory.count(), read.peak_memory.below_power(12)), (1, 1));
    assert_eq!((read.queued, read.max_queued), (2, 9));
    assert_eq!((read.busy, read.max_busy, count(Counter::LimitReached)), (3, 5, 1));
    assert_eq!(count(Counter::LifoTime), 2_000_000);
    assert_eq!((read.seated, read.coming), (3, 1));
    assert_eq!((count(Counter::WorkersStarted), read.ended[Cause::Signal as usize]), (1, 1));
    assert_eq!(read.signals, [(11, 1)]);
    assert_eq!(read, second.read());
    assert_eq!(read.cache, None);
    let cache =
        OpcacheStats { used_bytes: 7, misses: 2, manual_restarts: 1, ..OpcacheStats::default() };
    ours.workers().show_cache(Some(cache));
    assert_eq!(second.read().cache.map(|(cache, _)| cache), Some(cache));
    assert!(second.cache_asked_at() > Duration::ZERO);
    assert_eq!(read.size, None);
    let size = Size { workers: 19, binding: 1, cpu: 19, memory: Some(0), ..Size::default() };
    second.show_size(Some(size));
    assert_eq!(ours.read().size, Some(size));
    assert_eq!(size.binding_name(), "cpu");
    ours.show_size(None);
    assert_eq!(ours.read().size, None);
    assert_eq!(read.copies, None);
    ours.workers().copies_of(3);
    ours.workers().forked(SECOND);
    let mut more = CopyCounters { rewound: 5, pages: 300, measured: 2, ..CopyCounters::default() };
    more.not_rewound[6] = 1;
    ours.workers().copies_counted(more);
    ours.workers().copies_counted(more);
    let copies = second.read().copies.unwrap();
    assert_eq!((copies.generation, copies.forks.count()), (3, 1));
    assert_eq!((copies.counters.rewound, copies.counters.not_rewound[6]), (10, 2));
    assert_eq!(copies.pages_each(), Some(150.0));
    ours.workers().copies_of(0);
    assert_eq!(second.read().copies, None);
    ours.workers().show_cache(None);
    assert_eq!(second.read().cache, None);
    ours.clear_front(1);
    assert_eq!((ours.read().queued, ours.read().busy), (1, 1));
}

#[test]
fn what_is_recent_is_forgotten_after_a_while_and_the_whole_is_not() {
    let page = Page::create("www", 1).unwrap();
    let read = |at: Duration| {
        let mut reading = Reading::default();
        page.thread(0).read(part_of(at), &mut reading);
        (reading.total.waits.count(), reading.recent.waits.count())
    };
    for second in 100..130 {
        page.thread(0).observe(&took(SECOND), second * SECOND);
    }
    assert_eq!(read(129 * SECOND), (30, 10));
    assert_eq!(read(133 * SECOND), (30, 6));
    assert_eq!(read(140 * SECOND), (30, 0));
    page.thread(0).observe(&RequestTimes::default(), 500 * SECOND);
    assert_eq!(read(500 * SECOND), (31, 1));
    assert_eq!(read(100 * SECOND), (31, 0), "what is to come is not recent");
}

#[test]
fn a_page_that_is_none_is_refused() {
    let foreign = create_sealed("test", 4096).unwrap();
    assert!(Page::open(foreign).is_err(), "of another size");
    let size = (HEAD_WORDS + BLOCK_WORDS) * 8;
    let foreign = create_sealed("test", size).unwrap();
    assert!(Page::open(foreign).is_err(), "of another kind");
    assert!(Page::create("www", 0).is_err());
    assert!(Page::create("www", 65).is_err());
}
