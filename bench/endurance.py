"""What supervisor and front hold after very many reloads, upgrades and requests."""

import dataclasses
import os
import time

import load
import managed
import peers
import processes
import report
import rows

# Until nothing is left of those that were replaced: longer than an old front keeps idle clients.
GONE_SECONDS = 90
SETTLED_LOOKS = 3  # a second apart
SUPERVISOR, FRONT = "supervisor", "front"
HELLO = load.Load("/hello.php", 16)
BODY = b"Hello, World!\n"
CHUNK_SECONDS = 5


@dataclasses.dataclass(frozen=True)
class Held:
    """What a process has."""

    private_kib: int
    written_kib: int
    descriptors: int
    mappings: int


@dataclasses.dataclass(frozen=True)
class Endurance:
    """What is done very often."""

    what: str
    workers: int
    first: int  # before the first look, after which everything has been used once
    count: int
    act: object  # does it as often as its second argument says, at least


def held(pid):
    """What a process has just now."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        mappings = sum(1 for _ in file)
    return Held(
        processes.private_kb(pid), processes.written_kb(pid), len(os.listdir(f"/proc/{pid}/fd")), mappings
    )


def settle(pid):
    """Waits until a process has closed the connections of clients that are gone."""
    seen = []
    while len(seen) < SETTLED_LOOKS or len(set(seen[-SETTLED_LOOKS:])) > 1:
        time.sleep(1)
        seen.append(len(os.listdir(f"/proc/{pid}/fd")))
        if len(seen) > GONE_SECONDS:
            raise TimeoutError(f"the descriptors of process {pid} change on and on")


def look(server, at_rest):
    """What supervisor and front have, once only the processes of one generation are there."""
    processes.wait_until(
        lambda: len(processes.tree(server.leaders)) <= at_rest, GONE_SECONDS,
        f"no more than {at_rest} processes",
    )
    (front,) = server.fronts()
    settle(front)
    return {SUPERVISOR: held(server.supervisor()), FRONT: held(front)}


def reload_often(server, count):
    """Reloads one after the other, each with another value in the configuration."""
    for _ in range(count):
        server.reload().wait()


def upgrade_often(server, count):
    """Upgrades one after the other, to the same programs."""
    for _ in range(count):
        server.upgrade().wait()


def request_often(server, count):
    """Requests from the load generator; one that fails ends the measurement."""
    while count > 0:
        done = load.wrk(server.port, HELLO, CHUNK_SECONDS)
        if done["status_errors"] or done["socket_errors"]:
            raise load.WrongAnswer(f"{server.name}: {done} of {HELLO.path}")
        count -= done["requests"]


def endure(bench, endurance):
    """One of them: looks before, after half of it, and at the end."""
    pools = {managed.WWW: {"pm": "static", "max_children": endurance.workers}}
    count = endurance.count
    with bench.managing(managed.Maitred, pools) as server:
        server.await_count(endurance.workers)
        at_rest = len(processes.tree(server.leaders))
        endurance.act(server, endurance.first)
        looks, seconds = [look(server, at_rest)], 0.0
        watch = load.Watch(server.leaders)
        for half in (count // 2, count - count // 2):
            began = time.monotonic()
            endurance.act(server, half)
            seconds += time.monotonic() - began
            looks.append(look(server, at_rest))
        foreign_share = watch.read().foreign_share
        load.check(server.name, server.port, HELLO, BODY)
    return section(endurance, looks, {"seconds": seconds, "foreign_share": foreign_share})


def section(endurance, looks, run):
    """The table."""
    count, what = endurance.count, endurance.what
    outcomes = [outcome(endurance, who, *(each[who] for each in looks[1:])) for who in looks[0]]
    lines = [
        (who, *(" → ".join(str(getattr(each[who], field)) for each in looks)
                for field in ("written_kib", "private_kib", "descriptors", "mappings")))
        for who in looks[0]
    ]
    text = (
        f"{count} {what} of a server with a pool of {endurance.workers}, one after the other: "
        f"{run['seconds'] / count * 1e3:.3g} ms each. Looked at after {endurance.first} before them, after "
        f"half of them, and at the end, each time when no more processes were left than at the start. What "
        f"an allocator keeps for later has grown by the first half; what leaks grows on. Private memory has, beside what "
        f"a process has written, unchanged pages of its program, which differ by a megabyte from one start to the next."
    )
    columns = ("process", "written KiB", "private KiB", "descriptors", "mappings")
    found = [{who: dataclasses.asdict(each) for who, each in one.items()} for one in looks]
    return report.Section(
        f"Many {what}", text, columns, lines, outcomes, {"count": count, **run, "looks": found}
    )


def outcome(endurance, who, before, after):
    """What has grown in one process in the second half."""
    memory = after.written_kib - before.written_kib
    descriptors = after.descriptors - before.descriptors
    mappings = after.mappings - before.mappings
    most_kib, most_mappings = rows.MANY_MORE_KIB, rows.MANY_MORE_MAPPINGS
    holds = memory <= most_kib and descriptors <= 0 and mappings <= most_mappings
    return report.Outcome(
        f"{endurance.count} {endurance.what}: what grew in the {who} in the second half", "",
        f"≤ {most_kib} KiB, 0 descriptors, {most_mappings} mappings", memory,
        f"{memory:+} KiB, {descriptors:+} descriptors, {mappings:+} mappings", holds,
    )


def measure_reloads(bench):
    """As many as `--reloads` says."""
    return endure(bench, Endurance("reloads", 1, 50, bench.options.reloads, reload_often))


def measure_upgrades(bench):
    """A tenth of the reloads."""
    count = max(1, bench.options.reloads // 10)
    return endure(bench, Endurance("upgrades", 1, 20, count, upgrade_often))


def measure_requests(bench):
    """A thousand for each of the reloads."""
    count = bench.options.reloads * 1000
    return endure(bench, Endurance("requests", bench.options.workers, 50_000, count, request_often))


MEASUREMENTS = {
    "Many reloads": measure_reloads, "Many upgrades": measure_upgrades,
    "Many requests": measure_requests,
}
