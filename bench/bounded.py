"""What pools that find their size (pm = auto) do with memory that is short, and what finding costs."""

import contextlib
import os
import subprocess

import load
import managed
import overload
import peers
import processes
import report
import rows

MB = 1024 * 1024
GROUPS = "/sys/fs/cgroup/memory"
LIMIT_MB = 256
SWAP_MB = 1024
PAGE_MB = 20
USERS = 50
SECONDS = 180
PAGE = f"/memory.php?mb={PAGE_MB}&ms=100"
PAGE_BODY = f"{PAGE_MB}\n".encode()
OURS = {"pm": "auto", "max_children": USERS, "request_queue_timeout": "1s"}
FPM = {"pm": "static", "max_children": USERS}

POOLS = 100
POOL_AUTO = {"pm": "auto", "max_children": 8}
FEW = 3
REST_SECONDS = 20
RATE = 1000
BUSY = "sleep.php?ms=100"
# Until it is known what workers take, which is looked at often: that is over then.
SETTLES_SECONDS = 40


class Group:
    """A control group (version 1) with a limit of memory, and a file to swap to."""

    def __init__(self, directory):
        self.path = os.path.join(GROUPS, f"maitred-bench-{os.getpid()}")
        self.swap = os.path.join(directory, "swap")
        self.has_swap = False

    def __enter__(self):
        if not peers.IS_ROOT or not os.path.exists(f"{GROUPS}/memory.limit_in_bytes"):
            raise peers.CannotStart("control groups of version 1 and root are needed")
        os.mkdir(self.path)
        self.write("memory.limit_in_bytes", LIMIT_MB * MB)
        commands = (
            ["dd", "if=/dev/zero", f"of={self.swap}", "bs=1M", f"count={SWAP_MB}"],
            ["chmod", "600", self.swap], ["mkswap", self.swap], ["swapon", self.swap],
        )
        done = [subprocess.run(each, capture_output=True, check=False) for each in commands]
        self.has_swap = all(each.returncode == 0 for each in done)
        if not self.has_swap:
            report.say(f"no swap: {done[-1].stderr.decode().strip()}")
        return self

    def __exit__(self, *_):
        if self.has_swap:
            subprocess.run(["swapoff", self.swap], check=False)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.swap)
        processes.wait_until(self.is_empty, peers.START_SECONDS, "the group to be empty")
        os.rmdir(self.path)

    def is_empty(self):
        """Whether no process is in it."""
        return not self.read("cgroup.procs").strip()

    def read(self, name):
        """One of its files."""
        with open(os.path.join(self.path, name), encoding="ascii") as file:
            return file.read()

    def write(self, name, value):
        """Sets one of its files."""
        with open(os.path.join(self.path, name), "w", encoding="ascii") as file:
            file.write(str(value))

    @contextlib.contextmanager
    def inside(self):
        """Processes started within it are in it."""
        with open("/proc/self/cgroup", encoding="ascii") as file:
            before = next(line.strip().split(":")[2] for line in file if ":memory:" in line)
        self.write("cgroup.procs", os.getpid())
        try:
            yield
        finally:
            with open(f"{GROUPS}{before}/cgroup.procs", "w", encoding="ascii") as file:
                file.write(str(os.getpid()))

    def killed(self):
        """Processes that the kernel has ended for lack of memory."""
        lines = dict(line.split() for line in self.read("memory.oom_control").splitlines())
        return int(lines.get("oom_kill", 0))


def swapped_in():
    """Pages that came back from swap, of the whole machine: no other process swaps."""
    with open("/proc/vmstat", encoding="ascii") as file:
        figures = dict(line.split() for line in file)
    return int(figures["pswpin"])


def short_of_memory(bench, group, kind, pool):
    """What becomes of one server."""
    killed, before = group.killed(), swapped_in()
    group.write("memory.max_usage_in_bytes", 0)
    with contextlib.ExitStack() as stack:
        with group.inside():
            server = stack.enter_context(bench.managing(kind, {managed.WWW: pool}))
        load.check(server.name, server.port, load.Load(PAGE, 1), PAGE_BODY)
        seconds = 20 if bench.options.quick else SECONDS
        found = overload.ask(
            server, PAGE, "--users", str(USERS), "--duration", f"{seconds}s", "--warm-up", "0s",
            "--timeout", "60s",
        )
        workers = len(server.workers())
    requests = found["requests"]
    return {
        "served/s": round(requests["served"] / seconds, 1),
        "p99 ms": round((found["corrected"]["p99"] or 0) * 1e3, 1),
        "refused": requests["refused"],
        "failed": requests["failed"] + requests["timed_out"],
        "workers": workers,
        "pages from swap": swapped_in() - before,
        "killed": group.killed() - killed,
        "most MB": int(group.read("memory.max_usage_in_bytes")) // MB,
    }


