"""What honest clients notice of slow ones, and of reloads of very many sites."""

import asyncio
import collections
import contextlib
import dataclasses
import json
import subprocess
import time

import client
import load
import managed
import peers
import report
import rows

WORKERS = 4
ATTACKERS = 2000
# How fast they come, so that they are all there when the measured stretch begins.
ATTACKERS_PER_SECOND = 1000
ARRIVE_SECONDS = 4
SECONDS, QUICK_SECONDS = 15, 5
RATE = 100
# slowhttptest's four attacks; a large answer is one that no socket's buffers hold.
ATTACKS = {
    "slow heads (-H)": ("/hello.php", "-H", "-i", "5"),
    "slow bodies (-B)": ("/hello.php", "-B", "-i", "5", "-s", "8192"),
    "many ranges (-R)": ("/1m.bin", "-R", "-a", "10", "-b", "3000"),
    "slow reading (-X)": ("/1m.bin", "-X", "-w", "512", "-y", "1024", "-n", "5", "-z", "32",
                          "-k", "6"),
}
QUIET = "quiet"

SITES = 1000
RELOAD_SECONDS, QUICK_RELOAD_SECONDS = 30, 6
RELOAD_EVERY = 1
RELOAD_RATE = 2000
RELOAD_CONNECTIONS = 40


@dataclasses.dataclass(frozen=True)
class Sample:
    """One stretch of honest requests."""

    asked: int
    failed: int
    p50_ms: float
    p99_ms: float
    slowest_ms: float
    foreign_share: float


