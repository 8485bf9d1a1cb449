"""What becomes of a pool that is asked for more than it can do."""

import contextlib
import dataclasses
import json
import os
import subprocess
import time

import load
import managed
import peers
import processes
import report
import rows

PAGE_MS = 5
PAGE = f"/busy.php?ms={PAGE_MS}"
PAGE_BODY = b"done\n"
WORKERS = 2
USERS = 4
TIMES = (3, 10)
# Who has waited for longer has left; what comes later is of no use.
PATIENCE = "1s"
POOL = {"pm": "static", "max_children": WORKERS, "request_queue_timeout": PATIENCE}
FPM_POOL = {"pm": "static", "max_children": WORKERS}
RUN_SECONDS = 6
WARM_UP_SECONDS = 3

# Every worker hangs, so that whatever the server's processes use is spent on refusing.
REFUSING_POOL = {"pm": "static", "max_children": WORKERS, "request_queue_length": 0}
REFUSED_RATE = 2000
REFUSED_USERS = 16
REFUSED_SECONDS = 4
HANG_MS = 15000

# Workers for all that hang at a time, and some: 100/s x 2 % x 15 s = 30 on average.
HANGING_POOL = {"pm": "static", "max_children": 64}
HANGING_RATE = 100
HANGING_SECONDS = 21


class RefusingNginx(peers.Nginx):
    """nginx that refuses every script: what taking a request and answering it costs at least."""

    name = "nginx, return 503"

    def php_rule(self):
        return 'return 503 "All workers are busy.";'


@dataclasses.dataclass(frozen=True)
class Sample:
    """One server's capacity, and what is left of it at each multiple."""

    capacity: float
    goodput: dict  # by multiple: answers a second within PATIENCE
    p50_ms: dict
    refused: dict  # a second


