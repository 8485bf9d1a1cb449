use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Stdio;

use maitred_os::users;

use super::*;

fn config(lines: &str) -> Config {
    let text = format!("[pools.shop]\n{lines}\n[[sites]]\nroot = \"/\"");
    maitred_config::parse(&text, Path::new("/maitred.toml")).unwrap()
}

fn values(lines: &str) -> Vec<String> {
    let config = config(lines);
    let settings = settings(&config.pools[0].confinement.together);
    settings.into_iter().map(|(_, setting, value)| format!("{setting} = {value}")).collect()
}

#[test]
fn limits_are_written_as_the_kernel_takes_them() {
    assert_eq!(
        values("memory_max = \"2G\"\nmemory_high = \"1G\"\ncpu_max = 1.5\npids_max = 50"),
        [
            "memory.max = 2147483648",
            "memory.high = 1073741824",
            "cpu.max = 150000 100000",
            "pids.max = 50"
        ]
    );
    assert_eq!(
        values("cpu_max = 0.01"),
        ["memory.max = max", "memory.high = max", "cpu.max = 1000 100000", "pids.max = max"]
    );
}

#[test]
fn a_pool_without_limits_needs_no_group_whatever_the_machine_has() {
    assert_eq!(obstacle(&config("")), None);
    let mut groups = None;
    Groups::arrange(&mut groups, &config("")).unwrap();
    assert!(groups.is_none());
}

#[test]
fn a_warning_names_the_pool_its_limits_the_cause_and_what_to_do() {
    let config = config("memory_max = \"2G\"\npids_max = 50");
    let why = no_group(&io::ErrorKind::NotFound.into());
    assert_eq!(
        warning(&config, &why),
        "memory_max, pids_max of pool `shop` cannot be kept: no control groups of version 2 \
         are mounted here; boot with systemd.unified_cgroup_hierarchy=1, or give the \
         container /sys/fs/cgroup"
    );
}

/// Groups in a folder with the files of two pools. None where there is no group to begin with.
fn pretended(folder: &Path) -> Option<Groups> {
    let own = Group::of_this_process();
    let own = own.map_err(|why| eprintln!("skipped: no control group: {why}")).ok()?;
    for pool in ["shop", "blog"] {
        let group = folder.join(format!("{POOL_GROUP}{pool}"));
        std::fs::create_dir(&group).unwrap();
        for file in ["cgroup.procs", "memory.max", "memory.high", "cpu.max"] {
            std::fs::write(group.join(file), "").unwrap();
        }
        // A used group has its limits written by another process, which a test cannot fork.
        std::fs::write(group.join("memory.current"), "0\n").unwrap();
    }
    std::fs::write(folder.join("cgroup.controllers"), "memory cpu").unwrap();
    Some(Groups {
        // An absolute path is not one beneath.
        base: own.make(&folder.to_string_lossy()).unwrap(),
        controllers: BTreeSet::from(["memory", "cpu"]),
        divided: Vec::new(),
        own: None,
        pools: BTreeMap::new(),
        left: Vec::new(),
        tried: Moment::ZERO,
    })
}

#[test]
fn a_reload_limits_pools_that_run_only_when_it_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let Some(groups) = pretended(folder.path()) else { return };
    let mut groups = Some(groups);
    let limit = |pool: &str| {
        let file = folder.path().join(format!("{POOL_GROUP}{pool}/memory.max"));
        std::fs::read_to_string(file).unwrap()
    };
    Groups::arrange(&mut groups, &config("memory_max = \"64M\"")).unwrap();
    assert_eq!((&*limit("shop"), &*limit("blog")), ("67108864", ""));
    let mut both = config("memory_max = \"128M\"");
    let blog = config("memory_max = \"32M\"").pools.remove(0);
    both.pools.push(Pool { name: "blog".to_owned(), ..blog });
    Groups::arrange_added(&mut groups, &both, &BTreeSet::from(["blog".to_owned()]));
    assert_eq!((&*limit("shop"), &*limit("blog")), ("67108864", "33554432"));
    Groups::arrange(&mut groups, &both).unwrap();
    assert_eq!((&*limit("shop"), &*limit("blog")), ("134217728", "33554432"));
}

#[test]
fn limits_that_have_not_changed_are_not_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let Some(groups) = pretended(folder.path()) else { return };
    let mut groups = Some(groups);
    let file = |name: &str| folder.path().join(format!("{POOL_GROUP}shop/memory.{name}"));
    let limits = |high: &str| config(&format!("memory_max = 100000001\nmemory_high = {high:?}"));
    Groups::arrange(&mut groups, &limits("64M")).unwrap();
    // As the kernel shows it: whole pages.
    std::fs::write(file("max"), "99999744\n").unwrap();
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    for name in ["max", "high"] {
        let open = std::fs::File::options().write(true).open(file(name)).unwrap();
        open.set_modified(long_ago).unwrap();
    }
    let is_old = |name| file(name).metadata().unwrap().modified().unwrap() == long_ago;
    Groups::arrange(&mut groups, &limits("64M")).unwrap();
    assert!(is_old("max") && is_old("high"));
    Groups::arrange(&mut groups, &limits("32M")).unwrap();
    assert!(is_old("max") && !is_old("high"));
    assert_eq!(std::fs::read_to_string(file("high")).unwrap(), "33554432");
}

