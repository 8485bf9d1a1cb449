#!/usr/bin/env python3
"""Runs maitred for hours at 60 % of its workers' time, with a reload every minute and an upgrade every ten.

A line for each minute is written to bench/results while it runs, so that a run that is cut short is
not lost. The exit code is 0 if every response was right and nothing has grown: see `verdict`.
"""

import argparse
import asyncio
import collections
import dataclasses
import json
import os
import signal
import statistics
import sys
import tempfile
import time

import client
import endurance
import load
import managed
import peers
import processes
import report
import rows
import run
import turnover

WORKERS = 6
SLEEP_MS = 100
SHARE = 0.6
MINUTE = 60
UPGRADE_EVERY_MINUTES = 10
# Of ten requests one is for a static file, and one for a page of the cache; the others sleep.
FILE_TURN, PAGE_TURN, TURNS = 3, 7, 10
RATE = SHARE * WORKERS * 1000 / SLEEP_MS * TURNS / (TURNS - 2)
# What the last hour may have more than the first, where anything varies from minute to minute.
MOST_KIB = rows.MANY_MORE_KIB
MOST_MAPPINGS = rows.MANY_MORE_MAPPINGS
MOST_P99 = 1.2
# The first minutes of a run fill what is filled once.
WARM_MINUTES = 10


class Maitred(managed.Maitred):
    """maitred with a site that caches in memory and on disk."""

    def cache_folder(self):
        """Where it stores pages: the front may write to it, whichever user it has."""
        path = os.path.join(self.place.directory, f"pages-{self.port}")
        os.makedirs(path, exist_ok=True)
        os.chmod(path, 0o777)
        return path

    def config(self):
        top = f'cache_dir = "{self.cache_folder()}"\n'
        return top + super().config() + '[sites.cache]\nvalid = "30s"\n'


@dataclasses.dataclass(frozen=True)
class Minute:
    """One minute of a run."""

    number: int
    requests: int
    failed: int
    p50_ms: float
    p99_ms: float
    late_p99_ms: float  # of the client's own: how long after its time a request was begun
    foreign_share: float
    again: int  # signals that were refused and sent again
    supervisor: endurance.Held
    front: endurance.Held
    others_kib: int  # private memory of zygotes and workers
    processes: int
    disk_kib: int


def request(number):
    """The path of a request, and the check of its response."""
    turn = number % TURNS
    if turn == FILE_TURN:
        return "/100k.bin", lambda status, body: status == 200 and body == rows.FILES["100k.bin"]
    if turn == PAGE_TURN:
        path = f"/page.php?of={number // TURNS % 100}"
        return path, lambda status, body: status == 200 and body == rows.PAGE
    path = f"/sleep.php?ms={SLEEP_MS}&n={number}"
    return path, lambda status, body: status == 200 and body.startswith(b"%d " % number)


def disk_kib(folder):
    """The size of all files below a folder, in KiB."""
    paths = (os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)
    return sum(os.lstat(path).st_blocks for path in paths) // 2


def others_kib(server):
    """Private memory of the processes that run PHP, in KiB."""
    total = 0
    for pid in server.zygotes() + server.workers():
        try:
            total += processes.private_kb(pid)
        except OSError:
            continue  # it has ended since
    return total


async def change(server, number, changes):
    """The reload of a minute, and every ten minutes an upgrade."""
    await asyncio.sleep(MINUTE / 4)
    await changes.carry_out(server.reload)
    if number % UPGRADE_EVERY_MINUTES == 0:
        await asyncio.to_thread(server.replace_program)
        await changes.carry_out(server.upgrade)


async def serve_minute(server, number):
    """A minute's requests, and its changes meanwhile."""
    changes = turnover.Changes()
    changing = asyncio.create_task(change(server, number, changes))
    responses = await client.steadily(server.port, RATE, MINUTE, request)
    await changing
    return responses, changes


