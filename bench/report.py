"""Samples into tables: medians, spread, ratios, and whether each bar is reached."""

import dataclasses
import datetime
import json
import math
import os
import platform
import shlex
import statistics
import subprocess
import sys

import bench_page
import peers
import rows

# Above this share of the machine's CPU time spent by others, a figure is worth a second look.
FOREIGN_SHARE_WORTH_SAYING = 0.10
FIELDS = {rows.RATE: "per_second", rows.CPU: "cpu_us", rows.BOTH: "both_us"}


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

    def cells(self):
        """A row of the table of bars."""
        word = "PASS" if self.holds else "FAIL"
        return [self.title, self.against, self.wanted, self.measured, word]

    def line(self):
        """The same for the terminal."""
        return f"| {' | '.join(self.cells())} |"


@dataclasses.dataclass(frozen=True)
class Section:
    """One measurement of pools: how it was made, its figures, and its bars."""

    title: str
    text: str
    columns: tuple
    lines: list  # of as many texts as there are columns
    outcomes: list
    samples: dict  # for programs
    is_measured: bool = True

    @classmethod
    def failed(cls, title, problem):
        """A measurement that came to no end."""
        outcome = Outcome(title, "", "to be measured", 0, str(problem), False)
        return cls(title, f"Not measured: {problem}", (), [], [outcome], {}, False)

    def part(self):
        """What the page has of it."""
        shown = {"text": self.text, "columns": self.columns, "lines": self.lines}
        return {"bars": [each.cells() for each in self.outcomes], "figures": [], "section": shown}

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

    def part(self):
        """What the page has of it."""
        figures = [
            [self.row.title, kind.name, spread(samples, "cpu_us", ".1f"),
             spread(samples, "per_second", ".0f"), f"{median(samples, 'p50_ms'):.2f}",
             f"{median(samples, 'p99_ms'):.2f}", sum(s.not_2xx for s in samples),
             sum(s.socket_errors for s in samples)]
            for kind, samples in self.samples.items()
        ]
        bars = [each.cells() for each in self.outcomes()]
        return {"bars": bars, "figures": figures, "section": None}

    def outcomes(self):
        """The row's bars; none without maitred. An error of maitred's fails them all."""
        ours = self.samples.get(peers.Maitred)
        if ours is None:
            return []
        failed = sum(sample.errors for sample in ours)
        return [self.outcome(bar, ours, self.samples[bar.peer], failed) for bar in self.row.bars]

    def outcome(self, bar, ours, theirs, failed):
        """One bar."""
        field = FIELDS[bar.measure]
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

    def __init__(self, measured, sections, options):
        self.measured = measured
        self.sections = sections
        self.options = options
        self.at = datetime.datetime.now(datetime.timezone.utc)

    def outcomes(self):
        """Every bar, in the order of the tables."""
        found = [outcome for row in self.measured for outcome in row.outcomes()]
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

    def parts(self, failed=True):
        """What the page has of it, by title; with what came to no end, or without."""
        sections = [each for each in self.sections if failed or each.is_measured]
        rows_parts = {each.row.title: each.part() for each in self.measured}
        return rows_parts | {section.title: section.part() for section in sections}

    def run(self):
        """When and how it was measured."""
        return {
            "at": self.at.isoformat(timespec="seconds"),
            "commit": commit(),
            "command": command(),
            "machine": machine(),
            "versions": ", ".join(f"{name} {number}" for name, number in peers.versions().items()),
            "rounds": self.options.rounds,
            "seconds": self.options.seconds,
            "workers": self.options.workers,
            "foreign": self.foreign(),
        }

    def as_json(self):
        """Everything, for programs."""
        return {
            **self.run(),
            "rows": [row.as_json() for row in self.measured],
            "sections": [section.as_json() for section in self.sections],
            "bars": [dataclasses.asdict(outcome) for outcome in self.outcomes()],
        }

    def foreign(self):
        """The largest share of the machine that other programs took during a sample."""
        shares = [
            sample.foreign_share
            for row in self.measured for each in row.samples.values() for sample in each
        ]
        shares += [share for section in self.sections for share in foreign_shares(section.samples)]
        if not shares:
            return ""
        most = max(shares)
        return f"**{most:.0%}**" if most > FOREIGN_SHARE_WORTH_SAYING else f"{most:.0%}"


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
    flags = shlex.join(sys.argv[1:])
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


def write(results, titles, here):
    """Writes bench/results/DATE.json and .md, and docs/benchmarks.md after a whole run, or with --page."""
    directory = os.path.join(here, "results")
    os.makedirs(directory, exist_ok=True)
    name = os.path.join(directory, results.at.strftime("%Y-%m-%dT%H%M%SZ"))
    with open(name + ".samples.json", "w", encoding="utf-8") as file:
        json.dump(results.as_json(), file, indent=1)
    options = results.options
    docs = os.path.join(here, "..", "docs", "benchmarks")
    pages = [(name, bench_page.Page())]
    if options.page:
        pages.append((docs, bench_page.Page.read(docs + ".json")))
    elif not (options.quick or options.only or options.peers_only or options.no_wordpress):
        pages.append((docs, bench_page.Page()))
    for path, each in pages:
        # A renewed page keeps what it had where nothing came of it this time.
        each.take(results.run(), results.parts(failed=not each.parts))
        each.keep(titles)
        each.write(path)
        print(f"Written: {os.path.relpath(path)}.md", file=sys.stderr)
