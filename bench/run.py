#!/usr/bin/env python3
"""Measures maitred beside nginx + php-fpm and Apache + mod_php; `make bench` calls it.

Every server runs from a configuration made for the run, all at the same time, and is asked in
turn: round by round, the first of a round the last of the next. Cost is the CPU time of all
processes of a server, divided by the requests that wrk saw answered.
"""

import argparse
import contextlib
import functools
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import accounting
import beside
import booted
import booted_blog
import bounded
import cold
import dashboard
import endurance
import faults
import fpm
import generators
import growth
import hostile
import inspect_workers
import load
import managed
import nodes
import overload
import packaged
import peers
import processes
import report
import rows
import size
import sizing
import small
import standing
import throughput
import tracing
import turnover
import wordpress

HERE = os.path.dirname(os.path.abspath(__file__))
MEASURED_PEERS = (peers.Maitred, peers.NginxFpm, peers.Nginx, peers.ApacheModPhp)
SECTIONS = {**inspect_workers.MEASUREMENTS, **growth.MEASUREMENTS,
            **turnover.MEASUREMENTS, **endurance.MEASUREMENTS, **standing.MEASUREMENTS,
            **fpm.MEASUREMENTS, **hostile.MEASUREMENTS, **size.MEASUREMENTS,
            **overload.MEASUREMENTS, **sizing.MEASUREMENTS, **bounded.MEASUREMENTS,
            **generators.MEASUREMENTS, **throughput.MEASUREMENTS,
            **accounting.MEASUREMENTS, **faults.MEASUREMENTS,
            **cold.MEASUREMENTS, **small.MEASUREMENTS,
            **booted_blog.MEASUREMENTS, **nodes.MEASUREMENTS, **beside.MEASUREMENTS,
            **dashboard.MEASUREMENTS, **tracing.MEASUREMENTS}
PACKAGED_WAYS = ("classic", "preload", "jit")
NOT_MEASURED = (
    peers.CannotStart, load.WrongAnswer, managed.ChangeRefused, TimeoutError,
    subprocess.CalledProcessError, subprocess.TimeoutExpired,
)
SERVES_PHP_FROM_A_POOL = (peers.Maitred, peers.NginxFpm)


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="runs per row and server (5)")
    parser.add_argument("--seconds", type=int, default=3, help="length of a run (3)")
    parser.add_argument("--workers", type=int, default=4, help="PHP workers of each server (4)")
    parser.add_argument("--reloads", type=int, default=10000, help="of one pool in a row (10000); a tenth as many upgrades, and 1000 requests for each")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT",
                        help="only rows whose title has TEXT; more than once: any of them")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 1 s; writes no docs page")
    parser.add_argument("--page", action="store_true",
                        help="renew these rows in docs/benchmarks.md, and leave the others there")
    parser.add_argument("--peers-only", action="store_true",
                        help="measure without maitred, and so no pools")
    parser.add_argument("--no-wordpress", action="store_true", help="leave WordPress out")
    options = parser.parse_args()
    if options.page and (options.quick or options.peers_only):
        parser.error("--page takes no --quick and no --peers-only: the page has whole measurements")
    if options.quick:
        options.rounds, options.seconds, options.reloads = 2, 1, 100
    if min(options.rounds, options.seconds, options.workers, options.reloads) < 1:
        parser.error("--rounds, --seconds, --workers and --reloads take whole numbers from 1")
    return options


