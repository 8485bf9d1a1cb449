"""What every experiment is: who is compared, how that is measured, and what is said of it."""

import dataclasses

import asking
import chart
import load
import servers

PATIENCE = "10s"



@dataclasses.dataclass(frozen=True)
class Arm:
    """One server with one setting."""

    server: str  # a key of servers.KINDS
    setting: servers.Setting
    marker: str = "a choice"  # "default", "article" or "auto", or how else the setting came about

    @property
    def label(self):
        """As charts name it."""
        return f"{servers.NAMES[self.server]}, {self.setting.name}"


@dataclasses.dataclass(frozen=True)
class Column:
    """A figure of the table."""

    name: str
    heading: str
    form: str = ".3g"


SERVED = Column("rate", "served/s", ".3g")
P50 = Column("p50_ms", "p50 ms", ".3g")
P95 = Column("p95_ms", "p95 ms", ".3g")
P99 = Column("p99_ms", "p99 ms", ".3g")
CPU = Column("cpu_ms", "CPU ms per served", ".3g")
WORKERS = Column("workers", "most workers", ".0f")
REFUSED = Column("refused", "refused", ".0f")
FAILED = Column("failed", "failed", ".0f")
TIMED_OUT = Column("timed_out", "timed out", ".0f")
WRONG = Column("wrong", "wrong", ".0f")
FATES = (REFUSED, FAILED, TIMED_OUT, WRONG)


class Experiment:
    """One experiment; those of the articles say what the article concluded."""

    id = ""
    title = ""
    source = ""  # the article
    concluded = ""  # by the article
    how = ""  # what was done here, and how it was sized
    question = ""  # a reader's, that `answer` answers
    columns = ()
    shortest = 1.0  # times the run's seconds that a measurement lasts

    def arms(self):
        """Who is compared."""
        raise NotImplementedError

    def measure(self, lab):
        """Yields samples."""
        for turn, arm in lab.turns(self.arms()):
            yield from lab.guarded(self, arm, turn, lambda arm=arm: self.measure_arm(lab, arm))

    def measure_arm(self, lab, arm):
        """Yields `(load, figures)` of one arm."""
        raise NotImplementedError

    def seconds(self, lab):
        """How long one measurement lasts."""
        return max(1, round(lab.options.seconds * self.shortest))

    def charts(self, records):
        """`[(name, svg)]`."""
        return []

    def findings(self, records):
        """Sentences made of the figures."""
        return []

    def verdict(self, records):
        """Where the article was right or wrong, by the figures; nothing without them."""
        return ""

    def answer(self, records):
        """One sentence that answers the question."""
        return self.findings(records)[0]

    def settings(self):
        """`{(server, setting): arm}`."""
        return {(arm.server, arm.setting.name): arm for arm in self.arms()}

    def bar_chart(self, records, name, title, unit, figure, some=None):
        """A chart of one figure of all arms under one load."""
        rows = [
            (
                f"{servers.NAMES[server]}, {setting}",
                chart.COLOURS[server],
                records.values((server, setting, which), figure),
            )
            for server, setting, which in records.rows()
            if some in (None, which)
        ]
        return name, chart.bars(title, unit, rows)


def checked(server, path, contains=None):
    """Refuses a server that does not answer right."""
    status, _, body, _ = load.fetch(server.port, load.Load(path, 1, keep_alive=False))
    if status != 200 or (contains is not None and contains.encode() not in body):
        begin = body[:80]
        raise load.WrongAnswer(f"{server.name}: {path} has status {status}, and begins {begin!r}")


def closed(server, path, users, seconds, contains, *more, warm_up=1, patience=PATIENCE):
    """Users who ask again as soon as they have their answer."""
    return asking.ask(
        server,
        asking.url(server, path),
        "--users",
        users,
        "--duration",
        f"{seconds}s",
        "--warm-up",
        f"{warm_up}s",
        "--contains",
        contains,
        "--timeout",
        patience,
        *more,
    )


def opened(server, path, rate, seconds, contains, *more, warm_up=1):
    """Requests that come whatever has become of those before."""
    return asking.ask(
        server,
        asking.url(server, path),
        "--rate",
        rate,
        "--duration",
        f"{seconds}s",
        "--warm-up",
        f"{warm_up}s",
        "--contains",
        contains,
        *more,
    )


def known(*figures):
    """Whether all of some figures were measured."""
    return None not in figures


def times(a, b):
    """How many times b is a, in words; a dash where either is unknown."""
    return "–" if not a or not b else f"{a / b:.2f}"
