#!/usr/bin/env python3
"""`maitred tune` beside an exhaustive search of what it looks for: how many workers a pool is to have.

A server with the articles' default pool is tuned. Then every number of workers of a grid is tried at the
same goal: first the numbers of a coarse grid, then those around the best of them, in rounds, each round in
another order. What tune chose is measured among them as one more number.
"""

import argparse
import contextlib
import glob
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import managed
import overload
import peers
import processes
import report
import run
import wordpress

COARSE = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
# Around the best of those, by ratio.
FINE = (0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3)
BEST = 4
PAGES = {
    "waits": "/busy.php?ms=4&wait=76",
    "sleeps": "/sleep.php?ms=100",
    "computes": "/busy.php?ms=10",
    "wordpress": "/",
}
# The package's and the articles' default.
DEFAULT = {
    "pm": "dynamic",
    "max_children": 5,
    "start_servers": 2,
    "min_spare_servers": 1,
    "max_spare_servers": 3,
}
AUTO = {"pm": "auto", "max_children": 64}
NEAR = 1.05
LEAST_RATE = 0.5
SAMPLES_BEYOND = 5
MOST_ERRORS = 0.001
MOST_RUN_SECONDS = 24
PAIR_SECONDS = 10
MOST_STEPS = 8
SETTLE_SECONDS = 1
WITHIN = 0.9
MOST_SECONDS = 15 * 60


class NginxFpm(managed.Fpm):
    """nginx before php-fpm, whose pool reads a folder of further files."""

    def folder(self):
        """That folder."""
        path = os.path.join(self.place.directory, f"pools-{self.port}")
        os.makedirs(path, exist_ok=True)
        return path

    def configuration(self):
        """What `maitred tune` is to be told."""
        return ("--php-fpm", self.place.file(f"fpm-{self.port}.conf"))

    def fpm_config(self):
        lines = ["[global]", f"error_log = {self.error_log()}", "daemonize = no", "[www]"]
        if peers.IS_ROOT:
            lines += [f"user = {peers.WORKER_USER}", f"group = {peers.WORKER_USER}"]
        lines += [f"listen = {self.socket()}", "listen.mode = 0666"]
        lines += [
            f"{key if key == 'pm' else 'pm.' + key} = {value}"
            for key, value in self.pools[managed.WWW].items()
        ]
        return "\n".join([*lines, f"include = {self.folder()}/*.conf"]) + "\n"

    def fix(self, workers):
        """Has the pool so many workers, always."""
        text = f"[www]\npm = static\npm.max_children = {workers}\n"
        for other in glob.glob(f"{self.folder()}/*"):
            os.unlink(other)
        self.place.file(os.path.join(self.folder(), "zz-search.conf"), text)
        old = set(self.workers())
        os.kill(self.supervisor(), signal.SIGUSR2)
        processes.wait_until(
            lambda: len(now := self.workers()) == workers and not old & set(now),
            peers.START_SECONDS,
            f"{workers} new workers",
        )


class Maitred(managed.Maitred):
    """maitred with one pool."""

    def configuration(self):
        """What `maitred tune` is to be told."""
        return ("--config", self.config_path())

    def config(self):
        rule = 'front_controller = "/index.php"\n' if self.place.front_controller else ""
        return super().config() + rule

    def fix(self, workers):
        """Has the pool so many workers, always."""
        self.pools = {managed.WWW: {"pm": "static", "max_children": workers}}
        self.reload().wait()
        self.await_count(workers)


KINDS = {"fpm": (NginxFpm, DEFAULT), "maitred": (Maitred, AUTO)}


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", choices=PAGES, default="waits")
    parser.add_argument("--server", choices=KINDS, default="fpm")
    parser.add_argument("--goal", default="", help="what tune is given; else what it makes itself")
    parser.add_argument("--time", default="10m", help="what tune is given (10m)")
    parser.add_argument("--rounds", type=int, default=3, help="of the numbers around the best (3)")
    parser.add_argument("--seconds", type=int, default=4, help="each rate is tried (4)")
    parser.add_argument("--chosen", type=int, metavar="N", help="search only: this was chosen")
    parser.add_argument("--numbers", type=lambda text: [int(each) for each in text.split(",")],
                        metavar="N,N…", help="search these numbers of workers, and no grid")
    parser.add_argument("--most", type=int, default=max(COARSE), help="workers, with --chosen")
    parser.add_argument("--tune-only", action="store_true", help="search nothing")
    parser.add_argument("--json", default="", metavar="FILE", help="all figures")
    parser.add_argument("tune", nargs="*", help="further arguments of tune, after --")
    return parser.parse_args()


