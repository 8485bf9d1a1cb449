"""Pools that find their size (pm = auto), beside the best fixed number of workers."""

import contextlib
import dataclasses
import math
import os
import statistics

import load
import managed
import overload
import peers
import processes
import report
import rows
import wordpress

AUTO = {"pm": "auto", "max_children": 64}
GRID = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
USERS = (4, 32)
# Of what 32 users get from the best fixed number.
PARTS = (0.5, 0.9)
GRID_SECONDS = 2
# Until what it needs is known: what requests cost, and the processors they share.
LEARNS_SECONDS = 5
PAGES = {
    "5 ms of work": "/busy.php?ms=5",
    "40 ms of waiting": "/sleep.php?ms=40",
    "4 ms of work, 16 ms of waiting": "/busy.php?ms=4&wait=16",
}
WORDPRESS = "WordPress front page"

STEP = "/step.php"
STEP_RATE = 200
# 2000 requests: of fewer, `maitred bench` says no p99.
STEP_SECONDS = 10
STEP_STATIC = {"pm": "static", "max_children": 50}


class Blog(managed.Maitred):
    """maitred with a site whose paths are all answered by index.php."""

    def config(self):
        return super().config() + 'front_controller = "/index.php"\n'


@dataclasses.dataclass(frozen=True)
class Asked:
    """How a page is asked for: by so many users, or so many times a second."""

    users: int = 0
    rate: float = 0

    def flags(self, seconds, warm_up):
        """For `maitred bench`."""
        how = ("--users", str(self.users)) if self.users else ("--rate", f"{self.rate:.1f}")
        return *how, "--duration", f"{seconds}s", "--warm-up", f"{warm_up}s"


@dataclasses.dataclass(frozen=True)
class Sample:
    """What one server did with it."""

    rate: float  # answers a second
    p99_ms: float
    workers: int


class Place:
    """A page, and where it is served."""

    def __init__(self, bench, root, kind, path):
        self.bench, self.root, self.kind, self.path = bench, root, kind, path

    @contextlib.contextmanager
    def serving(self, *pools):
        """A server for each of these pools, all at the same time."""
        with contextlib.ExitStack() as stack:
            servers = []
            for pool in pools:
                place = peers.Place(self.bench.directory, self.root, 0)
                server = self.kind(place).configure({managed.WWW: pool})
                stack.callback(server.stop)
                server.start()
                servers.append(server)
            yield servers

    def sample(self, server, asked, seconds, warm_up):
        """One run."""
        found = overload.ask(server, self.path, *asked.flags(seconds, warm_up))
        requests = found["requests"]
        p99 = found["corrected"]["p99"] or found["corrected"]["max"] or math.inf
        if found["causes"]:
            # Too few workers for so many requests: no administrator would configure that few.
            p99 = math.inf
        return Sample(requests["rate"], p99 * 1e3, len(server.workers()))

    def fixed(self, workers, asked):
        """One run of a pool of so many workers."""
        with self.serving(fixed(workers)) as (server,):
            server.await_count(workers)
            return self.sample(server, asked, GRID_SECONDS, 1)


def fixed(workers):
    """A pool's settings."""
    return {"pm": "static", "max_children": workers}


def best(place, asked, samples=None):
    """The best fixed number: of those that answer as much the one with the least p99, or the
    smallest of several."""
    samples = samples if samples is not None else {}
    for workers in GRID:
        if workers not in samples:
            samples[workers] = place.fixed(workers, asked)
    most = max(sample.rate for sample in samples.values())
    enough = {n: each for n, each in samples.items() if each.rate >= rows.AUTO_RATE * most}
    least = min(sample.p99_ms for sample in enough.values())
    return min(n for n, each in enough.items() if each.p99_ms <= rows.AUTO_SAME_P99 * least)


def compared(place, asked, workers, options):
    """Samples of auto and of two equal fixed pools, which are asked in turn."""
    pools = (AUTO, fixed(workers), fixed(workers))
    samples = [[], [], []]
    with place.serving(*pools) as servers:
        for server in servers[1:]:
            server.await_count(workers)
        place.sample(servers[0], asked, 1, LEARNS_SECONDS)
        for turn in range(options.rounds):
            for index in sorted(range(3), key=lambda index: (index + turn) % 3):
                sample = place.sample(servers[index], asked, options.seconds, 1)
                if math.isinf(sample.p99_ms):
                    raise load.WrongAnswer(f"{place.path}: not every request was served")
                samples[index].append(sample)
    return samples


