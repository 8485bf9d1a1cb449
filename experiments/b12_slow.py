"""B12: clients that are slow beside those that are not."""

import contextlib
import select
import socket
import threading
import time

import experiment
import servers
from experiment import Arm
from records import shown
from servers import Setting

HEADS_COUNT, READERS_COUNT = 2000, 500
RATE = 50
ANSWER_BYTES = 4 << 20
SLOW_BYTES, SLOW_EVERY = 1024, 1.0
PATIENCE = "2s"
ARRIVE_SECONDS = 4
QUIET, HEADS, READERS = "no slow client", f"{HEADS_COUNT} slow heads", f"{READERS_COUNT} slow readers"
SETTING, DEFAULT, AUTO = "static, 4", "default (150 at most)", "auto"


class Slow(experiment.Experiment):
    """Open loop beside slow clients."""

    id = "B12"
    title = f"{HEADS_COUNT} slow clients beside usual ones"
    source = "Apache with mod_php against nginx with php-fpm, comments"
    concluded = (
        "An event-driven server in front withstands slow clients; prefork needs a process with PHP"
        " in it for each, up to its cap. No figures."
    )
    how = (
        f"{HEADS_COUNT} connections that send a head a byte a second, or {READERS_COUNT} that read"
        f" an answer of {ANSWER_BYTES >> 20} MB that a script makes at {SLOW_BYTES >> 10} KB a"
        f" second, and {RATE} requests a second for hello.php beside them, each on a connection of"
        f" its own, by clients who wait for {PATIENCE}. 4 PHP workers; Apache as Debian has it: 150"
        " processes, or 150 threads in the event model, and 20 to 40 s for a head"
        f" (mod_reqtimeout). The slow ones have {ARRIVE_SECONDS} s before it is measured."
    )
    question = "What do slow clients do to the others?"
    columns = (
        experiment.Column("served_share", "others served", ".3f"),
        experiment.P50,
        experiment.P99,
        experiment.WORKERS,
        experiment.Column("connected", "slow clients connected", ".0f"),
        *experiment.FATES,
    )
    loads = (QUIET, HEADS, READERS)
    shortest = 0.5

    def arms(self):
        found = [
            Arm(key, Setting(SETTING, servers.static(4))) for key in ("maitred", "nginx", "event")
        ]
        return [
            *found,
            Arm("prefork", Setting(DEFAULT), "default"),
            Arm("maitred", Setting(AUTO, servers.AUTO), "auto"),
        ]

    def measure_arm(self, lab, arm):
        slow = {
            QUIET: contextlib.nullcontext,
            HEADS: lambda _: Crawlers(_, heads=True),
            READERS: Crawlers,
        }
        for name in self.loads:
            with lab.serving(arm) as server:
                experiment.checked(server, "/hello.php", "Hello")
                with slow[name](server) as crawlers:
                    found = experiment.opened(
                        server,
                        "/hello.php",
                        RATE,
                        self.seconds(lab),
                        "Hello",
                        "--no-keepalive",
                        "--timeout",
                        PATIENCE,
                    )
                    connected = crawlers.connected() if name != QUIET else 0
                yield name, {**found, "connected": connected}

    def charts(self, records):
        return [
            self.bar_chart(
                records,
                f"b12-{short}",
                f"Share of the others served, {name}",
                "",
                "served_share",
                name,
            )
            for short, name in (("heads", HEADS), ("readers", READERS))
        ]

    def findings(self, records):
        lines = []
        for key, name in [(arm.server, arm.setting.name) for arm in self.arms()]:
            get = lambda figure, load, key=key, name=name: records.median(key, name, figure, load)
            if get("served_share", QUIET) is not None:
                lines.append(
                    f"{servers.NAMES[key]}, {name}: "
                    + "; ".join(
                        f"{load}: {100 * (get('served_share', load) or 0):.1f} % of the others"
                        f" served, p99 {shown(get('p99_ms', load))} ms"
                        for load in self.loads
                    )
                    + "."
                )
        return lines

    def verdict(self, records):
        get = lambda key, name, load: records.median(key, name, "served_share", load)
        prefork, nginx, ours = (
            get("prefork", DEFAULT, HEADS),
            get("nginx", SETTING, HEADS),
            get("maitred", SETTING, HEADS),
        )
        event = get("event", SETTING, HEADS)
        if not experiment.known(prefork, nginx, ours, event):
            return ""
        return (
            f"Right: beside slow heads prefork served {100 * prefork:.0f} % of the others, nginx"
            f" {100 * nginx:.0f} %, maitred {100 * ours:.0f} %. Apache's event model served"
            f" {100 * event:.0f} %: a head that is not whole holds one of its 150 threads."
        )

    def answer(self, records):
        get = lambda key, name, load: (
            f"{100 * (records.median(key, name, 'served_share', load) or 0):.0f} %"
        )
        parts = [
            f"{servers.NAMES[key]} {get(key, name, HEADS)} and {get(key, name, READERS)}"
            for key, name in (
                ("prefork", DEFAULT),
                ("event", SETTING),
                ("nginx", SETTING),
                ("maitred", SETTING),
            )
        ]
        return f"Others served beside slow heads and beside slow readers: {', '.join(parts)}."


class Crawlers:
    """Slow clients, in a thread of their own."""

    def __init__(self, server, heads=False):
        self.server, self.heads = server, heads
        self.sockets, self.over = [], threading.Event()
        self.thread = threading.Thread(target=self.crawl)

    def __enter__(self):
        for _ in range(HEADS_COUNT if self.heads else READERS_COUNT):
            client = socket.socket()
            # A small window keeps what the kernel takes for a client from being the whole answer.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", self.server.port))
            self.sockets.append(client)
        writable = when_connected(self.sockets)
        head = f"GET /answer.php?bytes={ANSWER_BYTES} HTTP/1.1\r\nHost: localhost\r\n"
        for client in writable:
            with contextlib.suppress(OSError):
                client.send((head if self.heads else head + "\r\n").encode())
        self.thread.start()
        time.sleep(ARRIVE_SECONDS)
        return self

    def crawl(self):
        """A byte or a KB a second each, until told to end."""
        while not self.over.wait(SLOW_EVERY):
            for client in self.sockets:
                with contextlib.suppress(OSError):
                    if self.heads:
                        client.send(b"X")
                    else:
                        client.recv(SLOW_BYTES)

    def connected(self):
        """How many have not been sent away."""
        poll = select.poll()
        for client in self.sockets:
            poll.register(client, select.POLLRDHUP)
        gone = {
            number
            for number, what in poll.poll(0)
            if what & (select.POLLRDHUP | select.POLLHUP | select.POLLERR)
        }
        return len(self.sockets) - len(gone)

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        for client in self.sockets:
            client.close()


def when_connected(sockets, seconds=5.0):
    """Those that are connected, or will not be."""
    poll = select.poll()
    by_number = {client.fileno(): client for client in sockets}
    for number in by_number:
        poll.register(number, select.POLLOUT)
    found, left = [], dict(by_number)
    while left and (ready := poll.poll(seconds * 1000)):
        for number, _ in ready:
            poll.unregister(number)
            found.append(left.pop(number))
    return found