@contextlib.contextmanager
def on_processors(some):
    """Processes started within it use these processors."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, some & before or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def halves():
    """The processor of the server, and those of its clients."""
    first, *others = sorted(os.sched_getaffinity(0))
    return {first}, set(others) or {first}


def ask(server, path, *flags):
    """One run of `maitred bench`; what it says."""
    command = [os.path.abspath(peers.Maitred.program), "bench", "--json", *flags]
    if path:
        command.append(f"http://127.0.0.1:{server.port}{path}")
    said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    # 1: nothing was served; 3: connections were not there in time, since those before waited.
    if said.returncode not in (0, 1, 3, 4) or not said.stdout:
        raise load.WrongAnswer(f"{server.name}: {said.stderr.decode(errors='replace')}")
    return json.loads(said.stdout)


def in_order(seconds, warm_up):
    """Flags for how long it is measured."""
    return "--duration", f"{seconds}s", "--warm-up", f"{warm_up}s", "--slo", f"p99<{PATIENCE}"


def overloaded(bench, kind, pool):
    """Capacity and what is left of it, of a server that is started for it."""
    servers, askers = halves()
    with on_processors(servers), bench.managing(kind, {managed.WWW: pool}) as server:
        server.await_count(WORKERS)
        load.check(server.name, server.port, load.Load(PAGE, 1), PAGE_BODY)
        with on_processors(askers):
            at_most = ask(server, PAGE, "--users", str(USERS), *in_order(RUN_SECONDS, 1))
            capacity = at_most["requests"]["rate"]
            goodput, p50, refused = {}, {}, {}
            for times in TIMES:
                rate = str(round(capacity * times))
                found = ask(server, PAGE, "--rate", rate, *in_order(RUN_SECONDS, WARM_UP_SECONDS))
                goodput[times] = found["requests"]["goodput"]
                p50[times] = (found["corrected"]["p50"] or 0) * 1e3
                refused[times] = found["requests"]["refused"] / RUN_SECONDS
    return Sample(capacity, goodput, p50, refused)


def measure_overload(bench):
    """A page of 5 ms of CPU time, asked for 3 and 10 times as often as it can be made."""
    samples = {}
    for turn in range(bench.options.rounds):
        kinds = [(managed.Maitred, POOL), (managed.Fpm, FPM_POOL)]
        for kind, pool in kinds[::1 if turn % 2 else -1]:
            sample = overloaded(bench, kind, pool)
            samples.setdefault(kind.name, []).append(sample)
            report.say(f"overload, {kind.name}: {sample}")
    lines, outcomes = [], []
    for name, each in samples.items():
        for times in TIMES:
            shares = [sample.goodput[times] / sample.capacity for sample in each]
            middle = report.percentile(shares, 0.5)
            shown = f"{middle:.3f} ({min(shares):.3f}–{max(shares):.3f})"
            p50 = report.percentile([sample.p50_ms[times] for sample in each], 0.5)
            refused = report.percentile([sample.refused[times] for sample in each], 0.5)
            lines.append((
                name, f"{times} ×", report.spread(each, "capacity", ".0f"), shown, f"{p50:.1f}",
                f"{refused:.0f}",
            ))
            if name == peers.Maitred.name:
                wanted = rows.GOODPUT[times]
                outcomes.append(report.Outcome(
                    f"Overload {times} ×, page of {PAGE_MS} ms CPU: goodput by capacity", "maitred",
                    f"≥ {wanted:g}", middle, shown, middle >= wanted,
                ))
    text = (
        f"A page of {PAGE_MS} ms of CPU time, {WORKERS} workers; the server has one processor and "
        f"the generator the others. Capacity: what {USERS} users get who ask again at once. "
        f"Goodput: answers of status 200 within {PATIENCE} of when they were due, in an open loop "
        f"of 3 and 10 times the capacity, after {WARM_UP_SECONDS} s of it."
    )
    columns = ("server", "load", "capacity/s", "goodput by capacity", "p50, ms", "refused/s")
    as_json = {name: [dataclasses.asdict(each) for each in some] for name, some in samples.items()}
    return report.Section(OVERLOAD_TITLE, text, columns, lines, outcomes, as_json)


def refusals_us(bench):
    """CPU time of all of a server's processes for each refusal, in microseconds, by server and load."""
    with bench.managing(managed.Maitred, {managed.WWW: REFUSING_POOL}) as server:
        server.await_count(WORKERS)
        hang = [hanging(server) for _ in range(WORKERS)]
        processes.wait_until(
            lambda: refuses(server), peers.START_SECONDS, "every worker to hang"
        )
        found = of_each_load(server)
        for each in hang:
            each.close()
    with bench.serving([RefusingNginx], bench.root) as servers:
        found |= of_each_load(servers[RefusingNginx])
    return found


def of_each_load(server):
    """What each refusal of this server costs, by its name and the load."""
    flags = ("--duration", f"{REFUSED_SECONDS}s", "--warm-up", "0s")
    loads = {
        "open loop": ("--rate", str(REFUSED_RATE)),
        "closed loop": ("--users", str(REFUSED_USERS)),
    }
    found = {}
    for name, asked in loads.items():
        before = processes.cpu_seconds(server.leaders)
        refused = ask(server, "/hello.php", *asked, *flags)["requests"]["refused"]
        spent = processes.cpu_seconds(server.leaders) - before
        found[server.name, name] = spent * 1e6 / refused
    return found


def hanging(server):
    """A connection whose request hangs."""
    connection = load.connect(server.port, load.Load("/", 1))
    path = f"/sleep.php?ms={HANG_MS}"
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return connection


def refuses(server):
    """Whether a request gets no worker."""
    return load.fetch(server.port, load.Load("/hello.php", 1))[0] == 503


