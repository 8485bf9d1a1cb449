"""What pools cost that do nothing, and what looking at pools costs."""

import asyncio
import dataclasses
import json
import statistics
import time

import client
import inspect_workers
import load
import managed
import peers
import processes
import report
import rows

POOLS = 200
# Several pools share what is asked at a time, so that their PHP does not start all at once.
ASKED_AT_A_TIME = 4
IDLE_SECONDS = 1
AWAIT_IDLE_SECONDS = 120
NEVER, ONCE = "never asked", "each asked once, idle again"
MASTER, NGINX = "php-fpm", "nginx"

STATUS_POOL = {"pm": "static", "max_children": 32, "status_path": "/status"}
BUSY_SECONDS = 10
ANSWERS = 50

SLOW_LOG_WORKERS = 4
HELLO = load.Load("/hello.php", 16)
WITHOUT, WITH = "without", "with request_slowlog_timeout"


@dataclasses.dataclass(frozen=True)
class Memory:
    """What processes hold together, in KiB."""

    processes: int
    private_kib: int
    proportional_kib: int  # Pss: with their share of what several hold

    @classmethod
    def of(cls, pids):
        """Adds processes up."""
        return cls(
            len(pids), sum(map(processes.private_kb, pids)),
            sum(map(processes.proportional_kb, pids)),
        )


def idle_pools():
    """Pools with a name and a host each."""
    settings = {"pm": "ondemand", "max_children": 5, "process_idle_timeout": f"{IDLE_SECONDS}s"}
    return {f"p{number:03}": settings for number in range(1, POOLS + 1)}


async def ask_each(port, names):
    """One request to each pool."""
    def is_right(status, body):
        return (status, body) == (200, rows.HELLO)

    answers = []
    for start in range(0, len(names), ASKED_AT_A_TIME):
        some = names[start:start + ASKED_AT_A_TIME]
        asked = (client.ask(port, "/hello.php", is_right, host=name) for name in some)
        answers += await asyncio.gather(*asked)
    for answer in answers:
        if answer.fate != client.GOOD:
            raise load.WrongAnswer(f"one of {POOLS} pools: {answer.fate}, {answer.what}")


def memory_by_part(server):
    """{part: Memory} of a server."""
    if isinstance(server, managed.Fpm):
        return {
            MASTER: Memory.of(processes.tree(server.fpm_leaders())),
            NGINX: Memory.of(processes.tree(server.leaders[1:])),
        }
    return {peers.Maitred.name: Memory.of(processes.tree(server.leaders))}


def settled_memory(server):
    """The same, once it no longer changes."""
    before = None
    deadline = time.monotonic() + inspect_workers.SETTLE_MOST_SECONDS
    while time.monotonic() < deadline:
        now = memory_by_part(server)
        if now == before:
            return now
        before = now
        time.sleep(inspect_workers.SETTLE_SECONDS)
    raise TimeoutError(f"the memory of {server.name} does not settle: {before}")


def idle_samples(bench, kind):
    """{(part, state): Memory} of one kind of server."""
    found = {}

    def note(server, state):
        for part, memory in settled_memory(server).items():
            found[part, state] = memory

    with bench.managing(kind, idle_pools()) as server:
        at_rest = len(processes.tree(server.leaders))
        note(server, NEVER)
        asyncio.run(ask_each(server.port, list(server.pools)))
        processes.wait_until(
            lambda: len(processes.tree(server.leaders)) <= at_rest, AWAIT_IDLE_SECONDS,
            f"the processes of {server.name}'s {POOLS} pools to end",
        )
        note(server, ONCE)
    return found


