"""Samples into tables: medians, spread, ratios, and whether each bar is reached."""

import dataclasses
import datetime
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import textwrap

import inspect_workers
import peers
import rows

# Above this share of the machine's CPU time spent by others, a figure is worth a second look.
FOREIGN_SHARE_WORTH_SAYING = 0.10
PAGE_WIDTH = 100


def median(samples, field):
    """The median of one figure over the samples."""
    return statistics.median(getattr(sample, field) for sample in samples)


def spread(samples, field, form):
    """`median (least–most)` of one figure."""
    values = [getattr(sample, field) for sample in samples]
    return f"{statistics.median(values):{form}} ({min(values):{form}}–{max(values):{form}})"


def percentile(values, share):
    """The smallest value that at least this share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One bar, and what was measured against it."""

    title: str
    against: str
    wanted: str
    ratio: float
    measured: str
    holds: bool

    def line(self):
        """A row of the Markdown table."""
        word = "PASS" if self.holds else "FAIL"
        return f"| {self.title} | {self.against} | {self.wanted} | {self.measured} | {word} |"


@dataclasses.dataclass(frozen=True)
class Section:
    """One measurement of pools: how it was made, its figures, and its bars."""

    title: str
    text: str
    columns: tuple
    lines: list  # of as many texts as there are columns
    outcomes: list
    samples: dict  # for programs

    @classmethod
    def failed(cls, title, problem):
        """A measurement that came to no end."""
        outcome = Outcome(title, "", "to be measured", 0, str(problem), False)
        return cls(title, f"Not measured: {problem}", (), [], [outcome], {})

    def markdown(self):
        """The section of the page."""
        text = f"### {self.title}\n\n{textwrap.fill(self.text, PAGE_WIDTH)}\n"
        if not self.columns:
            return text
        table = [self.columns, ["---"] * len(self.columns), *self.lines]
        return text + "\n" + "\n".join(f"| {' | '.join(cells)} |" for cells in table) + "\n"

    def as_json(self):
        """Everything, for programs."""
        return {"title": self.title, "samples": self.samples}


class MeasuredRow:
    """A row with its samples, by kind of server."""

    def __init__(self, row, samples):
        self.row = row
        self.samples = samples

    def summary(self):
        """One line for the terminal."""
        parts = [
            f"{kind.name} {median(samples, 'cpu_us'):.1f} µs, "
            f"{median(samples, 'per_second'):.0f}/s"
            for kind, samples in self.samples.items()
        ]
        return f"{self.row.title}: " + "; ".join(parts)

    def lines(self):
        """The rows of the Markdown table of figures."""
        return [
            f"| {self.row.title} | {kind.name} | {spread(samples, 'cpu_us', '.1f')} "
            f"| {spread(samples, 'per_second', '.0f')} | {median(samples, 'p50_ms'):.2f} "
            f"| {median(samples, 'p99_ms'):.2f} | {sum(s.not_2xx for s in samples)} "
            f"| {sum(s.socket_errors for s in samples)} |"
            for kind, samples in self.samples.items()
        ]

    def outcomes(self):
        """The row's bars; none without maitred. An error of maitred's fails them all."""
        ours = self.samples.get(peers.Maitred)
        if ours is None:
            return []
        failed = sum(sample.errors for sample in ours)
        return [self.outcome(bar, ours, self.samples[bar.peer], failed) for bar in self.row.bars]

    def outcome(self, bar, ours, theirs, failed):
        """One bar."""
        field = "per_second" if bar.measure == rows.RATE else "cpu_us"
        ratio = median(ours, field) / median(theirs, field)
        by_round = [getattr(a, field) / getattr(b, field) for a, b in zip(ours, theirs)]
        measured = f"{ratio:.2f} ({min(by_round):.2f}–{max(by_round):.2f})"
        if failed:
            measured += f", {failed} errors"
        title = f"{self.row.title}: {bar.measure}"
        holds = bar.holds(ratio) and not failed
        return Outcome(title, bar.peer.name, str(bar), ratio, measured, holds)

    def as_json(self):
        """Everything, for programs."""
        return {
            "row": self.row.title,
            "path": self.row.load.path,
            "connections": self.row.load.connections,
            "keep_alive": self.row.load.keep_alive,
            "streams": self.row.load.streams,
            "samples": {
                kind.name: [
                    dict(dataclasses.asdict(sample), per_second=sample.per_second)
                    for sample in samples
                ]
                for kind, samples in self.samples.items()
            },
        }


