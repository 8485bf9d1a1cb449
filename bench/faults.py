"""What a page that crashes and clients that stop reading cost the others, and what pools cost that
rest with the defaults."""

import asyncio
import contextlib
import dataclasses
import socket
import ssl
import time

import client
import inspect_workers
import managed
import peers
import processes
import report
import rows
import standing

WORKERS = 8
CLIENTS = 4
CRASHES_PER_SECOND = (10, 100)
SECONDS, QUICK_SECONDS = 10, 3
SLEEP = "/sleep.php?ms=10"
SLEPT = (200, b" 0\n")
MODES = {
    "static": {"pm": "static", "max_children": WORKERS},
    "dynamic": {"pm": "dynamic", "max_children": WORKERS, "start_servers": WORKERS,
                "min_spare_servers": 1, "max_spare_servers": WORKERS},
    "auto": {"pm": "auto", "max_children": WORKERS},
}

READERS = 1000
READ_MB = 3
READERS_AT_ONCE = 50
READ_SECONDS = 20
AFTER_SECONDS = 60
LOOK_SECONDS = 0.2

REST_SECONDS = 2
# The setting's default: that many of 200 pools have PHP at rest.
SPARE_ZYGOTES = 2


@dataclasses.dataclass(frozen=True)
class Healthy:
    """Requests for pages that do not crash, one after the other on each of a few connections."""

    per_second: float
    p99_ms: float
    failed: int


async def one_client(port, until):
    """Requests until a moment, each after the response to the one before."""
    responses = []

    def is_right(status, body):
        return (status, body) == SLEPT

    while time.monotonic() < until:
        responses.append(await client.ask(port, SLEEP, is_right))
    return responses


async def healthy(port, seconds, crashes):
    """The healthy pages of a pool, a page of which crashes that many times a second."""
    def crash(_number):
        return "/crash.php", lambda status, _body: status == 502

    until = time.monotonic() + seconds
    clients = [one_client(port, until) for _ in range(CLIENTS)]
    crashed = [client.steadily(port, crashes, seconds, crash)] if crashes else []
    found = await asyncio.gather(*clients, *crashed)
    responses = [response for each in found[:CLIENTS] for response in each]
    taken = [response.seconds * 1e3 for response in responses]
    failed = sum(response.fate != client.GOOD for response in responses)
    return Healthy(len(responses) / seconds, report.percentile(taken, 0.99), failed)


def measure_crashes(bench):
    """A page that crashes, and the pool's other pages."""
    seconds = QUICK_SECONDS if bench.options.quick else SECONDS
    samples = {}
    for _ in range(bench.options.rounds):
        for mode, settings in MODES.items():
            with bench.managing(managed.Maitred, {managed.WWW: settings}) as server:
                asyncio.run(healthy(server.port, 2, 0))
                for crashes in (0, *CRASHES_PER_SECOND):
                    sample = asyncio.run(healthy(server.port, seconds, crashes))
                    samples.setdefault((mode, crashes), []).append(sample)
    lines = [
        (mode, str(crashes), report.spread(each, "per_second", ".0f"),
         report.spread(each, "p99_ms", ".1f"), str(sum(sample.failed for sample in each)))
        for (mode, crashes), each in samples.items()
    ]
    outcomes = [
        outcome for mode in MODES for crashes in CRASHES_PER_SECOND
        for outcome in crash_outcomes(samples, mode, crashes)
    ]
    text = (
        f"A pool of {WORKERS} workers; {CLIENTS} clients request a page that sleeps 10 ms, one "
        f"request after the other on new connections, for {seconds} s. Meanwhile another page is "
        f"requested, which ends its worker by SIGSEGV."
    )
    columns = ("pm", "crashes/s", "requests/s of the healthy page", "p99 ms", "failed")
    return report.Section(
        CRASH_TITLE, text, columns, lines, outcomes, report.samples_as_json(samples)
    )


def crash_outcomes(samples, mode, crashes):
    """Rate and p99 beside the crashes against those before."""
    quiet, beside = samples[mode, 0], samples[mode, crashes]
    failed = sum(sample.failed for sample in beside)
    rate = report.median(beside, "per_second") / report.median(quiet, "per_second")
    p99 = report.median(beside, "p99_ms") / report.median(quiet, "p99_ms")
    title = f"A page crashes {crashes} times a second, {mode}: the other pages'"
    yield report.Outcome(
        f"{title} requests/s", "maitred, quiet", f"≥ {rows.CRASH_RATE_RATIO}, 0 failed", rate,
        f"{report.spread(beside, 'per_second', '.0f')}, {failed} failed",
        rate >= rows.CRASH_RATE_RATIO and failed == 0,
    )
    yield report.Outcome(
        f"{title} p99", "maitred, quiet", f"≤ {rows.CRASH_P99_RATIO}", p99,
        f"{report.spread(beside, 'p99_ms', '.1f')} ms", p99 <= rows.CRASH_P99_RATIO,
    )


class TlsMaitred(managed.Maitred):
    """maitred over TLS."""

    def config(self):
        cert, key = self.place.certificate()
        listen, _, rest = super().config().partition("\n")
        return f'{rest}[tls]\n{listen}\ncertificates = [{{ cert = "{cert}", key = "{key}" }}]\n'


def plain(port):
    """A connection."""
    return socket.create_connection(("127.0.0.1", port), timeout=READ_SECONDS)