def measure_refusals(bench):
    """What it costs to refuse a request."""
    samples = {}
    for _ in range(bench.options.rounds):
        for which, cost in refusals_us(bench).items():
            samples.setdefault(which, []).append(cost)
        report.say(f"refusals: {samples}")
    lines, outcomes = [], []
    for (server, name), each in samples.items():
        middle = report.percentile(each, 0.5)
        shown = f"{middle:.1f} ({min(each):.1f}–{max(each):.1f})"
        lines.append((server, name, shown))
        if server == managed.Maitred.name:
            outcomes.append(report.Outcome(
                f"Refusal, {name}: CPU of all processes", "", f"≤ {rows.REFUSAL_US} µs", middle,
                f"{shown} µs", middle <= rows.REFUSAL_US,
            ))
    text = (
        f"hello.php, {REFUSED_RATE} times a second or by {REFUSED_USERS} users, while every worker "
        f"hangs and no request may wait: all answers are 503, on connections that are kept. Beside it "
        f"nginx whose configuration says `return 503`: it has no queue to look at and no script to "
        f"look for, so it shows what the machine takes for a request and an answer."
    )
    as_json = {f"{server}, {name}": each for (server, name), each in samples.items()}
    return report.Section(
        REFUSAL_TITLE, text, ("server", "load", "CPU µs per refusal"), lines, outcomes, as_json
    )


def others_ms(bench, share, pool, workers):
    """p50 and p99 in ms of the page, where so many in a hundred requests hang for 15 s; the pool
    begins with so many workers."""
    with bench.managing(managed.Maitred, {managed.WWW: pool}) as server:
        server.await_count(workers)
        page = f"http://127.0.0.1:{server.port}"
        urls = [f"{100 - share} {page}{PAGE}"]
        urls += [f"{share} {page}/sleep.php?ms={HANG_MS}"] if share else []
        path = os.path.join(bench.directory, f"urls-{time.monotonic_ns()}.txt")
        with open(path, "w", encoding="ascii") as file:
            file.write("\n".join(urls) + "\n")
        found = ask(
            server, "", "--urls-file", path, "--rate", str(HANGING_RATE), "--timeout", "20s",
            *in_order(HANGING_SECONDS, HANG_MS // 1000 if share else 1),
        )
    of_page = next(each for each in found["urls"] if PAGE in each["url"])
    if of_page["not_served"]:
        raise load.WrongAnswer(f"{of_page['not_served']} pages were not served: {found['causes']}")
    latencies = of_page["corrected"]
    return latencies["p50"] * 1e3, latencies["p99"] * 1e3


def measure_hanging(bench):
    """2 % of requests hang: how the others fare."""
    samples = {}
    for share in (0, 2):
        for _ in range(bench.options.rounds if share else 1):
            most = HANGING_POOL["max_children"]
            samples.setdefault(share, []).append(others_ms(bench, share, HANGING_POOL, most))
            report.say(f"{share} % hang: p50, p99 of the others {samples[share][-1]} ms")
    lines = []
    for share, each in samples.items():
        p50, p99 = (report.percentile(values, 0.5) for values in zip(*each))
        lines.append((f"{share} %", f"{p50:.1f}", f"{p99:.1f}"))
    ratios = [p99 / p50 for p50, p99 in samples[2]]
    middle = report.percentile(ratios, 0.5)
    shown = f"{middle:.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
    outcome = report.Outcome(
        "2 % of requests hang 15 s: p99 of the others by their p50", "", f"≤ {rows.HANGING_RATIO}",
        middle, shown, middle <= rows.HANGING_RATIO,
    )
    text = (
        f"A page of {PAGE_MS} ms of CPU time, {HANGING_RATE} requests a second for "
        f"{HANGING_SECONDS} s, of which some sleep for {HANG_MS // 1000} s; "
        f"{HANGING_POOL['max_children']} workers, of which 30 hang on average. Server and "
        f"generator share the machine."
    )
    columns = ("hang", "p50 of the others, ms", "p99 of the others, ms")
    return report.Section(HANGING_TITLE, text, columns, lines, [outcome], samples)


OVERLOAD_TITLE = "Overload"
REFUSAL_TITLE = "Overload: what a refusal costs"
HANGING_TITLE = "Overload: requests that hang"
MEASUREMENTS = {
    OVERLOAD_TITLE: measure_overload,
    REFUSAL_TITLE: measure_refusals,
    HANGING_TITLE: measure_hanging,
}
