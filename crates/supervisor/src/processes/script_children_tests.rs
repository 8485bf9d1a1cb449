use super::*;
use std::cell::{Cell, RefCell};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

const NOW: Moment = Moment::from_secs(9);

fn sleeper(group: i32) -> Child {
    Command::new("sleep").arg("1000").process_group(group).spawn().unwrap()
}

fn wait_for_a_tick() {
    // The start of a process is known to a hundredth of a second.
    std::thread::sleep(Duration::from_millis(25));
}

/// Ends the processes of a script. How many there were.
fn end_children(script: EndedScript, ours: &[i32]) -> usize {
    let mut children = ScriptChildren::default();
    children.end_those_of(script, None, NOW);
    let (mut now, mut count) = (NOW, 0);
    while let Some(at) = children.deadline() {
        now = now.max(at);
        let ended = children.look(|| ours.iter().copied().collect(), now);
        count += ended.iter().map(|ended| ended.count).sum::<usize>();
    }
    count
}

#[test]
fn only_processes_of_the_group_that_are_younger_than_the_script_are_ended() {
    let mut leader = sleeper(0);
    let group = i32::try_from(leader.id()).unwrap();
    let mut before = sleeper(group);
    wait_for_a_tick();
    let since = time_of(ClockId::Monotonic);
    wait_for_a_tick();
    let mut after = sleeper(group);
    let mut of_another_group = sleeper(0);
    let uid = maitred_os::users::current().uid;
    let script = EndedScript { worker: group, uid, since };
    let stranger = EndedScript { uid: uid + 1, ..script };
    assert_eq!(end_children(stranger, &[]), 0);
    let own = i32::try_from(after.id()).unwrap();
    assert_eq!(end_children(script, &[own]), 0, "it is ours");
    assert_eq!(end_children(script, &[]), 1);
    assert!(after.wait().unwrap().code().is_none());
    for left in [&mut leader, &mut before, &mut of_another_group] {
        assert!(left.try_wait().unwrap().is_none());
        left.kill().unwrap();
        left.wait().unwrap();
    }
    assert_eq!(end_children(script, &[]), 0, "the group is gone");
}

/// Children of ours, each with its group; a child of the process 1 is in its parent's group.
#[derive(Default)]
struct WrittenTree {
    children: RefCell<HashMap<i32, i32>>,
    below_first: Vec<i32>,
    /// The process 1 exists in this many rounds after it was killed, and leaves us this child.
    dies_in: Cell<u32>,
    left_by_first: Option<i32>,
    killed: RefCell<Vec<i32>>,
    looks: Cell<u32>,
}

impl WrittenTree {
    fn of(children: impl IntoIterator<Item = (i32, i32)>) -> WrittenTree {
        let children = RefCell::new(children.into_iter().collect());
        WrittenTree { children, ..WrittenTree::default() }
    }
}

impl ProcessTree for WrittenTree {
    fn has_members(&self, _group: i32) -> bool {
        true
    }

    fn children(&self) -> Vec<i32> {
        let mut all: Vec<i32> = self.children.borrow().keys().copied().collect();
        all.sort_unstable();
        all
    }

    fn children_of(&self, pid: i32) -> Vec<i32> {
        if pid == 1 { self.below_first.clone() } else { Vec::new() }
    }

    fn group_of(&self, pid: i32) -> Option<i32> {
        self.looks.set(self.looks.get() + 1);
        let group = self.children.borrow().get(&pid).copied();
        group.or_else(|| self.children.borrow().get(&1).copied())
    }

    fn exists(&self, pid: i32, group: i32) -> bool {
        self.looks.set(self.looks.get() + 1);
        let left = self.dies_in.get();
        self.dies_in.set(left.saturating_sub(1));
        if let Some(child) = self.left_by_first.filter(|_| left == 0 && pid == 1) {
            self.children.borrow_mut().insert(child, group);
        }
        left > 0
    }

    fn kill(&self, pid: i32, _script: &EndedScript) -> bool {
        self.looks.set(self.looks.get() + 1);
        self.children.borrow_mut().remove(&pid);
        self.killed.borrow_mut().push(pid);
        true
    }
}

/// Those that look for the processes of scripts with these workers.
fn searching(workers: impl IntoIterator<Item = i32>) -> ScriptChildren {
    let search = |worker| ChildSearch {
        script: EndedScript { worker, uid: 0, since: Duration::ZERO },
        pool: Some("www".to_owned()),
        until: NOW + LOOKED_FOR,
        rounds: MAX_ROUNDS,
        tried: HashSet::new(),
        dying: Vec::new(),
        killed: 0,
    };
    let searches = workers.into_iter().map(search).collect();
    ScriptChildren { searches, ..ScriptChildren::default() }
}

