//! Every wait of the supervisor, and its bound.

use std::time::Duration;

/// A point in time: how long after the supervisor's start, on the monotonic clock. Decisions take
/// it as a value, so that a test can invent it.
pub type Moment = Duration;

/// Longest a zygote may take from being started until it says that PHP runs.
pub const ZYGOTE_START: Duration = Duration::from_secs(30);

/// Longest the front may take from being started until it accepts clients.
pub const FRONT_START: Duration = Duration::from_secs(10);

/// Longest from the order to fill a seat until its worker is a child of the supervisor. A zygote
/// that takes longer is stuck, or lies, and is replaced.
pub const WORKER_SPAWN: Duration = Duration::from_secs(10);

/// How long the front may take to say whether it takes a configuration over.
pub const CONSENT: Duration = Duration::from_secs(20);

/// Longest that the generations of a reload may be on trial, from the front's consent until each has
/// a worker that is ready.
pub const TRIAL: Duration = Duration::from_secs(60);

/// Longest that a reload is waited for when every new generation works, and older ones still have
/// more busy workers than there are spare seats.
pub const MOVE_OVER: Duration = Duration::from_secs(10);

/// How long a zygote may take to list the scripts in its OPcache: a little more than it gives itself.
pub const LIST_SCRIPTS: Duration = Duration::from_secs(2);

/// How long a new zygote may take to fill its OPcache: a little more than it gives itself.
pub const WARM: Duration = Duration::from_secs(12);

/// Longest that a purge waits for the fronts to say that it is done; a front may be being started.
pub const PURGE_ANSWER: Duration = Duration::from_secs(10);

/// How long the new program of an upgrade may take to say whether it can take over.
pub const UPGRADE_TRY: Duration = Duration::from_secs(10);

/// How long an upgrade waits for the workers to be there that were ordered before it.
pub const STILL: Duration = Duration::from_secs(15);

/// Longest from the start of the server until every seat has its first worker.
pub const FIRST_FILL: Duration = Duration::from_secs(60);

/// A process that died younger than this failed to live: its successor waits a little.
pub const EARLY_DEATH: Duration = Duration::from_secs(1);

/// First wait after a failure; it doubles with each further one.
pub const BACKOFF_FIRST: Duration = Duration::from_millis(100);

/// Longest wait after a failure.
pub const BACKOFF_LONGEST: Duration = Duration::from_secs(1);

/// How long after an announcement we look for the first time again whether the worker has become
/// our child; later looks wait half of the time that has passed.
pub const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// How long a dead zygote's channel may stay open: its last intermediate process still has to
/// announce the worker it forked, and that worker has to close its copy.
pub const ZYGOTE_LINGER: Duration = Duration::from_secs(1);

/// How long the report of a worker's death waits for the front to name the script it ran.
pub const SCRIPT_NAMED: Duration = Duration::from_millis(250);

/// Longest a zygote may take to tell a stack. One that forks or is stuck has something else to do.
pub const TRACE_ANSWER: Duration = Duration::from_secs(2);

/// How long no script of a pool is slow until the next one is worth a line of the log again.
pub const SLOW_EPISODE: Duration = Duration::from_secs(60);

/// Longest a front that an upgrade has replaced may take until the requests it has are answered.
pub const DRAIN: Duration = Duration::from_secs(60);

/// Signals to stop that come within this time of the first one are the same wish: `timeout(1)`
/// sends one to the process and one to its group.
pub const SAME_STOP: Duration = Duration::from_millis(50);

/// How long nothing may have happened for an episode in the log to be over.
pub const TROUBLE_CALM: Duration = Duration::from_secs(10);

/// The same for zygotes: one that hangs fails only every [`ZYGOTE_START`].
pub const ZYGOTE_CALM: Duration = Duration::from_secs(90);

/// The same for what memory that is nearly full has done, which may come again every half minute.
pub const MEMORY_CALM: Duration = Duration::from_secs(300);

/// How long workers and zygotes may take to leave after SIGTERM before they are killed.
pub const LEAVE: Duration = Duration::from_millis(500);

/// How long killed processes may take to be gone. The supervisor then ends without them, or says
/// in the log whose seat stays empty.
pub const KILLED: Duration = Duration::from_secs(5);

/// Most messages that wait for a process which does not read. More, and it is taken for stuck.
pub const OUTBOX_MESSAGES: usize = 16 * 1024;

/// Most bytes of such messages.
pub const OUTBOX_BYTES: usize = 16 * 1024 * 1024;

/// Most descriptors of such messages, each of which is one of the supervisor's, beside those that a
/// process of this kind may be sent at once.
pub const OUTBOX_DESCRIPTORS: usize = 256;

/// Most messages taken from the front before the others have their turn.
pub const MESSAGES_PER_TURN: usize = 128;

/// Most messages taken from the process that gets a certificate before the others have their turn.
/// All that one order has to say is fewer.
pub const ACME_MESSAGES_PER_TURN: usize = 16;

/// Most signals that are acted on before the others have their turn: more than there are kinds.
pub const SIGNALS_PER_TURN: usize = 16;

/// Most children that are collected before the others have their turn. Scripts may leave processes
/// behind as fast as the kernel makes them, and all of them become ours.
pub const REAPED_PER_TURN: usize = 256;

const _: () = assert!(
    BACKOFF_FIRST.as_nanos() < BACKOFF_LONGEST.as_nanos(),
    "waits grow from the first to the longest"
);
const _: () = assert!(
    ZYGOTE_START.as_nanos() + BACKOFF_LONGEST.as_nanos() < ZYGOTE_CALM.as_nanos(),
    "a zygote that hangs again and again is one episode"
);
const _: () = assert!(
    ZYGOTE_START.as_nanos() + WORKER_SPAWN.as_nanos() < FIRST_FILL.as_nanos(),
    "a zygote that is slow within its limits must not fail the start of the server"
);