class Results:
    """All that one run measured."""

    def __init__(self, measured, sections, memory, calls, options):
        self.measured = measured
        self.sections = sections
        self.memory = memory
        self.calls = calls
        self.options = options
        self.at = datetime.datetime.now(datetime.timezone.utc)

    def outcomes(self):
        """Every bar, in the order of the tables."""
        found = [outcome for row in self.measured for outcome in row.outcomes()]
        if peers.Maitred in self.calls:
            count = sum(self.calls[peers.Maitred].values())
            most = rows.SYSTEM_CALLS_MOST
            found.append(
                Outcome("System calls per hello.php in the worker", "", f"≤ {most}",
                        count, f"{count:.2f}", count <= most)
            )
        if peers.Maitred in self.memory:
            pairs = zip(self.memory[peers.Maitred], self.memory[peers.NginxFpm])
            states = ("never served", "after hello.php")
            for state, (ours, theirs) in zip(states, pairs):
                ratio = ours / theirs
                found.append(
                    Outcome(f"Private memory per idle worker, {state}", peers.NginxFpm.name,
                            f"≤ {rows.IDLE_MEMORY_RATIO:g}",
                            ratio, f"{ratio:.2f} ({ours:.0f} : {theirs:.0f} KiB)",
                            ratio <= rows.IDLE_MEMORY_RATIO)
                )
        return found + [outcome for section in self.sections for outcome in section.outcomes]

    def holds(self):
        """Whether every bar is reached."""
        return all(outcome.holds for outcome in self.outcomes())

    def verdict(self):
        """One line."""
        outcomes = self.outcomes()
        if not outcomes:
            return "bench: the peers were measured; no bar without maitred"
        reached = sum(outcome.holds for outcome in outcomes)
        word = "PASSED" if reached == len(outcomes) else "FAILED"
        return f"bench: {word}: {reached} of {len(outcomes)} bars reached"

    def bars_table(self):
        """The bars as Markdown."""
        if not self.outcomes():
            return "None was measured."
        lines = [
            "| work | against | bar | measured (by round) | |",
            "| --- | --- | --- | --- | --- |",
        ]
        return "\n".join(lines + [outcome.line() for outcome in self.outcomes()])

    def figures_table(self):
        """Every figure as Markdown."""
        if not self.measured:
            return "None were asked for."
        lines = [
            "| work, connections | server | CPU µs per request | requests/s | p50 ms | p99 ms "
            "| not 2xx | socket errors |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        return "\n".join(lines + [line for row in self.measured for line in row.lines()])

    def workers_table(self):
        """Memory and system calls as Markdown."""
        if not self.memory and not self.calls:
            return "None were asked for."
        lines = [
            "| server | private memory per idle worker, KiB | after hello.php, KiB "
            "| system calls per hello.php in the worker |",
            "| --- | --- | --- | --- |",
        ]
        for kind in dict.fromkeys([*self.memory, *self.calls]):
            fresh, served = self.memory.get(kind, ("", ""))
            calls = self.calls.get(kind, {})
            often = sorted(calls.items(), key=lambda item: -item[1])
            named = ", ".join(f"{name} {each:.2f}" for name, each in often if each >= 0.01)
            total = f"{sum(calls.values()):.2f}: {named}" if calls else ""
            lines.append(f"| {kind.name} | {fresh} | {served} | {total} |")
        return "\n".join(lines)

    def as_json(self):
        """Everything, for programs."""
        return {
            "at": self.at.isoformat(),
            "commit": commit(),
            "command": command(),
            "machine": machine(),
            "versions": peers.versions(),
            "rows": [row.as_json() for row in self.measured],
            "pools": [section.as_json() for section in self.sections],
            "idle_private_kib": {kind.name: pair for kind, pair in self.memory.items()},
            "system_calls": {kind.name: calls for kind, calls in self.calls.items()},
            "bars": [dataclasses.asdict(outcome) for outcome in self.outcomes()],
        }

    def markdown(self):
        """The page."""
        versions = ", ".join(f"{name} {number}" for name, number in peers.versions().items())
        return f"""# Benchmarks

Measured by `{command()}` at {self.at:%Y-%m-%d %H:%M} UTC, commit {commit()}.
Machine: {machine()}. {versions}.

Each server has {self.options.workers} PHP workers, except Apache, whose prefork model needs a
process with PHP in it for every connection ({peers.ApacheModPhp.max_connections + 8}); nginx has
{peers.NGINX_WORKERS} worker processes. All use php-fpm's php.ini, with OPcache, without access logs
and compression, on loopback. wrk runs with one thread on the same machine. CPU is that of all
processes of the server, children that have ended included, per answered request. Figures are
medians of {self.options.rounds} rounds of {self.options.seconds} s (WordPress: three times as
long), taken in turn, with the least and the most. {self.foreign()}

## What must be reached

A ratio is maitred's median divided by the peer's; beside it, the least and most of the rounds.

{self.bars_table()}

## Figures

{self.figures_table()}

## Workers

Private memory is `Private_*` of smaps_rollup, the median of the workers. System calls were counted
by strace over {inspect_workers.TRACED_REQUESTS} requests, one after the other on one connection.

{self.workers_table()}

## Pools

{self.pools_text()}
"""

    def pools_text(self):
        """The measurements of pools as Markdown."""
        if not self.sections:
            return "None were asked for."
        return "\n".join(section.markdown() for section in self.sections).rstrip()

    def foreign(self):
        """A sentence on what else the machine was doing."""
        shares = [
            sample.foreign_share
            for row in self.measured for each in row.samples.values() for sample in each
        ]
        shares += [share for section in self.sections for share in foreign_shares(section.samples)]
        if not shares:
            return ""
        most = max(shares)
        text = f"Other programs took at most {most:.0%} of the machine during a run."
        return f"**{text}**" if most > FOREIGN_SHARE_WORTH_SAYING else text


def foreign_shares(samples):
    """Every `foreign_share` in samples of any shape."""
    if isinstance(samples, dict):
        own = [samples["foreign_share"]] if "foreign_share" in samples else []
        return own + foreign_shares(list(samples.values()))
    if isinstance(samples, list):
        return [share for each in samples for share in foreign_shares(each)]
    return []


def samples_as_json(samples):
    """Samples by server and state, for programs."""
    return {
        f"{name}, {which}": [dataclasses.asdict(sample) for sample in each]
        for (name, which), each in samples.items()
    }


def say(line):
    """Progress, at once."""
    print(line, file=sys.stderr, flush=True)


def command():
    """The command that gives this page again."""
    flags = " ".join(sys.argv[1:])
    return f'make bench ARGS="{flags}"' if flags else "make bench"


def machine():
    """Processor, cores, kernel and distribution."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    model = models[0] if models else platform.machine()
    system = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, {system}"


def commit():
    """The commit that was measured, and whether the tree differs from it."""

    def git(*words):
        done = subprocess.run(
            ["git", "-C", os.path.dirname(__file__), *words],
            capture_output=True, text=True, check=False,
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    name = git("rev-parse", "--short=12", "HEAD")
    if not name:
        return "none"
    return name + (" with changes" if git("status", "--porcelain") else "")


def write(results, here):
    """Writes bench/results/DATE.json and .md, and docs/benchmarks.md after a whole run."""
    directory = os.path.join(here, "results")
    os.makedirs(directory, exist_ok=True)
    name = os.path.join(directory, results.at.strftime("%Y-%m-%dT%H%M%SZ"))
    with open(name + ".json", "w", encoding="utf-8") as file:
        json.dump(results.as_json(), file, indent=1)
    pages = [name + ".md"]
    options = results.options
    partial = options.quick or options.only or options.peers_only or options.no_wordpress
    if not partial:
        docs = os.path.join(here, "..", "docs")
        os.makedirs(docs, exist_ok=True)
        pages.append(os.path.join(docs, "benchmarks.md"))
    for page in pages:
        with open(page, "w", encoding="utf-8") as file:
            file.write(results.markdown())
        print(f"Written: {os.path.relpath(page)}", file=sys.stderr)