@contextlib.contextmanager
def serving(options, directory):
    """The server, which answers the page."""
    kind, pool = KINDS[options.server]
    with contextlib.ExitStack() as stack:
        root = run.document_root(directory)
        is_blog = options.page == "wordpress"
        if is_blog:
            database = wordpress.MariaDb(directory)
            stack.callback(database.stop)
            database.start()
            root = wordpress.unpack(directory, database)
        place = peers.Place(directory, root, 0, front_controller=is_blog)
        server = kind(place).configure({managed.WWW: pool})
        stack.callback(server.stop)
        server.start()
        if is_blog:
            wordpress.install(server.port)
        yield server


def tune(server, options, directory):
    """Runs `maitred tune`; its report, and how long it took."""
    if options.chosen:
        return {
            "choice": {"workers": options.chosen},
            "ceiling": {"workers": options.most},
            "conclusion": f"{options.chosen} workers were chosen before",
            "rate_before": None,
        }, 0
    file = os.path.join(directory, "tune.json")
    url = f"http://127.0.0.1:{server.port}{PAGES[options.page]}"
    command = [os.path.abspath(peers.Maitred.program), "tune", url, *server.configuration()]
    command += ["--time", options.time, f"--json={file}", *options.tune]
    command += ["--goal", options.goal] if options.goal else []
    began = time.monotonic()
    done = subprocess.run(command, check=False)
    seconds = time.monotonic() - began
    if done.returncode not in (0, 3):
        raise peers.CannotStart(f"maitred tune ended with code {done.returncode}")
    with open(file, encoding="utf-8") as text:
        return json.load(text), seconds


class Search:
    """What every number of workers can do."""

    def __init__(self, server, options, goal):
        self.server, self.options, self.goal = server, options, goal
        self.path = PAGES[options.page]
        percentile = re.match(r"p([\d.]+)<", goal)
        if percentile is None:
            raise peers.CannotStart(f"'{goal}' has to begin with a percentile, such as p95<200ms")
        self.share = float(percentile.group(1)) / 100
        self.rates, self.p99 = {}, {}

    def ask(self, seconds, *flags):
        """One run."""
        duration = f"{seconds + SETTLE_SECONDS:.1f}s"
        flags += ("--duration", duration, "--warm-up", f"{SETTLE_SECONDS}s", "--slo", self.goal)
        return overload.ask(self.server, self.path, *flags)

    def holds(self, rate):
        """Whether the goal holds at this rate, and p99, or the most, in milliseconds.

        Judged is the share of all requests that were answered within the goal's time: for a percentile
        itself there would have to be many beyond it.
        """
        needed = SAMPLES_BEYOND / (1 - self.share) / rate
        seconds = min(max(self.options.seconds, needed), MOST_RUN_SECONDS)
        found = self.ask(seconds, "--rate", f"{rate:.2f}")
        asked, slow = found["requests"], found["corrected"]
        ended = asked["served"] / max(1e-9, 1 - asked["error_share"])
        within = asked["goodput"] * found["run"]["seconds"] / max(1, ended)
        p99 = slow["p99"] or slow["max"]
        return within >= self.share and asked["error_share"] < MOST_ERRORS, p99 and p99 * 1e3

    def highest(self, workers):
        """The highest rate at which the goal holds with so many workers."""
        self.server.fix(workers)
        users = self.ask(self.options.seconds, "--users", str(workers))
        rate = max(users["requests"]["rate"] * 0.9, LEAST_RATE)
        holds, fails, p99 = None, None, None
        for _ in range(MOST_STEPS):
            held, seen = self.holds(rate)
            holds, fails = (rate, fails) if held else (holds, rate)
            p99 = seen if held else p99
            if holds and fails and fails / holds <= NEAR:
                break
            if holds and fails:
                rate = (holds * fails) ** 0.5
            else:
                rate *= 1.1 if held else 0.8
        self.rates.setdefault(workers, []).append(holds or 0.0)
        self.p99.setdefault(workers, []).append(p99)
        report.say(f"static {workers:3}: {holds or 0:.1f}/s at {self.goal}, p99 {p99} ms")

    def rate(self, workers):
        """The middle of what it did."""
        return statistics.median(self.rates[workers])

    def best(self):
        """The number with the highest rate."""
        return max(self.rates, key=self.rate)

    def all(self, chosen, most):
        """The coarse grid, what lies around its best, and what was chosen; no more than tune might try."""
        if self.options.numbers:
            self.in_rounds({*self.options.numbers, chosen})
            return
        coarse = [workers for workers in COARSE if workers <= most]
        while coarse[-1] < min(chosen, most):
            coarse.append(min(2 * coarse[-1], most))
        for workers in random.sample(coarse, len(coarse)):
            self.highest(workers)
        best = self.best()
        around = {max(1, round(best * factor)) for factor in FINE}
        fine = {workers for workers in around if workers <= most} | {best, chosen}
        self.in_rounds(fine | set(sorted(coarse, key=self.rate, reverse=True)[:BEST]))

    def in_rounds(self, numbers):
        """Each of these numbers in every round, in random order."""
        for _ in range(self.options.rounds):
            for workers in random.sample(sorted(numbers), len(numbers)):
                self.highest(workers)


