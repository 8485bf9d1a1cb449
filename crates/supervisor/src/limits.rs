//! All timeouts and bounds of the supervisor.

use std::time::Duration;

/// A point in time: the time since the supervisor's start, on the monotonic clock. Decisions get it
/// as a value, so that a test can choose it.
pub type Moment = Duration;

/// Timeout of a zygote, from its start until it reports that PHP runs.
pub const ZYGOTE_START: Duration = Duration::from_secs(30);

/// Timeout of the front, from its start until it accepts clients.
pub const FRONT_START: Duration = Duration::from_secs(10);

/// Age of the server until which a front that starts may undo the `drain` of the server before it.
pub const NEW_SERVER: Duration = Duration::from_secs(60);

/// Timeout from the order to fill a seat until its worker is a child of the supervisor. A zygote
/// that takes longer is stuck, or lies, and is replaced.
pub const WORKER_SPAWN: Duration = Duration::from_secs(10);

/// Timeout of the front's reply to a new configuration.
pub const CONSENT: Duration = Duration::from_secs(20);

/// Timeout of the trials of a reload, from the front's reply until each new generation has a worker
/// that is ready.
pub const TRIAL: Duration = Duration::from_secs(60);

/// Longest wait for old workers when every new generation works: older ones may have more busy
/// workers than there are spare seats.
pub const MOVE_OVER: Duration = Duration::from_secs(10);

/// Timeout of a zygote that lists the scripts in its OPcache: a little more than its own.
pub const LIST_SCRIPTS: Duration = Duration::from_secs(2);

/// Timeout of a new zygote that fills its OPcache: a little more than its own.
pub const WARM: Duration = Duration::from_secs(12);

/// Timeout of a purge, until all fronts have carried it out; a front may be starting.
pub const PURGE_ANSWER: Duration = Duration::from_secs(10);

/// Most reports of the process that passes purges on that are acted on in one turn.
pub const PURGE_LOG_MESSAGES_PER_TURN: usize = 128;

/// Timeout of the trial of a new program.
pub const UPGRADE_TRY: Duration = Duration::from_secs(10);

/// How long an upgrade waits for workers that are being started.
pub const STILL: Duration = Duration::from_secs(15);

/// How long it waits for zygotes that are being started, or do not take their orders, and are then
/// killed: a boot may take as long as [`ZYGOTE_START`]. Killed ones are reaped well within
/// [`STILL`].
pub const STILL_ZYGOTES: Duration = Duration::from_secs(5);

/// Most of what it waits for that the log names when it is refused.
pub const UPGRADE_WAITS_NAMED: usize = 8;

/// Timeout from the start of the server until every seat has its first worker.
pub const FIRST_FILL: Duration = Duration::from_secs(60);

/// A process that died younger than this has failed to start: its successor waits a little. A
/// worker that a request has ended is the exception, within [`CRASHES_PER_SECOND`].
pub const EARLY_DEATH: Duration = Duration::from_secs(1);

/// First wait after a failure; it doubles with each further one.
pub const BACKOFF_FIRST: Duration = Duration::from_millis(100);

/// Longest wait after a failure.
pub const BACKOFF_LONGEST: Duration = Duration::from_secs(1);

/// The same for a zygote whose PHP does not start: each attempt takes 70 ms of processor time, and
/// the cause is rarely gone a second later.
pub const START_BACKOFF_LONGEST: Duration = Duration::from_secs(60);

/// The same for a zygote that boots an application, which may lack a database that no file shows.
pub const BOOT_BACKOFF_LONGEST: Duration = Duration::from_secs(5);

/// A wait for the next start of a zygote is logged from this length on, once in an episode.
pub const START_BACKOFF_LOGGED: Duration = BACKOFF_LONGEST;

/// Interval of the checks whether the files have changed that decide whether PHP starts.
pub const PHP_FILES_CHECKED_EVERY: Duration = Duration::from_secs(5);

