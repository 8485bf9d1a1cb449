"""Several nodes, each in a network namespace and a control group (version 1) of its own, behind
Debian's HAProxy and with Debian's Redis. They need root.

Rolling restarts behind a balancer that learns late are a test (tests/tests/rolling_restarts.rs).
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import time

import client
import managed
import peers
import processes
import report
import rows

GROUPS = "/sys/fs/cgroup/cpu"
PERIOD_US = 50000
BRIDGE = "maitred-bench"
NETWORK = "10.213.77"
HTTP_PORT, AGENT_PORT = 8080, 9181
DELAY_MS = 1
NODES = 3

# One node of three has a third of the processor time of the others.
SHARES = (0.24, 0.24, 0.08)
LOAD = 0.7
BUSY_MS = 5
ADAPT_SECONDS, SETTLE_SECONDS, SECONDS = 120, 5, 20

REDIS_RATE = 60
REDIS_SECONDS = (20, 20, 60)
SLOW_SECONDS = 0.5

EQUAL_SHARE = 0.2
CLIENTS_OF_NODE = 3
EQUAL_SECONDS = 12


def run(*words):
    """Runs a command that has to succeed."""
    subprocess.run(words, check=True, capture_output=True)


class Network:
    """A bridge, and a namespace for each node. With netem, each has a delay."""

    def __init__(self):
        self.delay_ms = 0

    def __enter__(self):
        if os.geteuid():
            raise peers.CannotStart("namespaces need root")
        self.remove()
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "address", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        for number in range(NODES):
            name, end = self.namespace(number), f"mtb{number}"
            run("ip", "netns", "add", name)
            run("ip", "link", "add", end, "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "set", end, "master", BRIDGE, "up")
            inside = ("ip", "-n", name)
            run(*inside, "address", "add", f"{self.address(number)}/24", "dev", "eth0")
            run(*inside, "link", "set", "eth0", "up")
            run(*inside, "link", "set", "lo", "up")
            delay = ("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "netem", "delay")
            with contextlib.suppress(subprocess.CalledProcessError, FileNotFoundError):
                run(*delay, f"{DELAY_MS}ms")
                self.delay_ms = DELAY_MS
        return self

    def __exit__(self, *_):
        self.remove()

    @staticmethod
    def namespace(number):
        """The name of a node's namespace."""
        return f"maitred-bench-{number}"

    @staticmethod
    def address(number):
        """The address of a node."""
        return f"{NETWORK}.{11 + number}"

    def remove(self):
        """Removes what there is, also of a run that was killed."""
        for number in range(NODES):
            # The end in here would go with the namespace, but later.
            for words in (("link", "del", f"mtb{number}"), ("netns", "del", self.namespace(number))):
                with contextlib.suppress(subprocess.CalledProcessError):
                    run("ip", *words)
        with contextlib.suppress(subprocess.CalledProcessError):
            run("ip", "link", "del", BRIDGE)


class Node(managed.Maitred):
    """A node with a share of a processor."""

    def take(self, number, share, top=""):
        """Sets its place, its share of a processor (none: as much as there is), and settings."""
        self.number, self.share, self.top = number, share, top
        self.group = os.path.join(GROUPS, f"maitred-bench-{os.getpid()}-{number}")
        return self

    def start(self):
        self.write_config()
        os.makedirs(self.group, exist_ok=True)
        self.limit(self.share)
        tasks = os.path.join(self.group, "cgroup.procs")
        # `ip netns exec` would mount a /sys without control groups: the node could not see its share.
        words = ["nsenter", f"--net=/run/netns/{Network.namespace(self.number)}", self.installed(),
                 "serve", "--config", self.config_path()]
        enter = f'echo $$ > {tasks}; exec "$@"'
        process, self.log_path = self.launch("node", ["sh", "-c", enter, "sh", *words])

        def accepts():
            if process.poll() is not None:
                raise peers.CannotStart(f"a node ended: {peers.tail(self.log_path)}")
            with socket.socket() as probe:
                return probe.connect_ex((Network.address(self.number), HTTP_PORT)) == 0

        processes.wait_until(accepts, peers.START_SECONDS, f"node {self.number}")
        managed.await_words(r"maitred: serving ", self.log_path)

    def limit(self, share):
        """Bounds its processor time."""
        quota = -1 if share is None else round(share * PERIOD_US)
        for name, value in (("cpu.cfs_period_us", PERIOD_US), ("cpu.cfs_quota_us", quota)):
            with open(os.path.join(self.group, name), "w", encoding="ascii") as file:
                file.write(str(value))

    def config(self):
        address = Network.address(self.number)
        lines = [
            f'listen = "{address}:{HTTP_PORT}"', f'agent_check = "{address}:{AGENT_PORT}"',
            f'admin_socket = "{self.admin_socket()}"',
            self.top, "[pools.www]",
            *(f"{key} = {json.dumps(value)}" for key, value in self.pools[managed.WWW].items()),
            "[[sites]]", f'root = "{self.place.root}"', 'pool = "www"',
            "[sites.cache]",
        ]
        return "\n".join(lines) + "\n"

    def stop(self):
        super().stop()

        def is_removed():
            with contextlib.suppress(OSError):
                os.rmdir(self.group)
            return not os.path.exists(self.group)

        if hasattr(self, "group"):
            processes.wait_until(is_removed, peers.START_SECONDS, "a control group to be empty")