def side_by_side(search, chosen):
    """What was chosen and the best number, in turn, at nine tenths of the best's highest rate."""
    best = search.best()
    rate = WITHIN * search.rate(best)
    found = {chosen: [], best: []}
    for turn in range(2 * search.options.rounds):
        for workers in sorted(found, reverse=turn % 2 == 1):
            search.server.fix(workers)
            seen = search.ask(PAIR_SECONDS, "--rate", f"{rate:.2f}")
            p99 = seen["corrected"]["p99"] or seen["corrected"]["max"] or 0
            found[workers].append((seen["requests"]["goodput"], p99 * 1e3))
    return rate, {
        workers: [statistics.median(column) for column in zip(*samples)]
        for workers, samples in found.items()
    }


def measure(options, directory):
    """All of it; whether what was chosen is as good as the best."""
    with serving(options, directory) as server:
        found, seconds = tune(server, options, directory)
        report.say(f"maitred tune: {found['conclusion']}, in {seconds:.0f} s")
        choice = found["choice"]
        if choice is None or options.tune_only:
            return {"tune": found, "seconds": seconds}, None
        chosen, goal = choice["workers"], options.goal or found["goal"]
        search = Search(server, options, goal)
        search.all(chosen, found["ceiling"]["workers"])
        rate, both = side_by_side(search, chosen)
    best = search.best()
    share = search.rate(chosen) / search.rate(best)
    report.say(f"\ngoal {goal}; {report.machine()}")
    for workers in sorted(search.rates):
        each = ", ".join(f"{one:.1f}" for one in search.rates[workers])
        report.say(f"  {workers:3} workers: {search.rate(workers):8.1f}/s  ({each})")
    for workers, (goodput, p99) in both.items():
        report.say(f"at {rate:.1f}/s: {workers} workers {goodput:.1f}/s in time, p99 {p99:.1f} ms")
    report.say(
        f"tune chose {chosen}: {share:.3f} of the highest rate of {best}, the best of all; it took"
        f" {seconds:.0f} s; before: {found['rate_before']}/s"
    )
    figures = {"tune": found, "seconds": seconds, "rates": search.rates, "p99_ms": search.p99,
               "side_by_side": both, "share": share}
    return figures, share >= WITHIN and seconds <= MOST_SECONDS


def main():
    """0 if the bar is reached, 1 if not, 2 if nothing was chosen or measured."""
    options = arguments()
    processes.adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="maitred-tune-") as directory:
        os.chmod(directory, 0o755)
        try:
            figures, holds = measure(options, directory)
        except run.NOT_MEASURED as problem:
            report.say(f"not measured: {problem}")
            return 2
        finally:
            processes.kill_descendants()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
    return 2 if holds is None else 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
