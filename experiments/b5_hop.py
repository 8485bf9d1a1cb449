"""B5: mod_php or a separate server, keep-alive or not, as in the oldest article."""

import experiment
import load
import peers
import rows
import servers
from experiment import Arm, times
from records import shown
from servers import Setting

MOST = 512
WORKERS = 4
KEPT, CLOSED = "keep-alive", "no keep-alive"
PAYLOADS = {
    "hello.php": "/hello.php",
    "hello.txt": "/hello.txt",
    "100 KB": "/100k.bin",
    "1 MB": "/1m.bin",
}
APPLICATION = "application page"
CONNECTIONS = 16
STEPS = (1, 4, 16, 64, 256, 512)
SETTING = f"{WORKERS} workers"
PREFORK = f"{MOST} processes at most"


class Hop(experiment.Experiment):
    """Closed loop by wrk, from hello to an application's page."""

    id = "B5"
    title = "mod_php or a server of its own; keep-alive or not"
    source = "Apache with mod_php against nginx with php-fpm, with ab"
    concluded = (
        "hello.php: nginx + php-fpm at about half of Apache + mod_php, because of the hop."
        " hello.txt: nginx ahead, twice as many with keep-alive. 100 KB: nginx without keep-alive"
        " equals Apache with it. 1 MB: keep-alive no longer matters. A page of an application:"
        " nearly the same. Prefork needs a process with PHP in it for every client."
    )
    how = (
        f"wrk with one thread, {CONNECTIONS} connections for each kind of answer and {STEPS[0]} to"
        f" {STEPS[-1]} for hello.php; {WORKERS} PHP workers, of Apache prefork up to {MOST}"
        " processes, since each connection holds one; its connections are kept for 100 requests,"
        " as Debian has it. The application is the Illuminate one of this project's tests. CPU is"
        " per answer."
    )
    question = "mod_php or a separate PHP server? Keep-alive?"
    columns = (
        experiment.Column("cpu_us", "CPU µs per answer"),
        experiment.SERVED,
        experiment.P50,
        experiment.P99,
        experiment.Column("errors", "errors", ".0f"),
    )
    loads = tuple(f"{name}, {kept}" for name in (*PAYLOADS, APPLICATION) for kept in (KEPT, CLOSED))
    shortest = 0.15

    def arms(self):
        many = servers.prefork(16, 5, MOST, MOST)
        many["ServerLimit"] = MOST
        static = Setting(SETTING, servers.static(WORKERS))
        return [
            Arm("maitred", static),
            Arm("nginx", static),
            Arm("prefork", Setting(PREFORK, apache=many)),
            Arm("event", static),
        ]

    def measure_arm(self, lab, arm):
        with lab.serving(arm) as server:
            for name, path in PAYLOADS.items():
                body = rows.HELLO if path == "/hello.php" else rows.FILES[path[1:]]
                for kept in (KEPT, CLOSED):
                    asked = load.Load(path, CONNECTIONS, kept == KEPT)
                    load.check(server.name, server.port, asked, body)
                    yield f"{name}, {kept}", self.wrk(lab, server, asked)
            for count in STEPS:
                yield f"hello.php, {count} connections", self.wrk(
                    lab, server, load.Load("/hello.php", count)
                )
        root = lab.application("illuminate")
        with lab.serving(arm, root, front_controller=True) as server:
            experiment.checked(server, "/goods/7", "thing 7")
            for kept in (KEPT, CLOSED):
                asked = load.Load("/goods/7", CONNECTIONS, kept == KEPT)
                yield f"{APPLICATION}, {kept}", self.wrk(lab, server, asked)

    def wrk(self, lab, server, asked):
        """One run of wrk."""
        load.measure(server.port, server.leaders, asked, 1)
        found = load.measure(server.port, server.leaders, asked, self.seconds(lab))
        return {
            "cpu_us": found.cpu_us,
            "rate": found.per_second,
            "p50_ms": found.p50_ms,
            "p99_ms": found.p99_ms,
            "errors": found.errors,
            "foreign": found.foreign_share,
        }

    def charts(self, records):
        names = [(arm.server, arm.setting.name) for arm in self.arms()]
        steps = [
            (
                servers.NAMES[key],
                [
                    (count, rate)
                    for count in STEPS
                    if (
                        rate := records.median(key, name, "rate", f"hello.php, {count} connections")
                    )
                ],
            )
            for key, name in names
        ]
        return [
            (
                "b5-connections",
                experiment.chart.lines(
                    "hello.php by connections",
                    "connections",
                    "answers a second",
                    steps,
                    logarithmic=True,
                ),
            ),
            self.bar_chart(
                records, "b5-hello", "CPU per hello.php, keep-alive", "µs", "cpu_us", self.loads[0]
            ),
            self.bar_chart(
                records,
                "b5-application",
                "CPU per application page, keep-alive",
                "µs",
                "cpu_us",
                self.loads[-2],
            ),
        ]

    def findings(self, records):
        get = lambda key, which, figure="cpu_us": records.median(
            key, PREFORK if key == "prefork" else SETTING, figure, which
        )
        lines = []
        for name in ("hello.php", APPLICATION):
            which = f"{name}, {KEPT}"
            lines.append(
                f"{name}: "
                + ", ".join(
                    f"{servers.NAMES[key]} {shown(get(key, which))} µs" for key in servers.KINDS
                )
                + " of processor time. The separate server costs"
                f" {times(get('nginx', which), get('prefork', which))} times mod_php"
                " behind nginx, and"
                f" {times(get('maitred', which), get('prefork', which))} times as"
                " maitred has it."
            )
        for name in ("hello.txt", "100 KB", "1 MB"):
            lines.append(
                f"{name}, CPU without keep-alive by that with it: "
                + ", ".join(
                    f"{servers.NAMES[key]}"
                    f" {times(get(key, f'{name}, {CLOSED}'), get(key, f'{name}, {KEPT}'))}"
                    for key in servers.KINDS
                )
                + "."
            )
        return lines

    def verdict(self, records):
        get = lambda key, which: records.median(
            key, PREFORK if key == "prefork" else SETTING, "cpu_us", which
        )
        hello, page = f"hello.php, {KEPT}", f"{APPLICATION}, {KEPT}"
        figures = [
            get(key, which) for key in ("nginx", "prefork", "maitred") for which in (hello, page)
        ]
        if not experiment.known(*figures):
            return ""
        return (
            "The article was right about the hop between nginx and php-fpm: hello.php costs"
            f" {figures[0] / figures[2]:.1f} times what it does in Apache, an application's page"
            f" {figures[1] / figures[3]:.2f} times. It is not the price of a process of its own:"
            f" maitred has one, too, and hello.php costs {figures[4] / figures[2]:.2f} times what"
            f" it does in Apache, the page {figures[5] / figures[3]:.2f} times."
        )

    def answer(self, records):
        found = self.findings(records)
        return f"{found[0]} {found[2]}"
