"""The measurements, their peers, and the bars."""

import dataclasses

import load
import peers

HELLO = b"Hello, World!\n"
FILES = {
    "hello.txt": b"Hello, World!",
    "100k.bin": bytes(range(256)) * 400,
    "1m.bin": bytes(range(256)) * 4096,
    "10m.bin": bytes(range(256)) * 40960,
    "100m.bin": bytes(range(256)) * 409600,
}
PAGE = b"All work and no cache makes PHP a dull boy.\n" * 233  # of page.php
CPU = "CPU per request"
BOTH = "CPU per request, client's included"
RATE = "requests/s"


@dataclasses.dataclass(frozen=True)
class Bar:
    """What maitred's median divided by a peer's must reach."""

    peer: type
    ratio: float
    measure: str = CPU

    def holds(self, ratio):
        """Whether a ratio is good enough: for cost at most the bar, for a rate at least."""
        return ratio >= self.ratio if self.measure == RATE else ratio <= self.ratio

    def __str__(self):
        return f"{'≥' if self.measure == RATE else '≤'} {self.ratio:g}"


@dataclasses.dataclass(frozen=True)
class Row:
    """One kind of work."""

    title: str
    load: load.Load
    body: bytes | None  # None: a whole HTML page, whichever
    bars: tuple
    times_longer: int = 1  # than --seconds, where few requests are answered in that time


def both(title, path, body, keep_alive, bars_16, bars_64, tls=False):
    """The rows of one kind of work at 16 and at 64 connections."""
    kind = "keep-alive" if keep_alive else "without keep-alive"
    return [
        Row(f"{title}, {count} {kind}", load.Load(path, count, keep_alive, tls), body, tuple(bars))
        for count, bars in ((16, bars_16), (64, bars_64))
    ]


def spine():
    """hello.php and static files, with and without keep-alive."""
    nginx, fpm = peers.Nginx, peers.NginxFpm
    php = [Bar(fpm, 0.22), Bar(peers.ApacheModPhp, 0.32)]
    small, middle = [Bar(nginx, 0.9)], [Bar(nginx, 1.0)]
    hundred = [Bar(nginx, 0.7)]
    text = FILES["hello.txt"]
    return [
        *both("hello.php", "/hello.php", HELLO, True, php, php),
        *both("hello.txt (13 B)", "/hello.txt", text, True, small, small),
        *both("100 KB file", "/100k.bin", FILES["100k.bin"], True, hundred, hundred),
        *both("hello.php", "/hello.php", HELLO, False, [Bar(fpm, 0.6)], [Bar(fpm, 0.6)]),
        *both("hello.txt (13 B)", "/hello.txt", text, False, middle, middle),
    ]


def large_files(tls=False):
    """Files that sendfile sends in pieces, or that TLS encrypts.

    On loopback the kernel sends buffered bytes when the client's acknowledgement arrives, in the
    client's time, so the more a server has the kernel buffer, the less its own CPU time is. Hence the
    bar with the client's.
    """
    over = " over TLS" if tls else ""
    bars = [Bar(peers.Nginx, 1.0, measure) for measure in (CPU, BOTH, RATE)]

    def row(size, count):
        path = f"/{size}m.bin"
        asked = load.Load(path, count, True, tls)
        title = f"{size} MB file{over}, {count} keep-alive"
        return Row(title, asked, FILES[path[1:]], tuple(bars), times_longer=1 if size < 100 else 3)

    return [*(row(1, count) for count in (4, 16, 64)), row(10, 16), row(100, 4)]


def streams(title, path, body, bar, tls=False):
    """A row over HTTP/2, with ten streams on each connection at a time."""
    title = f"{title}, HTTP/2, 16 connections of 10 streams"
    return Row(title, load.Load(path, 16, tls=tls, streams=10), body, (bar,))


def http2():
    """hello.txt and hello.php over HTTP/2 without TLS."""
    return [
        streams("hello.txt (13 B)", "/hello.txt", FILES["hello.txt"], Bar(peers.Nginx, 1.0)),
        streams("hello.php", "/hello.php", HELLO, Bar(peers.NginxFpm, 0.5)),
    ]


def tls():
    """hello.txt over TLS: on connections that are kept, with a whole handshake for each, and HTTP/2."""
    kept, shaken = [Bar(peers.Nginx, 1.0)], [Bar(peers.Nginx, 1.1)]
    text = FILES["hello.txt"]
    return [
        *both("hello.txt over TLS", "/hello.txt", text, True, kept, kept, tls=True),
        *both("TLS handshake, hello.txt", "/hello.txt", text, False, shaken, shaken, tls=True),
        streams("hello.txt over TLS", "/hello.txt", text, Bar(peers.Nginx, 1.0), tls=True),
    ]


