"""Requests a second by maitred bench, wrk and h2load, and what a request costs each of them."""

import contextlib
import dataclasses
import os
import re
import statistics
import subprocess

import generators
import load
import managed
import overload
import report

TITLE = "Throughput by maitred bench beside other generators"
CONNECTIONS = 16
WORKERS = 8
SLEEP_MS = 20
WARM_UP_MS = 500
GENERATOR_RATIO = 1.5  # to wrk's


@dataclasses.dataclass(frozen=True)
class Flat:
    """What a generator got out of a server, and what a request cost each of the two."""

    rate: float  # answers a second
    generator_us: float  # of the processor, for each
    server_us: float


def watching(server, seconds, generator):
    """Runs a generator, which returns answers a second, for so long with its warm-up."""
    watch, before = load.Watch(server.leaders), load.children_seconds()
    rate = generator()
    used = watch.read().server
    each = 1e6 / (rate * seconds)
    return Flat(rate, (load.children_seconds() - before) * each, used * each)


def our_rate(server, path, connections, seconds):
    """Answers a second that so many users get by maitred bench."""
    how = [f"--users={connections}", f"--duration={seconds}s", f"--warm-up={WARM_UP_MS}ms"]
    return watching(server, seconds + WARM_UP_MS / 1e3,
                    lambda: generators.ours(server, path, how)["requests"]["rate"])


def h2load_rate(server, path, connections, seconds):
    """The same by h2load, over HTTP/1.1."""
    command = ["h2load", "--h1", "-t1", f"-c{connections}", f"-D{seconds}",
               f"--warm-up-time={WARM_UP_MS}ms", f"http://127.0.0.1:{server.port}{path}"]

    def run():
        done = subprocess.run(command, capture_output=True, text=True, check=True,
                              timeout=generators.GENERATOR_SECONDS)
        found = re.search(r"^finished in [^,]*, ([\d.]+) req/s", done.stdout, re.MULTILINE)
        return float(found[1])

    return watching(server, seconds + WARM_UP_MS / 1e3, run)


def wrk_rate(server, path, connections, seconds):
    """The same by wrk, which has no warm-up."""

    def run():
        summary = load.wrk(server.port, load.Load(path, connections), seconds)
        return summary["requests"] / summary["duration_us"] * 1e6

    return watching(server, seconds, run)


RATE_OF = {"maitred bench": our_rate, "h2load": h2load_rate, "wrk": wrk_rate}


@dataclasses.dataclass(frozen=True)
class Bound:
    """A load, and what bounds it."""

    title: str
    path: str
    apart: bool  # the server has one processor, and generators have the others


BOUNDS = (
    Bound("hello.php, the server on one processor, generators on another", "/hello.php", True),
    Bound(f"{WORKERS} workers that sleep {SLEEP_MS} ms", f"/sleep.php?ms={SLEEP_MS}", False),
    Bound("hello.php, all on the same processors", "/hello.php", False),
)


def rates(bench, bound):
    """{generator: [Flat]} of one load."""
    everywhere = os.sched_getaffinity(0)
    of_server, of_others = overload.halves() if bound.apart else (everywhere, everywhere)
    seconds = max(2, bench.options.seconds)
    with contextlib.ExitStack() as held:
        with overload.on_processors(of_server):
            server = held.enter_context(bench.managing(
                managed.Maitred, {"www": {"pm": "static", "max_children": WORKERS}}))
        held.enter_context(overload.on_processors(of_others))
        wrk_rate(server, bound.path, CONNECTIONS, 1)
        return generators.in_turn(
            bench, RATE_OF, lambda way: way(server, bound.path, CONNECTIONS, seconds))


def by_round(found, one, other, field):
    """The median of the rounds' ratios, and the median with the least and the most in words."""
    each = [getattr(a, field) / getattr(b, field) for a, b in zip(found[one], found[other])]
    middle = statistics.median(each)
    return middle, f"{middle:.3f} ({min(each):.3f}–{max(each):.3f})"


def measure(bench):
    """Whether generators agree on what a server can do, where it is the server that bounds it."""
    lines, outcomes, samples = [], [], {}
    for bound in BOUNDS:
        found = rates(bench, bound)
        samples |= {(name, bound.title): each for name, each in found.items()}
        for name, each in found.items():
            of = lambda field: report.median(each, field)
            lines.append((bound.title, name, f"{of('rate'):.0f}", f"{of('generator_us'):.1f}",
                          f"{of('server_us'):.1f}"))
        ratio, told = by_round(found, "maitred bench", "h2load", "rate")
        title = f"{bound.title}: requests a second by maitred bench"
        outcomes.append(generators.agreement(title, "h2load", ratio, told))
    ratio, told = by_round(found, "maitred bench", "wrk", "generator_us")
    outcomes.append(report.Outcome(
        f"{bound.title}: the generator's own CPU per request", "wrk", f"≤ {GENERATOR_RATIO:g}",
        ratio, told, ratio <= GENERATOR_RATIO,
    ))
    text = (
        f"Closed loop over {CONNECTIONS} connections. What a server can do is seen where the server "
        f"is what bounds it. Where all share the same processors, what the generator uses the "
        f"server does not have, and the rate is that of both together."
    )
    columns = ("load", "generator", "requests a second", "generator's CPU, µs", "server's CPU, µs")
    return report.Section(TITLE, text, columns, lines, outcomes, report.samples_as_json(samples))


MEASUREMENTS = {TITLE: measure}