class Bench:
    """One run: its options, its directory and the servers that serve just now."""

    def __init__(self, options, directory):
        self.options = options
        self.directory = directory
        self.root = document_root(directory)
        self.kinds = [kind for kind in MEASURED_PEERS if kind is not peers.Maitred]
        if not options.peers_only:
            self.kinds.insert(0, peers.Maitred)

    @contextlib.contextmanager
    def serving(self, kinds, root, **how):
        """Starts one server of each kind on a document root, and ends them afterwards."""
        place = peers.Place(self.directory, root, self.options.workers, **how)
        servers = {kind: kind(place) for kind in kinds}
        try:
            for server in servers.values():
                server.start()
            yield servers
        finally:
            for server in servers.values():
                server.stop()

    @contextlib.contextmanager
    def managing(self, kind, pools, replaceable=False, root=None, **how):
        """Starts one server with pools of its own, which nothing has been asked of before."""
        place = peers.Place(self.directory, root or self.root, self.options.workers, **how)
        server = kind(place).configure(pools)
        try:
            if replaceable:
                server.install_copy()
            server.start()
            yield server
        finally:
            server.stop()

    def measure_sections(self):
        """Workers and pools: growing, being replaced, resting. One that fails does not end the rest."""
        sections = []
        for title, measure in SECTIONS.items():
            if self.options.peers_only or not self.wants(title):
                continue
            if self.options.no_wordpress and "WordPress" in title:
                continue
            try:
                sections.append(measure(self))
            except NOT_MEASURED as problem:
                sections.append(report.Section.failed(title, problem))
            report.say("\n".join(outcome.line() for outcome in sections[-1].outcomes))
        return sections

    def measure_rows(self, wanted, servers):
        """Measures rows one after the other, the servers of each in turn."""
        measured = []
        for row in wanted:
            asked = [kind for kind in servers if kind is peers.Maitred or kind in row_peers(row)]
            for kind in asked:
                self.warm_up(row, servers[kind])
            samples = {kind: [] for kind in asked}
            for turn in range(self.options.rounds):
                first = turn % len(asked)
                for kind in asked[first:] + asked[:first]:
                    samples[kind].append(self.sample(row, servers[kind]))
            measured.append(report.MeasuredRow(row, samples))
            report.say(measured[-1].summary())
        return measured

    def warm_up(self, row, server):
        """Sees that a server answers right, also after the first second of load."""
        port = row_port(row, server)
        load.check(server.name, port, row.load, row.body)
        load.measure(port, server.leaders, row.load, 1)
        load.check(server.name, port, row.load, row.body)

    def sample(self, row, server):
        """One run against one server."""
        seconds = self.options.seconds * row.times_longer
        return load.measure(row_port(row, server), server.leaders, row.load, seconds)

    def wants(self, title):
        """Whether --only names this."""
        only = self.options.only
        return not only or any(text.lower() in title.lower() for text in only)

    def titles(self):
        """Of every row and every measurement, in the order of the page."""
        every = rows.spine() + rows.large_files() + rows.http2() + rows.tls()
        every += rows.large_files(tls=True) + rows.wordpress()
        every += [row for way in rows.WORDPRESS_WAYS for row in rows.wordpress_pages(way)]
        every += rows.cached() + rows.cached_wordpress() + rows.booted_hello()
        every += [row for _, _, wanted in self.boots() for row in wanted]
        for (name, _, _, path), way in itertools.product(packaged.PAGES, PACKAGED_WAYS):
            every += rows.packaged(name, path, way)
        every += [row for wanted in rows.htaccess().values() for row in wanted]
        return [*(row.title for row in every), *SECTIONS]

    def spine(self):
        """hello.php and static files, over HTTP/1.1 and HTTP/2."""
        plain = rows.spine() + rows.large_files() + rows.http2()
        wanted = [row for row in plain if self.wants(row.title)]
        if not wanted:
            return []
        with self.serving(self.kinds, self.root) as servers:
            refuse_unequal_php(servers)
            return self.measure_rows(wanted, servers)

    def tls(self):
        """Static files over TLS."""
        encrypted = rows.tls() + rows.large_files(tls=True)
        wanted = [row for row in encrypted if self.wants(row.title)]
        if not wanted:
            return []
        kinds = [kind for kind in self.kinds if kind in (peers.Maitred, peers.Nginx)]
        with self.serving(kinds, self.root, tls=True) as servers:
            return self.measure_rows(wanted, servers)

    def cached(self):
        """A script's page from the cache."""
        wanted = [row for row in rows.cached() if self.wants(row.title)]
        if not wanted:
            return []
        with self.serving(self.kinds_with_pools(), self.root, cached=True) as servers:
            return self.measure_rows(wanted, servers)

    def htaccess(self):
        """Scripts and files at a site that follows .htaccess files."""
        measured = []
        for has_files, every in rows.htaccess().items():
            wanted = [row for row in every if self.wants(row.title)]
            if not wanted:
                continue
            kinds = (peers.Maitred, peers.MaitredWithoutHtaccess, peers.ApacheModPhp)
            root = htaccess_root(self.directory, self.root, has_files)
            with self.serving(kinds, root, htaccess=True) as servers:
                measured += self.measure_rows(wanted, servers)
        return measured

    def booted(self):
        """What is booted once: a hello, and applications."""
        if self.options.peers_only:
            return []
        measured = []
        wanted = [row for row in rows.booted_hello() if self.wants(row.title)]
        if wanted:
            kinds = (peers.Maitred, peers.ClassicMaitred)
            with self.serving(kinds, self.root, booted="worker") as servers:
                measured += self.measure_rows(wanted, servers)
        for unpack, way, every in self.boots():
            wanted = [row for row in every if self.wants(row.title)]
            if not wanted:
                continue
            kinds = (peers.Maitred, peers.NginxFpm)
            with self.serving(kinds, unpack(), booted=way, front_controller=True) as servers:
                if way == "preload":
                    servers[peers.Maitred].learn(rows.BOOTED_PAGE)
                measured += self.measure_rows(wanted, servers)
        return measured

    def packaged(self):
        """Applications of Debian's packages, as far as they are installed."""
        if self.options.peers_only:
            return []
        measured = []
        for (name, package, unpack, path), way in itertools.product(packaged.PAGES, PACKAGED_WAYS):
            wanted = [row for row in rows.packaged(name, path, way) if self.wants(row.title)]
            if not wanted or not os.path.isdir(package):
                continue
            kinds = (peers.Maitred, peers.NginxFpm)
            kinds += (peers.NginxFpmWithJit,) if way == "jit" else ()
            root = self.laid_out(unpack)
            with self.serving(kinds, root, booted=way, front_controller=True) as servers:
                if way == "preload":
                    servers[peers.Maitred].learn(path)
                measured += self.measure_rows(wanted, servers)
        return measured

    @functools.cache
    def laid_out(self, unpack):
        """The document root of an application, which is laid out once."""
        return unpack(self.directory)

    def boots(self):
        """Applications, each with how to lay it out, the way it is booted, and its rows."""
        for name, title in booted.APPLICATIONS.items():
            unpack = functools.cache(functools.partial(booted.unpack, self.directory, name))
            for way in (*rows.BOOTED_BARS, *rows.SERVES):
                yield unpack, way, rows.booted(title, way)
            for way in ("classic", "preload"):
                yield unpack, way, rows.classic(title, way)
        for milliseconds in booted.BOOTS:
            unpack = functools.cache(
                functools.partial(booted.that_boots_for, self.directory, milliseconds)
            )
            for way in ("snapshot", "rewind"):
                yield unpack, way, rows.boots(milliseconds, way)

    def kinds_with_pools(self):
        """The servers that run PHP in a pool of workers."""
        return [kind for kind in self.kinds if kind in SERVES_PHP_FROM_A_POOL]

    def wordpress(self):
        """WordPress's pages, made for each request and from the cache."""
        wanted = [row for row in rows.wordpress() if self.wants(row.title)]
        cached = [row for row in rows.cached_wordpress() if self.wants(row.title)]
        ways = [
            way for way in rows.WORDPRESS_WAYS
            if any(self.wants(row.title) for row in rows.wordpress_pages(way))
        ]
        if self.options.no_wordpress or not wanted + cached + ways:
            return []
        database = wordpress.MariaDb(self.directory)
        try:
            report.say("Setting up WordPress…")
            database.start()
            root = wordpress.unpack(self.directory, database)
            kinds = self.kinds_with_pools()
            with self.serving(kinds, root, front_controller=True) as servers:
                wordpress.install(servers[peers.NginxFpm].port)
                measured = self.measure_rows(wanted, servers)
            if cached:
                with self.serving(kinds, root, front_controller=True, cached=True) as servers:
                    measured += self.measure_rows(cached, servers)
            for way in ways:
                measured += self.wordpress_pages(root, way)
            return measured
        finally:
            database.stop()

    def wordpress_pages(self, root, way):
        """Several pages of an installed WordPress, by the settings of PHP that `way` has."""
        if self.options.peers_only:
            return []
        kinds = (peers.Maitred, peers.NginxFpm)
        kinds += (peers.NginxFpmWithJit,) if way == "jit" else ()
        with self.serving(kinds, root, booted=way, front_controller=True) as servers:
            at = (servers[peers.NginxFpm].port, rows.WORDPRESS_HOST)
            pages = rows.wordpress_pages(way, wordpress.first_post(*at), wordpress.log_in(*at))
            return self.measure_rows([row for row in pages if self.wants(row.title)], servers)


