"""What was measured: samples, kept as JSON, and their medians and spread."""

import json
import os
import statistics

SCHEMA = "maitred-experiment/1"


class Records:
    """The samples of one experiment, and when, where and how they came about."""

    def __init__(self, head, samples):
        self.head = head
        self.samples = samples

    @classmethod
    def read(cls, path):
        """What an earlier run has left."""
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
        if kept.get("schema") != SCHEMA:
            raise ValueError(f"{path} is no {SCHEMA}; measure again")
        return cls(kept["head"], kept["samples"])

    def write(self, path):
        """Keeps it, as one step; a sample is a line, so that changes can be read."""
        lines = ",\n".join("  " + json.dumps(rounded(sample)) for sample in self.samples)
        head = json.dumps(self.head, indent=1)
        text = f'{{"schema": "{SCHEMA}",\n"head": {head},\n"samples": [\n{lines}\n]}}\n'
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(path + ".new", path)

    def rows(self):
        """(server, setting, load) of all samples, in their order, each once."""
        keys = ((s["server"], s["setting"], s["load"]) for s in self.samples)
        return sorted(dict.fromkeys(keys), key=lambda key: self.loads().index(key[2]))

    def loads(self):
        """All loads, in their order."""
        return list(dict.fromkeys(sample["load"] for sample in self.samples))

    def values(self, key, name):
        """One figure of all rounds; those that do not have it are left out."""
        server, setting, load = key
        return [
            sample["figures"][name]
            for sample in self.samples
            if (sample["server"], sample["setting"]) == (server, setting)
            and (load is None or sample["load"] == load)
            and sample["figures"].get(name) is not None
        ]

    def median(self, server, setting, name, load=None):
        """The median of one figure; None if there is none."""
        values = self.values((server, setting, load), name)
        return statistics.median(values) if values else None

    def problems(self, key):
        """What kept a server from being measured."""
        server, setting, load = key
        return [
            sample["problem"]
            for sample in self.samples
            if (sample["server"], sample["setting"], sample["load"]) == (server, setting, load)
            and "problem" in sample
        ]

    def foreign(self):
        """The shares of the machine that other programs took during a sample."""
        found = [sample["figures"].get("foreign") for sample in self.samples]
        return [share for share in found if share is not None]


def rounded(value):
    """A value with five digits at most, in all its parts."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    return value


def shown(value, form=".3g"):
    """A figure as people read it."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    text = f"{value:{form}}"
    return f"{float(text):.0f}" if "e+" in text else text


def spread(values, form):
    """`median (least–most)`, or the one value there is."""
    if not values:
        return "–"
    if isinstance(values[0], str):
        return " / ".join(dict.fromkeys(values))
    middle = shown(statistics.median(values), form)
    least, most = shown(min(values), form), shown(max(values), form)
    return middle if least == most else f"{middle} ({least}–{most})"