def minute(server, number):
    """Runs one, and looks at the server at its end."""
    watch = load.Watch(server.leaders)
    responses, changes = asyncio.run(serve_minute(server, number))
    foreign_share = watch.read().foreign_share
    fates = collections.Counter(each.fate for each in responses)
    for what in sorted({each.what for each in responses if each.fate != client.GOOD}):
        report.say(f"minute {number}: {what}")
    taken = [each.seconds * 1e3 for each in responses if each.what == ""]
    fronts = server.fronts()
    return Minute(
        number, len(responses), len(responses) - fates[client.GOOD],
        report.percentile(taken, 0.5), report.percentile(taken, 0.99),
        report.percentile([each.late * 1e3 for each in responses], 0.99),
        foreign_share, changes.again, endurance.held(server.supervisor()), endurance.held(fronts[-1]),
        others_kib(server), len(processes.tree(server.leaders)), disk_kib(server.cache_folder()),
    )


def verdict(minutes):
    """What has grown from the first hour to the last, in words; empty if nothing has."""
    hour = min(60, (len(minutes) - WARM_MINUTES) // 2)
    if hour < 1:
        return ["the run is too short to compare two parts of it"]
    first, last = minutes[WARM_MINUTES:WARM_MINUTES + hour], minutes[-hour:]
    found = []

    def compare(what, of, most):
        before, after = (statistics.median(map(of, part)) for part in (first, last))
        report.say(f"{what}: {before:.6g} → {after:.6g}")
        if after > most(before):
            found.append(f"{what} grew from {before:.6g} to {after:.6g}")

    for who in ("supervisor", "front"):
        compare(f"private KiB of the {who}", lambda one: getattr(one, who).private_kib,
                lambda x: x + MOST_KIB)
        compare(f"descriptors of the {who}", lambda one: getattr(one, who).descriptors,
                lambda x: x)
        compare(f"mappings of the {who}", lambda one: getattr(one, who).mappings,
                lambda x: x + MOST_MAPPINGS)
    compare("private KiB of PHP's processes", lambda one: one.others_kib, lambda x: x * 1.05)
    compare("processes", lambda one: one.processes, lambda x: x)
    compare("KiB of the cache's files", lambda one: one.disk_kib, lambda x: x * 1.05 + 64)
    compare("p99 in ms", lambda one: one.p99_ms, lambda x: x * MOST_P99)
    failed = sum(one.failed for one in minutes)
    if failed:
        found.append(f"{failed} of {sum(one.requests for one in minutes)} requests failed")
    return found


def soak(bench, hours, results):
    """Runs for hours; returns the minutes."""
    pools = {managed.WWW: {"pm": "static", "max_children": WORKERS}}
    minutes = []
    with bench.managing(Maitred, pools, replaceable=True) as server:
        server.await_count(WORKERS)
        for number in range(1, round(hours * 60) + 1):
            minutes.append(minute(server, number))
            results.write(json.dumps(dataclasses.asdict(minutes[-1])) + "\n")
            results.flush()
    return minutes


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=8, help="(8)")
    options = parser.parse_args()
    options.workers = WORKERS
    options.peers_only = False
    return options


def main():
    """Runs, and leaves no process behind however it ends."""
    options = arguments()
    os.umask(0o022)
    processes.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    peers.allow_many_files()
    stamp = time.strftime("%Y-%m-%dT%H%M%SZ", time.gmtime())
    path = os.path.join(run.HERE, "results", f"soak-{stamp}.jsonl")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="maitred-soak-") as directory:
            os.chmod(directory, 0o755)
            with open(path, "w", encoding="ascii") as results:
                minutes = soak(run.Bench(options, directory), options.hours, results)
    finally:
        processes.kill_descendants()
    found = verdict(minutes)
    print("\n".join(found) or f"soak: OK: {len(minutes)} minutes, "
          f"{sum(one.requests for one in minutes)} requests, none failed, nothing grew ({path})")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
