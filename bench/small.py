"""One WordPress on a small server: the memory of all of the server's processes."""

import asyncio
import dataclasses
import statistics
import time

import client
import cold
import managed
import processes
import report
import rows
import wordpress

WARM_RATE = 4
WARM_SECONDS = 10
REST_SECONDS = 60
PAGES_A_MINUTE = 5
MINUTES = 2
LOOK_SECONDS = 1
MOST_WORKERS = 5
ONDEMAND = {"pm": "ondemand", "max_children": MOST_WORKERS, "process_idle_timeout": "10s"}


class OndemandBlog(cold.Blog):
    """maitred with php-fpm's settings."""

    name = "maitred, ondemand"


class RestingBlog(cold.Blog):
    """The same, which ends the pool's PHP with its last worker."""

    name = "maitred, ondemand, spare_zygotes = 0"

    def config(self):
        return "spare_zygotes = 0\n" + super().config()


@dataclasses.dataclass(frozen=True)
class Memory:
    """Pss of a server's processes, in MiB."""

    rest: float  # after a minute without requests
    quiet: float  # mean over some minutes with few pages
    most: float  # in these minutes
    failed: int


def proportional_mb(server):
    """Pss of all of a server's processes, in MiB."""
    total = 0
    for pid in processes.tree(server.leaders):
        try:
            total += processes.proportional_kb(pid)
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended since
    return total / 1024


async def pages(port, rate, seconds):
    """Front pages at a steady rate; how many of them failed."""
    def page(_number):
        return "/", lambda status, body: status == 200 and cold.MARK in body

    responses = await client.steadily(port, rate, seconds, page)
    return sum(response.fate != client.GOOD for response in responses)


async def quiet_minutes(server):
    """Pss once a second during few pages a minute, and how many of these failed."""
    seconds = MINUTES * 60
    visits = asyncio.create_task(pages(server.port, PAGES_A_MINUTE / 60, seconds))
    end, seen = time.monotonic() + seconds, []
    while time.monotonic() < end:
        seen.append(proportional_mb(server))
        await asyncio.sleep(LOOK_SECONDS)
    return seen, await visits


def sample(server):
    """One server after its start: pages, a minute of rest, and quiet minutes."""
    failed = asyncio.run(pages(server.port, WARM_RATE, WARM_SECONDS))
    time.sleep(REST_SECONDS)
    rest = proportional_mb(server)
    seen, failed_later = asyncio.run(quiet_minutes(server))
    return Memory(rest, statistics.mean(seen), max(seen), failed + failed_later)


def measure_small(bench):
    """maitred with its defaults, and with php-fpm's settings, beside nginx + php-fpm."""
    kinds = {
        managed.Fpm: ONDEMAND, cold.Blog: {}, OndemandBlog: ONDEMAND, RestingBlog: ONDEMAND,
    }
    samples = {kind.name: [] for kind in kinds}
    with wordpress.unpacked(bench.directory) as root:
        is_installed = False
        for _ in range(bench.options.rounds):
            for kind, settings in kinds.items():
                how = {"root": root, "front_controller": True}
                with bench.managing(kind, {managed.WWW: settings}, **how) as server:
                    if not is_installed:
                        wordpress.install(server.port)
                        is_installed = True
                    samples[kind.name].append(sample(server))
                    report.say(f"{TITLE}: {kind.name}: {samples[kind.name][-1]}")
    return section(samples)


def section(samples):
    """The table."""
    theirs = samples[managed.Fpm.name]
    lines, outcomes = [], []
    for name, each in samples.items():
        figures = (report.spread(each, field, ".1f") for field in ("rest", "quiet", "most"))
        lines.append((name, *figures))
        if name == managed.Fpm.name:
            continue
        ours, peers = (report.median(some, "rest") for some in (each, theirs))
        ratio, failed = ours / peers, sum(one.failed for one in each)
        shown = f"{ratio:.2f} ({ours:.1f} : {peers:.1f} MiB)"
        outcomes.append(report.Outcome(
            f"{name}: {TITLE}: Pss at rest", managed.Fpm.name,
            f"≤ {rows.SMALL_RATIO}, 0 failed", ratio, shown,
            ratio <= rows.SMALL_RATIO and failed == 0,
        ))
    text = (
        f"{WARM_RATE} front pages a second for {WARM_SECONDS} s, then {REST_SECONDS} s without a request "
        f"(rest), then {PAGES_A_MINUTE} pages a minute for {MINUTES} minutes (mean, most), in MiB of Pss of "
        f"all processes of the server. php-fpm: ondemand, {MOST_WORKERS} children, 10 s; maitred: its "
        f"defaults, the same settings, and these with a pool whose PHP ends as well. The database is "
        f"left out."
    )
    columns = ("server", "at rest", "quiet", "most")
    as_json = {name: [dataclasses.asdict(one) for one in each] for name, each in samples.items()}
    return report.Section(TITLE, text, columns, lines, outcomes, as_json)


TITLE = "One WordPress on a small server"
MEASUREMENTS = {TITLE: measure_small}