class Program(peers.Peer):
    """A program that others need."""

    def run_as(self, name, command):
        """Starts it and waits for its port."""
        self.name = name
        self.await_port(*self.launch(name, command))
        return self


def haproxy_config(port, has_agents):
    """HAProxy in front of the nodes, by round robin with or without agent checks."""
    check = "check inter 1s"
    agent = f"weight 100 agent-check agent-port {AGENT_PORT} agent-inter 2s" if has_agents else ""
    servers = "\n".join(
        f"  server n{number} {Network.address(number)}:{HTTP_PORT} {check} {agent}"
        for number in range(NODES)
    )
    return f"""global
  maxconn 4096
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
backend nodes
  balance roundrobin
{servers}
frontend sites
  bind 127.0.0.1:{port}
  default_backend nodes
"""


@contextlib.contextmanager
def nodes_of(bench, shares, top=lambda _number: "", pool=None):
    """Starts a node for each share."""
    pool = pool or {"pm": "auto", "max_children": 8}
    with contextlib.ExitStack() as stack:
        stack.enter_context(Network())
        started = []
        for number, share in enumerate(shares):
            place = peers.Place(bench.directory, bench.root, bench.options.workers)
            node = Node(place).configure({managed.WWW: pool}).take(number, None, top(number))
            stack.callback(node.stop)
            node.start()
            node.limit(share)
            started.append(node)
        yield started


@contextlib.contextmanager
def program(bench, name, command_of):
    """Starts a program; `command_of` gets a port."""
    place = peers.Place(bench.directory, bench.root, bench.options.workers)
    server = Program(place)
    try:
        yield server.run_as(name, command_of(server))
    finally:
        server.stop()


def haproxy(bench, has_agents):
    """HAProxy in front of the nodes."""
    def command(server):
        config = server.place.file(
            f"haproxy-{server.port}.cfg", haproxy_config(server.port, has_agents))
        return [peers.program("haproxy"), "-db", "-f", config]

    return program(bench, "haproxy", command)


@dataclasses.dataclass(frozen=True)
class Times:
    """How long requests took."""

    per_second: float
    p50_ms: float
    p99_ms: float
    failed: int


def times(responses, seconds):
    """Those of these responses."""
    taken = [response.seconds * 1e3 for response in responses]
    failed = sum(response.fate != client.GOOD for response in responses)
    good = len(responses) - failed
    return Times(
        good / seconds, report.percentile(taken, 0.5), report.percentile(taken, 0.99), failed)


def is_done(status, body):
    """Whether a busy page has come."""
    return (status, body) == (200, b"done\n")


def busy(_number):
    """A page that computes."""
    return f"/busy.php?ms={BUSY_MS}", is_done


async def closed(addresses, clients, seconds):
    """Clients that request a page of a node each, one after the other, on connections that stay."""
    until = time.monotonic() + seconds
    path, is_right = busy(0)

    async def one(address):
        reader, writer = await asyncio.open_connection(address, HTTP_PORT)
        connection, responses = client.Connection(HTTP_PORT, reader, writer), []
        while time.monotonic() < until:
            begun = time.monotonic()
            status, body = await connection.ask(path, address, True)
            fate = client.GOOD if is_right(status, body) else client.WRONG
            responses.append(client.Answer(fate, begun, time.monotonic() - begun, 0))
        connection.close()
        return responses

    found = await asyncio.gather(*(one(address) for address in addresses for _ in range(clients)))
    return times([response for each in found for response in each], seconds)