#[test]
fn a_pool_has_the_processors_of_its_group_only_where_it_has_one() {
    let folder = tempfile::tempdir().unwrap();
    let Some(groups) = pretended(folder.path()) else { return };
    let mut groups = Some(groups);
    let limited = config("cpu_max = 0.5");
    let cores = |groups: &Option<Groups>| groups.as_ref().unwrap().cpu_max(&limited.pools[0]);
    assert_eq!(cores(&groups), None, "it has no group yet");
    Groups::arrange(&mut groups, &limited).unwrap();
    assert_eq!(cores(&groups), Some(500));
    let set = folder.path().join(format!("{POOL_GROUP}shop/cpu.max"));
    assert_eq!(std::fs::read_to_string(set).unwrap(), "50000 100000");
    groups.as_mut().unwrap().controllers.remove("cpu");
    assert_eq!(cores(&groups), None, "its group limits other things");
}

/// Groups beneath one of this test. None where no group can be made.
fn groups_in(test: &str) -> Option<Groups> {
    let name = format!("maitred-test-{test}-{}", std::process::id());
    let base = Group::of_this_process().and_then(|own| own.make(&name));
    let base = base.map_err(|why| eprintln!("skipped: no control group: {why}")).ok()?;
    let own = base.make(OWN_GROUP).unwrap();
    Some(Groups::inside(own, &config("")).unwrap())
}

fn pool_groups(base: &Group) -> Vec<String> {
    let groups = base.children(POOL_GROUP).unwrap();
    let name = |group: &Group| group.path().file_name().unwrap().to_string_lossy().into_owned();
    let mut names: Vec<String> = groups.iter().map(name).collect();
    names.sort();
    names
}

#[test]
fn the_group_of_a_removed_pool_goes_when_it_is_empty_and_one_that_is_back_stays() {
    let Some(mut groups) = groups_in("removed") else { return };
    let base = groups.base.clone();
    let pool = |name: &str| Pool { name: name.to_owned(), ..Pool::default() };
    for name in ["one", "two", "three"] {
        groups.add(&pool(name), &config(""), Instant::now()).unwrap();
    }
    let mut stays = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let entrance = groups.entrance_file("two").unwrap();
    std::fs::write(entrance, stays.id().to_string()).unwrap();
    groups.keep(|name| name == "three");
    assert_eq!(pool_groups(&base), ["maitred-pool-three", "maitred-pool-two"]);
    assert!(groups.entrance("two").is_none());
    stays.kill().unwrap();
    stays.wait().unwrap();
    groups.try_again(LEFT_TRIED_EVERY);
    assert_eq!(pool_groups(&base), ["maitred-pool-three"]);
    groups.left.push(groups.pools["three"].group.clone());
    groups.add(&pool("three"), &config(""), Instant::now()).unwrap();
    groups.try_again(2 * LEFT_TRIED_EVERY);
    assert_eq!(pool_groups(&base), ["maitred-pool-three"]);

    // The next program knows its own pools only.
    let own = groups.own.clone().unwrap();
    let mut next = Groups::inside(own, &config("")).unwrap();
    std::mem::forget(groups);
    next.keep(|_| false);
    assert_eq!(pool_groups(&base), [""; 0]);
    let own = next.own.take().unwrap();
    drop(next);
    own.remove().unwrap();
    base.remove().unwrap();
}

/// A process of this user, with this name as printf(1) writes it.
fn sleeper(uid: u32, name: &str) -> std::process::Child {
    let script = format!("printf '{name}' >/proc/$$/comm; echo; read line");
    let mut shell = std::process::Command::new("sh");
    let started = shell.args(["-c", &script]).uid(uid).stdin(Stdio::piped());
    let mut sleeper = started.stdout(Stdio::piped()).spawn().unwrap();
    let named = sleeper.stdout.as_mut().unwrap().read_exact(&mut [0]);
    named.unwrap();
    sleeper
}

#[test]
fn what_another_users_pool_of_the_same_name_has_left_is_killed_and_the_same_users_stays() {
    if !users::is_root() {
        return eprintln!("skipped: only root runs pools as other users");
    }
    let Some(mut groups) = groups_in("others") else { return };
    let user = users::look_up("daemon", None).unwrap().uid;
    let pool = Pool { name: "one".to_owned(), user: Some("daemon".to_owned()), ..Pool::default() };
    for (uid, name, signal) in [(user + 1, "sleep", 9), (user + 1, "\\377", 9), (user, "\\377", 15)]
    {
        groups.add(&pool, &config(""), Instant::now()).unwrap();
        let mut left = sleeper(uid, name);
        let entrance = groups.entrance_file("one").unwrap();
        std::fs::write(entrance, left.id().to_string()).unwrap();
        groups.keep(|_| false);
        groups.add(&pool, &config(""), Instant::now()).unwrap();
        // One that was killed does not end by this any more.
        let pid = rustix::process::Pid::from_child(&left);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert_eq!(left.wait().unwrap().signal(), Some(signal), "{uid}");
    }
    let (own, base) = (groups.own.take().unwrap(), groups.base.clone());
    drop(groups);
    own.remove().unwrap();
    base.remove().unwrap();
}
