"""What grows with the size of a site: connections that are kept, and sites with their rules."""

import dataclasses
import json
import socket
import time

import inspect_workers
import load
import managed
import peers
import processes
import report
import rows

CONNECTIONS = 10000
# Connections that come and go before, so that what is needed once is there.
WARMING = 2000
IN_A_ROW = 200
FRONT_TITLE, NGINX_TITLE = "maitred: front", "nginx: worker"
REQUEST = b"GET /hello.txt HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

SITES = 1000
RULES = 10  # of each site
HELLO_TXT = load.Load("/hello.txt", 16)
PLAIN, ONE, MANY = "one site without rules", f"one site, {RULES} rules", (
    f"{SITES} sites, {SITES * RULES} rules"
)


def open_one(port):
    """A connection on which an answer has come, and that stays open."""
    connection = socket.create_connection(("127.0.0.1", port), load.ANSWER_SECONDS)
    connection.sendall(REQUEST)
    got = b""
    while not got.endswith(rows.FILES["hello.txt"]):
        piece = connection.recv(4096)
        if not piece:
            raise load.WrongAnswer(f"port {port} closed a connection that was to be kept")
        got += piece
    if not got.startswith(b"HTTP/1.1 200 "):
        raise load.WrongAnswer(f"port {port} answered {got[:60]!r}")
    return connection


def settled_kb(pids):
    """Private memory of processes together, in KiB, once it no longer changes."""
    before = None
    deadline = time.monotonic() + inspect_workers.SETTLE_MOST_SECONDS
    while time.monotonic() < deadline:
        now = sum(map(processes.private_kb, pids))
        if now == before:
            return now
        before = now
        time.sleep(inspect_workers.SETTLE_SECONDS)
    raise TimeoutError(f"the memory of {pids} does not settle: {before} KiB")


