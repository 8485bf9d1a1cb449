"""maitred in php-fpm's place: the same configuration, behind nginx and asked over FastCGI."""

import asyncio
import collections
import dataclasses
import socket
import time

import fastcgi
import load
import managed
import peers
import report
import rows
import turnover

NAME = "maitred as php-fpm"
HELLO = load.Load("/hello.php", 16)
WORKERS = 4
NEW, KEPT = "a connection per request", "fastcgi_keep_conn"

KEPT_CONNECTIONS, BUSY_CLIENTS = 64, 16
# Longer than any request may wait whose connection is being served.
ANSWER_SECONDS = 5

LARGE_BYTES, LARGE_REQUESTS = 60_000, 400

# Longer than php-fpm's own limit on a connection that says nothing (5 s).
HELD_SECONDS = 8


class InFpmsPlace:
    """maitred where php-fpm would be."""

    name = NAME

    def fpm_command(self):
        """`maitred fpm`."""
        return [peers.Maitred.installed(self), "fpm"]


class Behind(peers.NginxFpm):
    """php-fpm behind nginx over a Unix socket, and over TCP for those who ask it themselves."""

    name = "php-fpm"
    program = peers.Maitred.program
    kept = False

    def __init__(self, place):
        super().__init__(place)
        self.fastcgi_port = peers.free_port()

    def upstreams(self):
        return f"upstream php {{ server unix:{self.socket()}; keepalive {HELLO.connections}; }}"

    def php_rule(self):
        include = "include /etc/nginx/fastcgi.conf;"
        if self.kept:
            return f"{include} fastcgi_keep_conn on; fastcgi_pass php;"
        return f"{include} fastcgi_pass unix:{self.socket()};"

    def fpm_config(self):
        text = super().fpm_config()
        user = f"user = {peers.WORKER_USER}\n" if peers.IS_ROOT else ""
        return text + (f"[tcp]\n{user}listen = 127.0.0.1:{self.fastcgi_port}\npm = static\n"
                       f"pm.max_children = {self.place.workers}\n")

    def await_workers(self):
        """Waits until the workers of both pools are there."""
        count = 2 * self.place.workers
        peers.processes.wait_until(
            lambda: len(self.workers()) == count, peers.START_SECONDS, f"{count} workers"
        )

    def tcp(self):
        """Where it listens for FastCGI over TCP."""
        return "127.0.0.1", self.fastcgi_port


class Kept(Behind):
    """The same with connections that nginx keeps: with fewer workers than clients, php-fpm's would
    all be pinned, and nginx would have to close connections."""

    kept = True

    def __init__(self, place):
        super().__init__(dataclasses.replace(place, workers=HELLO.connections))


class OursBehind(InFpmsPlace, Behind):
    """maitred in php-fpm's place."""


class OursKept(InFpmsPlace, Kept):
    """The same with connections that nginx keeps."""


class OursManaged(InFpmsPlace, managed.Fpm):
    """maitred in php-fpm's place, to be reloaded."""

    program = peers.Maitred.program


class TheirsManaged(managed.Fpm):
    """php-fpm, to be reloaded."""

    name = "php-fpm"


