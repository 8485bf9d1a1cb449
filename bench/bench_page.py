"""The page: of every row and measurement the newest figures, each with the run that they are from.

A whole run takes more than an hour. What the page is made of lies beside it as JSON, so that a run of some
rows (`--only`) can renew those, and the page says of each row which run measured it, and on which commit.
"""

import json
import os
import textwrap

import peers

WIDTH = 100
INTRODUCTION = """Each server has as many PHP workers as the run had (table below), except Apache, whose
prefork model needs a process with PHP in it for every connection ({apache}); nginx has {nginx} worker
processes. All use php-fpm's php.ini, with OPcache, without access logs and compression, on loopback. wrk
runs with one thread on the same machine. CPU is that of all processes of the server, children that have
ended included, per answered request. Figures are medians of the rounds (WordPress: each three times as
long), taken in turn, with the least and the most."""
BARS = ("work", "against", "bar", "measured (by round)", "", "run")
FIGURES = ("work, connections", "server", "CPU µs per request", "requests/s", "p50 ms", "p99 ms",
           "not 2xx", "socket errors", "run")
RUNS = ("run", "at (UTC)", "commit", "machine", "rounds", "workers", "others took at most", "command")


def filled(text):
    """A paragraph in lines."""
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)


def table(columns, lines):
    """A Markdown table."""
    every = [columns, ["---"] * len(columns), *lines]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in every)


class Page:
    """Parts by title (a row's, or a measurement's), and the runs that they are from."""

    def __init__(self, runs=None, parts=None):
        self.runs = runs or {}  # by the time they ended at
        self.parts = parts or {}

    @classmethod
    def read(cls, path):
        """What an earlier page was made of; an empty one where there is none."""
        if not os.path.exists(path):
            return cls()
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
        return cls(kept["runs"], kept["parts"])

    def take(self, run, parts):
        """Puts the parts of a run in the place of earlier ones of the same titles."""
        self.runs[run["at"]] = run
        for title, part in parts.items():
            self.parts[title] = {"run": run["at"], **part}

    def keep(self, titles):
        """Leaves out what is measured no more, and puts the rest in the order of the titles."""
        self.parts = {title: self.parts[title] for title in titles if title in self.parts}
        named = {part["run"] for part in self.parts.values()}
        self.runs = {at: self.runs[at] for at in sorted(named)}

    def markdown(self):
        """The page."""
        numbers = {at: number for number, at in enumerate(self.runs, 1)}
        introduction = INTRODUCTION.format(
            apache=peers.ApacheModPhp.max_connections + 8, nginx=peers.NGINX_WORKERS
        )
        versions = next(reversed(self.runs.values()))["versions"]
        sections = [
            section_text(title, part["section"], numbers[part["run"]])
            for title, part in self.parts.items() if part["section"]
        ]
        return f"""# Benchmarks

Written by `make bench`. {versions}.

{filled(introduction)}

## Runs

{table(RUNS, [run_cells(numbers[at], run) for at, run in self.runs.items()])}

## What must be reached

A ratio is maitred's median divided by the peer's; beside it, the least and most of the rounds.

{self.lines("bars", BARS, numbers)}

## Figures

{self.lines("figures", FIGURES, numbers)}

## Measurements of their own

{chr(10).join(sections).rstrip() or "None were asked for."}
"""

    def lines(self, kind, columns, numbers):
        """The table of the bars, or of the figures, of all parts."""
        found = [
            [*cells, numbers[part["run"]]] for part in self.parts.values() for cells in part[kind]
        ]
        return table(columns, found) if found else "None were asked for."

    def write(self, name):
        """Writes NAME.md, and NAME.json for the next run."""
        with open(name + ".md", "w", encoding="utf-8") as file:
            file.write(self.markdown())
        with open(name + ".json", "w", encoding="utf-8") as file:
            json.dump({"runs": self.runs, "parts": self.parts}, file, indent=1, ensure_ascii=False)
            file.write("\n")


def run_cells(number, run):
    """A run's line in the table of runs."""
    rounds = f"{run['rounds']} of {run['seconds']} s"
    at = run["at"][:16].replace("T", " ")
    return (number, at, run["commit"], run["machine"], rounds, run["workers"], run["foreign"],
            f"`{run['command']}`")


def section_text(title, section, number):
    """A measurement's own part of the page."""
    text = f"### {title}\n\n{filled(section['text'] + f' (Run {number}.)')}\n"
    if section["columns"]:
        text += "\n" + table(section["columns"], section["lines"]) + "\n"
    return text