def cached():
    """A page of a script's, kept by either server: PHP runs once."""
    kept = [Bar(peers.NginxFpm, 0.55)]
    return both("cached page of 10 KB", "/page.php", PAGE, True, kept, kept)


# As WordPress writes it.
HTACCESS = """# BEGIN WordPress
<IfModule mod_rewrite.c>
RewriteEngine On
RewriteRule .* - [E=HTTP_AUTHORIZATION:%{HTTP:Authorization}]
RewriteBase /
RewriteRule ^index\\.php$ - [L]
RewriteCond %{REQUEST_FILENAME} !-f
RewriteCond %{REQUEST_FILENAME} !-d
RewriteRule . /index.php [L]
</IfModule>
# END WordPress
"""
HTACCESS_FOLDERS = ("", "a", "a/b")


def htaccess():
    """The same files below three levels of .htaccess, and where there is none."""
    apache, without = peers.ApacheModPhp, peers.MaitredWithoutHtaccess
    script, text = ("/a/b/c/hello.php", HELLO), ("/a/b/c/hello.txt", FILES["hello.txt"])

    def row(title, asked, *bars):
        path, body = asked
        return Row(f"{title}, 16 keep-alive", load.Load(path, 16, True), body, bars)

    three, none = "below three .htaccess", "htaccess on, no .htaccess"
    return {
        True: [
            row(f"hello.php {three}", script, Bar(apache, 0.45), Bar(without, 1.1)),
            row(f"hello.txt {three}", text, Bar(apache, 0.3), Bar(without, 1.1)),
        ],
        False: [
            row(f"hello.php, {none}", script, Bar(without, 1.03)),
            row(f"hello.txt, {none}", text, Bar(without, 1.03)),
        ],
    }


def booted_hello():
    """hello through frankenphp_handle_request, beside hello.php."""
    bar = Bar(peers.ClassicMaitred, 0.7)
    return both("hello in worker mode", "/hello.php", HELLO, True, [bar], [bar])


BOOTED_PAGE = "/goods/7"
BOOTED_BARS = {"worker": 0.2, "snapshot": 0.6, "rewind": 0.35}
# Ways of a worker script: how often a copy serves. Only 100 requests are to make up for its birth.
SERVES = {"serves1": 6.0, "serves10": 1.0, "serves100": 0.6}


def booted(name, way):
    """A page of an application that is booted once: routing, container, templates, SQLite."""
    title = f"{name} application {peers.WAYS[way][0]}, 16 keep-alive"
    bar = Bar(peers.NginxFpm, (BOOTED_BARS | SERVES)[way])
    return [Row(title, load.Load(BOOTED_PAGE, 16), None, (bar,))]


CLASSIC_RATIO = 1.1  # of the rate of an application's pages, to nginx + php-fpm


def classic(name, way):
    """The same page, where every request runs its script from the beginning."""
    title = f"{name} application {peers.WAYS[way][0]}, 16 keep-alive"
    bars = (Bar(peers.NginxFpm, CLASSIC_RATIO, RATE), Bar(peers.NginxFpm, 1.0))
    return [Row(title, load.Load(BOOTED_PAGE, 16), None, bars)]


SAME_SETTINGS_RATIO = 1.05  # the same, to php-fpm with the same settings of PHP


def packaged(name, path, way):
    """A page of an application of Debian's packages."""
    title = f"{name} {peers.WAYS[way][0]}, 16 keep-alive"
    bars = [Bar(peers.NginxFpm, CLASSIC_RATIO, RATE), Bar(peers.NginxFpm, 1.0)]
    if way == "jit":
        bars.append(Bar(peers.NginxFpmWithJit, SAME_SETTINGS_RATIO, RATE))
    return [Row(title, load.Load(path, 16), None, tuple(bars))]


def boots(milliseconds, way):
    """The curve: what is gained by a boot that takes so long."""
    title = f"boot of {milliseconds} ms {peers.WAYS[way][0]}, 16 keep-alive"
    bar = Bar(peers.NginxFpm, BOOTED_BARS[way])
    return [Row(title, load.Load("/goods/7", 16), None, (bar,))]


def cached_wordpress():
    """WordPress's front page, kept by either server."""
    bar = Bar(peers.NginxFpm, 0.8)
    return [
        Row(f"cached WordPress front page, {count} keep-alive", load.Load("/", count), None, (bar,))
        for count in (16, 64)
    ]


def wordpress():
    """WordPress's front page, as requests per second, the database's work included."""
    bar = Bar(peers.NginxFpm, 1.0, RATE)
    return [
        Row(f"WordPress front page, {count} keep-alive", load.Load("/", count), None, (bar,), 3)
        for count in (16, 64)
    ]


WORDPRESS_HOST = "blog.test"
WORDPRESS_RATIO = 1.15  # of the rate of its pages, to nginx + php-fpm with Debian's settings
WORDPRESS_WAYS = ("classic", "jit")