def behind_nginx(bench):
    """CPU time of the server behind nginx, per hello.php; nginx's own is left out."""
    samples = {}
    for which, kinds in ((NEW, (Behind, OursBehind)), (KEPT, (Kept, OursKept))):
        with bench.serving(kinds, bench.root) as servers:
            for server in servers.values():
                server.await_workers()
                load.check(server.name, server.port, HELLO, rows.HELLO)
                load.wrk(server.port, HELLO, 1)
            for turn in range(bench.options.rounds):
                for kind in kinds if turn % 2 else reversed(kinds):
                    server = servers[kind]
                    sample = load.measure(
                        server.port, server.leaders[:1], HELLO, bench.options.seconds,
                        besides=server.leaders[1:],
                    )
                    samples.setdefault((server.name, which), []).append(sample)
    outcomes = [
        behind_outcome(which, samples[NAME, which], samples[Behind.name, which])
        for which in (NEW, KEPT)
    ]
    lines = [
        (name, which, report.spread(each, "cpu_us", ".1f"), report.spread(each, "per_second", ".0f"),
         report.spread(each, "p50_ms", ".2f"), report.spread(each, "p99_ms", ".2f"),
         str(sum(sample.errors for sample in each)))
        for (name, which), each in samples.items()
    ]
    text = (
        f"hello.php through nginx with 16 kept HTTP connections; pools of {WORKERS} static workers "
        f"on a Unix socket, of {HELLO.connections} where connections to them are kept. CPU time per request is that of all processes behind nginx: master and "
        f"workers of php-fpm; supervisor, front, zygotes and workers of maitred."
    )
    columns = ("server", "", "CPU µs", "requests/s", "p50 ms", "p99 ms", "errors")
    return report.Section(
        BEHIND_TITLE, text, columns, lines, outcomes, report.samples_as_json(samples)
    )


def behind_outcome(which, ours, theirs):
    """One ratio."""
    ratio = report.median(ours, "cpu_us") / report.median(theirs, "cpu_us")
    failed = sum(sample.errors for sample in ours)
    measured = f"{ratio:.2f}" + (f", {failed} errors" if failed else "")
    most = rows.BEHIND_NGINX_RATIO
    return report.Outcome(
        f"hello.php behind nginx, {which}: CPU", Behind.name, f"≤ {most}", ratio, measured,
        ratio <= most and not failed,
    )


@dataclasses.dataclass(frozen=True)
class Waits:
    """What clients waited for their answers."""

    answered: int
    timed_out: int
    p50_ms: float
    p99_ms: float


async def busy(address, asked, connections, seconds):
    """Some clients that ask all the time, over kept connections in turn or over new ones."""
    idle = collections.deque([await fastcgi.Kept.open(address) for _ in range(connections)])
    waits, timed_out = [], 0
    end = time.monotonic() + seconds

    async def client():
        nonlocal timed_out
        while time.monotonic() < end:
            begun = time.monotonic()
            connection = idle.popleft() if connections else await fastcgi.Kept.open(address)
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    if await connection.ask(asked) != rows.HELLO:
                        raise load.WrongAnswer("hello.php over FastCGI")
            except TimeoutError:
                timed_out += 1
                connection.close()
                if connections:
                    idle.append(await fastcgi.Kept.open(address))
                continue
            waits.append(time.monotonic() - begun)
            if connections:
                idle.append(connection)
            else:
                connection.close()

    await asyncio.gather(*(client() for _ in range(BUSY_CLIENTS)))
    for connection in idle:
        connection.close()
    waits = [wait * 1e3 for wait in waits] or [ANSWER_SECONDS * 1e3]
    return Waits(len(waits), timed_out, report.percentile(waits, 0.5),
                 report.percentile(waits, 0.99))


