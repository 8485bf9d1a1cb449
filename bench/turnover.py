"""What reloads and upgrades cost those who are being served."""

import asyncio
import collections
import dataclasses
import time

import client
import load
import managed
import peers
import processes
import report
import rows

RATE = 200
SLEEP_MS = 20
WORKERS = 12
SECONDS = 60
QUICK_SECONDS = 12
RELOAD_EVERY, UPGRADE_EVERY = 1, 5
# A signal that was refused, because another change was going on, is sent again after this.
AGAIN_SECONDS = 0.05
LOOK_SECONDS = 0.005
QUIET = "quiet"


@dataclasses.dataclass(frozen=True)
class LoadSample:
    """What became of the requests of one stretch of time."""

    asked: int
    p50_ms: float
    p99_ms: float
    slowest_ms: float
    late_p99_ms: float  # of the client's own: how long after its time a request was begun
    refused: int
    broken: int
    wrong: int
    unanswered: int
    stale: int  # good, but of a configuration that had been replaced before they were sent
    reloads: int
    upgrades: int
    again: int  # signals that were refused and sent again
    foreign_share: float

    @property
    def failed(self):
        """Requests without their answer."""
        return self.refused + self.broken + self.wrong + self.unanswered


class Changes:
    """What was asked of a server, and what it did."""

    def __init__(self):
        self.reloads = self.upgrades = self.again = 0
        self.in_force = 0  # the oldest configuration that a new request may meet

    async def carry_out(self, ask):
        """Asks until the server does it."""
        while True:
            change = ask()
            try:
                while not change.is_over():
                    await asyncio.sleep(LOOK_SECONDS)
                return
            except managed.ChangeRefused:
                self.again += 1
                await asyncio.sleep(AGAIN_SECONDS)

    async def make(self, server, seconds):
        """Reloads and upgrades at their times, or as soon afterwards as the one before is over."""
        start = time.monotonic()
        upgrades = isinstance(server, managed.Maitred)
        for second in range(0, seconds, RELOAD_EVERY):
            await asyncio.sleep(start + second - time.monotonic())
            if time.monotonic() >= start + seconds:
                return
            await self.carry_out(server.reload)
            self.in_force = server.version
            self.reloads += 1
            if upgrades and second % UPGRADE_EVERY == 0:
                await asyncio.to_thread(server.replace_program)
                await self.carry_out(server.upgrade)
                self.upgrades += 1


async def under_load(server, seconds, with_changes):
    """Requests at their times, and changes meanwhile, if there are to be any."""
    changes = Changes()
    changes.in_force = server.version
    stale = 0

    def request(number):
        oldest = changes.in_force

        def is_right(status, body):
            nonlocal stale
            asked, _, version = body.decode("latin-1").strip().partition(" ")
            if status != 200 or asked != str(number) or not version.isdigit():
                return False
            stale += int(version) < oldest
            return int(version) <= server.version

        return f"/sleep.php?ms={SLEEP_MS}&n={number}", is_right

    making = asyncio.create_task(changes.make(server, seconds)) if with_changes else None
    answers = await client.steadily(server.port, RATE, seconds, request)
    if making is not None:
        await making
    return answers, changes, stale


def load_sample(bench, server, seconds, with_changes):
    """One stretch of load."""
    watch = load.Watch(server.leaders)
    answers, changes, stale = asyncio.run(under_load(server, seconds, with_changes))
    foreign_share = watch.read().foreign_share
    fates = collections.Counter(answer.fate for answer in answers)
    for fate, what in {(each.fate, each.what) for each in answers if each.fate != client.GOOD}:
        report.say(f"{server.name}: {fate}: {what}")
    taken = [answer.seconds * 1e3 for answer in answers]
    return LoadSample(
        asked=len(answers),
        p50_ms=report.percentile(taken, 0.5),
        p99_ms=report.percentile(taken, 0.99),
        slowest_ms=max(taken),
        late_p99_ms=report.percentile([answer.late * 1e3 for answer in answers], 0.99),
        **{fate: fates[fate] for fate in client.FAILURES},
        stale=stale,
        reloads=changes.reloads,
        upgrades=changes.upgrades,
        again=changes.again,
        foreign_share=foreign_share,
    )


def seconds_of(bench):
    """How long a stretch is."""
    return QUICK_SECONDS if bench.options.quick else SECONDS