def ratios(ours, theirs, field):
    """By round."""
    return [getattr(a, field) / getattr(b, field) for a, b in zip(ours, theirs)]


def noise(ratios_of_equals):
    """By what factor the middle of the rounds of two equal servers may differ."""
    spread = statistics.median(abs(math.log(ratio)) for ratio in ratios_of_equals)
    return math.exp(spread)


def outcomes(title, samples, workers):
    """Both bars."""
    auto, one, other = samples
    against = f"static {workers}"
    found = []
    for field, words, wanted, is_rate in (
        ("rate", "requests/s", rows.AUTO_RATE, True),
        ("p99_ms", "p99", rows.AUTO_P99, False),
    ):
        each = ratios(auto, one, field)
        middle = statistics.median(each)
        of_equals = noise(ratios(other, one, field))
        bar = min(wanted, 1 / of_equals) if is_rate else max(wanted, of_equals)
        measured = f"{middle:.2f} ({min(each):.2f}–{max(each):.2f})"
        sign = "≥" if is_rate else "≤"
        holds = middle >= bar if is_rate else middle <= bar
        found.append(report.Outcome(
            f"pm = auto, {title}: {words}", against, f"{sign} {bar:.2f}", middle, measured, holds
        ))
    return found


def measure_page(bench, name, place):
    """All four loads of a page: lines, outcomes, samples."""
    lines, found, as_json = [], [], {}
    capacity = 0
    for asked in (*map(Asked, USERS), *PARTS):
        words = f"{asked.users} users" if isinstance(asked, Asked) else f"{asked:g} of capacity"
        if not isinstance(asked, Asked):
            asked = Asked(rate=asked * capacity)
        grid = {}
        workers = best(place, asked, grid)
        if asked.users == max(USERS):
            capacity = grid[workers].rate
        samples = compared(place, asked, workers, bench.options)
        title = f"{name}, {words}"
        outcome = outcomes(title, samples, workers)
        lines.append((
            words if asked.users else f"{words} ({asked.rate:.0f}/s)",
            *line_of(samples[0]), *line_of(samples[1]),
        ))
        report.say(f"{title}: " + "; ".join(one.line() for one in outcome))
        report.say(f"  {lines[-1]}; grid { {n: (round(s.rate), round(s.p99_ms, 1)) for n, s in grid.items()} }")
        found += outcome
        as_json[title] = {
            "grid": {n: dataclasses.asdict(each) for n, each in grid.items()},
            "samples": [[dataclasses.asdict(one) for one in each] for each in samples],
        }
    return lines, found, as_json


def line_of(samples):
    """Workers, requests a second, p99."""
    workers = statistics.median(sample.workers for sample in samples)
    return (
        f"{workers:.0f}", report.spread(samples, "rate", ".0f"),
        report.spread(samples, "p99_ms", ".1f"),
    )


def measured_page(name, serving):
    """The measurement of a page: pm = auto beside the best fixed number."""
    def measure(bench):
        with serving(bench) as place:
            lines, found, samples = measure_page(bench, name, place)
        text = (
            f"The best fixed number is found among {', '.join(map(str, GRID))} by one run of "
            f"{GRID_SECONDS} s each, separately for each load; then it is measured again beside auto and a "
            f"second pool of the same number, {bench.options.rounds} rounds of "
            f"{bench.options.seconds} s in turn. Capacity is what {max(USERS)} users get from the best "
            f"fixed number. A bar is as wide as the two equal pools differ, if that is more. Server and "
            f"generator share the machine."
        )
        columns = (
            "load", "auto: workers", "requests/s", "p99 ms", "static: workers", "requests/s", "p99 ms",
        )
        return report.Section(page_title(name), text, columns, lines, found, samples)
    return measure


def page_title(name):
    """Of a page's measurement."""
    return f"pm = auto: {name}"


def script(path):
    """How a page of bench/docroot is served."""
    return lambda bench: contextlib.nullcontext(Place(bench, bench.root, managed.Maitred, path))


