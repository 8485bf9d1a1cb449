"""docs/experiments.md and its charts, made of what results hold and of nothing else."""

import glob
import os
import re
import textwrap

from experiment import Column
import chart
import records
import servers

WIDTH = 110
FOREIGN_WORTH_SAYING = 0.10
SIZE = Column("size", "how auto decided")
INTRODUCTION = """# The tuning articles' experiments, rerun

<!-- Made of experiments/results by `make experiments`; change the experiments, not this page. -->

Five articles, much read, say how many PHP workers to have and how to set php-fpm, nginx and Apache.
These are their experiments again, on one machine and side by side: maitred, nginx with php-fpm, Apache's
prefork model with mod_php, and its event model with php-fpm; each with the article's settings and with
Debian's defaults; maitred with `pm = "auto"`, which is its default, and with two workers per processor, which
were its default before. What the rules of the articles have become here is in [rules.md](rules.md).

How to read it: loads and pools are sized for a machine of two cores. Figures are medians of the rounds, with
the least and the most where there was more than one. In a round every server
is restarted, and the next round goes the other way round. Load comes from `maitred bench` on the same machine,
unless said otherwise; latencies run from when a request was due. «Served» are answers of status 200 with the
right body; 503 and 429 are «refused», other 5xx and broken answers «failed», those that did not come in time
«timed out», all others «wrong». «CPU ms per served» is processor time of all processes of the
server (without the database's) by answers served. It depends least on what else the machine does; rates and
p99 depend most.
"""


def path_of(results, experiment):
    """Where an experiment's results are kept."""
    return os.path.join(results, f"{experiment.id}.json")


def kept(catalogue, results):
    """`[(experiment, records)]` of those that have been measured."""
    return [
        (each, records.Records.read(path_of(results, each)))
        for each in catalogue
        if os.path.exists(path_of(results, each))
    ]


def make(catalogue, results):
    """`{path below docs: text}`."""
    measured = kept(catalogue, results)
    files, sections = {}, []
    for each, found in measured:
        charts = each.charts(found)
        for name, svg in charts:
            files[f"experiments/{name}.svg"] = chart.noted(svg, sizes(found))
        sections.append(section(each, found, [name for name, _ in charts]))
    files["experiments.md"] = "\n".join(
        [INTRODUCTION, machines(measured), questions(measured), *sections]
    )
    return files


def sizes(found):
    """Of what machine and how many rounds figures are, and whether they have a spread."""
    head = found.head
    cores = re.search(r"\b(\d+) cores\b", head["machine"])
    said = [f"{cores.group(1)} cores"] if cores else []
    rounds, seconds = head["rounds"], head["seconds"]
    if rounds == 1:
        said.append(f"one round of {seconds} s: no spread is known")
    else:
        said.append(f"{rounds} rounds of {seconds} s: the middle, from the least to the most")
    return "; ".join(said)


def machines(measured):
    """On what all this was measured, each machine once."""
    said = {}
    for each, found in measured:
        head = found.head
        said.setdefault((head["machine"], head["versions"]), []).append(each.id)
    lines = [
        f"{', '.join(ids) if len(said) > 1 else 'All'}: {machine}. {versions}."
        for (machine, versions), ids in said.items()
    ]
    return "\n".join(fill(line) for line in lines) + "\n"


def questions(measured):
    """What readers of the articles want to know, and where the figures are."""
    lines = ["## In short", "", "| question | measured | |", "| --- | --- | --- |"]
    for each, found in measured:
        if each.question:
            link = f"[{each.id}](#{anchor(each)})"
            lines.append(f"| {each.question} | {each.answer(found)} | {link} |")
    return "\n".join(lines) + "\n"


def heading(experiment):
    """An experiment's heading."""
    return f"{experiment.id}: {experiment.title}"


def anchor(experiment):
    """As Markdown on GitHub makes it of the heading."""
    kept_signs = (sign for sign in heading(experiment).lower() if sign.isalnum() or sign in " -_")
    return "".join(kept_signs).replace(" ", "-")


def section(experiment, found, charts):
    """One experiment."""
    head = found.head
    parts = [f"## {heading(experiment)}", ""]
    if experiment.source:
        parts += [fill(f"**The article** ({experiment.source}). {experiment.concluded}"), ""]
    parts += [fill(f"**Here.** {experiment.how}"), ""]
    parts += [
        fill(
            f"`{head['command']}` at {head['at']}, commit {head['commit']}; {sizes(found)}."
            f" {foreign(found)}"
        ),
        "",
    ]
    parts += ["**Measured.**", ""]
    parts += [f"- {line}" for line in experiment.findings(found)] + [""]
    verdict = experiment.verdict(found)
    parts += [fill(f"**Judged.** {verdict}"), ""] if verdict else []
    for name in charts:
        parts += [f"![{name}](experiments/{name}.svg)", ""]
    return "\n".join(parts + [table(experiment, found)])


def foreign(found):
    """A sentence on what else the machine was doing."""
    shares = sorted(found.foreign())
    if not shares:
        return ""
    middle, most = shares[len(shares) // 2], shares[-1]
    if found.head.get("first"):
        return (
            "The run came before all other programs (`--first`), which took what it left:"
            f" {middle:.0%} of the machine in the middle, at most {most:.0%}."
        )
    said = f"Other programs took {middle:.0%} of the machine in the middle, at most {most:.0%}."
    return f"**{said}**" if most > FOREIGN_WORTH_SAYING else said


def table(experiment, found):
    """Every figure."""
    columns = [*experiment.columns, SIZE]
    columns = [c for c in columns if any(found.values(key, c.name) for key in found.rows())]
    heads = ["load", "server", "setting", *(column.heading for column in columns)]
    lines = ["| " + " | ".join(heads) + " |", "| " + " | ".join("---" for _ in heads) + " |"]
    for server, setting, load in found.rows():
        key = (server, setting, load)
        cells = [load, servers.NAMES[server], setting]
        cells += [records.spread(found.values(key, each.name), each.form) for each in columns]
        lines.append("| " + " | ".join(cells) + " |")
        for problem in dict.fromkeys(found.problems(key)):
            words = " ".join(problem.split()).replace("|", "/")
            lines.append(
                f"| {load} | {servers.NAMES[server]} | {setting} | not measured: {words} |"
            )
    return "\n".join(lines) + "\n"


def fill(words):
    """A paragraph in lines."""
    return textwrap.fill(
        " ".join(words.split()), WIDTH, break_long_words=False, break_on_hyphens=False
    )


def write(files, docs):
    """Writes the page and its charts, and takes away charts that are in it no more."""
    os.makedirs(os.path.join(docs, "experiments"), exist_ok=True)
    for path in glob.glob(os.path.join(docs, "experiments", "*.svg")):
        if os.path.relpath(path, docs) not in files:
            os.remove(path)
    for name, words in files.items():
        with open(os.path.join(docs, name), "w", encoding="utf-8") as file:
            file.write(words)


def differing(files, docs):
    """The names of those that are not as the results have them."""

    def there(name):
        try:
            with open(os.path.join(docs, name), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return None

    found = glob.glob(os.path.join(docs, "experiments", "*.svg"))
    stale = {os.path.relpath(path, docs) for path in found} - set(files)
    return sorted(stale | {name for name, words in files.items() if there(name) != words})