def measure_agents(bench):
    """Agent checks against round robin, where one node is slow."""
    samples, rates = {"round robin": [], "agent checks": []}, []
    adapt, seconds = ((5, 5) if bench.options.quick else (ADAPT_SECONDS, SECONDS))
    for name, each in samples.items():
        with nodes_of(bench, SHARES), haproxy(bench, name == "agent checks") as balancer:
            # What the nodes can do, by the first one, and the same rate for both.
            if not rates:
                able = asyncio.run(closed([Network.address(0)], CLIENTS_OF_NODE, 6)).per_second
                rates.append(able / SHARES[0] * sum(SHARES) * LOAD)
            rate = rates[0]
            warm = adapt if name == "agent checks" else SETTLE_SECONDS
            asyncio.run(client.steadily(balancer.port, rate, warm, busy))
            responses = asyncio.run(client.steadily(balancer.port, rate, seconds, busy))
            each.append(times(responses, seconds))
    lines = [
        (name, *(report.spread(each, field, ".1f") for field in ("per_second", "p50_ms", "p99_ms")),
         str(sum(sample.failed for sample in each)))
        for name, each in samples.items()
    ]
    before, after = (report.median(samples[name], "p99_ms") for name in samples)
    ratio = after / before
    outcome = report.Outcome(
        f"{AGENTS_TITLE}: p99", "round robin", f"≤ {rows.AGENTS_RATIO}", ratio,
        f"{ratio:.2f} ({after:.0f} ms, {before:.0f} ms)", ratio <= rows.AGENTS_RATIO,
    )
    text = (
        f"Three nodes with {', '.join(map(str, SHARES))} processors behind HAProxy; a page that "
        f"computes {BUSY_MS} ms, at {LOAD:.0%} of what they can do together "
        f"({rates[0]:.0f} requests/s), for {seconds} s. With agent "
        f"checks the weights have had {adapt} s to settle."
    )
    columns = ("weights", "requests/s", "p50 ms", "p99 ms", "failed")
    return report.Section(AGENTS_TITLE, text, columns, lines, [outcome],
                          report.samples_as_json({(name, 0): each for name, each in samples.items()}))


class SlowRedis:
    """Passes bytes to Redis, each piece after a delay."""

    def __init__(self, port, upstream):
        self.port, self.upstream, self.seconds = port, upstream, 0

    async def pass_on(self, reader, writer, is_slow):
        """Passes on what one side sends."""
        with contextlib.suppress(OSError):
            while piece := await reader.read(65536):
                if is_slow:
                    await asyncio.sleep(self.seconds)
                writer.write(piece)
                await writer.drain()
        writer.close()

    async def accept(self, reader, writer):
        """Passes a connection on."""
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", self.upstream)
        except OSError:
            writer.close()
            return
        # At the end of a measurement connections are still open.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(
                self.pass_on(reader, forth, True), self.pass_on(back, writer, False))

    async def serve(self):
        """Listens where the nodes connect."""
        return await asyncio.start_server(self.accept, f"{NETWORK}.1", self.port)


async def beside_redis(bench, balancer, redis, relay):
    """The times of clients before, with a slow Redis, and with one that is stopped."""
    await relay.serve()
    await client.steadily(balancer.port, REDIS_RATE, SETTLE_SECONDS, mixed)
    samples = {}
    phases = (5, 5, 5) if bench.options.quick else REDIS_SECONDS
    for name, seconds in zip(("before", "500 ms slow", "stopped"), phases):
        relay.seconds = SLOW_SECONDS if name == "500 ms slow" else 0
        if name == "stopped":
            processes.send(redis.leaders[0], signal.SIGSTOP)
        try:
            responses = await client.steadily(balancer.port, REDIS_RATE, seconds, mixed)
        finally:
            processes.send(redis.leaders[0], signal.SIGCONT)
        samples[name] = times(responses, seconds)
    return samples


def mixed(number):
    """A cached page and one of PHP in turn."""
    if number % 2:
        return "/page.php", lambda status, body: (status, body) == (200, rows.PAGE)
    return "/busy.php?ms=1", is_done


