"""Whether what maitred says of a request's time is so, and what it costs to know it."""

import asyncio
import dataclasses
import re
import statistics

import load
import managed
import report
import rows

CPU_TITLE = "Processor time of a script that computes 5 ms"
SLEEP_TITLE = "Where the time of a script that sleeps 100 ms goes"
COST_TITLE = "What request accounting costs"

COMPUTES_MS = 5
COMPUTING = 200  # scripts of each length
CPU_RATIO = 1.03

SLEEPS_MS = 100
SLEEPING = 50
SLEEP_RATIO = 1.02

COST_RATIO = 1.05
# What is to be seen is less than what rounds differ by.
TURNS_A_ROUND = 4


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one request has cost, in ms: by maitred, and by its worker's own count."""

    c: float
    r: float
    b: float
    pid: int = 0
    began: float = 0  # what the worker had used at the script's first line
    ended: float = 0  # and at its last


async def ask(port, target):
    """One answer: where its time went, which maitred alone says, and its body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {target} HTTP/1.0\r\n\r\n".encode())
    answer = (await reader.read()).decode("latin-1")
    writer.close()
    names = r"cpu;dur=([\d.]+), core_wait;dur=([\d.]+), blocked;dur=([\d.]+)"
    told = re.search(rf"(?i)^server-timing: .*{names}", answer, re.MULTILINE)
    times = map(float, told.groups()) if told else (0, 0, 0)
    return tuple(times), answer.partition("\r\n\r\n")[2]


async def computed(port, milliseconds):
    """What a script has cost that computes so long."""
    times, body = await ask(port, f"/own.php?ms={milliseconds}")
    pid, began, ended = map(int, body.split())
    return Cost(*times, pid, began / 1e3, ended / 1e3)


@dataclasses.dataclass(frozen=True)
class Computed:
    """Scripts of which some compute for COMPUTES_MS, others for twice that."""

    short: list
    long: list

    def median(self, name):
        """One figure of the short ones."""
        return report.median(self.short, name)

    def longer(self):
        """What twice the work adds to C."""
        return report.median(self.long, "c") - self.median("c")

    def own(self):
        """What a short script has counted."""
        return statistics.median(cost.ended - cost.began for cost in self.short)

    def pairs(self):
        """Each script with the next of the same worker."""
        key = lambda cost: (cost.pid, cost.began)
        in_order = sorted(self.short + self.long, key=key)
        return [(a, b) for a, b in zip(in_order, in_order[1:]) if a.pid == b.pid]

    def between(self):
        """What a worker uses from the last line of a script to the first of the next."""
        return statistics.median(b.began - a.ended for a, b in self.pairs())

    def all_of_c(self):
        """All C, beside what the workers have used."""
        pairs = self.pairs()
        return sum(b.c for _, b in pairs) / sum(b.ended - a.ended for a, b in pairs)


async def compute(port, at_once):
    """Asks for scripts that compute, so many at a time."""
    found = {COMPUTES_MS: [], 2 * COMPUTES_MS: []}
    for _ in range(COMPUTING // at_once):
        for milliseconds, each in found.items():
            each += await asyncio.gather(*(computed(port, milliseconds) for _ in range(at_once)))
    return Computed(*found.values())


def bar(title, against, measured, ratio, most):
    """What is to be as near to the truth as that."""
    wanted = f"within {(most - 1) * 100:.0f} %"
    return report.Outcome(title, against, wanted, ratio, measured, 1 / most <= ratio <= most)


def cpu_bars(at_once, found):
    """What has to hold of so many scripts at a time."""
    title = f"scripts that compute, {at_once} at a time"
    longer, ratio = found.longer(), found.all_of_c()
    return [
        bar(f"{title}: what {COMPUTES_MS} ms more add to C", f"{COMPUTES_MS} ms",
            f"{longer:.3f} ms", longer / COMPUTES_MS, CPU_RATIO),
        bar(f"{title}: all of C", "getrusage", f"{ratio:.4f}", ratio, CPU_RATIO),
    ]


def cpu_line(name, at_once, found):
    """What is shown of so many scripts at a time; php-fpm tells less."""
    counted = (f"{found.own():.3f}", f"{found.between():.3f}")
    if not found.median("c"):
        return (name, str(at_once), "–", "–", *counted, "–", "–")
    c = (f"{found.median('c'):.3f}", f"{report.median(found.long, 'c'):.3f}")
    return (name, str(at_once), *c, *counted, f"{found.all_of_c():.4f}", f"{found.median('r'):.3f}")


def measure_cpu_time(bench):
    """Whether C is what workers count themselves, alone and with more scripts than processors."""
    pool = {"pm": "static", "max_children": 8}
    pools = {managed.Maitred: pool | {"server_timing": True}, managed.Fpm: pool}
    lines, outcomes, samples = [], [], {}
    for kind, settings in pools.items():
        with bench.managing(kind, {"www": settings}) as server:
            found = {at_once: asyncio.run(compute(server.port, at_once)) for at_once in (1, 8)}
        for at_once, each in found.items():
            samples[kind.name, f"{at_once} at a time"] = each.short + each.long
            lines.append(cpu_line(kind.name, at_once, each))
            if kind is managed.Maitred:
                outcomes += cpu_bars(at_once, each)
        if kind is managed.Maitred:
            alone, crowded = (each.median("r") for each in found.values())
            outcomes.append(report.Outcome(
                "scripts that compute, 8 at a time: R", "R alone", "more", crowded - alone,
                f"{crowded:.2f} and {alone:.2f} ms", crowded > alone,
            ))
    text = (
        f"A script that computes until getrusage has counted {COMPUTES_MS} ms, or twice that, and "
        f"says what its process had used at its first line and at its last; medians of {COMPUTING} "
        f"requests of each, in ms. Between the last line of one and the first of the next lie the "
        f"end and the beginning of a request, in PHP and around it: C has them, and no script can "
        f"count them. All of C is that of a worker's requests together, beside what the process has "
        f"used from the end of its first to the end of its last."
    )
    columns = ("server", "at a time", f"C of {COMPUTES_MS} ms", f"C of {2 * COMPUTES_MS} ms",
               "first line to last", "last line to first of the next", "all of C : getrusage", "R")
    return report.Section(CPU_TITLE, text, columns, lines, outcomes,
                          report.samples_as_json(samples))


async def sleepers(port, at_once):
    """What scripts have cost that sleep, so many at a time."""
    found = []
    for _ in range(SLEEPING // at_once):
        answers = [ask(port, f"/sleep.php?ms={SLEEPS_MS}") for _ in range(at_once)]
        found += [Cost(*times) for times, _ in await asyncio.gather(*answers)]
    return found


def measure_sleep(bench):
    """Whether a script that only sleeps is blocked, and for as long as it sleeps."""
    pools = {"www": {"pm": "static", "max_children": 4, "server_timing": True}}
    lines, outcomes, samples = [], [], {}
    with bench.managing(managed.Maitred, pools) as server:
        for at_once in (1, 4):
            each = asyncio.run(sleepers(server.port, at_once))
            samples["maitred", f"{at_once} at a time"] = each
            figures = [report.median(each, name) for name in "crb"]
            lines.append((str(at_once), *(f"{figure:.3f}" for figure in figures)))
            outcomes.append(bar(f"scripts that sleep {SLEEPS_MS} ms, {at_once} at a time: B",
                                f"{SLEEPS_MS} ms", f"{figures[2]:.2f} ms", figures[2] / SLEEPS_MS,
                                SLEEP_RATIO))
    text = f"Medians of {SLEEPING} requests, in ms."
    return report.Section(SLEEP_TITLE, text, ("at a time", "C", "R", "B"), lines, outcomes,
                          report.samples_as_json(samples))


# Pools by what they are: two of them are equal.
WITH, WITHOUT, AGAIN = "www", "off", "again"


def costs_in_turn(bench, server, connections):
    """{pool: [load.Sample]} of so many connections."""
    loads = {name: load.Load("/hello.php", connections, host="" if name == WITH else name)
             for name in (WITH, WITHOUT, AGAIN)}
    for asked in loads.values():
        load.check(server.name, server.port, asked, rows.HELLO)
        load.wrk(server.port, asked, 1)
    found = {name: [] for name in loads}
    for turn in range(bench.options.rounds * TURNS_A_ROUND):
        first = turn % len(loads)
        names = list(loads)[first:] + list(loads)[:first]
        for name in names if turn % 2 == 0 else names[::-1]:
            found[name].append(
                load.measure(server.port, server.leaders, loads[name], bench.options.seconds))
    return found


def measure_cost(bench):
    """Processor time per request of pools of one server, of which one measures its requests."""
    pool = {"pm": "static", "max_children": bench.options.workers}
    without = pool | {"request_accounting": False}
    lines, outcomes, samples = [], [], {}
    with bench.managing(managed.Maitred, {WITH: pool, WITHOUT: without, AGAIN: without}) as server:
        for connections in (1, 16, 64):
            found = costs_in_turn(bench, server, connections)
            samples |= {(name, f"{connections}"): each for name, each in found.items()}
            line, outcome = cost_line(connections, found)
            lines.append(line)
            outcomes.append(outcome)
    text = (
        f"hello.php of three pools of one server, in turn; processor time of the server per "
        f"request, in µs, medians of {bench.options.rounds * TURNS_A_ROUND} runs of "
        f"{bench.options.seconds} s. Two of the pools have request_accounting = false: what they "
        f"differ by is what this machine can tell. Ratios are medians of those of each turn, with "
        f"their quartiles."
    )
    columns = ("connections", "with", "without", "with : without", "without : without")
    return report.Section(COST_TITLE, text, columns, lines, outcomes,
                          report.samples_as_json(samples))


def ratios(some, others):
    """Median and quartiles of the ratios of samples that were taken in the same turn."""
    each = [a.cpu_us / b.cpu_us for a, b in zip(some, others)]
    low, middle, high = statistics.quantiles(each, n=4, method="inclusive")
    return middle, f"{middle:.3f} ({low:.3f}–{high:.3f})"


def cost_line(connections, found):
    """The row of so many connections, and its bar."""
    ratio, told = ratios(found[WITH], found[WITHOUT])
    _, floor = ratios(found[AGAIN], found[WITHOUT])
    cpu = [f"{report.median(found[name], 'cpu_us'):.2f}" for name in (WITH, WITHOUT)]
    outcome = report.Outcome(
        f"hello.php, {connections} keep-alive, with request accounting: {rows.CPU}",
        "without", f"≤ {COST_RATIO:g}", ratio, told, ratio <= COST_RATIO,
    )
    return (str(connections), *cpu, told, floor), outcome


MEASUREMENTS = {CPU_TITLE: measure_cpu_time, SLEEP_TITLE: measure_sleep, COST_TITLE: measure_cost}