def honest(bench, server, seconds):
    """`RATE` requests a second, half of them for a file and half for a script."""
    pages = [("/hello.php", rows.HELLO), ("/hello.txt", rows.FILES["hello.txt"])]

    def request(number):
        # Of two in a row one is on a connection that is kept: each page gets both kinds.
        path, body = pages[number // 2 % 2]
        return path, lambda status, answer: (status, answer) == (200, body)

    watch = load.Watch(server.leaders)
    answers = asyncio.run(client.steadily(server.port, RATE, seconds, request))
    foreign_share = watch.read().foreign_share
    return sample_of(answers, foreign_share)


def sample_of(answers, foreign_share):
    """What became of requests."""
    failures = [each for each in answers if each.fate != client.GOOD]
    for (fate, what), count in collections.Counter((e.fate, e.what) for e in failures).items():
        report.say(f"{count} times {fate}: {what}")
    taken = [answer.seconds * 1e3 for answer in answers]
    return Sample(
        asked=len(answers), failed=len(failures),
        p50_ms=report.percentile(taken, 0.5), p99_ms=report.percentile(taken, 0.99),
        slowest_ms=max(taken), foreign_share=foreign_share,
    )


@contextlib.contextmanager
def attacked(server, path, *words):
    """Has slowhttptest attack the server meanwhile."""
    command = [peers.program("slowhttptest"), *words, "-c", str(ATTACKERS)]
    command += ["-r", str(ATTACKERS_PER_SECOND), "-l", "240", "-p", "30"]
    command += ["-u", f"http://127.0.0.1:{server.port}{path}"]
    attack = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        time.sleep(ARRIVE_SECONDS)
        yield
    finally:
        attack.kill()
        attack.wait()


def slow_clients(bench):
    """Honest requests beside each of slowhttptest's attacks."""
    peers.allow_many_files()
    seconds = QUICK_SECONDS if bench.options.quick else SECONDS
    pools = {managed.WWW: {"pm": "static", "max_children": WORKERS}}
    samples = {name: [] for name in (QUIET, *ATTACKS)}
    for _ in range((bench.options.rounds + 1) // 2):
        with bench.managing(managed.Maitred, pools) as server:
            server.await_count(WORKERS)
            honest(bench, server, 1)
            samples[QUIET].append(honest(bench, server, seconds))
            for name, words in ATTACKS.items():
                with attacked(server, *words):
                    samples[name].append(honest(bench, server, seconds))
    quiet = report.median(samples[QUIET], "p99_ms")
    most = max(rows.SLOW_CLIENTS_RATIO * quiet, rows.SLOW_CLIENTS_MS)
    outcomes = [slow_outcome(name, samples[name], most) for name in ATTACKS]
    lines = [
        (name, report.spread(each, "p50_ms", ".2f"), report.spread(each, "p99_ms", ".2f"),
         report.spread(each, "slowest_ms", ".1f"), str(sum(sample.asked for sample in each)),
         str(sum(sample.failed for sample in each)))
        for name, each in samples.items()
    ]
    text = (
        f"{RATE} honest requests a second for {seconds} s, half for a file and half for a script, "
        f"every other one on a connection that is kept, every answer checked; without and with "
        f"{ATTACKERS} connections of slowhttptest, which need {ARRIVE_SECONDS} s to arrive. Times "
        f"begin when a request is due, and are those of a client in Python."
    )
    columns = ("attack", "p50 ms", "p99 ms", "slowest ms", "requests", "failed")
    return report.Section(SLOW_TITLE, text, columns, lines, outcomes, as_json(samples))


def slow_outcome(name, samples, most):
    """No honest client fails or waits for long."""
    failed = sum(sample.failed for sample in samples)
    value = report.median(samples, "p99_ms")
    return report.Outcome(
        f"{ATTACKERS} clients, {name}: honest p99", "maitred, quiet",
        f"≤ {rows.SLOW_CLIENTS_RATIO} × quiet or {rows.SLOW_CLIENTS_MS} ms = {most:.1f} ms, "
        f"0 failed", value, f"{report.spread(samples, 'p99_ms', '.2f')} ms, {failed} failed",
        value <= most and failed == 0,
    )


def as_json(samples):
    """Everything, for programs."""
    return {name: [dataclasses.asdict(sample) for sample in each] for name, each in samples.items()}


class ManySites(managed.Maitred):
    """maitred with a thousand sites, each of which a reload changes."""

    def config(self):
        lines = [f'listen = "127.0.0.1:{self.port}"', f'admin_socket = "{self.admin_socket()}"']
        for name, settings in self.pools.items():
            lines.append(f"[pools.{name}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        for number in range(SITES):
            lines += [
                "[[sites]]", f'hosts = ["s{number}.example"]', f'root = "{self.place.root}"',
                f'pool = "{managed.WWW}"',
                f'redirects = {{ from = "/version", to = "/{self.version}" }}',
            ]
        return "\n".join(lines) + "\n"


async def ask_on(port, number, seconds, fates):
    """One connection that asks at its times, of one site after the other, and is never closed."""
    connection = await client.Connection.open(port)
    every = RELOAD_CONNECTIONS / RELOAD_RATE
    start = time.monotonic() + every * number / RELOAD_CONNECTIONS
    answers = []
    for turn in range(round(seconds / every)):
        begun = start + turn * every
        await asyncio.sleep(begun - time.monotonic())
        late = time.monotonic() - begun
        page = ("/hello.php", rows.HELLO) if turn % 4 == 0 else ("/hello.txt", rows.FILES["hello.txt"])
        fate, what = client.GOOD, ""
        try:
            host = f"s{(number + 7 * turn) % SITES}.example"
            status, body = await connection.ask(page[0], host, True)
            if (status, body) != (200, page[1]):
                fate, what = client.WRONG, f"status {status}"
        except (OSError, EOFError, ValueError) as error:
            fate, what = client.BROKEN, type(error).__name__
        answers.append(client.Answer(fate, begun, time.monotonic() - begun, late, what))
        if not connection.is_usable:
            fates["closed"] += 1
            connection.close()
            connection = await client.Connection.open(port)
    connection.close()
    return answers


async def under_reloads(server, seconds, fates):
    """All connections, and a reload each second if there are to be any."""
    asking = [
        asyncio.create_task(ask_on(server.port, number, seconds, fates))
        for number in range(RELOAD_CONNECTIONS)
    ]
    start = time.monotonic()
    while fates["reloads"] is not None and time.monotonic() < start + seconds - RELOAD_EVERY:
        await asyncio.sleep(start + fates["reloads"] * RELOAD_EVERY - time.monotonic())
        began = time.monotonic()
        change = server.reload()
        while not change.is_over():
            await asyncio.sleep(managed.LOOK_SECONDS)
        fates["reloads"] += 1
        fates["reload_ms"].append((time.monotonic() - began) * 1e3)
    return [answer for answers in await asyncio.gather(*asking) for answer in answers]


def reload_sample(server, seconds, with_reloads):
    """One stretch, and what became of connections."""
    fates = {"closed": 0, "reloads": 0 if with_reloads else None, "reload_ms": []}
    watch = load.Watch(server.leaders)
    answers = asyncio.run(under_reloads(server, seconds, fates))
    foreign_share = watch.read().foreign_share
    return sample_of(answers, foreign_share), fates


def many_sites(bench):
    """Reloads of all sites while requests come."""
    seconds = QUICK_RELOAD_SECONDS if bench.options.quick else RELOAD_SECONDS
    pools = {managed.WWW: {"pm": "static", "max_children": WORKERS}}
    with bench.managing(ManySites, pools) as server:
        server.await_count(WORKERS)
        quiet, _ = reload_sample(server, seconds, False)
        during, fates = reload_sample(server, seconds, True)
    outcome = report.Outcome(
        f"{SITES} sites reloaded every second: failed requests and closed connections", "", "0, 0",
        during.failed + fates["closed"],
        f"{during.failed} of {during.asked}, {fates['closed']} closed, {fates['reloads']} reloads",
        during.failed == fates["closed"] == 0
        and fates["reloads"] >= rows.TURNOVER_SHARE * seconds / RELOAD_EVERY,
    )
    lines = [
        (name, *(f"{getattr(sample, field):.2f}" for field in ("p50_ms", "p99_ms", "slowest_ms")),
         str(sample.asked), str(sample.failed))
        for name, sample in (("quiet", quiet), ("reloads", during))
    ]
    took = sorted(fates["reload_ms"])
    text = (
        f"{SITES} sites, all of which change, and a reload every second for {seconds} s; "
        f"{RELOAD_RATE} requests a second on {RELOAD_CONNECTIONS} connections that must be kept, "
        f"each for another site than the one before, a quarter for a script, every answer checked. "
        f"A reload took {took[len(took) // 2]:.0f} ms, at most {took[-1]:.0f} ms, from the signal "
        f"to the line in the log."
    )
    columns = ("", "p50 ms", "p99 ms", "slowest ms", "requests", "failed")
    samples = {"quiet": dataclasses.asdict(quiet), "during": dataclasses.asdict(during), **fates}
    return report.Section(SITES_TITLE, text, columns, lines, [outcome], samples)


SLOW_TITLE = f"{ATTACKERS} hostile clients that are slow"
SITES_TITLE = f"{SITES} sites, reloaded under load"
MEASUREMENTS = {SLOW_TITLE: slow_clients, SITES_TITLE: many_sites}