/// Early deaths of workers by requests, within a generation, whose successors start at once. The
/// front refuses routes that crash long before; this bounds the forks of a pool that crashes on
/// every route.
pub const CRASHES_PER_SECOND: u32 = 50;

/// The same for a burst.
pub const CRASHES_AT_ONCE: u32 = 100;

/// First wait until an announced process is checked again for being our child; later waits are half
/// of the time that has passed.
pub const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// How long a dead zygote's channel may stay open, and a worker that it announced may be the child
/// of another process: its last intermediate process still has to announce that worker and to end,
/// and that worker has to close its copy of the channel.
pub const ZYGOTE_LINGER: Duration = Duration::from_secs(1);

/// How long the log line about a worker's death waits for the front to name its script.
pub const SCRIPT_NAMED: Duration = Duration::from_millis(250);

/// Timeout of a zygote that reads a stack. One that forks or is stuck does not reply.
pub const TRACE_ANSWER: Duration = Duration::from_secs(2);

/// Timeout of an order to count the private pages of processes, which takes milliseconds unless a
/// tenant holds the lock that it needs.
pub const COUNT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the pages of a pool that was late are not counted.
pub const UNCOUNTED_FOR: Duration = Duration::from_secs(3600);

/// Most orders to count that may be late within a period: then none is given for the rest of it.
pub const COUNT_TIMEOUTS_MOST: u32 = 10;
pub const COUNT_TIMEOUTS_PERIOD: Duration = Duration::from_secs(60);

/// Most processes that wait to be counted.
pub const COUNTS_QUEUED: usize = 1024;

/// Timeout of the process that counts, from its start until it takes orders.
pub const MEMORY_READER_START: Duration = Duration::from_secs(10);

/// How long it stays with nothing to count.
pub const MEMORY_READER_IDLE: Duration = Duration::from_secs(30);

/// Most reports acted on in one turn of the process that counts: it has one order at a time.
pub const MEMORY_READER_MESSAGES_PER_TURN: usize = 4;

/// How long the writes of limits of memory may take together, in which the kernel reclaims what is
/// beyond them.
pub const LIMIT_WRITES: Duration = Duration::from_secs(2);

/// How long each of them may take at least. The kernel stores a limit before it reclaims.
pub const LIMIT_WRITE_LEAST: Duration = Duration::from_millis(20);

/// Additional time for all writes that a busy machine has not begun by then.
pub const LATE_LIMIT_WRITES: Duration = Duration::from_secs(2);

/// Additional time for each of them, at most.
pub const LATE_LIMIT_WRITE: Duration = Duration::from_millis(500);

/// Timeout of a read of a pipe that tenants' code can write to, which takes microseconds unless a
/// tenant holds its lock.
pub const PIPE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the output of a pool that was late is not read.
pub const UNREAD_FOR: Duration = Duration::from_secs(3600);

/// Most orders that are out to the process that reads pipes: fewer than the kernel queues in its
/// socket (`net.unix.max_dgram_qlen`, 10).
pub const PIPE_ORDERS_OUT: usize = 8;

/// Most processes that read pipes and wait for a lock of one pool, though they were killed: then
/// nothing of that pool is read or closed, and no pipe is made for it, until one of them has gone.
pub const PIPE_READERS_STUCK: usize = 4;

/// Timeout of the process that reads pipes, from its start until it takes orders.
pub const PIPE_READER_START: Duration = Duration::from_secs(10);

/// How long it stays with nothing to read or to close.
pub const PIPE_READER_IDLE: Duration = Duration::from_secs(30);

/// Most reports acted on in one turn of the process that reads pipes.
pub const PIPE_READER_MESSAGES_PER_TURN: usize = 2 * PIPE_ORDERS_OUT;

/// Longest time in which the rest of the output of a process that has ended is read.
pub const PIPE_REST_WAIT: Duration = Duration::from_secs(5);

