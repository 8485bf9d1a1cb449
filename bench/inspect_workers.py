"""What an idle worker holds in memory, and what a request makes a worker ask of the kernel."""

import http.client
import re
import statistics
import subprocess
import time

import load
import peers
import processes
import report
import rows

MEMORY_TITLE = "Private memory per idle worker"
SYSTEM_CALLS_TITLE = "System calls per hello.php in the worker"
HELLO = load.Load("/hello.php", 16)
STATES = ("never served", "after hello.php")
WARM_UP_SECONDS = 2
# A worker has settled when its memory has not changed between two looks this far apart.
SETTLE_SECONDS = 0.5
SETTLE_MOST_SECONDS = 20
TRACED_REQUESTS = 2000
TRACE_SECONDS = 60


def memory(bench):
    """Private memory of workers that rest, before and after they have served."""
    found = {}
    with bench.serving(bench.kinds_with_pools(), bench.root) as servers:
        for kind, server in servers.items():
            found[kind] = idle_memory(server)
    outcomes = []
    for state, ours, theirs in zip(STATES, found[peers.Maitred], found[peers.NginxFpm]):
        ratio = ours / theirs
        outcomes.append(report.Outcome(
            f"{MEMORY_TITLE}, {state}", peers.NginxFpm.name, f"≤ {rows.IDLE_MEMORY_RATIO:g}", ratio,
            f"{ratio:.2f} ({ours:.0f} : {theirs:.0f} KiB)", ratio <= rows.IDLE_MEMORY_RATIO,
        ))
    lines = [(kind.name, *(f"{each:.0f}" for each in pair)) for kind, pair in found.items()]
    text = "Private_* of smaps_rollup, the median of the workers, in KiB."
    samples = {kind.name: pair for kind, pair in found.items()}
    return report.Section(MEMORY_TITLE, text, ("server", *STATES), lines, outcomes, samples)


def calls(bench):
    """What the kernel is asked for by a request."""
    found = {}
    with bench.serving(bench.kinds_with_pools(), bench.root) as servers:
        for kind, server in servers.items():
            found[kind.name] = system_calls(server, bench.directory)
    count = sum(found[peers.Maitred.name].values())
    most = rows.SYSTEM_CALLS_MOST
    outcome = report.Outcome(
        SYSTEM_CALLS_TITLE, "", f"≤ {most}", count, f"{count:.2f}", count <= most
    )
    text = (f"Counted by strace over {TRACED_REQUESTS} requests, one after the other on one "
            "connection. strace takes the processor away from a worker at each call, so that "
            "maitred's reads its times (pread64, getrusage) for every request; by itself it does "
            "so only after an interruption.")
    lines = [(name, f"{sum(each.values()):.2f}", often(each)) for name, each in found.items()]
    columns = ("server", "per request", "which")
    return report.Section(SYSTEM_CALLS_TITLE, text, columns, lines, [outcome], found)


def often(counted):
    """The calls that are more than a rarity, the most frequent first."""
    every = sorted(counted.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {each:.2f}" for name, each in every if each >= 0.01)


def idle_memory(peer):
    """Private memory of a peer's workers in KiB, (never served, after hello.php): medians."""
    peer.await_workers()
    fresh = settled_memory(peer)
    load.check(peer.name, peer.port, HELLO, rows.HELLO)
    load.wrk(peer.port, HELLO, WARM_UP_SECONDS)
    return fresh, settled_memory(peer)


def settled_memory(peer):
    """The median over the workers, once it no longer changes."""
    before = None
    deadline = time.monotonic() + SETTLE_MOST_SECONDS
    while time.monotonic() < deadline:
        now = [processes.private_kb(pid) for pid in peer.workers()]
        if now == before:
            return statistics.median(now)
        before = now
        time.sleep(SETTLE_SECONDS)
    raise TimeoutError(f"the memory of {peer.name}'s workers does not settle: {before} KiB")


def system_calls(peer, directory):
    """System calls per hello.php in a peer's workers, as {name: calls per request}.

    All workers are traced, since which of them serves is the server's choice. The requests come
    one after the other, so that a worker sleeps and wakes for each.
    """
    peer.await_workers()
    load.wrk(peer.port, HELLO, 1)
    report = f"{directory}/strace-{peer.port}"
    workers = peer.workers()
    command = [peers.program("strace"), "-f", "-c", "--summary-columns=calls,name", "-o", report]
    for pid in workers:
        command += ["-p", str(pid)]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        await_attached(tracer, len(workers))
        ask_in_turn(peer.port, TRACED_REQUESTS)
    finally:
        # strace detaches and writes its summary when it is interrupted.
        processes.send(tracer.pid, 2)
        tracer.communicate(timeout=TRACE_SECONDS)
    with open(report, encoding="utf-8") as file:
        counted = re.findall(r"^\s*(\d+)\s+(\w+)$", file.read(), re.MULTILINE)
    return {name: int(calls) / TRACED_REQUESTS for calls, name in counted if name != "total"}


def await_attached(tracer, count):
    """Reads strace's messages until it has attached to all workers."""
    said = ""
    while count > 0:
        line = tracer.stderr.readline()
        if line == "":
            raise peers.CannotStart(
                f"strace could not attach, which needs root or ptrace_scope 0: {said.strip()}"
            )
        said += line
        count -= "attached" in line


def ask_in_turn(port, count):
    """Sends hello.php that many times over one connection, each after the last one's answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=load.ANSWER_SECONDS)
    for _ in range(count):
        connection.request("GET", HELLO.path)
        answer = connection.getresponse()
        if answer.status != 200 or answer.read() != rows.HELLO:
            raise load.WrongAnswer(f"port {port}: a wrong answer while system calls were counted")
    connection.close()


MEASUREMENTS = {MEMORY_TITLE: memory, SYSTEM_CALLS_TITLE: calls}