def bytes_each(server, title):
    """Bytes of private memory that each idle connection costs those who hold it."""
    pids = processes.titled(server.leaders, title)
    for _ in range(WARMING // IN_A_ROW):
        for connection in [open_one(server.port) for _ in range(IN_A_ROW)]:
            connection.close()
    before = settled_kb(pids)
    held = [open_one(server.port) for _ in range(CONNECTIONS)]
    after = settled_kb(pids)
    for connection in held:
        connection.close()
    return (after - before) * 1024 / CONNECTIONS


class RoomyNginx(peers.Nginx):
    """nginx with room for all of them, none of which it closes meanwhile."""

    def nginx_config(self):
        config = super().nginx_config()
        config = config.replace("worker_connections 4096;", f"worker_connections {2 * CONNECTIONS};")
        return config.replace("keepalive_timeout 65;", "keepalive_timeout 600;")


def idle_connections(bench):
    """Memory of the processes that hold connections without a request."""
    peers.allow_many_files()
    samples = {peers.Maitred.name: [], peers.Nginx.name: []}
    pools = {managed.WWW: {"pm": "static", "max_children": 1}}
    for _ in range((bench.options.rounds + 1) // 2):
        with bench.managing(managed.Maitred, pools) as server:
            server.await_count(1)
            samples[peers.Maitred.name].append(bytes_each(server, FRONT_TITLE))
        with bench.serving([RoomyNginx], bench.root) as servers:
            samples[peers.Nginx.name].append(bytes_each(servers[RoomyNginx], NGINX_TITLE))
    ours, theirs = (sorted(each)[len(each) // 2] for each in samples.values())
    most = rows.IDLE_CONNECTION_RATIO * max(theirs, rows.IDLE_CONNECTION_BYTES)
    spread = lambda each: f"{sorted(each)[len(each) // 2]:.0f} ({min(each):.0f}–{max(each):.0f})"
    lines = [(name, spread(each)) for name, each in samples.items()]
    outcome = report.Outcome(
        f"{CONNECTIONS} idle keep-alive connections: private memory for each", peers.Nginx.name,
        f"≤ {rows.IDLE_CONNECTION_RATIO} × nginx's or {rows.IDLE_CONNECTION_BYTES} bytes", ours,
        f"{ours:.0f} : {theirs:.0f} bytes", ours <= most,
    )
    text = (
        f"Plain connections, on each of which one file was asked for; private memory of maitred's "
        f"front and of nginx's workers, with them less without them, after {WARMING} others had come "
        f"and gone. What the kernel holds is not in it, and alike."
    )
    return report.Section(
        CONNECTIONS_TITLE, text, ("server", "bytes for each connection"), lines, [outcome], samples
    )


class Sites(managed.Maitred):
    """maitred with sites that have rules."""

    def config(self):
        lines = [f'listen = "127.0.0.1:{self.port}"', f'admin_socket = "{self.admin_socket()}"']
        for name, settings in self.pools.items():
            lines.append(f"[pools.{name}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        for number in range(self.sites):
            lines += ["[[sites]]", f'root = "{self.place.root}"', f'pool = "{managed.WWW}"']
            # The last one has the host that is asked for.
            is_last = number == self.sites - 1
            hosts = ["127.0.0.1"] if is_last else [f"s{number}.example", f"*.s{number}.example"]
            lines += [f"hosts = {json.dumps(hosts)}", *self.rules(number)]
        return "\n".join(lines) + "\n"

    def rules(self, number):
        """`RULES` rules, of several kinds, none of which is about what is asked for."""
        if not self.has_rules:
            return []
        return [
            "redirects = [" + ", ".join(
                f'{{ from = "/old-{place}-{number}", to = "/new-{place}" }}' for place in range(4)
            ) + "]",
            f'rewrite = [{{ from = "/api-{number}/*", to = "/hello.php?path=$1", end = true }}, '
            f'{{ from = "~^/shop-{number}/([a-z]+)/([0-9]+)$", to = "/hello.php?a=$1&b=$2" }}]',
            f'deny = ["*.sql", "/private-{number}/*"]',
            'headers = { X-Frame-Options = "SAMEORIGIN" }',
            'expires = [{ type = "image/*", after = "30d" }]',
        ]


class PlainSite(Sites):
    """One, without rules."""

    sites, has_rules = 1, False


class OneSite(Sites):
    """One with rules."""

    sites, has_rules = 1, True


class ThousandSites(Sites):
    """Very many of these."""

    sites, has_rules = SITES, True


def many_sites(bench):
    """What a file costs where there are many sites, by what it costs where there is one."""
    pools = {managed.WWW: {"pm": "static", "max_children": 1}}
    kinds = {PLAIN: PlainSite, ONE: OneSite, MANY: ThousandSites}
    samples = {name: [] for name in kinds}
    with (
        bench.managing(PlainSite, pools) as plain,
        bench.managing(OneSite, pools) as one,
        bench.managing(ThousandSites, pools) as many,
    ):
        servers = dict(zip(kinds, (plain, one, many)))
        for server in servers.values():
            server.await_count(1)
            load.check(server.name, server.port, HELLO_TXT, rows.FILES["hello.txt"])
            load.measure(server.port, server.leaders, HELLO_TXT, 1)
        for turn in range(bench.options.rounds):
            for name in list(servers)[::1 if turn % 2 else -1]:
                server = servers[name]
                samples[name].append(
                    load.measure(server.port, server.leaders, HELLO_TXT, bench.options.seconds)
                )
    ours, reference = samples[MANY], samples[ONE]
    ratio = report.median(ours, "cpu_us") / report.median(reference, "cpu_us")
    by_round = [a.cpu_us / b.cpu_us for a, b in zip(ours, reference)]
    errors = sum(sample.errors for each in samples.values() for sample in each)
    outcome = report.Outcome(
        f"{MANY}, hello.txt: CPU per request", ONE, f"≤ {rows.MANY_SITES_RATIO:g}", ratio,
        f"{ratio:.2f} ({min(by_round):.2f}–{max(by_round):.2f}), {errors} errors",
        ratio <= rows.MANY_SITES_RATIO and not errors,
    )
    lines = [
        (name, report.spread(each, "cpu_us", ".1f"), report.spread(each, "per_second", ".0f"),
         str(sum(sample.errors for sample in each)))
        for name, each in samples.items()
    ]
    text = (
        f"hello.txt, {HELLO_TXT.connections} connections that are kept, in turn. Each site has "
        f"{RULES} rules: redirects, rewrites, refused paths, a header field and an expiry."
    )
    columns = ("maitred with", "CPU µs per request", "requests/s", "errors")
    return report.Section(
        SITES_TITLE, text, columns, lines, [outcome],
        {name: [dataclasses.asdict(sample) for sample in each] for name, each in samples.items()},
    )


CONNECTIONS_TITLE = f"{CONNECTIONS} idle connections"
SITES_TITLE = f"{SITES} sites with {SITES * RULES} rules"
MEASUREMENTS = {CONNECTIONS_TITLE: idle_connections, SITES_TITLE: many_sites}