/// Longest time in which the last descriptors that tenants can lock are closed, when the server
/// ends.
pub const PIPE_LAST_WAIT: Duration = Duration::from_secs(10);

/// Most bytes of that: the size of a pipe. Processes that it left behind may keep writing.
pub const PIPE_REST_BYTES: usize = 64 * 1024;

/// Processes whose pages are counted for one status reply, those with the oldest count first.
pub const COUNTED_FOR_STATUS: usize = 128;

/// Timeout of a process that writes entries of a slow log, which takes milliseconds unless a tenant
/// holds a lock that it needs.
pub const SLOWLOG_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause from the start of such a process to that of the next one for the same log.
pub const SLOWLOG_PAUSE: Duration = Duration::from_millis(250);

/// Most bytes of entries that wait for one slow log. More entries are lost.
pub const SLOWLOG_QUEUE_BYTES: usize = 256 * 1024;

/// Timeout of the next log that is opened by processes because that may wait for a tenant. It takes
/// milliseconds unless tenants hold the locks of all that are left.
pub const LOG_OPEN_TIMEOUT: Duration = Duration::from_secs(2);

/// The same at the start of the server, when the machine may be busy and no request waits.
pub const LOG_OPEN_TIMEOUT_AT_START: Duration = Duration::from_secs(10);

/// Timeout of all these logs together, as a multiple of that of the next one.
pub const LOG_OPEN_TIMEOUTS_MOST: u32 = 3;

/// Most logs that such a process opens: their reports fit into its socket.
pub const LOGS_PER_OPENER: usize = 100;

/// Most such processes that still wait for locks: then none is started until one of them has ended.
pub const LOG_OPENERS_STUCK: usize = 16;

/// Timeout of a lookup in a folder of a tenant, which takes microseconds unless a program holds the
/// lock of the folder, or a disk is slow.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of all lookups of a reload, or of a check of sites with a fault.
pub const LOOKUPS_TIMEOUT: Duration = Duration::from_secs(30);

/// Most processes that wait for the locks of folders, though they were killed: then none is started
/// until one of them has ended.
pub const LOOKUPS_STUCK: usize = 8;

/// The same for the checks of sites with a fault: the rest is for reloads, which can take the sites
/// of a tenant who holds locks out of the configuration.
pub const FAULT_LOOKUPS_STUCK: usize = LOOKUPS_STUCK / 2;

/// Most processes that were killed and have not ended, those that were killed for a later reload
/// included.
pub const LOOKUPS_KILLED: usize = 64;

/// Most bytes of what such a process has found: the configuration and its faults.
pub const LOOKUP_RESULT_BYTES: usize = 256 << 20;

/// An episode of slow scripts ends after this time without one.
pub const SLOW_EPISODE: Duration = Duration::from_secs(60);

/// How long a replaced front may take to finish its requests.
pub const DRAIN: Duration = Duration::from_secs(60);

/// Stop signals within this time of the first one count as one: `timeout(1)` sends one to the
/// process and one to its group.
pub const SAME_STOP: Duration = Duration::from_millis(50);

/// An episode of errors ends after this time without one.
pub const TROUBLE_CALM: Duration = Duration::from_secs(10);

/// The same for zygotes: one that hangs fails only every [`ZYGOTE_START`], after a wait of up to
/// [`START_BACKOFF_LONGEST`].
pub const ZYGOTE_CALM: Duration = Duration::from_secs(120);

/// The same for effects of nearly full memory, which may recur every half minute.
pub const MEMORY_CALM: Duration = Duration::from_secs(300);

/// How long workers and zygotes may take to exit after SIGTERM before they are killed.
pub const LEAVE: Duration = Duration::from_millis(500);

/// How long killed processes may take to disappear. The supervisor then exits without them, or logs
/// whose seat stays empty.
pub const KILLED: Duration = Duration::from_secs(5);

/// An episode of failures of a command ends after this time without one: its waits may take
/// minutes.
pub const JOB_CALM: Duration = Duration::from_secs(600);

