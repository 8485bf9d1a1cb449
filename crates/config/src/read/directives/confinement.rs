//! Resource limits, root directory and privileges: settings of `[pools.NAME]`.

use std::path::{Path, PathBuf};

use crate::model::confinement::{CoreSize, NoNewPrivileges};
use crate::model::pool::Pool;
use crate::on_disk::real_path;
use crate::read::directive::{Directive, Needs, Preset, store};

/// Least `rlimit_files`: the processes need some themselves, among them one for each thread of the
/// front.
const LEAST_FILES: u32 = 128;

/// Most `rlimit_files`; Linux's own limit, `fs.nr_open`, is never larger.
const MOST_FILES: u32 = 1 << 30;

/// Least `memory_max`, in bytes: PHP itself needs about as much.
const LEAST_MEMORY_BYTES: u64 = 16 << 20;

/// Least and most `cpu_max`, in thousandths of a core. The kernel accepts no less
/// (`min_cfs_quota_period`, kernel/sched/core.c).
const LEAST_CORE_THOUSANDTHS: u32 = 10;
const MOST_CORE_THOUSANDTHS: u32 = 10_000_000;

/// Least and most `pids_max`; Linux has at most four million.
const LEAST_PIDS: u32 = 3;
const MOST_PIDS: u32 = 1 << 22;

pub(super) const CHROOT: Directive<Pool> = Directive {
    name: "chroot",
    default: Preset::Words("none"),
    takes: "the path of a directory",
    needs: Needs::Restart,
    doc: "The directory that is `/` for the pool's scripts. PHP, its php.ini and its extensions \
          are loaded before; scripts open, include and execute only files below it. The sites of \
          the pool must be below it, too, or get a 503, and `SCRIPT_FILENAME` and `DOCUMENT_ROOT` \
          are passed without the directory's own path. Needs maitred to be started as root.",
    example: "\"public\"",
    read: |pool, value| {
        pool.confinement.chroot = Some(real_path(&value.path()?));
        Ok(())
    },
};

pub(super) const CHDIR: Directive<Pool> = Directive {
    name: "chdir",
    default: Preset::Words("none"),
    takes: "the absolute path of a directory, within `chroot` if there is one",
    needs: Needs::NewZygote,
    doc: "The working directory at the start and the end of each request: PHP changes to the \
          script's directory while it runs, and back for functions registered with \
          register_shutdown_function(), as in php-fpm. Without it, these run in the script's \
          directory, too.",
    example: "\"/tmp\"",
    read: |pool, value| {
        let absolute = |text: &str| Path::new(text).is_absolute().then(|| PathBuf::from(text));
        pool.confinement.chdir = Some(value.text_as(absolute)?);
        Ok(())
    },
};

pub(super) const RLIMIT_FILES: Directive<Pool> = Directive {
    name: "rlimit_files",
    default: Preset::Words("the system's"),
    takes: "a whole number from 128 to 1073741824",
    needs: Needs::NewZygote,
    doc: "Most open files and sockets of each process of the pool.",
    example: "4096",
    read: |pool, value| {
        store(
            &mut pool.confinement.rlimit_files,
            value.count(LEAST_FILES, MOST_FILES).map(|number| Some(number.into())),
        )
    },
};

pub(super) const RLIMIT_CORE: Directive<Pool> = Directive {
    name: "rlimit_core",
    default: Preset::Words("the system's"),
    takes: "a size such as \"64M\", or \"unlimited\"",
    needs: Needs::NewZygote,
    doc: "The largest core file of a crashed process of the pool. Where the pool's user is not \
          the one who started the server, Linux writes none unless `fs.suid_dumpable` allows it.",
    example: "\"unlimited\"",
    read: |pool, value| {
        pool.confinement.rlimit_core = Some(match value.text() {
            Ok("unlimited") => CoreSize::Unlimited,
            _ => CoreSize::Bytes(value.size(0)?),
        });
        Ok(())
    },
};

pub(super) const PROCESS_PRIORITY: Directive<Pool> = Directive {
    name: "process_priority",
    default: Preset::Words("that of the server"),
    takes: "a whole number from -19 to 20",
    needs: Needs::NewZygote,
    doc: "The nice value of the pool's processes: lower values get more processor time. \
          php-fpm's `process.priority`. A lower value than the server's own needs it to be \
          started as root.",
    example: "5",
    read: |pool, value| {
        store(&mut pool.confinement.process_priority, value.signed(-19, 20).map(Some))
    },
};