def many_kept(bench):
    """More kept connections than workers."""
    seconds = max(2, bench.options.seconds)
    samples = {}
    for kind in (Behind, OursBehind):
        with bench.serving([kind], bench.root) as servers:
            server = servers[kind]
            server.await_workers()
            for connections in (0, KEPT_CONNECTIONS):
                asked = fastcgi.request(bench.root, "/hello.php", keep=connections > 0)
                which = f"{connections} kept" if connections else NEW
                samples[server.name, which] = asyncio.run(
                    busy(server.tcp(), asked, connections, seconds)
                )
    new, kept = samples[NAME, NEW], samples[NAME, f"{KEPT_CONNECTIONS} kept"]
    ratio = kept.p99_ms / new.p99_ms
    most = rows.KEPT_P99_RATIO
    outcome = report.Outcome(
        f"{KEPT_CONNECTIONS} kept FastCGI connections over {WORKERS} workers: p99",
        f"{NAME}, {NEW}", f"no time-out, ≤ {most}", ratio,
        f"{ratio:.2f}, {kept.timed_out} time-outs", ratio <= most and kept.timed_out == 0,
    )
    lines = [
        (name, which, str(each.answered), str(each.timed_out), f"{each.p50_ms:.2f}",
         f"{each.p99_ms:.2f}")
        for (name, which), each in samples.items()
    ]
    text = (
        f"{BUSY_CLIENTS} clients ask for hello.php over FastCGI on TCP for {seconds} s, each as "
        f"soon as it was answered: over a connection of its own each time, and over "
        f"{KEPT_CONNECTIONS} kept connections in turn. Times are the client's, which is written in "
        f"Python; a request that is not answered within {ANSWER_SECONDS} s is given up."
    )
    columns = ("server", "", "answered", "time-outs", "p50 ms", "p99 ms")
    return report.Section(KEPT_TITLE, text, columns, lines, [outcome], as_json(samples))


def large_answers(bench):
    """60 KB over one kept TCP connection, one request after the other."""
    count = 50 if bench.options.quick else LARGE_REQUESTS
    medians = {}
    for kind in (Behind, OursBehind):
        with bench.serving([kind], bench.root) as servers:
            server = servers[kind]
            server.await_workers()
            query = f"bytes={LARGE_BYTES}"
            asked = fastcgi.request(bench.root, "/answer.php", query, keep=True)
            connection = fastcgi.connect(server.tcp(), ANSWER_SECONDS)
            waits = []
            for _ in range(count):
                begun = time.monotonic()
                if len(fastcgi.ask(connection, asked)) != LARGE_BYTES:
                    raise load.WrongAnswer(f"{server.name}: answer.php over FastCGI")
                waits.append((time.monotonic() - begun) * 1e3)
            connection.close()
            medians[server.name] = (
                report.percentile(waits, 0.5), report.percentile(waits, 0.99)
            )
    value, most = medians[NAME][0], rows.LARGE_ANSWER_MS
    outcome = report.Outcome(
        "60 KB over a kept TCP FastCGI connection: median", "", f"< {most} ms", value,
        f"{value:.2f} ms", value < most,
    )
    lines = [(name, f"{p50:.2f}", f"{p99:.2f}") for name, (p50, p99) in medians.items()]
    text = f"{count} answers of {LARGE_BYTES} bytes, one after the other."
    return report.Section(
        LARGE_TITLE, text, ("server", "p50 ms", "p99 ms"), lines, [outcome], medians
    )


def say_nothing(server, root):
    """A peer that connects and is silent."""
    return fastcgi.connect(server.tcp(), HELD_SECONDS)


def send_half(server, root):
    """A peer that sends half a record's header."""
    connection = fastcgi.connect(server.tcp(), HELD_SECONDS)
    connection.sendall(fastcgi.request(root, "/hello.php")[:4])
    return connection


def never_close(server, root):
    """A peer that has its answer and does not close."""
    connection = fastcgi.connect(server.tcp(), HELD_SECONDS)
    fastcgi.ask(connection, fastcgi.request(root, "/hello.php", keep=False))
    return connection


PEERS = {
    "connects and says nothing": say_nothing,
    "sends half a header": send_half,
    "never closes": never_close,
}


def held(server, root, hostile, count):
    """How long a good request waits while hostile peers are connected, in seconds."""
    connections = [hostile(server, root) for _ in range(count)]
    # Whatever the server does for them, it has begun.
    time.sleep(0.1)
    begun = time.monotonic()
    try:
        with fastcgi.connect(server.tcp(), HELD_SECONDS) as connection:
            fastcgi.ask(connection, fastcgi.request(root, "/hello.php"))
        return time.monotonic() - begun
    except socket.timeout:
        return float("inf")
    finally:
        for connection in connections:
            connection.close()