#[test]
fn one_search_is_for_all_scripts_and_goes_below_what_it_finds() {
    let mut system = WrittenTree::of([(1, 70), (2, 80), (3, 90), (4, 70)]);
    system.below_first = vec![5, 6];
    let mut children = searching([70, 80]);
    let none = HashSet::new();
    assert_eq!(children.round(&system, &none, NOW), [], "others may come");
    let mut killed = system.killed.borrow().clone();
    killed.sort_unstable();
    assert_eq!(killed, [1, 2, 4, 5, 6]);
    let ended = children.round(&system, &none, NOW);
    let ended: Vec<_> = ended.iter().map(|one| (one.worker, one.count)).collect();
    assert_eq!(ended, [(70, 4), (80, 1)]);
    assert!(children.deadline().is_none());
}

#[test]
fn a_search_goes_on_until_what_it_has_killed_is_gone() {
    let mut system = WrittenTree::of([(1, 70)]);
    (system.dies_in, system.left_by_first) = (Cell::new(2), Some(5));
    let mut children = searching([70]);
    let mut rounds = 0;
    while children.deadline().is_some() && rounds < 10 {
        children.round(&system, &HashSet::new(), NOW);
        rounds += 1;
    }
    assert_eq!(*system.killed.borrow(), [1, 5]);
    assert!(children.deadline().is_none(), "both are gone");
}

#[test]
fn however_many_orphans_of_others_there_are_each_is_looked_at_once() {
    let orphans = 10_000;
    let all = (100..100 + orphans).map(|pid| (pid, pid)).chain([(200_000, 70)]);
    let (system, none) = (WrittenTree::of(all), HashSet::new());
    let mut children = searching([70]);
    let (mut now, mut ended) = (NOW, Vec::new());
    while ended.is_empty() {
        children.searches[0].until = now + LOOKED_FOR;
        let before = system.looks.get();
        ended = children.round(&system, &none, now);
        assert!(system.looks.get() - before <= LOOKS_PER_TURN);
        now += PAUSE;
    }
    assert_eq!(*system.killed.borrow(), [200_000]);
    let seconds = (now - NOW).as_secs_f64();
    let most = f64::from(LOOKS_AT_ONCE) + f64::from(LOOKS_PER_SECOND) * seconds;
    assert!(f64::from(system.looks.get()) <= most, "{} in {seconds} s", system.looks.get());
    // Another worker crashes.
    system.children.borrow_mut().insert(200_001, 71);
    children.searches = searching([71]).searches;
    children.searches[0].until = now + LOOKED_FOR;
    let before = system.looks.get();
    children.round(&system, &none, now);
    assert_eq!(system.killed.borrow().last(), Some(&200_001));
    assert_eq!(system.looks.get() - before, 2, "a look at the new one, and one to kill it");
}

#[test]
fn a_user_with_orphans_without_end_leaves_the_searches_of_another_their_looks() {
    let (system, none) = (WrittenTree::of([(1_000_000, 71)]), HashSet::new());
    let mut children = searching([70, 71]);
    children.searches[1].script.uid = 1;
    let other = children.searches.pop().unwrap();
    let (mut now, mut orphan) = (NOW, 100);
    // In each round there are more new ones than may be looked at.
    let mut round = |children: &mut ScriptChildren| {
        let more = i32::try_from(LOOKS_PER_TURN).unwrap();
        system.children.borrow_mut().extend((orphan..orphan + more).map(|pid| (pid, pid)));
        orphan += more;
        children.searches[0].until = now + LOOKED_FOR;
        children.round(&system, &none, now);
        now += PAUSE;
    };
    for _ in 0..100 {
        round(&mut children);
    }
    children.searches.push(other);
    children.searches[1].until = NOW + 100 * LOOKED_FOR;
    round(&mut children);
    assert_eq!(*system.killed.borrow(), [1_000_000]);
}

#[test]
fn a_user_with_all_searches_leaves_some_to_another() {
    let most = i32::try_from(SCRIPTS_MOST).unwrap();
    let mut children = searching(1..most);
    assert!(children.has_room(0));
    children.searches.extend(searching([most]).searches);
    assert!(!children.has_room(0) && children.has_room(1));
    let mut of_other = searching(1..=i32::try_from(SCRIPTS_OF_USER).unwrap()).searches;
    of_other.iter_mut().for_each(|search| search.script.uid = 1);
    children.searches.extend(of_other);
    assert!(!children.has_room(1) && children.has_room(2));
}

#[test]
fn a_search_ends_with_its_time_and_where_a_new_worker_has_the_number() {
    let system = WrittenTree::of([(1, 70), (2, 80)]);
    let mut children = searching([70, 80]);
    children.searches[0].until = NOW;
    let ended = children.round(&system, &HashSet::from([80]), NOW);
    assert!(ended.is_empty() && children.deadline().is_none());
    assert!(system.killed.borrow().is_empty());
}

#[test]
fn rounds_have_a_tenth_of_the_time_however_long_they_take() {
    let mut children = searching([70]);
    children.pause(Duration::from_millis(1), NOW);
    assert_eq!(children.deadline(), Some(NOW + Duration::from_millis(1) + PAUSE));
    assert_eq!(children.searches[0].until, NOW + LOOKED_FOR);
    let took = Duration::from_millis(500);
    children.pause(took, NOW);
    assert_eq!(children.deadline(), Some(NOW + 10 * took));
    assert!(children.searches[0].until > NOW + 10 * took, "there is another round");
}