def wordpress_pages(way, post="", cookie=""):
    """WordPress's pages, every one made for its request. An installed WordPress has the path of its
    first post and the cookie of its administrator."""
    bars = [Bar(peers.NginxFpm, WORDPRESS_RATIO, RATE), Bar(peers.NginxFpm, 1.0)]
    if way == "jit":
        bars.append(Bar(peers.NginxFpmWithJit, SAME_SETTINGS_RATIO, RATE))
    pages = {
        "front page": load.Load("/", 16, host=WORDPRESS_HOST),
        "single post": load.Load(post, 16, host=WORDPRESS_HOST),
        "search": load.Load("/?s=hello", 16, host=WORDPRESS_HOST),
        "wp-admin": load.Load("/wp-admin/", 16, host=WORDPRESS_HOST, cookie=cookie),
    }
    return [
        Row(f"WordPress {name} {peers.WAYS[way][0]}, 16 keep-alive", asked, None, tuple(bars), 2)
        for name, asked in pages.items()
    ]


SYSTEM_CALLS_MOST = 12
IDLE_MEMORY_RATIO = 1.25

# What pools must show; ratios are of maitred's own figures unless said otherwise.
STEP_RATIO = 1.5  # of p99, to that of a static pool
BURST_SECONDS = 1.2
TURNOVER_RATIO = 2  # of p99 during reloads and upgrades, to that without
TURNOVER_MS = 10  # and so much besides
TURNOVER_SHARE = 0.8  # of the reloads and upgrades that were to be; without them it shows nothing
IDLE_POOLS_MORE_MB = 30  # than php-fpm
STATUS_MS = 50
# By the second half of many reloads, upgrades or requests; what is free but kept differs from one moment to the next.
MANY_MORE_KIB = 256
MANY_MORE_MAPPINGS = 4
SLOW_LOG_RATIO = 1.05  # two equal servers come out this close

# In php-fpm's place.
BEHIND_NGINX_RATIO = 0.85  # of php-fpm's CPU time
KEPT_P99_RATIO = 3  # of p99, to that of a connection per request
LARGE_ANSWER_MS = 1
HOSTILE_SECONDS = 0.1

# Clients that mean harm.
SLOW_CLIENTS_RATIO = 2  # of an honest request's p99, to that without attackers,
SLOW_CLIENTS_MS = 5  # or so much
BOOTED_BLOG_RATIO = 1.6  # of the rate of pages of a booted WordPress, to nginx + php-fpm
SMALL_RATIO = 0.7  # of the memory of a WordPress pool at rest, to that of nginx + php-fpm
AFTER_RELOAD_RATIO = 1.2  # of the p99 of pages after a reload, to that before
CRASH_RATE_RATIO = 0.8  # of the healthy pages of a pool, to those before,
CRASH_P99_RATIO = 2
DASHBOARD_PERCENT = 2  # of a core, for an open dashboard at 10,000 requests/s with 100 pools
DASHBOARD_KB = 30  # a second, of its events
# Of the CPU per request, to that without traces, by the share that is sampled.
TRACES_SOME_RATIO, TRACES_ALL_RATIO = 1.02, 1.3
BESIDE_P99_RATIO = 1.15  # of requests beside consumers that never wait, to those without
STALLED_MB = 128  # the front's memory beside clients that do not read,
STALLED_MORE_MB = 20  # and a minute after they have left
REST_MB = 80  # all processes of a server with 200 pools that rest,
REST_READY_SECONDS = 1  # and from its start until a first response

# Several nodes.
AGENTS_RATIO = 0.5  # of p99 with agent checks, to round robin
REDIS_P99_RATIO = 1.05  # of clients' p99 beside a slow Redis, to that before
NODES_RATIO = 2.9  # of the goodput of three nodes, to that of one,
NODES_P99_RATIO = 1.1  # at a p99 that is equal

# Large sites.
IDLE_CONNECTION_RATIO = 4  # of nginx's private memory for a connection,
IDLE_CONNECTION_BYTES = 512  # or of so much
MANY_SITES_RATIO = 1.1  # of CPU time, to that of one site

# More requests than can be answered.
GOODPUT = {3: 0.95, 10: 0.9}  # by capacity, at so many times of it
REFUSAL_US = 20
HANGING_RATIO = 3  # of p99, to p50

# Pools that find their size, by the best fixed number or as much as two equal ones differ.
AUTO_RATE = 0.95
AUTO_P99 = 1.15
AUTO_SAME_P99 = 1.1  # two p99 that differ by less are the same: fewer workers are better
AUTO_STEP = 1.3  # of p99, to that of a static pool
AUTO_COST = {"rest": 0.001, "busy": 0.01}  # parts of a processor, of 100 pools
