//! Settings of the commands and the schedules of a pool: `[[pools.NAME.commands]]` and
//! `[[pools.NAME.schedules]]`.

use std::time::Duration;

use maitred_timetable::{TimeOfDay, Timetable, When, zone_named};

use crate::model::job::{IoPriority, Job, Missed, Overlap, Restart, Scaling};
use crate::read::directive::{Directive, Needs, Preset, store};
use crate::read::value::{BadValue, Value, for_each};

/// Longest name of a command or a schedule in bytes: it is part of the titles of processes.
const MAX_NAME_BYTES: usize = 32;

/// Most processes of a command.
const MAX_PROCESSES: u32 = 1000;

/// Bounds of a nice value (getpriority(2)).
const NICE: [i32; 2] = [-20, 19];

/// Most waiting jobs for which there is one process.
const MAX_JOBS: u32 = 1_000_000;

/// The weight of a worker.
const MAX_CPU_WEIGHT: u32 = 100;

/// The lowest priority of disk accesses that is not idle (ioprio_set(2)).
const MAX_IO_LEVEL: u8 = 7;

/// Least `max_memory`, in bytes: less than any PHP needs.
const MIN_MEMORY_BYTES: u64 = 1 << 20;

/// The signals of `stop_signal`.
const STOP_SIGNALS: [&str; 6] = ["SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2"];

/// A command or a schedule while it is read.
#[derive(Debug, Default)]
pub struct JobDraft {
    pub(crate) job: Job,
    pub(crate) is_schedule: bool,
    pub(crate) when: Option<When>,
    pub(crate) timezone: Option<String>,
    pub(crate) overlap: Option<Overlap>,
    pub(crate) timeout: Duration,
    pub(crate) jitter: Duration,
    pub(crate) missed: Missed,
    pub(crate) one_node: bool,
    pub(crate) is_scaled: bool,
    pub(crate) scaling: Scaling,
}

