"""What a comparison found, on the terminal, in files, and as a page."""

import dataclasses
import datetime
import glob
import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "results")
PAGE = os.path.join(HERE, "..", "docs", "guide", "tested-applications.md")
MOST_SHOWN = 40


@dataclasses.dataclass
class Part:
    """The comparison with one peer."""

    peer: str
    counts: dict = dataclasses.field(default_factory=dict)
    found: list = dataclasses.field(default_factory=list)
    statuses: list = dataclasses.field(default_factory=list)

    def add(self, kind, count, found):
        """Adds the requests of a kind, and what differs."""
        self.counts[kind] = count
        self.found += found


@dataclasses.dataclass
class Row:
    """An application."""

    key: str
    version: str
    parts: list = dataclasses.field(default_factory=list)
    failed: str = ""

    def differs(self):
        """Whether something differs, or nothing was compared."""
        return bool(self.failed) or any(part.found for part in self.parts)


def show(row):
    """Prints a row with all that differs."""
    if row.failed:
        print(f"{row.key} {row.version}: not compared: {row.failed}", flush=True)
    for part in row.parts:
        counts = ", ".join(f"{kind} {count}" for kind, count in part.counts.items())
        statuses = "".join(f"{status // 100}" for status in part.statuses)
        print(
            f"{row.key} {row.version} beside {part.peer}: {counts}; {len(part.found)} differ; "
            f"use {statuses}",
            flush=True,
        )
        for label, text in part.found[:MOST_SHOWN]:
            print(f"    {label}: {text}", flush=True)


def store(row):
    """Writes a row for the page."""
    os.makedirs(FOLDER, exist_ok=True)
    shown = dataclasses.asdict(row)
    for part in shown["parts"]:
        del part["statuses"]
    shown["at"] = datetime.date.today().isoformat()
    with open(os.path.join(FOLDER, f"{row.key}.json"), "w", encoding="utf-8") as file:
        json.dump(shown, file, indent=1)
        file.write("\n")


HEAD = """# Tested applications

<!-- Made by `make applications ARGS=--page` from applications/results; change applications/results.py. -->

`make applications` installs these applications as the distribution packages them, and compares maitred
with two peers before the same files and data:

- **nginx + php-fpm**, with the configuration that `maitred import` has read for maitred;
- **Apache + mod_php** with `AllowOverride All`, beside `htaccess = true`. The `.htaccess` files are the
  application's own; where the distribution has moved their lines into Apache's configuration, they
  are in files again.

Pages and assets that a crawler finds are requested with GET and HEAD, compressed, with conditions and ranges. A
person installs or configures the application, logs in, uses forms, uploads files of several sizes, downloads, and
logs out. Paths that the application's `.htaccess` files close are requested in 34 spellings each: encodings, case,
dots, slashes, path info. Status, headers and body are compared; what differs between two responses of the peer itself
is left out, and so is what [Differences from nginx + php-fpm](differences.md) and [From Apache](from-apache.md) name.

| application | version | beside nginx + php-fpm | differ | beside Apache | differ |
| --- | --- | --- | --- | --- | --- |
"""


def write_page():
    """Writes the page of all stored rows."""
    rows = []
    for path in glob.glob(os.path.join(FOLDER, "*.json")):
        with open(path, encoding="utf-8") as file:
            rows.append(json.load(file))
    rows.sort(key=lambda row: row["key"])
    lines = [table_line(row) for row in rows]
    total = sum(sum(part["counts"].values()) for row in rows for part in row["parts"])
    differ = sum(len(part["found"]) for row in rows for part in row["parts"])
    end = f"\n{len(rows)} applications, {total} comparisons, {differ} of them with a difference that no page names"
    end += ".\n" if not differ else ":\n\n" + "".join(map(difference_lines, rows))
    with open(PAGE, "w", encoding="utf-8") as page:
        page.write(HEAD + "".join(lines) + end)


def table_line(row):
    """The line of an application in the table."""
    cells = [row["key"], row["version"]]
    for name in ("nginx", "apache"):
        part = next((part for part in row["parts"] if part["peer"] == name), None)
        cells.append(str(sum(part["counts"].values())) if part else row["failed"] or "not compared")
        cells.append(str(len(part["found"])) if part else "")
    return "| " + " | ".join(cells) + " |\n"


def difference_lines(row):
    """What differs for an application, as a list."""
    lines = []
    for part in row["parts"]:
        for label, text in part["found"]:
            lines.append(
                f"- {row['key']} beside {part['peer']}: `{label}`: `{text}`\n".replace("``", "` `")
            )
    return "".join(lines)