def measure_memory(bench):
    """50 users, a page of 20 MB, and 256 MB."""
    samples = {}
    with Group(bench.directory) as group:
        for kind, pool in ((managed.Maitred, OURS), (managed.Fpm, FPM)):
            samples[kind.name] = short_of_memory(bench, group, kind, pool)
            report.say(f"{MEMORY_TITLE}, {kind.name}: {samples[kind.name]}")
        has_swap = group.has_swap
    ours = samples[peers.Maitred.name]
    bad = ours["pages from swap"] + ours["killed"]
    outcome = report.Outcome(
        f"{MEMORY_TITLE}: pages from swap, processes killed", "", "0", bad,
        f"{ours['pages from swap']}, {ours['killed']}", bad == 0 and ours["failed"] == 0,
    )
    lines = [(name, *map(str, each.values())) for name, each in samples.items()]
    swap = f"{SWAP_MB} MB of swap" if has_swap else "no swap, which this machine does not permit"
    text = (
        f"{USERS} users for {SECONDS} s, a page that takes {PAGE_MB} MB for 100 ms, a control group "
        f"of {LIMIT_MB} MB, {swap}; the generator is outside. pm = auto with requests that wait a "
        f"second at most, and php-fpm with {USERS} workers behind nginx."
    )
    return report.Section(MEMORY_TITLE, text, ("server", *ours), lines, [outcome], samples)


class Many(managed.Maitred):
    """maitred with a pool for each of many folders."""

    def config(self):
        rules = ", ".join(
            f'{{ path = "/{name}/*", pool = "{name}" }}' for name in self.pools
        )
        lines = [f'listen = "127.0.0.1:{self.port}"', f'admin_socket = "{self.admin_socket()}"']
        for name, settings in self.pools.items():
            lines.append(f"[pools.{name}]")
            lines += [f"{key} = {managed.json.dumps(value)}" for key, value in settings.items()]
        first = next(iter(self.pools))
        lines += ["[[sites]]", f'root = "{self.place.root}"', f'pool = "{first}"',
                  f"paths = [{rules}]"]
        return "\n".join(lines) + "\n"


def own_seconds(server):
    """CPU time of supervisor and front, in seconds."""
    fronts = processes.titled(server.leaders, "maitred: front")
    pids = [server.leaders[0], *fronts]
    return [processes.time.clock_gettime((~pid << 3) | 2) for pid in pids]


def cost_of(bench, pool):
    """Parts of a processor that supervisor and front use: at rest, and busy."""
    names = [f"p{number:03}" for number in range(1, POOLS + 1)]
    for name in names:
        os.makedirs(os.path.join(bench.root, name), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.symlink("../sleep.php", os.path.join(bench.root, name, "sleep.php"))
    place = peers.Place(bench.directory, bench.root, 0)
    server = Many(place).configure({name: pool for name in names})
    try:
        server.start()
        processes.wait_until_idle(server.leaders, load.IDLE_MOST_SECONDS)
        before = own_seconds(server)
        processes.time.sleep(REST_SECONDS)
        rest = [(b - a) / REST_SECONDS for a, b in zip(before, own_seconds(server))]
        path = os.path.join(bench.directory, "many-urls.txt")
        with open(path, "w", encoding="ascii") as file:
            file.writelines(f"http://127.0.0.1:{server.port}/{name}/{BUSY}\n" for name in names)
        asked = ("--urls-file", path, "--rate", str(RATE), "--warm-up", "0s")
        overload.ask(server, "", *asked, "--duration", f"{SETTLES_SECONDS}s")
        before = own_seconds(server)
        overload.ask(server, "", *asked, "--duration", f"{REST_SECONDS}s")
        busy = [(b - a) / REST_SECONDS for a, b in zip(before, own_seconds(server))]
        return {"rest": rest, "busy": busy, "workers": len(server.workers())}
    finally:
        server.stop()


def fixed(workers):
    """Pools of so many workers each."""
    return {"pm": "static", "max_children": workers}


def measure_cost(bench):
    """What finding their size costs 100 pools: beside fixed pools of as many workers, and of as few as do."""
    samples = {"auto": [], "static, as many": [], "static, as few as do": []}

    def sample(name, pool):
        samples[name].append(cost_of(bench, pool))
        report.say(f"{COST_TITLE}, {name}: {samples[name][-1]}")

    for _ in range(min(bench.options.rounds, 3)):
        sample("auto", POOL_AUTO)
        as_many = max(round(samples["auto"][-1]["workers"] / POOLS), FEW)
        sample("static, as many", fixed(as_many))
        sample("static, as few as do", fixed(FEW))

    def middle(name, when):
        return report.percentile([sum(each[when]) for each in samples[name]], 0.5)

    def workers(name):
        return report.percentile([each["workers"] for each in samples[name]], 0.5)

    outcomes = []
    for when, most in rows.AUTO_COST.items():
        more = middle("auto", when) - middle("static, as many", when)
        outcomes.append(report.Outcome(
            f"{COST_TITLE}, {when}: more of a processor than fixed pools of as many workers take", "static",
            f"≤ {most:.1%}", more, f"{more:.2%}", more <= most,
        ))
    lines = [
        (name, f"{workers(name):.0f}", *(f"{middle(name, when):.2%}" for when in rows.AUTO_COST))
        for name in samples
    ]
    text = (
        f"{POOLS} pools in one server: CPU time of supervisor and front over {REST_SECONDS} s, at "
        f"rest, and with {RATE} requests a second of 100 ms of waiting, spread over all of them. Beside "
        f"pools of as many workers, which differ in the controller alone, and of {FEW} each, since fewer "
        f"that are awake cost less, too."
    )
    return report.Section(
        COST_TITLE, text, ("pools", "workers", *rows.AUTO_COST), lines, outcomes, samples
    )


MEMORY_TITLE = f"pm = auto: {LIMIT_MB} MB"
COST_TITLE = f"pm = auto: cost for {POOLS} pools"
MEASUREMENTS = {MEMORY_TITLE: measure_memory, COST_TITLE: measure_cost}
