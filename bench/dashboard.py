"""What an open dashboard costs on a busy server."""

import dataclasses
import json
import os
import socket
import subprocess
import threading
import time

import load
import managed
import peers
import processes
import report
import rows

POOLS = 100  # as many as dashboard.lua has hosts
RATE = 10_000  # about as many requests a second
LEAST_RATE = 0.8 * RATE  # of a measurement that says anything of that
SCRIPT = os.path.join(os.path.dirname(__file__), "dashboard.lua")
# A run has two of the measurements of memory that are made every ten seconds for a dashboard.
SECONDS, QUICK_SECONDS = 20, 5
TRIAL_SECONDS, TRIAL_CONNECTIONS, MOST_CONNECTIONS = 2, 64, 256
PAIRS_A_ROUND = 2
CLOSED, OPEN = "closed", "open"


class WithAdmin(managed.Maitred):
    """maitred with an admin listener."""

    def config(self):
        return f'admin = "127.0.0.1:{self.admin_port()}"\n' + super().config()

    def admin_port(self):
        """The port of the dashboard."""
        if not hasattr(self, "own_admin_port"):
            self.own_admin_port = peers.free_port()
        return self.own_admin_port


@dataclasses.dataclass(frozen=True)
class Sample:
    """One run of the load."""

    cores: float  # all processes of the server
    per_second: float
    errors: int
    stream_kb: float  # KB a second of the stream of events, 0 without one
    foreign_share: float


class Stream:
    """The stream of events of a dashboard, read as a browser does."""

    def __init__(self, port):
        self.bytes = 0
        self.connection = socket.create_connection(("127.0.0.1", port), load.ANSWER_SECONDS)
        request = "GET /dashboard/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
        self.connection.sendall(request.encode())
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        """Counts what comes, until the end."""
        self.connection.settimeout(None)
        while got := self.connection.recv(1 << 16):
            self.bytes += len(got)

    def close(self):
        """Closes the dashboard."""
        self.connection.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.connection.close()


def pools():
    """Pools with a name and a host each."""
    return {f"p{number:03}": {"pm": "static", "max_children": 1} for number in range(1, POOLS + 1)}


def wrk(server, connections, seconds):
    """Runs the load, and returns wrk's summary."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s",
               "-s", SCRIPT, f"http://127.0.0.1:{server.port}/"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def calibrate(server):
    """How many connections make about that many requests a second."""
    summary = wrk(server, TRIAL_CONNECTIONS, TRIAL_SECONDS)
    rate = summary["requests"] / summary["duration_us"] * 1e6
    return min(MOST_CONNECTIONS, max(1, round(TRIAL_CONNECTIONS * RATE / rate)))


def sample(server, connections, seconds, is_open):
    """One run, with an open dashboard or without."""
    stream = Stream(server.admin_port()) if is_open else None
    if stream:
        # The first event is the whole state: the bar is for what follows.
        processes.wait_until(lambda: stream.bytes > 0, load.ANSWER_SECONDS, "the first event")
        time.sleep(1)
    before = stream.bytes if stream else 0
    watch = load.Watch(server.leaders)
    summary = wrk(server, connections, seconds)
    elapsed, spent = time.monotonic() - watch.began, watch.read()
    sent = (stream.bytes if stream else 0) - before
    if stream:
        stream.close()
        if sent == 0:
            raise load.WrongAnswer("the stream of the dashboard has ended")
    processes.wait_until_idle(server.leaders, load.IDLE_MOST_SECONDS)
    return Sample(
        cores=spent.server / elapsed,
        per_second=summary["requests"] / summary["duration_us"] * 1e6,
        errors=summary["status_errors"] + summary["socket_errors"],
        stream_kb=sent / elapsed / 1000,
        foreign_share=spent.foreign_share,
    )


def measure(bench):
    """Processor time of two equal servers, of which one has an open dashboard, in turn."""
    seconds = QUICK_SECONDS if bench.options.quick else SECONDS
    samples = {CLOSED: [], OPEN: []}
    with bench.managing(WithAdmin, pools()) as closed, bench.managing(WithAdmin, pools()) as opened:
        servers = {CLOSED: closed, OPEN: opened}
        for server in servers.values():
            server.await_count(POOLS)
            wrk(server, TRIAL_CONNECTIONS, TRIAL_SECONDS)
        connections = calibrate(closed)
        for turn in range(bench.options.rounds * PAIRS_A_ROUND):
            for which in list(servers)[::1 if turn % 2 else -1]:
                one = sample(servers[which], connections, seconds, which == OPEN)
                samples[which].append(one)
                report.say(f"dashboard {which}: {one.cores:.3f} cores, {one.per_second:.0f}/s, "
                           f"{one.stream_kb:.1f} KB/s")
    lines = [
        (which, report.spread(each, "cores", ".3f"), report.spread(each, "per_second", ".0f"),
         report.spread(each, "stream_kb", ".1f"), str(sum(one.errors for one in each)))
        for which, each in samples.items()
    ]
    text = (
        f"Two equal servers with {POOLS} pools of one worker each, in turn, for {seconds} s: about "
        f"{RATE} requests a second to all pools, of which each fifth is hello.php and the others are "
        f"hello.txt. One of the servers has an open dashboard meanwhile. Cores: processor time of all "
        f"processes of the server by the time that has passed."
    )
    columns = ("dashboard", "cores", "requests/s", "KB/s of events", "failed")
    return report.Section(TITLE, text, columns, lines, outcomes(samples), {
        which: [dataclasses.asdict(one) for one in each] for which, each in samples.items()
    })


def outcomes(samples):
    """What it costs more for the same requests, and what it sends."""
    more = []
    for closed, opened in zip(samples[CLOSED], samples[OPEN]):
        same_work = closed.cores * opened.per_second / closed.per_second
        more.append((opened.cores - same_work) * 100)
    more.sort()
    middle = (more[len(more) // 2] + more[(len(more) - 1) // 2]) / 2
    failed = sum(one.errors for each in samples.values() for one in each)
    most = max(one.stream_kb for one in samples[OPEN])
    rate = min(report.median(each, "per_second") for each in samples.values())
    return [
        report.Outcome(
            f"{TITLE}: more processor time", "no dashboard", f"≤ {rows.DASHBOARD_PERCENT} % of a core",
            middle,
            f"{middle:+.1f} % ({more[0]:+.1f} to {more[-1]:+.1f}) at {rate:.0f}/s, {failed} failed",
            middle <= rows.DASHBOARD_PERCENT and rate >= LEAST_RATE and not failed,
        ),
        report.Outcome(
            f"{TITLE}: events", "", f"≤ {rows.DASHBOARD_KB} KB/s", most,
            f"{report.spread(samples[OPEN], 'stream_kb', '.1f')} KB/s", most <= rows.DASHBOARD_KB,
        ),
    ]


TITLE = "Dashboard open on a busy server"
MEASUREMENTS = {TITLE: measure}
