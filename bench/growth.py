"""How fast a pool grows: a step of load, and many requests at the same moment."""

import asyncio
import csv
import dataclasses
import io
import statistics
import subprocess

import client
import load
import managed
import peers
import processes
import report
import rows

STEP = load.Load("/step.php", 1, keep_alive=False)
STEP_BODY = b"done\n"
STEP_RATE = 200
STEP_SECONDS = 4
# What a pool without a process may need until PHP is up.
COLD_SECONDS = 0.5
BURST = 32
BURST_MS = 1000
IDLE_SECONDS = 2
AWAIT_IDLE_SECONDS = 30
GENERATOR_SECONDS = 60

STATIC, DYNAMIC = "static", "dynamic"
ONDEMAND_UP, ONDEMAND_DOWN = "ondemand, PHP up", "ondemand, nothing up"


@dataclasses.dataclass(frozen=True)
class Timed:
    """One request: when it was begun after the first, and how long it took, in seconds."""

    begun: float
    seconds: float


@dataclasses.dataclass(frozen=True)
class StepSample:
    """One step of load against one server."""

    p50_ms: float
    p99_ms: float
    slowest_ms: float
    later_p99_ms: float  # without the requests of the first COLD_SECONDS
    failed: int
    foreign_share: float


@dataclasses.dataclass(frozen=True)
class BurstSample:
    """One burst against one server."""

    slowest_s: float
    failed: int
    foreign_share: float


def step_pools():
    """The pools that the step is measured with."""
    most = {"max_children": 50}
    spare = {"start_servers": 2, "min_spare_servers": 1, "max_spare_servers": 3}
    ondemand = {"pm": "ondemand", **most, "process_idle_timeout": f"{IDLE_SECONDS}s"}
    return {
        STATIC: {"pm": "static", **most},
        DYNAMIC: {"pm": "dynamic", **most, **spare},
        ONDEMAND_UP: ondemand,
        ONDEMAND_DOWN: ondemand,
    }


def burst_pools():
    """The pools that the burst is measured with."""
    most = {"max_children": 64}
    spare = {"start_servers": 1, "min_spare_servers": 1, "max_spare_servers": 1}
    ondemand = {"pm": "ondemand", **most, "process_idle_timeout": f"{IDLE_SECONDS}s"}
    return {
        DYNAMIC: {"pm": "dynamic", **most, **spare},
        ONDEMAND_UP: ondemand,
        ONDEMAND_DOWN: ondemand,
    }


def make_ready(server, which, check):
    """Brings a pool to where the measurement begins: asked once, unless nothing is to be up."""
    if which == ONDEMAND_DOWN:
        return
    at_rest = {STATIC: server.pools[managed.WWW]["max_children"], ONDEMAND_UP: 0}
    count = at_rest.get(which, server.pools[managed.WWW].get("start_servers"))
    if which != ONDEMAND_UP:
        server.await_count(count)
    check()
    processes.wait_until_idle(server.leaders, load.IDLE_MOST_SECONDS)
    server.await_count(count, AWAIT_IDLE_SECONDS)
    if which == ONDEMAND_UP and isinstance(server, managed.Maitred) and not server.zygotes():
        raise load.WrongAnswer("the ondemand pool's PHP ended together with its last worker")


def oha(port):
    """Sends the step's requests, each at its time, and returns those that were answered right.

    Every request is a new client with a connection of its own, and there are as many of them as
    requests: none waits for another, so that nothing but the server decides on the times.
    """
    count = STEP_RATE * STEP_SECONDS
    command = [
        peers.program("oha"), "-n", str(count), "-q", str(STEP_RATE), "-c", str(count),
        "--latency-correction", "--disable-keepalive", "--disable-compression",
        "-t", f"{load.ANSWER_SECONDS}s", "--no-tui", "--output-format", "csv",
        f"http://127.0.0.1:{port}{STEP.path}",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=GENERATOR_SECONDS, check=True
    )
    answers = list(csv.DictReader(io.StringIO(done.stdout)))
    return [
        Timed(float(answer["request-start"]), float(answer["request-duration"]))
        for answer in answers
        if answer["status"] == "200" and int(answer["bytes"]) == len(STEP_BODY)
    ]


def step(server, which):
    """One step of load."""
    make_ready(server, which, lambda: load.check(server.name, server.port, STEP, STEP_BODY))
    watch = load.Watch(server.leaders)
    answers = oha(server.port)
    foreign_share = watch.read().foreign_share
    if not answers:
        raise load.WrongAnswer(f"{server.name}, {which}: no request was answered right")
    first = min(answer.begun for answer in answers)
    taken = [answer.seconds * 1e3 for answer in answers]
    later = [each.seconds * 1e3 for each in answers if each.begun - first >= COLD_SECONDS]
    return StepSample(
        p50_ms=report.percentile(taken, 0.5),
        p99_ms=report.percentile(taken, 0.99),
        slowest_ms=max(taken),
        later_p99_ms=report.percentile(later, 0.99),
        failed=STEP_RATE * STEP_SECONDS - len(answers),
        foreign_share=foreign_share,
    )