def row_port(row, server):
    """Where a server answers a row's requests."""
    return server.http2_port if row.load.streams else server.port


def row_peers(row):
    """The kinds of server that a row compares with."""
    return {bar.peer for bar in row.bars}


def refuse_unequal_php(servers):
    """Compares what PHP is in each server; unequal ones must not be compared in speed."""
    seen = {}
    for server in servers.values():
        if not server.worker_title:
            continue
        status, _, body, _ = load.fetch(server.port, load.Load("/probe.php", 1))
        if status != 200:
            raise load.WrongAnswer(f"{server.name}: /probe.php was answered with status {status}")
        found = json.loads(body)
        found["extensions"] = sorted(found["extensions"])
        if not found["opcache"]:
            raise load.WrongAnswer(f"{server.name}: OPcache is off")
        seen[server.name] = found
    names = list(seen)
    for name in names[1:]:
        for key, value in seen[name].items():
            if value != seen[names[0]][key]:
                raise load.WrongAnswer(
                    f"PHP's {key} is {value} in {name} but {seen[names[0]][key]} in {names[0]}"
                )


def document_root(directory):
    """The scripts of bench/docroot and the static files, in a place that www-data may read."""
    root = os.path.join(directory, "docroot")
    shutil.copytree(os.path.join(HERE, "docroot"), root)
    for name, body in rows.FILES.items():
        with open(os.path.join(root, name), "wb") as file:
            file.write(body)
    return root