pub(super) const OOM_SCORE_ADJ: Directive<Pool> = Directive {
    name: "oom_score_adj",
    default: Preset::Words("that of the server"),
    takes: "a whole number from -1000 to 1000",
    needs: Needs::NewZygote,
    doc: "The preference with which the kernel kills the pool's processes when the machine runs \
          out of memory: 1000 first, -1000 never. A lower value than the server's own needs it \
          to be started as root.",
    example: "500",
    read: |pool, value| {
        store(&mut pool.confinement.oom_score_adj, value.signed(-1000, 1000).map(Some))
    },
};

pub(super) const NO_NEW_PRIVILEGES: Directive<Pool> = Directive {
    name: "no_new_privileges",
    default: Preset::Value("\"auto\""),
    takes: "true, false or \"auto\"",
    needs: Needs::NewZygote,
    doc: "Whether programs started by scripts are kept from gaining privileges (set-user-ID and \
          set-group-ID bits, file capabilities), like systemd's `NoNewPrivileges`. Mailers such \
          as those of Postfix and Exim need some, and so does `sudo`: `\"auto\"` is true unless \
          the program of PHP's `sendmail_path`, `/usr/sbin/sendmail` or `/usr/bin/sudo` exists, \
          and in a pool with `chroot`, whose root may be a tenant's. With true, root's \
          capabilities are out of reach for good, too. Started as php-fpm, it is false, as with \
          php-fpm, but with both `chroot` and `opcache.preload` it is true.",
    example: "true",
    read: |pool, value| {
        pool.confinement.no_new_privileges = match (value.boolean(), value.text()) {
            (Ok(true), _) => NoNewPrivileges::Yes,
            (Ok(false), _) => NoNewPrivileges::No,
            (_, Ok("auto")) => NoNewPrivileges::Auto,
            _ => return Err(value.wrong()),
        };
        Ok(())
    },
};

pub(super) const MEMORY_MAX: Directive<Pool> = Directive {
    name: "memory_max",
    default: Preset::Words("no limit"),
    takes: "a size of at least \"16M\"",
    needs: Needs::NewZygote,
    doc: "Most memory of all processes of the pool together, including OPcache and programs \
          started by scripts. Beyond it, the kernel kills one of them. `pm = \"auto\"` has no \
          more workers than fit into it; other pools have their own number regardless. Needs a \
          control group, as `memory_high`, `cpu_max` and `pids_max` do: where the machine offers \
          none, a warning is logged with the reason, and the server runs without the limit.",
    example: "\"2G\"",
    read: |pool, value| {
        store(&mut pool.confinement.together.memory_max, value.size(LEAST_MEMORY_BYTES).map(Some))
    },
};

pub(super) const MEMORY_HIGH: Directive<Pool> = Directive {
    name: "memory_high",
    default: Preset::Words("no limit"),
    takes: "a size of at least \"16M\"",
    needs: Needs::NewZygote,
    doc: "Memory of all processes of the pool together beyond which they are slowed down and the \
          kernel reclaims memory from them. No process is killed. At most `memory_max`.",
    example: "\"1536M\"",
    read: |pool, value| {
        store(&mut pool.confinement.together.memory_high, value.size(LEAST_MEMORY_BYTES).map(Some))
    },
};

pub(super) const CPU_MAX: Directive<Pool> = Directive {
    name: "cpu_max",
    default: Preset::Words("no limit"),
    takes: "a number of cores from 0.01 to 10000 such as 1.5",
    needs: Needs::NewZygote,
    doc: "Most processor time of all processes of the pool together, in cores: 1.5 is as much as \
          one core and half of another. Beyond it, they wait.",
    example: "1.5",
    read: |pool, value| {
        let cores = value.thousandths(LEAST_CORE_THOUSANDTHS, MOST_CORE_THOUSANDTHS)?;
        pool.confinement.together.cpu_max = Some(cores);
        Ok(())
    },
};

pub(super) const PIDS_MAX: Directive<Pool> = Directive {
    name: "pids_max",
    default: Preset::Words("no limit"),
    takes: "a whole number from 3 to 4194304",
    needs: Needs::NewZygote,
    doc: "Most processes and threads of the pool: its workers, two more, and programs started by \
          scripts. Beyond it, no further one can be started. A pool without `max_children` has \
          no more workers than fit.",
    example: "200",
    read: |pool, value| {
        store(&mut pool.confinement.together.pids_max, value.count(LEAST_PIDS, MOST_PIDS).map(Some))
    },
};