const NAME: Directive<JobDraft> = Directive {
    name: "name",
    default: Preset::Words("none; it is required"),
    takes: "1 to 32 letters, digits, `_` or `-`",
    needs: Needs::Live,
    doc: "The name, which no other command and no other schedule of the pool has. It is in the \
          log, in `maitred commands` and in metrics; `maitred run POOL/NAME` runs it.",
    example: "\"mails\"",
    read: |draft, value| {
        let fit = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        let good = |text: &str| (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(fit);
        store(&mut draft.job.name, value.text_as(|text| good(text).then(|| text.to_owned())))
    },
};

const COMMAND: Directive<JobDraft> = Directive {
    name: "command",
    default: Preset::Words("none; it is required"),
    takes: "an array of the program and its arguments, such as [\"php\", \"artisan\", \
            \"queue:work\"]",
    needs: Needs::Live,
    doc: "The program and its arguments, without a shell. `\"php\"` as the program is PHP's \
          command line of the pool's version, with the php.ini and the PHP settings of the pool \
          (`php_value` and the others, each as `-d`). Other programs are found in `PATH`, or are \
          an absolute path.",
    example: "[\"php\", \"artisan\", \"queue:work\", \"--sleep=3\"]",
    read: |draft, value| store(&mut draft.job.command, words(value)),
};

const ENV: Directive<JobDraft> = Directive {
    name: "env",
    default: Preset::Words("only the pool's"),
    takes: "a table of environment variables such as { QUEUE = \"mails\" }",
    needs: Needs::Live,
    doc: "Environment variables in addition to those of the pool, whose place they take.",
    example: "{ QUEUE = \"mails\" }",
    read: |draft, value| {
        for_each(value.entries("a string, a number, true or false")?, |entry| {
            if entry.name.is_empty() || entry.name.contains(['=', '\0']) {
                return Err(entry.misnamed("cannot be the name of an environment variable"));
            }
            draft.job.env.push((entry.name, entry.value.ini_value()?));
            Ok(())
        })
    },
};

const DIR: Directive<JobDraft> = Directive {
    name: "dir",
    default: Preset::Words("`chdir` of the pool, or else `/`"),
    takes: "a path",
    needs: Needs::Live,
    doc: "The working directory. In a pool with `chroot` it is a path inside of it.",
    example: "\"/srv/shop\"",
    read: |draft, value| store(&mut draft.job.dir, value.path().map(Some)),
};

const STOP_SIGNAL: Directive<JobDraft> = Directive {
    name: "stop_signal",
    default: Preset::Value("\"SIGTERM\""),
    takes: "\"SIGTERM\", \"SIGINT\", \"SIGQUIT\", \"SIGHUP\", \"SIGUSR1\" or \"SIGUSR2\"",
    needs: Needs::Live,
    doc: "The signal that asks a process to end. Laravel's and Symfony's consumers finish their \
          job after SIGTERM.",
    example: "\"SIGINT\"",
    read: |draft, value| {
        let known = |text: &str| STOP_SIGNALS.contains(&text).then(|| text.to_owned());
        store(&mut draft.job.stop_signal, value.text_as(known))
    },
};

const STOP_TIMEOUT: Directive<JobDraft> = Directive {
    name: "stop_timeout",
    default: Preset::Value("\"30s\""),
    takes: "a duration of at most 366 days such as \"5m\"",
    needs: Needs::Live,
    doc: "Time after `stop_signal` until the process and those that it has started are killed. \
          When the server stops, `process_control_timeout` is the limit of all.",
    example: "\"5m\"",
    read: |draft, value| store(&mut draft.job.stop_timeout, value.duration()),
};

const PROCESS_PRIORITY: Directive<JobDraft> = Directive {
    name: "process_priority",
    default: Preset::Words("by `cpu_weight`"),
    takes: "a whole number from -20 to 19",
    needs: Needs::Live,
    doc: "The nice value of the processes, in place of `cpu_weight`. Values below that of the \
          server need root.",
    example: "10",
    read: |draft, value| {
        let [least, most] = NICE;
        store(&mut draft.job.process_priority, value.signed(least, most).map(Some))
    },
};

const CPU_WEIGHT: Directive<JobDraft> = Directive {
    name: "cpu_weight",
    default: Preset::Value("2"),
    takes: "a whole number from 0 to 100",
    needs: Needs::Live,
    doc: "The processor time of a process where requests want it as well, in hundredths of that \
          of a worker; while they do not, it has all that it wants. It becomes a nice value \
          relative to the pool's: 2 is 18 more, 10 are 10 more. Below 100, a process that wakes up \
          does not interrupt a worker, either (`SCHED_BATCH`); with 0 it has only what no other \
          process wants (`SCHED_IDLE`), and may get nothing for long.",
    example: "50",
    read: |draft, value| store(&mut draft.job.cpu_weight, value.count(0, MAX_CPU_WEIGHT)),
};

const IO: Directive<JobDraft> = Directive {
    name: "io",
    default: Preset::Words("by the nice value, as the kernel has it: \"best-effort:7\""),
    takes: "\"idle\", or \"best-effort:N\" with N from 0 to 7",
    needs: Needs::Live,
    doc: "The priority of disk accesses (ioprio_set(2)), which the schedulers BFQ and mq-deadline \
          follow: \"idle\" reads and writes only while no other process does, 7 comes after 0. \
          Writes of files that are not synchronous are the kernel's own, and have none.",
    example: "\"idle\"",
    read: |draft, value| {
        let priority = |text: &str| match text.strip_prefix("best-effort:") {
            None => (text == "idle").then_some(IoPriority::Idle),
            Some(level) => {
                let level = level.parse().ok().filter(|level| *level <= MAX_IO_LEVEL);
                level.map(IoPriority::BestEffort)
            }
        };
        store(&mut draft.job.io, value.text_as(priority).map(Some))
    },
};

/// The directives of a command.
pub const COMMANDS: &[Directive<JobDraft>] = &[
    NAME,
    COMMAND,
    Directive {
        name: "processes",
        default: Preset::Value("1"),
        takes: "a whole number from 0 to 1000, or \"auto\"",
        needs: Needs::Live,
        doc: "Processes that run at a time; 0 is none, for a command that only `maitred run` \
              starts. With `\"auto\"` the number follows the length of a queue, which `probe` \
              prints.",
        example: "4",
        read: |draft, value| {
            draft.is_scaled = value.text().is_ok_and(|text| text == "auto");
            match draft.is_scaled {
                true => Ok(()),
                false => store(&mut draft.job.processes, value.count(0, MAX_PROCESSES)),
            }
        },
    },
    Directive {
        name: "probe",
        default: Preset::Words("none; `processes = \"auto\"` needs one"),
        takes: "an array of a program and its arguments, such as [\"php\", \"bin/queue-length\"]",
        needs: Needs::Live,
        doc: "A program that prints how many jobs wait: its last line is that number. It runs as \
              the command does, and has 10 seconds. If it fails, the number of processes stays as \
              it is, and the log says so once. `[\"redis-cli\", \"LLEN\", \"queues:default\"]` is \
              that of Laravel's queue in Redis.",
        example: "[\"php\", \"bin/queue-length\"]",
        read: |draft, value| store(&mut draft.scaling.probe, words(value)),
    },
    Directive {
        name: "probe_interval",
        default: Preset::Value("\"10s\""),
        takes: "a duration from 1 second to 366 days such as \"30s\"",
        needs: Needs::Live,
        doc: "Time between two runs of `probe`.",
        example: "\"30s\"",
        read: |draft, value| {
            let interval = value.duration()?;
            if interval < Duration::from_secs(1) {
                return Err(value.wrong());
            }
            draft.scaling.interval = interval;
            Ok(())
        },
    },
    Directive {
        name: "min_processes",
        default: Preset::Value("1"),
        takes: "a whole number from 0 to 1000",
        needs: Needs::Live,
        doc: "Fewest processes, with `processes = \"auto\"`.",
        example: "0",
        read: |draft, value| store(&mut draft.scaling.min_processes, value.count(0, MAX_PROCESSES)),
    },
    Directive {
        name: "max_processes",
        default: Preset::Value("10"),
        takes: "a whole number from 1 to 1000",
        needs: Needs::Live,
        doc: "Most processes, with `processes = \"auto\"`. With `pm = \"auto\"` there are also no \
              more than memory is free for, by the most that one has had.",
        example: "20",
        read: |draft, value| store(&mut draft.scaling.max_processes, value.count(1, MAX_PROCESSES)),
    },
    Directive {
        name: "jobs_per_process",
        default: Preset::Value("10"),
        takes: "a whole number from 1 to 1000000",
        needs: Needs::Live,
        doc: "Waiting jobs for which there is a process, with `processes = \"auto\"`: of 35 jobs, \
              10 for each, there are 4. The number at most doubles at a time, and falls when it \
              was smaller for a minute.",
        example: "100",
        read: |draft, value| store(&mut draft.scaling.jobs_per_process, value.count(1, MAX_JOBS)),
    },
    ENV,
    DIR,
    Directive {
        name: "restart",
        default: Preset::Value("\"always\""),
        takes: "\"always\", \"on-failure\" or \"never\"",
        needs: Needs::Live,
        doc: "Whether a process that has ended is started again: always, only after an exit code \
              other than 0 or a signal, or never. At the next reload of the pool it is, in any \
              case.",
        example: "\"on-failure\"",
        read: |draft, value| {
            let restart = |text: &str| match text {
                "always" => Some(Restart::Always),
                "on-failure" => Some(Restart::OnFailure),
                "never" => Some(Restart::Never),
                _ => None,
            };
            store(&mut draft.job.restart, value.text_as(restart))
        },
    },
    Directive {
        name: "restart_delay_max",
        default: Preset::Value("\"60s\""),
        takes: "a duration from 1 second to 366 days such as \"5m\"",
        needs: Needs::Live,
        doc: "Longest wait before a process is started again. The wait is 0.1 s after a failure \
              and doubles with each further one, with up to a quarter more at random; a process \
              that ran for this long starts over. One that ends within a second counts as failed, \
              whatever its exit code.",
        example: "\"5m\"",
        read: |draft, value| {
            let delay = value.duration()?;
            if delay < Duration::from_secs(1) {
                return Err(value.wrong());
            }
            draft.job.restart_delay_max = delay;
            Ok(())
        },
    },
    STOP_SIGNAL,
    STOP_TIMEOUT,
    Directive {
        name: "max_memory",
        default: Preset::Value("0"),
        takes: "a size of at least 1M such as \"256M\"; 0 is never",
        needs: Needs::Live,
        doc: "Resident memory of a process beyond which it is replaced as after `max_runtime`. It \
              is read every ten seconds.",
        example: "\"256M\"",
        read: |draft, value| {
            let size = value.size(0)?;
            if size != 0 && size < MIN_MEMORY_BYTES {
                return Err(value.wrong());
            }
            draft.job.max_memory = size;
            Ok(())
        },
    },
    Directive {
        name: "max_runtime",
        default: Preset::Value("0"),
        takes: "a duration of at most 366 days such as \"1h\"; 0 is never",
        needs: Needs::Live,
        doc: "Time after which a process is replaced, and up to a tenth more at random: its \
              successor is started, and then it gets `stop_signal`. For that time there is one \
              process more.",
        example: "\"1h\"",
        read: |draft, value| store(&mut draft.job.max_runtime, value.duration()),
    },
    CPU_WEIGHT,
    PROCESS_PRIORITY,
    IO,
];

/// The directives of a schedule.
pub const SCHEDULES: &[Directive<JobDraft>] = &[
    NAME,
    COMMAND,
    Directive {
        name: "every",
        default: Preset::Words("none; `every`, `at` or `cron` is required"),
        takes: "a duration of whole seconds, at least 1, such as \"5m\"",
        needs: Needs::Live,
        doc: "Runs at the multiples of this interval, counted from 1970 in UTC: `\"5m\"` at :00, \
              :05 and so on, also after a restart.",
        example: "\"5m\"",
        read: |draft, value| {
            let when = When::Every(value.duration()?);
            Timetable::new(&when, None).map_err(|_| value.wrong())?;
            draft.when = Some(when);
            Ok(())
        },
    },
    Directive {
        name: "at",
        default: Preset::Words("none; `every`, `at` or `cron` is required"),
        takes: "a time of the day such as \"03:10\", or an array of them",
        needs: Needs::Live,
        doc: "Runs every day at this time, or at these, in `timezone`.",
        example: "[\"03:10\", \"15:10\"]",
        read: |draft, value| {
            let times = value.each(|item| item.text_as(TimeOfDay::parse))?;
            draft.when = Some(When::At(times));
            Ok(())
        },
    },
    Directive {
        name: "cron",
        default: Preset::Words("none; `every`, `at` or `cron` is required"),
        takes: "a cron line such as \"*/5 * * * *\"",
        needs: Needs::Live,
        doc: "Runs by a line of crontab(5): minute, hour, day of the month, month and day of the \
              week, in `timezone`. Nicknames such as `@daily` are taken as well.",
        example: "\"*/5 8-18 * * MON-FRI\"",
        read: |draft, value| {
            let when = When::Cron(value.text()?.to_owned());
            Timetable::new(&when, Some("UTC")).map_err(|why| value.refused(&why))?;
            draft.when = Some(when);
            Ok(())
        },
    },
    Directive {
        name: "timezone",
        default: Preset::Words("that of the system"),
        takes: "a time zone such as \"Europe/Berlin\"",
        needs: Needs::Live,
        doc: "The time zone of `at` and `cron`. `maitred check` says what happens when its clocks \
              change: a time that is skipped runs at the end of the gap, one that occurs twice \
              runs once, and lines with a `*` for the minute or the hour follow the clock.",
        example: "\"Europe/Berlin\"",
        read: |draft, value| {
            let name = value.text()?;
            zone_named(name).map_err(|why| value.refused(&why))?;
            draft.timezone = Some(name.to_owned());
            Ok(())
        },
    },
    Directive {
        name: "overlap",
        default: Preset::Value("\"skip\""),
        takes: "\"skip\", \"queue\" or \"kill\"",
        needs: Needs::Live,
        doc: "What happens if the schedule is due while its last run goes on: the new run is left \
              out, begins when the last one has ended (at most one waits), or begins when the last \
              one was stopped (`stop_signal`).",
        example: "\"queue\"",
        read: |draft, value| {
            let overlap = |text: &str| match text {
                "skip" => Some(Overlap::Skip),
                "queue" => Some(Overlap::Queue),
                "kill" => Some(Overlap::Kill),
                _ => None,
            };
            store(&mut draft.overlap, value.text_as(overlap).map(Some))
        },
    },
    Directive {
        name: "timeout",
        default: Preset::Value("0"),
        takes: "a duration of at most 366 days such as \"30m\"; 0 is none",
        needs: Needs::Live,
        doc: "Time after which a run gets `stop_signal`.",
        example: "\"30m\"",
        read: |draft, value| store(&mut draft.timeout, value.duration()),
    },
    Directive {
        name: "jitter",
        default: Preset::Value("0"),
        takes: "a duration of at most 366 days such as \"2m\"",
        needs: Needs::Live,
        doc: "Longest delay of each run, at random, so that many servers do not begin at once.",
        example: "\"2m\"",
        read: |draft, value| store(&mut draft.jitter, value.duration()),
    },
    Directive {
        name: "missed",
        default: Preset::Value("\"skip\""),
        takes: "\"skip\" or \"once\"",
        needs: Needs::Live,
        doc: "What becomes of runs that were due while the server did not run: they are left out, \
              or one run begins for all of them when it serves again. The time of the last run is \
              in a file of the state folder: /var/lib/maitred/schedules, or for a user other than \
              root maitred/schedules in `$XDG_STATE_HOME`.",
        example: "\"once\"",
        read: |draft, value| {
            let missed = |text: &str| match text {
                "skip" => Some(Missed::Skip),
                "once" => Some(Missed::Once),
                _ => None,
            };
            store(&mut draft.missed, value.text_as(missed))
        },
    },
    Directive {
        name: "one_node",
        default: Preset::Value("false"),
        takes: "true or false",
        needs: Needs::Live,
        doc: "Whether each run is on one of the nodes that share the `purge_log`, which has to be \
              one in Redis (`url`): the first one that claims it there. Where Redis cannot be \
              reached within five seconds, the run is left out, on all nodes. The schedule has the \
              same pool, name and time on each.",
        example: "true",
        read: |draft, value| store(&mut draft.one_node, value.boolean()),
    },
    ENV,
    DIR,
    STOP_SIGNAL,
    STOP_TIMEOUT,
    CPU_WEIGHT,
    PROCESS_PRIORITY,
    IO,
];

/// The words of a command; arguments may be empty and may be there twice.
fn words(value: &Value<'_>) -> Result<Vec<String>, BadValue> {
    let words = value.items(|item| item.text().map(str::to_owned))?;
    match words.first().is_some_and(|program| !program.is_empty()) {
        true => Ok(words),
        false => Err(value.wrong()),
    }
}