def measure_idle_pools(bench):
    """Private memory of 200 pools that do nothing."""
    samples = {}
    for _ in range(bench.options.rounds):
        for kind in (managed.Maitred, managed.Fpm):
            for key, memory in idle_samples(bench, kind).items():
                samples.setdefault(key, []).append(memory)
                report.say(f"{POOLS} idle pools: {key[0]}, {key[1]}: {memory}")
    lines = [
        (part, state, f"{report.median(each, 'processes'):.0f}",
         report.spread(each, "private_kib", ".0f"), report.spread(each, "proportional_kib", ".0f"))
        for (part, state), each in samples.items()
    ]
    outcomes = []
    for state in (NEVER, ONCE):
        ours = report.median(samples[peers.Maitred.name, state], "private_kib")
        theirs = report.median(samples[MASTER, state], "private_kib")
        more = (ours - theirs) / 1024
        outcomes.append(report.Outcome(
            f"{POOLS} idle ondemand pools, {state}: private memory", "php-fpm",
            f"≤ php-fpm's + {rows.IDLE_POOLS_MORE_MB} MiB", more,
            f"{more:+.1f} MiB ({ours / 1024:.1f} : {theirs / 1024:.1f} MiB)",
            more <= rows.IDLE_POOLS_MORE_MB,
        ))
    text = (
        f"{POOLS} ondemand pools in one server, each with a site of its own. Everything together: "
        f"for maitred supervisor and front, for php-fpm its master; the nginx that php-fpm needs "
        f"besides is not part of the comparison. Proportional: Pss, which counts a share of what "
        f"several processes hold."
    )
    columns = ("server", "state", "processes", "private KiB", "proportional KiB")
    return report.Section(
        IDLE_TITLE, text, columns, lines, outcomes, report.samples_as_json(samples)
    )


def shows_all_busy(text):
    """Whether a status in JSON, of the page or the command, says that no worker is free."""
    status = json.loads(text)
    if "pools" in status:
        workers = status["pools"][0]["workers"]
        found = workers["busy"], workers["idle"]
    else:
        found = status["active processes"], status["idle processes"]
    return found == (STATUS_POOL["max_children"], 0)


async def ask_page(server):
    """The status page, on a new connection."""
    def is_right(status, body):
        return status == 200 and shows_all_busy(body)

    return await client.ask(server.port, "/status?json", is_right)


async def ask_command(server):
    """`maitred status`, from its start to its end."""
    begun = time.monotonic()
    running = await asyncio.create_subprocess_exec(
        server.installed(), "status", "--json", "--admin-socket", server.admin_socket(),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )
    said, complained = await running.communicate()
    seconds = time.monotonic() - begun
    if running.returncode == 0 and shows_all_busy(said):
        return client.Answer(client.GOOD, begun, seconds, 0)
    return client.Answer(client.WRONG, begun, seconds, 0, f"{said[:200]!r} {complained[:200]!r}")


STATUS_WAYS = {"status page": ask_page, "maitred status": ask_command}


async def while_busy(server, ask):
    """Seconds of each answer, all of them while every worker runs a script."""
    def is_done(status, body):
        return (status, body) == (200, b" 0\n")

    path = f"/sleep.php?ms={BUSY_SECONDS * 1000}"
    workers = STATUS_POOL["max_children"]
    scripts = asyncio.gather(*(client.ask(server.port, path, is_done) for _ in range(workers)))
    deadline = time.monotonic() + BUSY_SECONDS / 2
    while (await ask(server)).fate != client.GOOD and time.monotonic() < deadline:
        await asyncio.sleep(processes.POLL_SECONDS)
    answers = [await ask(server) for _ in range(ANSWERS)]
    if scripts.done():
        raise load.WrongAnswer(f"{server.name}: the scripts ended before the last status")
    for answer in [*answers, *await scripts]:
        if answer.fate != client.GOOD:
            raise load.WrongAnswer(f"{server.name}, all workers busy: {answer.fate}: {answer.what}")
    return [answer.seconds * 1e3 for answer in answers]