def pair_of_samples(bench, kind):
    """(quiet, during) of one server."""
    pools = {managed.WWW: {"pm": "static", "max_children": WORKERS}}
    seconds = seconds_of(bench)
    with bench.managing(kind, pools, replaceable=kind is managed.Maitred) as server:
        server.await_count(WORKERS)
        quiet = load_sample(bench, server, seconds, False)
        during = load_sample(bench, server, seconds, True)
        server.await_count(WORKERS, GONE_SECONDS)
        if kind is managed.Maitred:
            processes.wait_until(
                lambda: len(server.fronts()) == len(server.zygotes()) == 1, GONE_SECONDS,
                "one front and one zygote",
            )
    report.say(f"{kind.name}: {during}")
    return quiet, during


def measure_turnover(bench):
    """Reloads and upgrades while requests come."""
    rounds = (bench.options.rounds + 1) // 2
    samples = {QUIET: [], "during": []}
    for _ in range(rounds):
        quiet, during = pair_of_samples(bench, managed.Maitred)
        samples[QUIET].append(quiet)
        samples["during"].append(during)
    fpm_quiet, fpm_during = pair_of_samples(bench, managed.Fpm)
    all_samples = {
        (peers.Maitred.name, QUIET): samples[QUIET],
        (peers.Maitred.name, "reloads and upgrades"): samples["during"],
        (managed.Fpm.name, QUIET): [fpm_quiet],
        (managed.Fpm.name, "reloads (SIGUSR2)"): [fpm_during],
    }
    lines = [
        (name, which, report.spread(each, "p50_ms", ".1f"), report.spread(each, "p99_ms", ".1f"),
         report.spread(each, "slowest_ms", ".1f"), report.spread(each, "late_p99_ms", ".1f"),
         *(str(sum(getattr(sample, field) for sample in each))
           for field in ("asked", *client.FAILURES, "stale", "reloads", "upgrades", "again")))
        for (name, which), each in all_samples.items()
    ]
    seconds = seconds_of(bench)
    text = (
        f"{RATE} requests a second that sleep {SLEEP_MS} ms, each at its time, for {seconds} s "
        f"without and {seconds} s with changes: another value in the configuration and SIGHUP "
        f"every second, other program files and SIGUSR2 every {UPGRADE_EVERY} s (php-fpm: SIGUSR2 "
        f"every second, which is both). Static pools of {WORKERS} workers, time-outs unset; every "
        f"other request on a connection that is kept, every body checked. \"Stale\": answered "
        f"well, but by a configuration replaced before the request was sent, as may happen on a "
        f"connection that the front before an upgrade still has. \"Again\": signals refused "
        f"because another change was going on, and sent again. Times begin when a request is due; "
        f"\"client late\" is how much of them the client itself came late. php-fpm is measured "
        f"once."
    )
    columns = (
        "server", "", "p50 ms", "p99 ms", "slowest ms", "client late p99 ms", "requests",
        *client.FAILURES, "stale", "reloads", "upgrades", "again",
    )
    outcomes = turnover_outcomes(samples[QUIET], samples["during"], seconds)
    return report.Section(
        TURNOVER_TITLE, text, columns, lines, outcomes, report.samples_as_json(all_samples)
    )


def turnover_outcomes(quiet, during, seconds):
    """No request is lost, nor slowed down by much."""
    failed = sum(sample.failed for sample in quiet + during)
    asked = sum(sample.asked for sample in quiet + during)
    reloads = min(sample.reloads for sample in during)
    upgrades = min(sample.upgrades for sample in during)
    enough = (
        reloads >= rows.TURNOVER_SHARE * seconds / RELOAD_EVERY
        and upgrades >= rows.TURNOVER_SHARE * seconds / UPGRADE_EVERY
    )
    at_least = f"at least {reloads} reloads and {upgrades} upgrades in {seconds} s"
    most = rows.TURNOVER_RATIO * report.median(quiet, "p99_ms") + rows.TURNOVER_MS
    value = report.median(during, "p99_ms")
    return [
        report.Outcome(
            "Reloads and upgrades under load: failed requests", "", "0", failed,
            f"{failed} of {asked}; {at_least}", failed == 0 and enough,
        ),
        report.Outcome(
            "Reloads and upgrades under load: p99", "maitred, quiet",
            f"≤ {rows.TURNOVER_RATIO} × quiet + {rows.TURNOVER_MS} ms = {most:.1f} ms", value,
            f"{report.spread(during, 'p99_ms', '.1f')} ms", value <= most and enough,
        ),
    ]


TURNOVER_TITLE = "Reloads and upgrades under load"
MEASUREMENTS = {TURNOVER_TITLE: measure_turnover}
