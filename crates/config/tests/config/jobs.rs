//! Commands and schedules, and the log of purges: what each needs, and where its values end.

use std::time::Duration;

use maitred_config::{Job, PurgeLog, PurgeLogPlace};

use crate::folder::Folder;

const SITE: &str = "[[sites]]\nroot = \"public\"\n";

fn refused(text: &str, expected: &str) {
    let mistakes = Folder::new().mistakes(text);
    assert!(mistakes.contains(expected), "{mistakes}\n--- instead of ---\n{expected}");
}

/// A command, or a schedule, with these lines.
fn job(kind: &str, lines: &str) -> String {
    format!("[pools.www]\n[[pools.www.{kind}]]\n{lines}\n{SITE}")
}

#[test]
fn a_job_has_a_name_a_command_and_one_way_to_be_weighed() {
    refused(&job("commands", "command = [\"a\"]"), "2:1: this command has no `name`");
    refused(&job("schedules", "name = \"a\""), "2:1: this schedule has no `command`");
    let own = "name = \"a\"\ncommand = [\"a\"]\n";
    refused(
        &job("commands", &format!("{own}process_priority = 5\ncpu_weight = 5")),
        "this command has both `process_priority` and `cpu_weight`; leave one out",
    );
    Folder::new().good(&job("commands", &format!("{own}process_priority = 5")));
}

#[test]
fn a_number_of_processes_by_a_queue_needs_a_probe() {
    let of = |lines: &str| {
        let own = "name = \"a\"\ncommand = [\"a\"]\n";
        job("commands", &format!("{own}{lines}"))
    };
    refused(
        &of("min_processes = 2"),
        "`min_processes` has no effect without `processes = \"auto\"`; add that",
    );
    refused(
        &of("processes = \"auto\""),
        "`processes = \"auto\"` needs a `probe`, which prints how many jobs wait",
    );
    let probed = "processes = \"auto\"\nprobe = [\"b\"]\n";
    refused(
        &of(&format!("{probed}min_processes = 5\nmax_processes = 4")),
        "`min_processes` is 5, more than `max_processes`, which is 4; lower it",
    );
    let config = Folder::new().good(&of(&format!("{probed}min_processes = 4\nmax_processes = 4")));
    let scaling = config.jobs[0].scaling.as_ref().unwrap();
    assert_eq!((scaling.min_processes, scaling.max_processes), (4, 4));
}

#[test]
fn a_schedule_has_one_time_and_a_name_of_its_own() {
    let own = "name = \"a\"\ncommand = [\"a\"]\n";
    refused(&job("schedules", own), "this schedule has no time; add `every`, `at` or `cron`");
    refused(
        &job("schedules", &format!("{own}every = \"1m\"\nat = \"03:00\"")),
        "this schedule has both `every` and `at`; leave one out",
    );
    let both = format!("{own}[[pools.www.schedules]]\n{own}every = \"1m\"");
    refused(&job("commands", &both), "pool `www` has another command or schedule `a`");
}

#[test]
fn there_are_at_most_a_thousand_jobs() {
    let jobs = |count: usize| {
        let command =
            |number| format!("[[pools.www.commands]]\nname = \"c{number}\"\ncommand = [\"a\"]\n");
        format!("[pools.www]\n{}{SITE}", (0..count).map(command).collect::<String>())
    };
    assert_eq!(Folder::new().good(&jobs(1000)).jobs.len(), 1000);
    refused(&jobs(1001), "there are more than 1000 commands and schedules");
}

/// The schedules of sites with `app_cron`.
fn crons(sites: &str) -> Vec<Job> {
    Folder::new().good(&format!("[pools.www]\n{sites}")).jobs
}

#[test]
fn the_schedule_of_an_application_is_named_for_its_host() {
    let site = |host: &str, app: &str| {
        format!("{SITE}hosts = [\"{host}\"]\napp = \"{app}\"\napp_cron = true\n")
    };
    let long = "a-shop-with-a-very-long-name.example";
    let alike = "a-shop-with-a-very-long-name-example";
    let jobs = crons(&(site(long, "nextcloud") + &site(alike, "wordpress")));
    let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["cron-a-shop-with-a-very-long-nam", "cron-a-shop-with-a-very-long-n-2"]);
    assert_eq!(jobs[0].command, ["php", "cron.php"]);
    let every = |job: &Job| match &job.schedule.as_ref().unwrap().when {
        maitred_timetable::When::Every(every) => every.as_secs(),
        other => panic!("{other:?}"),
    };
    assert_eq!((every(&jobs[0]), every(&jobs[1])), (300, 60));
    let timeouts = jobs.iter().map(|job| job.schedule.as_ref().unwrap().timeout);
    let half_a_day = Duration::from_secs(12 * 3600);
    assert!(timeouts.eq([half_a_day; 2]), "one that hangs would end all later ones");
    let alone = crons(&format!("{SITE}app = \"wordpress\"\napp_cron = true\n"));
    assert_eq!(alone[0].name, "cron");
    refused(
        "[pools.www]\nchroot = \"/srv\"\n[[sites]]\nroot = \"/srv\"\napp = \"wordpress\"\n\
         app_cron = true\n",
        "`app_cron` is for sites whose pool has no `chroot`",
    );
}

#[test]
fn the_values_of_the_purge_log_have_both_ends() {
    let log = |rest: &str| format!("purge_log = {{ url = \"redis://a\", {rest} }}\n{SITE}");
    let good = |rest: &str| Folder::new().good(&log(rest)).purge_log.unwrap();
    let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
    assert_eq!(["1s", "1h"].map(|text| good(&format!("lease = \"{text}\"")).lease), [second, hour]);
    let timeouts = ["50ms", "4s"].map(|text| good(&format!("timeout = \"{text}\"")).timeout);
    assert_eq!(timeouts, [Duration::from_millis(50), 4 * second]);
    assert_eq!([100, 1_000_000].map(|n| good(&format!("length = {n}")).length), [100, 1_000_000]);
    let plain = good("node = \"a.b-c_d\"");
    let prefix = |log: PurgeLog| match log.place {
        PurgeLogPlace::Redis { prefix, .. } => prefix,
        PurgeLogPlace::Peers(peers) => panic!("{peers:?}"),
    };
    assert_eq!(plain.node.as_deref(), Some("a.b-c_d"));
    assert_eq!((plain.lease, plain.timeout, plain.length), (90 * second, 2 * second, 16_384));
    assert_eq!(prefix(plain), "maitred");
    assert_eq!(prefix(good("prefix = \"{a}:b\"")), "{a}:b");
    let longest = "n".repeat(64);
    assert_eq!(good(&format!("node = \"{longest}\"")).node, Some(longest));
    for (name, value) in [
        ("lease", "\"999ms\"".to_owned()),
        ("lease", "\"3601s\"".to_owned()),
        ("timeout", "\"49ms\"".to_owned()),
        ("timeout", "\"4001ms\"".to_owned()),
        ("length", "99".to_owned()),
        ("length", "1000001".to_owned()),
        ("node", "\"a:b\"".to_owned()),
        ("node", format!("\"{}\"", "n".repeat(65))),
        ("node", "\"\"".to_owned()),
        ("prefix", "\"a b\"".to_owned()),
    ] {
        refused(&log(&format!("{name} = {value}")), &format!("`purge_log.{name}` is the "));
    }
}
