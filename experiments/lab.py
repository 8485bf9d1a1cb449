"""The place of a run: its folder, its applications, and the servers that are started in it."""

import contextlib
import itertools
import os
import shutil
import subprocess

import asking
import booted
import group
import load
import overload
import peers
import processes
import rows
import servers
import wordpress

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH_ROOT = os.path.join(HERE, "..", "bench", "docroot")
MEDIAWIKI = "/usr/share/mediawiki"
NOT_MEASURED = (
    peers.CannotStart,
    load.WrongAnswer,
    group.NoGroups,
    TimeoutError,
    OSError,
    ValueError,
    subprocess.CalledProcessError,
    subprocess.TimeoutExpired,
)
PAGES = {
    "wordpress": ("/", "</html>"),
    "mediawiki": ("/index.php?title=Main_Page", "</html>"),
    "illuminate": ("/goods/7", "thing 7"),
}


class Lab:
    """One run."""

    def __init__(self, options, directory, say):
        self.options, self.directory, self.say = options, directory, say
        self.database = None
        self.roots = {}
        self.problems = {}
        self.env = {}
        self.numbers = itertools.count()

    def turns(self, arms):
        """`(round, arm)`: every round turned round to the one before."""
        for turn in range(self.options.rounds):
            for arm in arms[:: -1 if turn % 2 else 1]:
                yield turn, arm

    def guarded(self, experiment, arm, turn, measure):
        """The samples of one arm; one that cannot be measured does not end the rest."""
        head = {"server": arm.server, "setting": arm.setting.name, "round": turn}
        which = experiment.loads[0] if getattr(experiment, "loads", ()) else ""
        try:
            for which, figures in measure():
                self.say(f"{experiment.id} {arm.label}, {which}: {brief(figures)}")
                yield {**head, "load": which, "figures": figures}
        except NOT_MEASURED as problem:
            self.say(f"{experiment.id} {arm.label}: not measured: {problem}")
            yield {**head, "load": which, "figures": {}, "problem": str(problem)}

    @contextlib.contextmanager
    def serving(self, arm, root=None, front_controller=False, within=None, processors=None):
        """Starts the server of an arm, and ends it afterwards."""
        directory = os.path.join(self.directory, f"{arm.server}-{next(self.numbers)}")
        os.mkdir(directory)
        place = peers.Place(directory, root or self.root(), 0, front_controller)
        server = servers.KINDS[arm.server](place).set_up(arm.setting, within)
        try:
            with overload.on_processors(processors or os.sched_getaffinity(0)):
                server.start()
            server.await_first_workers()
            server.besides = self.besides()
            yield server
        finally:
            server.stop()
            shutil.rmtree(directory, ignore_errors=True)

    def root(self):
        """A document root with the scripts of bench and of here, and static files."""
        if "scripts" not in self.roots:
            root = os.path.join(self.directory, "scripts")
            shutil.copytree(BENCH_ROOT, root)
            shutil.copytree(os.path.join(HERE, "docroot"), root, dirs_exist_ok=True)
            for name, body in rows.FILES.items():
                with open(os.path.join(root, name), "wb") as file:
                    file.write(body)
            self.roots["scripts"] = root
        return self.roots["scripts"]

    def application(self, name):
        """The document root of an application, which is set up when it is first wanted."""
        if name in self.problems:
            raise peers.CannotStart(f"{name} could not be set up: {self.problems[name]}")
        if name not in self.roots:
            self.say(f"Setting up {name}…")
            try:
                self.roots[name] = getattr(self, f"set_up_{name}")()
            except NOT_MEASURED as problem:
                # What it has left behind is in the way of another try.
                self.problems[name] = problem
                raise
        return self.roots[name]

    def mariadb(self):
        """The database server of this run."""
        if self.database is None:
            database = wordpress.MariaDb(self.directory)
            self.database = database
            database.start()
        return self.database

    def set_up_wordpress(self):
        """WordPress with MariaDB, installed through its own installer."""
        root = wordpress.unpack(self.directory, self.mariadb())
        place = peers.Place(self.directory, root, 2, True)
        server = peers.NginxFpm(place)
        try:
            server.start()
            wordpress.install(server.port)
        finally:
            server.stop()
        return root

    def set_up_illuminate(self):
        """The Illuminate application of tests/fixtures, with SQLite."""
        return booted.unpack(self.directory, "illuminate")

    def set_up_mediawiki(self):
        """MediaWiki as Debian packages it, with SQLite."""
        folder = os.path.join(self.directory, "wiki")
        for name in ("data", "cache"):
            os.makedirs(os.path.join(folder, name))
        wordpress.run(
            peers.program("php"),
            f"{MEDIAWIKI}/maintenance/install.php",
            "--dbtype",
            "sqlite",
            "--dbname",
            "house",
            "--dbpath",
            f"{folder}/data",
            "--server",
            "http://localhost",
            "--scriptpath",
            "",
            "--pass",
            "a long pass phrase, for loopback only",
            "--confpath",
            folder,
            "The Guest House",
            "Keeper",
        )
        settings = os.path.join(folder, "LocalSettings.php")
        with open(settings, "a", encoding="utf-8") as file:
            file.write(
                "$wgServer = 'http://' . $_SERVER['HTTP_HOST'];\n"
                "$wgUseCdn = true;\n$wgCdnMaxAge = 3600;\n"
                # SQLite takes one writer at a time: what it waits for is not to be measured here.
                "$wgJobRunRate = 0;\n$wgMainCacheType = CACHE_NONE;\n"
                "$wgParserCacheType = CACHE_NONE;\n$wgMessageCacheType = CACHE_NONE;\n"
                f"$wgCacheDirectory = '{folder}/cache';\n"
            )
        if peers.IS_ROOT:
            for place, folders, files in os.walk(folder):
                for name in (place, *(os.path.join(place, each) for each in folders + files)):
                    shutil.chown(name, peers.WORKER_USER, peers.WORKER_USER)
        self.env["mediawiki"] = {"MW_CONFIG_FILE": settings}
        return MEDIAWIKI

    def besides(self):
        """Servers that have a part in a run, but whose work is not the server's."""
        return [self.database.process.pid] if self.database else []

    def stop(self):
        """Ends what is left."""
        if self.database is not None:
            self.database.stop()


def brief(figures):
    """The figures that a line of progress has room for."""
    names = (
        "rate",
        "p50_ms",
        "p99_ms",
        "cpu_ms",
        "workers",
        "refused",
        "failed",
        "timed_out",
        "wrong",
    )
    found = {name: figures[name] for name in names if figures.get(name) is not None}
    found = found or {k: v for k, v in figures.items() if isinstance(v, (int, float, str))}
    return ", ".join(
        f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in found.items()
    )