def encrypted(port):
    """A connection over TLS."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(plain(port))


READS = {"HTTP": (managed.Maitred, plain), "HTTPS": (TlsMaitred, encrypted)}


def front_mb(server):
    """Private memory of the front in MiB."""
    return sum(processes.private_kb(pid) for pid in server.fronts()) / 1024


@dataclasses.dataclass(frozen=True)
class FrontMemory:
    """Private memory of the front in MiB."""

    before: float
    most: float
    after: float


def stalled(server, connect):
    """The front's memory with clients that do not read."""
    request = f"GET /large.php?mb={READ_MB} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with contextlib.closing(connect(server.port)) as first:
        first.sendall(b"GET /hello.php HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        while first.recv(4096):
            pass
    before = most = front_mb(server)
    readers = []
    until = time.monotonic() + READ_SECONDS
    while len(readers) < READERS or time.monotonic() < until:
        for _ in range(min(READERS_AT_ONCE, READERS - len(readers))):
            readers.append(connect(server.port))
            readers[-1].sendall(request)
        most = max(most, front_mb(server))
        time.sleep(LOOK_SECONDS)
    for reader in readers:
        reader.close()
    time.sleep(AFTER_SECONDS)
    return FrontMemory(before, most, front_mb(server))


def measure_readers(bench):
    """The front's memory with clients that stop reading."""
    peers.allow_many_files()
    pools = {managed.WWW: {"pm": "static", "max_children": WORKERS}}
    samples = {name: [] for name in READS}
    for _ in range((bench.options.rounds + 1) // 2):
        for name, (kind, connect) in READS.items():
            with bench.managing(kind, pools) as server:
                samples[name].append(stalled(server, connect))
    lines = [
        (name, *(report.spread(each, field, ".1f") for field in ("before", "most", "after")))
        for name, each in samples.items()
    ]
    outcomes = []
    for name, each in samples.items():
        most = max(sample.most for sample in each)
        more = max(sample.after - sample.before for sample in each)
        outcomes.append(report.Outcome(
            f"{READERS} clients stop reading {READ_MB} MB over {name}: the front's memory", "",
            f"≤ {rows.STALLED_MB} MiB", most, f"{most:.0f} MiB", most <= rows.STALLED_MB,
        ))
        outcomes.append(report.Outcome(
            f"{READERS} clients stopped reading over {name}: a minute after", "maitred, before",
            f"≤ before + {rows.STALLED_MORE_MB} MiB", more, f"{more:+.1f} MiB",
            more <= rows.STALLED_MORE_MB,
        ))
    text = (
        f"{READERS} clients request a script's response of {READ_MB} MB from {WORKERS} workers and "
        f"read nothing for {READ_SECONDS} s, then leave. Private memory of the front in MiB; "
        f"afterwards means {AFTER_SECONDS} s later."
    )
    columns = ("over", "before", "most", "afterwards")
    as_json = {name: [dataclasses.asdict(sample) for sample in each]
               for name, each in samples.items()}
    return report.Section(READERS_TITLE, text, columns, lines, outcomes, as_json)


@dataclasses.dataclass(frozen=True)
class Rest:
    """Pools that rest."""

    ready_seconds: float
    processes: int
    proportional_mb: float


def resting(bench):
    """One server with pools that have the defaults, after the time without requests."""
    settings = {"pool_idle_timeout": f"{REST_SECONDS}s"}
    pools = {f"p{number:03}": settings for number in range(1, standing.POOLS + 1)}
    begun = time.monotonic()
    with bench.managing(managed.Maitred, pools) as server:
        asyncio.run(standing.ask_each(server.port, ["p001"]))
        ready = time.monotonic() - begun
        asyncio.run(standing.ask_each(server.port, list(pools)))
        processes.wait_until(
            lambda: len(processes.titled(server.leaders, "maitred-php: ")) <= SPARE_ZYGOTES,
            standing.AWAIT_IDLE_SECONDS, "the zygotes of the pools to end",
        )
        time.sleep(inspect_workers.SETTLE_SECONDS)
        memory = standing.settled_memory(server)[peers.Maitred.name]
        return Rest(ready, memory.processes, memory.proportional_kib / 1024)


def measure_rest(bench):
    """Memory of 200 pools at rest with the defaults, and the time until the first is served."""
    samples = [resting(bench) for _ in range(bench.options.rounds)]
    fields = ("ready_seconds", "processes", "proportional_mb")
    lines = [tuple(report.spread(samples, field, ".2f") for field in fields)]
    memory, ready = (report.median(samples, field) for field in ("proportional_mb", "ready_seconds"))
    title = f"{standing.POOLS} pools with the defaults"
    outcomes = [
        report.Outcome(
            f"{title}, at rest: Pss", "", f"≤ {rows.REST_MB} MiB", memory,
            f"{report.spread(samples, 'proportional_mb', '.1f')} MiB", memory <= rows.REST_MB,
        ),
        report.Outcome(
            f"{title}: start until a first response", "", f"≤ {rows.REST_READY_SECONDS} s", ready,
            f"{report.spread(samples, 'ready_seconds', '.2f')} s", ready <= rows.REST_READY_SECONDS,
        ),
    ]
    text = (
        f"{standing.POOLS} pools with a site each and no setting but pool_idle_timeout, which is "
        f"{REST_SECONDS} s instead of an hour. Each gets a request; then all processes of the "
        f"server are added up when the pools rest. The time begins with the program's start and "
        f"ends with the first response of PHP, to a client in Python."
    )
    columns = ("seconds until a first response", "processes", "Pss in MiB")
    return report.Section(REST_TITLE, text, columns, lines, outcomes,
                          [dataclasses.asdict(sample) for sample in samples])


CRASH_TITLE = "One page crashes"
READERS_TITLE = f"{READERS} clients that stop reading"
REST_TITLE = f"{standing.POOLS} pools with the defaults"
MEASUREMENTS = {
    CRASH_TITLE: measure_crashes,
    READERS_TITLE: measure_readers,
    REST_TITLE: measure_rest,
}