@contextlib.contextmanager
def blog(bench):
    """WordPress's front page."""
    database = wordpress.MariaDb(bench.directory)
    try:
        database.start()
        root = wordpress.unpack(bench.directory, database)
        place = Place(bench, root, Blog, "/")
        with place.serving(fixed(2)) as (server,):
            wordpress.install(server.port)
        yield place
    finally:
        database.stop()


def step_p99_ms(bench, pool, workers):
    """p99 of a step from nothing, of a server that is started for it and asked once before."""
    with bench.managing(managed.Maitred, {managed.WWW: pool}) as server:
        server.await_count(workers)
        load.check(server.name, server.port, load.Load(STEP, 1, False), b"done\n")
        processes.wait_until_idle(server.leaders, load.IDLE_MOST_SECONDS)
        flags = ("--no-keepalive", "--duration", f"{STEP_SECONDS}s", "--warm-up", "0s")
        found = overload.ask(server, STEP, "--rate", str(STEP_RATE), *flags)
    p99 = found["corrected"]["p99"]
    if found["requests"]["served"] < STEP_RATE * STEP_SECONDS or p99 is None:
        raise load.WrongAnswer(f"{server.name}: {found['requests']}, {found['causes']}")
    return p99 * 1e3


def measure_step(bench):
    """From one idle worker to 200 requests a second of 44 ms."""
    samples = {"auto": [], "static 50": []}
    for turn in range(bench.options.rounds):
        kinds = [("auto", AUTO, 1), ("static 50", STEP_STATIC, 50)]
        for name, pool, workers in kinds[::1 if turn % 2 else -1]:
            samples[name].append(step_p99_ms(bench, pool, workers))
        report.say(f"{STEP_TITLE}: {samples}")
    each = [ours / theirs for ours, theirs in zip(*samples.values())]
    middle = statistics.median(each)
    outcome = report.Outcome(
        f"{STEP_TITLE}: p99", "static 50", f"≤ {rows.AUTO_STEP}", middle,
        f"{middle:.2f} ({min(each):.2f}–{max(each):.2f})", middle <= rows.AUTO_STEP,
    )
    lines = [(name, f"{statistics.median(values):.1f} ({min(values):.1f}–{max(values):.1f})")
             for name, values in samples.items()]
    text = (
        f"4 ms of CPU time and 40 ms of sleep, {STEP_RATE} times a second for {STEP_SECONDS} s, each "
        f"over a connection of its own, from one idle worker on."
    )
    return report.Section(STEP_TITLE, text, ("pool", "p99 ms"), lines, [outcome], samples)


def measure_hanging(bench):
    """2 % of requests hang: how the others fare."""
    samples = [overload.others_ms(bench, 2, AUTO, 1) for _ in range(bench.options.rounds)]
    report.say(f"{HANGING_TITLE}: {samples}")
    each = [p99 / p50 for p50, p99 in samples]
    middle = statistics.median(each)
    outcome = report.Outcome(
        f"{HANGING_TITLE}: p99 of the others by their p50", "", f"≤ {rows.HANGING_RATIO}", middle,
        f"{middle:.2f} ({min(each):.2f}–{max(each):.2f})", middle <= rows.HANGING_RATIO,
    )
    lines = [(f"{p50:.1f}", f"{p99:.1f}") for p50, p99 in samples]
    text = (
        f"2 % of {overload.HANGING_RATE} requests a second sleep for {overload.HANG_MS // 1000} s, "
        f"the others work for {overload.PAGE_MS} ms; from one worker on."
    )
    columns = ("p50 of the others, ms", "p99 of the others, ms")
    return report.Section(HANGING_TITLE, text, columns, lines, [outcome], samples)


STEP_TITLE = f"pm = auto: step to {STEP_RATE} requests/s"
HANGING_TITLE = "pm = auto: 2 % of requests hang 15 s"
MEASUREMENTS = {
    **{page_title(name): measured_page(name, script(path)) for name, path in PAGES.items()},
    page_title(WORDPRESS): measured_page(WORDPRESS, blog),
    STEP_TITLE: measure_step,
    HANGING_TITLE: measure_hanging,
}