/// Interval of the checks of the memory of commands with `max_memory`.
pub const JOB_MEMORY_CHECKED_EVERY: Duration = Duration::from_secs(10);

/// Longest part of the wait before a restart that is added at random, as a fraction of it.
pub const JOB_JITTER_PART: u32 = 4;

/// The same for `max_runtime`.
pub const JOB_RUNTIME_JITTER_PART: u32 = 10;

/// Lines of the output of a command that the log repeats when it fails, and their length in
/// characters.
pub const JOB_LAST_LINES: usize = 5;
pub const JOB_LAST_LINE_CHARS: usize = 200;

/// Most steps for commands and schedules in one turn: a start takes a millisecond or two.
pub const JOB_STEPS_PER_TURN: usize = 32;

/// Time in which the purge log is to decide which node runs a schedule with `one_node`.
pub const CLAIM_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for which no other node claims the same run, in addition to its `jitter`: longer than the
/// clocks of nodes differ.
pub const CLAIM_LIFETIME: Duration = Duration::from_secs(600);

/// Timeout of a probe, which prints the length of a queue, and the last lines of it that are kept.
pub const JOB_PROBE_TIMEOUT: Duration = Duration::from_secs(10);
pub const JOB_PROBE_LINES: usize = 16;

/// How long a queue has to ask for fewer processes until there are fewer.
pub const JOB_SCALES_DOWN_AFTER: Duration = Duration::from_secs(60);

/// A clock that was set back by less than this runs no schedule twice that is a time of the day (as
/// cron(8)); one that was set back further is followed.
pub const CLOCK_SET_BACK: Duration = Duration::from_secs(3 * 3600);

/// Most messages queued for a process that does not read. With more, it is taken for stuck.
pub const OUTBOX_MESSAGES: usize = 16 * 1024;

/// Most bytes of such messages.
pub const OUTBOX_BYTES: usize = 16 * 1024 * 1024;

/// Most descriptors of such messages, each of which is one of the supervisor's, beside those that
/// such a process may be sent at once.
pub const OUTBOX_DESCRIPTORS: usize = 256;

/// Most messages received from the front in one turn.
pub const MESSAGES_PER_TURN: usize = 128;

/// Most messages received in one turn from the process that gets a certificate. One order has
/// fewer.
pub const ACME_MESSAGES_PER_TURN: usize = 16;

/// Most signals acted on in one turn: more than there are kinds.
pub const SIGNALS_PER_TURN: usize = 16;

/// Most children reaped in one turn. Scripts may leave processes behind as fast as the kernel
/// starts them, and all of them become ours.
pub const REAPED_PER_TURN: usize = 256;

const _: () = assert!(
    BACKOFF_FIRST.as_nanos() < BACKOFF_LONGEST.as_nanos()
        && BACKOFF_LONGEST.as_nanos() < START_BACKOFF_LONGEST.as_nanos(),
    "waits grow from the first to the longest"
);
const _: () = assert!(
    ZYGOTE_START.as_nanos() + START_BACKOFF_LONGEST.as_nanos() < ZYGOTE_CALM.as_nanos(),
    "a zygote that hangs again and again is one episode"
);
const _: () = assert!(
    ZYGOTE_START.as_nanos() + WORKER_SPAWN.as_nanos() < FIRST_FILL.as_nanos(),
    "a zygote that is slow within its limits must not fail the start of the server"
);

/// First interval of the checks whether the faults of single sites and pools are mended. It doubles
/// while they stay.
pub const FAULTS_CHECKED_FIRST: Duration = Duration::from_secs(5);

/// Longest interval of these checks.
pub const FAULTS_CHECKED_LONGEST: Duration = Duration::from_secs(60);

/// Interval of the checks of certificate files while one of them cannot be used.
pub const BAD_CERTIFICATES_CHECKED_EVERY: Duration = Duration::from_secs(5);