def burst(server, which):
    """Many requests at the same moment."""
    path = f"/sleep.php?ms={BURST_MS}"

    def check():
        load.check(server.name, server.port, load.Load("/sleep.php?ms=0", 1, False), b" 0\n")

    make_ready(server, which, check)
    watch = load.Watch(server.leaders)
    right = (200, b" 0\n")
    answers = asyncio.run(
        client.at_once(server.port, path, BURST, lambda *answer: answer == right)
    )
    foreign_share = watch.read().foreign_share
    return BurstSample(
        slowest_s=max(answer.seconds for answer in answers),
        failed=sum(answer.fate != client.GOOD for answer in answers),
        foreign_share=foreign_share,
    )


def samples_of(bench, pools, measure):
    """{(server's name, pool): samples}: for each a server of its own, in turn."""
    found = {}
    for turn in range(bench.options.rounds):
        kinds = [(kind, which) for kind in (managed.Maitred, managed.Fpm) for which in pools]
        first = turn % len(kinds)
        for kind, which in kinds[first:] + kinds[:first]:
            with bench.managing(kind, {managed.WWW: pools[which]}) as server:
                sample = measure(server, which)
            found.setdefault((kind.name, which), []).append(sample)
            report.say(f"{kind.name}, {which}: {sample}")
    return {
        (kind.name, which): found[kind.name, which]
        for kind in (managed.Maitred, managed.Fpm) for which in pools
    }


def measure_step(bench):
    """The step from 0 to 200 requests a second."""
    samples = samples_of(bench, step_pools(), step)
    ours = {which: each for (name, which), each in samples.items() if name == peers.Maitred.name}
    compared = [
        (DYNAMIC, "p99_ms", "p99"),
        (ONDEMAND_UP, "p99_ms", "p99"),
        (ONDEMAND_DOWN, "later_p99_ms", f"p99 after {COLD_SECONDS:g} s"),
    ]
    outcomes = [
        ratio_outcome(
            f"Step to {STEP_RATE} requests/s, {which}: {words}", ours[which], ours[STATIC], field
        )
        for which, field, words in compared
    ]
    lines = [
        (name, which, report.spread(each, "p50_ms", ".1f"), report.spread(each, "p99_ms", ".1f"),
         report.spread(each, "later_p99_ms", ".1f"), report.spread(each, "slowest_ms", ".1f"),
         str(sum(sample.failed for sample in each)))
        for (name, which), each in samples.items()
    ]
    text = (
        f"4 ms of CPU time and 40 ms of sleep, {STEP_RATE} times a second for {STEP_SECONDS} s, "
        f"each a new client at its time, whatever has become of those before (oha). Pools of at "
        f"most 50 workers; dynamic: start 2, min spare 1, max spare 3. \"PHP up\": no worker, but "
        f"asked {IDLE_SECONDS} s before; \"nothing up\": never asked. Each sample is of a server "
        f"that was started for it."
    )
    columns = (
        "server", "pool", "p50 ms", "p99 ms", f"p99 ms after {COLD_SECONDS:g} s", "slowest ms",
        "failed",
    )
    return report.Section(
        STEP_TITLE, text, columns, lines, outcomes, report.samples_as_json(samples)
    )


def ratio_outcome(title, ours, reference, field):
    """A pool that grows against one that need not."""
    ratio = report.median(ours, field) / report.median(reference, field)
    by_round = [getattr(a, field) / getattr(b, field) for a, b in zip(ours, reference)]
    failed = sum(sample.failed for sample in ours + reference)
    measured = f"{ratio:.2f} ({min(by_round):.2f}–{max(by_round):.2f})"
    if failed:
        measured += f", {failed} failed"
    holds = ratio <= rows.STEP_RATIO and not failed
    wanted = f"≤ {rows.STEP_RATIO:g}"
    return report.Outcome(title, "maitred, static", wanted, ratio, measured, holds)


def measure_burst(bench):
    """32 requests of a second at once."""
    samples = samples_of(bench, burst_pools(), burst)
    outcomes, lines = [], []
    for (name, which), each in samples.items():
        failed = sum(sample.failed for sample in each)
        slowest = report.spread(each, "slowest_s", ".2f")
        lines.append((name, which, slowest, str(failed)))
        if name == peers.Maitred.name:
            value = statistics.median(sample.slowest_s for sample in each)
            holds = value <= rows.BURST_SECONDS and not failed
            outcomes.append(report.Outcome(
                f"{BURST} sleeps of 1 s at once, {which}: slowest answer", "",
                f"≤ {rows.BURST_SECONDS:g} s", value,
                f"{slowest} s" + (f", {failed} failed" if failed else ""), holds,
            ))
    text = (
        f"{BURST} requests at the same moment, each on a connection of its own. Pools of at most "
        f"64 workers; dynamic: start 1, min spare 1, max spare 1."
    )
    columns = ("server", "pool", "slowest answer, s", "failed")
    return report.Section(
        BURST_TITLE, text, columns, lines, outcomes, report.samples_as_json(samples)
    )


STEP_TITLE = f"Step to {STEP_RATE} requests/s"
BURST_TITLE = f"{BURST} sleeps at once"
MEASUREMENTS = {STEP_TITLE: measure_step, BURST_TITLE: measure_burst}
