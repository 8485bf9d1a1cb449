"""What an idle worker holds in memory, and what a request makes a worker ask of the kernel."""

import http.client
import re
import statistics
import subprocess
import time

import load
import peers
import processes
import rows

HELLO = load.Load("/hello.php", 16)
WARM_UP_SECONDS = 2
# A worker has settled when its memory has not changed between two looks this far apart.
SETTLE_SECONDS = 0.5
SETTLE_MOST_SECONDS = 20
TRACED_REQUESTS = 2000
TRACE_SECONDS = 60


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