def hostile_peers(bench):
    """What a peer that misbehaves costs others."""
    found = {}
    for kind in (Behind, OursBehind):
        for what, hostile in PEERS.items():
            with bench.serving([kind], bench.root) as servers:
                server = servers[kind]
                server.await_workers()
                # As many as there are workers; the last of those that want an answer gets none.
                found[server.name, what] = held(server, bench.root, hostile, WORKERS)
    most = rows.HOSTILE_SECONDS
    outcomes = [
        report.Outcome(
            f"A peer that {what}: a good request waits", "", f"≤ {most} s", found[NAME, what],
            wait_text(found[NAME, what]), found[NAME, what] <= most,
        )
        for what in PEERS
    ]
    lines = [(name, what, wait_text(wait)) for (name, what), wait in found.items()]
    text = (
        f"{WORKERS} such peers on a pool of {WORKERS} workers, then one good request, which waits "
        f"for at most {HELD_SECONDS} s."
    )
    samples = {f"{name}, {what}": wait_text(wait) for (name, what), wait in found.items()}
    columns = ("server", "peers", "a good request waits")
    return report.Section(HOSTILE_TITLE, text, columns, lines, outcomes, samples)


def wait_text(seconds):
    """A time, or that there was no end to it."""
    return f"> {HELD_SECONDS} s" if seconds == float("inf") else f"{seconds * 1e3:.1f} ms"


def reloads(bench):
    """SIGUSR2 each second, with process_control_timeout unset."""
    pools = {managed.WWW: {"pm": "static", "max_children": turnover.WORKERS}}
    seconds = turnover.seconds_of(bench)
    samples = {}
    for kind in (TheirsManaged, OursManaged):
        with bench.managing(kind, pools) as server:
            server.await_count(turnover.WORKERS)
            samples[server.name, "quiet"] = [turnover.load_sample(bench, server, seconds, False)]
            samples[server.name, "reloads"] = [turnover.load_sample(bench, server, seconds, True)]
    (during,) = samples[NAME, "reloads"]
    enough = during.reloads >= rows.TURNOVER_SHARE * seconds
    outcome = report.Outcome(
        "php-fpm's reload under load: failed requests", "", "0", during.failed,
        f"{during.failed} of {during.asked}, {during.reloads} reloads in {seconds} s",
        during.failed == 0 and enough,
    )
    lines = [
        (name, which, report.spread(each, "p50_ms", ".1f"), report.spread(each, "p99_ms", ".1f"),
         report.spread(each, "slowest_ms", ".1f"), str(each[0].asked), str(each[0].failed),
         str(each[0].reloads))
        for (name, which), each in samples.items()
    ]
    text = (
        f"{turnover.RATE} requests a second through nginx that sleep {turnover.SLEEP_MS} ms, for "
        f"{seconds} s without and {seconds} s with a changed file and SIGUSR2 every second; "
        f"process_control_timeout is unset."
    )
    columns = ("server", "", "p50 ms", "p99 ms", "slowest ms", "requests", "failed", "reloads")
    return report.Section(
        RELOAD_TITLE, text, columns, lines, [outcome], report.samples_as_json(samples)
    )


def as_json(samples):
    """Samples by server and kind, for programs."""
    return {f"{name}, {which}": dataclasses.asdict(each) for (name, which), each in samples.items()}


BEHIND_TITLE = "In php-fpm's place: behind nginx"
KEPT_TITLE = "In php-fpm's place: kept connections"
LARGE_TITLE = "In php-fpm's place: large answers"
HOSTILE_TITLE = "In php-fpm's place: peers that misbehave"
RELOAD_TITLE = "In php-fpm's place: reloads"
MEASUREMENTS = {
    BEHIND_TITLE: behind_nginx,
    KEPT_TITLE: many_kept,
    LARGE_TITLE: large_answers,
    HOSTILE_TITLE: hostile_peers,
    RELOAD_TITLE: reloads,
}