def measure_redis(bench):
    """Clients, while the Redis of the purge log is slow or stopped."""
    def redis_command(server):
        return [peers.program("redis-server"), "--port", str(server.port), "--save", "",
                "--bind", "127.0.0.1"]

    relay_port = peers.free_port()

    def top(number):
        return f'purge_log = {{ url = "redis://{NETWORK}.1:{relay_port}", node = "n{number}" }}'

    with nodes_of(bench, (None,) * NODES, top), haproxy(bench, False) as balancer, \
            program(bench, "redis", redis_command) as redis:
        relay = SlowRedis(relay_port, redis.port)
        samples = asyncio.run(beside_redis(bench, balancer, redis, relay))
    lines = [
        (name, f"{each.per_second:.1f}", f"{each.p50_ms:.1f}", f"{each.p99_ms:.1f}",
         str(each.failed)) for name, each in samples.items()
    ]
    outcomes = []
    for name in ("500 ms slow", "stopped"):
        ratio = samples[name].p99_ms / samples["before"].p99_ms
        failed = samples[name].failed
        outcomes.append(report.Outcome(
            f"{REDIS_TITLE}, {name}: clients' p99", "before",
            f"≤ {rows.REDIS_P99_RATIO}, 0 failed", ratio, f"{ratio:.2f}, {failed} failed",
            ratio <= rows.REDIS_P99_RATIO and failed == 0,
        ))
    text = (
        f"Three nodes with `purge_log` behind HAProxy, {REDIS_RATE} requests/s, of a cached page and "
        f"of a script in turn, for {', '.join(map(str, REDIS_SECONDS))} s: before, with a Redis that "
        f"gets everything {SLOW_SECONDS * 1000:.0f} ms late, and with one that is stopped."
    )
    columns = ("Redis", "requests/s", "p50 ms", "p99 ms", "failed")
    as_json = {name: dataclasses.asdict(each) for name, each in samples.items()}
    return report.Section(REDIS_TITLE, text, columns, lines, outcomes, as_json)


def measure_growth(bench):
    """Three nodes against one."""
    seconds = 4 if bench.options.quick else EQUAL_SECONDS
    samples = {1: [], NODES: []}
    top = 'purge_log = { url = "redis://%s.1:%d", node = "n%d" }'
    port = peers.free_port()
    shares = (EQUAL_SHARE,) * NODES
    with nodes_of(bench, shares, lambda number: top % (NETWORK, port, number)):
        addresses = [Network.address(number) for number in range(NODES)]
        asyncio.run(closed(addresses, CLIENTS_OF_NODE, SETTLE_SECONDS))
        for _ in range(min(bench.options.rounds, 3)):
            for count, each in samples.items():
                each.append(asyncio.run(closed(addresses[:count], CLIENTS_OF_NODE, seconds)))
    lines = [
        (str(count), report.spread(each, "per_second", ".1f"), report.spread(each, "p99_ms", ".1f"))
        for count, each in samples.items()
    ]
    ratio, late = (report.median(samples[NODES], field) / report.median(samples[1], field)
                   for field in ("per_second", "p99_ms"))
    outcome = report.Outcome(
        f"{GROWTH_TITLE}: goodput", "one node", f"≥ {rows.NODES_RATIO}, p99 ≤ {rows.NODES_P99_RATIO}",
        ratio, f"{ratio:.2f}, p99 {late:.2f}",
        ratio >= rows.NODES_RATIO and late <= rows.NODES_P99_RATIO,
    )
    text = (
        f"Nodes with {EQUAL_SHARE} processors each and a purge log; {CLIENTS_OF_NODE} clients of each "
        f"node request a page that computes {BUSY_MS} ms, one request after the other, for {seconds} "
        f"s, without a balancer."
    )
    columns = ("nodes", "requests/s", "p99 ms")
    return report.Section(GROWTH_TITLE, text, columns, lines, [outcome],
                          report.samples_as_json({(count, 0): each for count, each in samples.items()}))


AGENTS_TITLE = "One node of three is slow, behind HAProxy"
REDIS_TITLE = "Redis of the purge log"
GROWTH_TITLE = "Three nodes against one"
MEASUREMENTS = {
    AGENTS_TITLE: measure_agents,
    REDIS_TITLE: measure_redis,
    GROWTH_TITLE: measure_growth,
}