def measure_status(bench):
    """How fast it is said how the pool is when no worker is free."""
    samples = {how: [] for how in STATUS_WAYS}
    for _ in range(bench.options.rounds):
        for how, ask in STATUS_WAYS.items():
            with bench.managing(managed.Maitred, {managed.WWW: STATUS_POOL}) as server:
                server.await_count(STATUS_POOL["max_children"])
                samples[how].append(asyncio.run(while_busy(server, ask)))
            report.say(f"{how} of a busy pool: slowest {max(samples[how][-1]):.1f} ms")
    text = (
        f"All {STATUS_POOL['max_children']} workers of a pool run a script of {BUSY_SECONDS} s; "
        f"meanwhile {ANSWERS} questions, one after the other: to the status page, each on a new "
        f"connection, or by the command, from its start to its end. Every round must reach the bar."
    )
    lines, outcomes = [], []
    for how, rounds in samples.items():
        slowest = [max(each) for each in rounds]
        shown = f"{statistics.median(slowest):.1f} ({min(slowest):.1f}–{max(slowest):.1f})"
        middle = statistics.median(each for taken in rounds for each in taken)
        lines.append((how, f"{middle:.1f}", shown))
        outcomes.append(report.Outcome(
            f"Status with all workers busy, {how}: slowest of {ANSWERS}", "",
            f"< {rows.STATUS_MS} ms", max(slowest), f"{shown} ms", max(slowest) < rows.STATUS_MS,
        ))
    columns = ("asked", "median, ms", "slowest, ms")
    return report.Section(STATUS_TITLE, text, columns, lines, outcomes, samples)


def measure_slow_log(bench):
    """What hello.php costs with a slow log, of which nothing ever gets into it."""
    place = f"{bench.directory}/slow.log"
    pool = {"pm": "static", "max_children": SLOW_LOG_WORKERS}
    with_log = {**pool, "request_slowlog_timeout": "10s", "slowlog": place}
    pools = {WITHOUT: pool, WITH: with_log}
    samples = {which: [] for which in pools}
    with (
        bench.managing(managed.Maitred, {managed.WWW: pools[WITHOUT]}) as without,
        bench.managing(managed.Maitred, {managed.WWW: pools[WITH]}) as with_it,
    ):
        servers = {WITHOUT: without, WITH: with_it}
        for server in servers.values():
            server.await_count(SLOW_LOG_WORKERS)
            load.check(server.name, server.port, HELLO, rows.HELLO)
            load.measure(server.port, server.leaders, HELLO, 1)
        for turn in range(bench.options.rounds):
            for which in list(servers)[::1 if turn % 2 else -1]:
                server = servers[which]
                samples[which].append(
                    load.measure(server.port, server.leaders, HELLO, bench.options.seconds)
                )
    lines = [
        (which, report.spread(each, "cpu_us", ".1f"), report.spread(each, "per_second", ".0f"),
         str(sum(sample.errors for sample in each)))
        for which, each in samples.items()
    ]
    text = (
        f"hello.php, {HELLO.connections} connections that are kept, of two servers that differ in "
        f"`request_slowlog_timeout = \"10s\"` and `slowlog` alone, in turn."
    )
    columns = ("slow log", "CPU µs per request", "requests/s", "errors")
    return report.Section(
        SLOW_LOG_TITLE, text, columns, lines, [slow_log_outcome(samples)],
        {which: [dataclasses.asdict(sample) for sample in each] for which, each in samples.items()},
    )


def slow_log_outcome(samples):
    """The cost with it by the cost without it."""
    ours, reference = samples[WITH], samples[WITHOUT]
    ratio = report.median(ours, "cpu_us") / report.median(reference, "cpu_us")
    by_round = [a.cpu_us / b.cpu_us for a, b in zip(ours, reference)]
    errors = sum(sample.errors for sample in ours + reference)
    measured = f"{ratio:.2f} ({min(by_round):.2f}–{max(by_round):.2f})"
    return report.Outcome(
        "Slow log set and not reached, hello.php: CPU per request", "maitred without it",
        f"≤ {rows.SLOW_LOG_RATIO:g}", ratio, measured + (f", {errors} errors" if errors else ""),
        ratio <= rows.SLOW_LOG_RATIO and not errors,
    )


IDLE_TITLE = f"{POOLS} idle ondemand pools"
STATUS_TITLE = "Status of a busy pool"
SLOW_LOG_TITLE = "Slow log that is not reached"
MEASUREMENTS = {
    IDLE_TITLE: measure_idle_pools,
    STATUS_TITLE: measure_status,
    SLOW_LOG_TITLE: measure_slow_log,
}
