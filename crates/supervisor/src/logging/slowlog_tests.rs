use std::time::Duration;

use super::*;

const NOW: &str = "[01-Nov-2026 20:05:09]";

fn subject() -> Subject {
    Subject {
        pool: "www".to_owned(),
        pid: 3527,
        script: "/srv/by-worker.php".to_owned(),
        id: String::new(),
        running_time: None,
        is_fpm: false,
    }
}

fn frame(call: &str, place: Option<(&str, u32)>) -> Frame {
    Frame {
        address: 0x7f67_48a1_5230,
        call: call.to_owned(),
        file: place.map(|(file, _)| file.to_owned()),
        line: place.map_or(0, |(_, line)| line),
    }
}

fn stack(frames: Vec<Frame>) -> Stack {
    Stack { script: "/srv/t.php".to_owned(), frames, is_sound: true }
}

#[test]
fn an_entry_is_laid_out_as_by_php_fpm() {
    let stack = stack(vec![
        frame("sleep", None),
        frame("array_map", None),
        frame("A->m", Some(("/srv/inc.php", 7))),
        frame("[INCLUDE_OR_EVAL]", Some(("/srv/inc.php", 1))),
        frame("{main}", Some(("/srv/t.php", 3))),
    ]);
    let expected = "
[01-Nov-2026 20:05:09]  [pool www] pid 3527
script_filename = /srv/t.php
[0x00007f6748a15230] sleep() /srv/inc.php:7
[0x00007f6748a15230] array_map() /srv/inc.php:7
[0x00007f6748a15230] A->m() /srv/inc.php:1
[0x00007f6748a15230] [INCLUDE_OR_EVAL]() /srv/t.php:3
";
    assert_eq!(entry(&subject(), NOW, Ok(&stack), 20), expected);
    let lines = |depth| entry(&subject(), NOW, Ok(&stack), depth).lines().count();
    assert_eq!((lines(1), lines(2)), (4, 5));
}

#[test]
fn the_time_has_its_zone_except_under_php_fpms_rules() {
    let stamp = subject().stamp(1_795_166_070);
    assert_eq!(stamp.len(), "[20-Nov-2026 09:14:30 +0000]".len(), "{stamp}");
    let stamp = Subject { is_fpm: true, ..subject() }.stamp(1_795_166_070);
    assert_eq!(stamp.len(), "[20-Nov-2026 09:14:30]".len(), "{stamp}");
}

#[test]
fn a_request_with_an_id_is_named_after_its_script() {
    let subject = Subject { id: "5d1f".to_owned(), ..subject() };
    let entry = entry(&subject, NOW, Ok(&stack(vec![frame("sleep", None)])), 20);
    let lines: Vec<&str> = entry.lines().collect();
    assert_eq!(lines[2..4], ["script_filename = /srv/t.php", "request_id = 5d1f"]);
}

#[test]
fn where_a_scripts_time_went_so_far_is_told_in_seconds() {
    let subject = Subject {
        running_time: Some(RunningTime {
            cpu: Duration::from_micros(4_400),
            core_wait: Duration::ZERO,
            blocked: Duration::from_millis(1_230),
        }),
        ..subject()
    };
    let entry = entry(&subject, NOW, Err("no stack"), 20);
    let lines: Vec<&str> = entry.lines().skip(3).collect();
    let expected = [
        "cpu_time = 0.004",
        "core_wait_time = 0.000",
        "blocked_time = 1.230",
        "+++ dump failed: no stack",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_script_that_calls_nothing_is_shown_where_it_is() {
    let stack = stack(vec![frame("{main}", Some(("/srv/t.php", 3)))]);
    let entry = entry(&subject(), NOW, Ok(&stack), 20);
    assert!(entry.ends_with("t.php\n[0x00007f6748a15230] {main}() /srv/t.php:3\n"), "{entry}");
}

#[test]
fn a_stack_that_is_not_there_or_not_whole_says_why() {
    let none = entry(&subject(), NOW, Err("no reply"), 20);
    let expected = "\n[01-Nov-2026 20:05:09]  [pool www] pid 3527\n\
                    script_filename = /srv/by-worker.php\n+++ dump failed: no reply\n";
    assert_eq!(none, expected);
    let torn = Stack { is_sound: false, ..stack(vec![frame("f", None)]) };
    let torn = entry(&subject(), NOW, Ok(&torn), 20);
    assert!(torn.contains("f() unknown:0\n+++ dump failed: the script calls"), "{torn}");
}

#[test]
fn a_full_disk_and_a_pipe_without_reader_lose_entries_and_say_so_once() {
    let full = LogTarget::File("/dev/full".into());
    let (mut log, problem) = Slowlog::new(full);
    assert_eq!(problem, None);
    let said = log.append("one").expect("it is said");
    assert!(said.contains("No space left"), "{said}");
    assert_eq!(log.append("two"), None);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
    let (mut log, problem) = Slowlog::new(LogTarget::File(path));
    assert!(problem.is_some());
    assert_eq!(log.append("one"), None);
}

#[test]
fn entries_go_on_when_the_file_can_be_written_again_and_where_it_is_moved() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log/slow.log");
    let (mut log, problem) = Slowlog::new(LogTarget::File(path.clone()));
    assert!(problem.is_some_and(|problem| problem.contains("slow.log cannot be written")));
    assert_eq!((log.append("a"), log.append("b")), (None, None));
    std::fs::create_dir(folder.path().join("log")).unwrap();
    let again = log.append("c\n").expect("it is said");
    assert!(again.ends_with("2 entries were lost"), "{again}");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777 & !0o640, 0, "{mode:o}");
    let moved = path.with_extension("1");
    std::fs::rename(&path, &moved).unwrap();
    assert_eq!(log.append("d\n"), None);
    assert_eq!(log.reopen(), None);
    assert_eq!(log.append("e\n"), None);
    assert_eq!(std::fs::read_to_string(moved).unwrap(), "c\nd\n");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "e\n");
}

#[test]
fn a_zygote_that_lies_adds_no_entry_of_its_own() {
    let forged = "x\n\n[21-Nov-2026 20:00:00]  [pool other] pid 1\nscript_filename = /other.php";
    let stack = Stack {
        script: forged.to_owned(),
        frames: vec![frame(forged, Some((forged, 1))), frame(MAIN, Some((forged, 2)))],
        is_sound: true,
    };
    for entry in [entry(&subject(), NOW, Ok(&stack), 20), entry(&subject(), NOW, Err(forged), 20)] {
        let stamps = entry.lines().filter(|line| line.starts_with("[21-Nov"));
        assert_eq!(stamps.count(), 0, "{entry}");
        let names = entry.lines().filter(|line| line.starts_with("script_f"));
        assert_eq!(names.count(), 1, "{entry}");
    }
}
