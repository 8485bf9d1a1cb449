"""What visitors of WordPress notice of a reload: the first pages afterwards."""

import asyncio
import dataclasses

import client
import managed
import report
import rows
import wordpress

RATE = 15
SECONDS = 10
WORKERS = 4
MARK = b"</html>"


class Blog(managed.Maitred):
    """maitred in front of WordPress."""

    def config(self):
        return super().config() + 'front_controller = "/index.php"\n'


@dataclasses.dataclass(frozen=True)
class Pages:
    """Pages at a steady rate, all of a run."""

    milliseconds: list
    failed: int


async def visits(port):
    """The front page, at a steady rate."""
    def page(_number):
        return "/", lambda status, body: status == 200 and MARK in body

    responses = await client.steadily(port, RATE, SECONDS, page)
    failed = sum(response.fate != client.GOOD for response in responses)
    return Pages([response.seconds * 1e3 for response in responses], failed)


async def around_a_reload(server):
    """The ten seconds before a reload, and the ten from its signal on."""
    before = await visits(server.port)
    server.reload()
    return before, await visits(server.port)


def measure_reload(bench):
    """p99 of the pages after a reload against those before."""
    pools = {managed.WWW: {"pm": "static", "max_children": WORKERS}}
    samples = {}
    with wordpress.unpacked(bench.directory) as root:
        is_installed = False
        for _ in range(bench.options.rounds):
            for kind in (managed.Fpm, Blog):
                how = {"root": root, "front_controller": True}
                with bench.managing(kind, pools, **how) as server:
                    if not is_installed:
                        wordpress.install(server.port)
                        is_installed = True
                    asyncio.run(visits(server.port))
                    both = asyncio.run(around_a_reload(server))
                for when, sample in zip(("before", "after"), both):
                    samples.setdefault((kind.name, when), []).append(sample)
    return section(samples)


def section(samples):
    """The table."""
    p99, lines = {}, []
    for (name, when), each in samples.items():
        taken = [one for sample in each for one in sample.milliseconds]
        p99[name, when] = report.percentile(taken, 0.99)
        failed = sum(sample.failed for sample in each)
        lines.append((name, when, str(len(taken)), f"{report.percentile(taken, 0.5):.1f}",
                      f"{p99[name, when]:.1f}", f"{max(taken):.1f}", str(failed)))
    name = Blog.name
    ratio = p99[name, "after"] / p99[name, "before"]
    failed = sum(sample.failed for key, each in samples.items() if key[0] == name for sample in each)
    outcome = report.Outcome(
        f"WordPress, {SECONDS} s after a reload: p99", "maitred, the 10 s before",
        f"≤ {rows.AFTER_RELOAD_RATIO}, 0 failed", ratio,
        f"{p99[name, 'after']:.1f} : {p99[name, 'before']:.1f} ms, {failed} failed",
        ratio <= rows.AFTER_RELOAD_RATIO and failed == 0,
    )
    text = (
        f"{RATE} front pages of WordPress a second from {WORKERS} workers, every other one on a "
        f"connection that stays open, for {SECONDS} s before a reload and {SECONDS} s from its "
        f"signal on, all rounds together. Times begin when a request is due."
    )
    columns = ("server", "when", "pages", "p50 ms", "p99 ms", "slowest ms", "failed")
    as_json = {f"{name}, {when}": [dataclasses.asdict(sample) for sample in each]
               for (name, when), each in samples.items()}
    return report.Section(RELOAD_TITLE, text, columns, lines, [outcome], as_json)


RELOAD_TITLE = "WordPress around a reload"
MEASUREMENTS = {RELOAD_TITLE: measure_reload}