def htaccess_root(directory, documents, has_files):
    """The documents in a folder three levels deep, with .htaccess files above it or without."""
    root = os.path.join(directory, "htaccess" if has_files else "no-htaccess")
    shutil.copytree(documents, os.path.join(root, "a", "b", "c"))
    for folder in rows.HTACCESS_FOLDERS if has_files else ():
        with open(os.path.join(root, folder, ".htaccess"), "w", encoding="ascii") as file:
            file.write(rows.HTACCESS)
    return root


def run(options):
    """All of it; returns the exit code: 0 every bar reached, 1 not, 2 not measured."""
    with tempfile.TemporaryDirectory(prefix="maitred-bench-") as directory:
        os.chmod(directory, 0o755)
        bench = Bench(options, directory)
        if not any(map(bench.wants, bench.titles())):
            texts = ", ".join(f'"{text}"' for text in options.only)
            raise peers.CannotStart(f"no row's title has {texts}")
        measured = bench.spine() + bench.tls() + bench.cached() + bench.wordpress()
        measured += bench.booted() + bench.packaged() + bench.htaccess()
        sections = bench.measure_sections()
        titles = bench.titles()
    if not measured + sections:
        raise peers.CannotStart("what --only names is not measured with the other options")
    results = report.Results(measured, sections, options)
    report.write(results, titles, HERE)
    print(results.bars_table())
    print(results.verdict())
    return 0 if results.holds() else 1


def main():
    """Runs, and leaves no process behind however it ends."""
    options = arguments()
    os.umask(0o022)
    processes.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return run(options)
    except (peers.CannotStart, load.WrongAnswer, TimeoutError) as problem:
        report.say(f"bench: {problem}")
        return 2
    except KeyboardInterrupt:
        report.say("bench: interrupted")
        return 130
    finally:
        left = processes.kill_descendants()
        if left:
            report.say(f"bench: ended {left} processes that were left over")


if __name__ == "__main__":
    sys.exit(main())
