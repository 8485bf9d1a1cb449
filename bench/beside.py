"""What consumers of a pool that never wait cost its requests."""

import os

import load
import managed
import report
import rows

WORKERS = 4
SECONDS, QUICK_SECONDS = 10, 3
WARM_SECONDS = 2
OVERLOAD = "overload"
# 5 ms of work, by as many clients as there are workers, and by more than can be served at once.
PAGES = {
    "one client": load.Load("/busy.php?ms=5", 1),
    OVERLOAD: load.Load("/busy.php?ms=5", 4 * WORKERS),
}
CONSUMER = "while (true) { hash('sha256', 'a job'); }"


class WithConsumer(managed.Maitred):
    """maitred with a consumer that never waits."""

    name = "maitred with a consumer"
    processes = 1
    more = ()

    def config(self):
        return super().config() + "\n".join([
            "[[pools.www.commands]]", 'name = "busy"', f"processes = {self.processes}",
            f'command = ["php", "-r", "{CONSUMER}"]', *self.more, "",
        ])


class WithConsumers(WithConsumer):
    """maitred with such a consumer for each processor."""

    name = "maitred with one for each processor"
    processes = os.cpu_count()


class WithIdleConsumers(WithConsumers):
    """The same, with consumers that have only what no other process wants."""

    name = "maitred with one for each processor, cpu_weight = 0"
    more = ("cpu_weight = 0",)


KINDS = (managed.Maitred, WithConsumer, WithConsumers, WithIdleConsumers)


def sample(bench, kind, page):
    """One run of the load against a new server."""
    seconds = QUICK_SECONDS if bench.options.quick else SECONDS
    settings = {managed.WWW: {"pm": "static", "max_children": WORKERS}}
    with bench.managing(kind, settings) as server:
        load.wrk(server.port, page, WARM_SECONDS)
        return load.measure(server.port, server.leaders, page, seconds)


def measure(bench):
    """p99 and rate of a page without and with consumers."""
    samples = {}
    for _ in range(bench.options.rounds):
        for name, page in PAGES.items():
            for kind in KINDS:
                samples.setdefault((name, kind), []).append(sample(bench, kind, page))
    lines = [
        (name, kind.name, report.spread(each, "per_second", ".0f"),
         report.spread(each, "p99_ms", ".1f"), str(sum(one.errors for one in each)))
        for (name, kind), each in samples.items()
    ]
    outcomes = [outcome(samples, OVERLOAD)]
    seconds = QUICK_SECONDS if bench.options.quick else SECONDS
    text = (
        f"A pool of {WORKERS} workers, and a page that computes 5 ms, for {seconds} s: by one "
        f"client, and by {4 * WORKERS}. Beside it a consumer that never waits, one for each "
        f"processor, and the same with `cpu_weight = 0` in place of the default."
    )
    columns = ("load", "server", "requests/s", "p99 ms", "failed")
    return report.Section(TITLE, text, columns, lines, outcomes, report.samples_as_json(
        {(name, kind.name): each for (name, kind), each in samples.items()}
    ))


def outcome(samples, name):
    """p99 with consumers against that without."""
    alone, beside = samples[name, managed.Maitred], samples[name, WithConsumer]
    p99 = report.median(beside, "p99_ms") / report.median(alone, "p99_ms")
    failed = sum(one.errors for one in beside)
    return report.Outcome(
        f"{TITLE}, {name}: p99, one consumer", "maitred without",
        f"≤ {rows.BESIDE_P99_RATIO}, 0 failed", p99,
        f"{p99:.2f} ({report.spread(beside, 'p99_ms', '.1f')} ms), {failed} failed",
        p99 <= rows.BESIDE_P99_RATIO and failed == 0,
    )


TITLE = "Requests beside busy consumers"
MEASUREMENTS = {TITLE: measure}
