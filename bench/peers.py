"""The servers that are measured, each started from a configuration written for the run.

All serve the same document root on a loopback port of their own, with the same php.ini (that of
php-fpm), OPcache on, no access log, no compression, and connections kept for as long as asked.
"""

import contextlib
import dataclasses
import glob
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import time
import urllib.request

import processes

START_SECONDS = 30
TARGET = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "target")
NGINX_WORKERS = 2
# Without root there is no changing user, and the settings that name one are left out.
IS_ROOT = os.geteuid() == 0
WORKER_USER = "www-data"
CACHED_MINUTES = 30
# What `Place.booted` names: how titles say it, the mode, the script, and what else the pool is told.
WARM = 'warm_requests = ["/goods/1"]'
JIT = (("opcache.jit", "tracing"), ("opcache.jit_buffer_size", "64M"))
WAYS = {
    # As many requests for a worker as php-fpm serves: without a limit.
    "worker": ("in worker mode", "worker", "worker", 'env = { FRANKENPHP_LOOP_MAX = "0" }'),
    "snapshot": ("in snapshot mode", "snapshot", "snapshot", WARM),
    "rewind": (
        "in snapshot mode, going back", "snapshot", "snapshot", WARM + "\nrewinds_per_child = 10000"
    ),
    "serves1": ("copied for 1 request", "snapshot", "worker", "requests_per_child = 1"),
    "serves10": ("copied for 10 requests", "snapshot", "worker", "requests_per_child = 10"),
    "serves100": ("copied for 100 requests", "snapshot", "worker", "requests_per_child = 100"),
    "classic": ("in classic mode", "classic", None, ""),
    "preload": ("in classic mode, preload = true", "classic", None, "preload = true"),
    "jit": (
        "in classic mode, opcache.jit = tracing", "classic", None,
        "php_admin_value = { " + ", ".join(f'"{name}" = "{value}"' for name, value in JIT) + " }",
    ),
}
LEARN_SECONDS = 120
LEARN_REQUESTS = 50  # between two looks at the status


class CannotStart(Exception):
    """A server is not installed, or ended instead of serving."""


def allow_many_files():
    """The servers and clients of a run inherit as many descriptors as may be had."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@dataclasses.dataclass
class Place:
    """Where a run happens: a temporary directory, and what is served from it."""

    directory: str
    root: str
    workers: int
    front_controller: bool = False
    tls: bool = False  # speak it instead of plain HTTP
    cached: bool = False  # keep the answers of scripts
    htaccess: bool = False  # follow the .htaccess files below the root
    booted: str = ""  # one of WAYS: how maitred boots worker.php or snapshot.php

    def certificate(self):
        """The paths of a certificate for localhost (ECDSA, P-256) and of its key, made if need be."""
        cert, key = self.file("tls.pem"), self.file("tls.key")
        if not os.path.exists(cert):
            command = [program("openssl"), "req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"]
            command += ["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=localhost"]
            command += ["-keyout", key, "-out", cert]
            subprocess.run(command, check=True, capture_output=True)
        return cert, key

    def file(self, name, text=None):
        """The path of a file in the temporary directory, written if there is text."""
        path = os.path.join(self.directory, name)
        if text is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return path


class Peer:
    """A server, or two that serve together, listening on one port."""

    name = ""
    worker_title = ""

    def __init__(self, place):
        self.place = place
        self.port = free_port()
        self.started = []

    @property
    def http2_port(self):
        """Where it speaks HTTP/2."""
        return self.port

    def start(self):
        """Starts the server and returns when its port is open."""
        raise NotImplementedError

    def launch(self, label, command, env=None):
        """Starts one process with its output in a log of its own."""
        log_path = self.place.file(f"{label}-{self.port}.log")
        with open(log_path, "ab") as log:
            process = processes.start(command, log, env)
        self.started.append(process)
        return process, log_path

    def await_port(self, process, log_path):
        """Waits until the port accepts, or says why the server did not come up."""

        def accepts():
            if process.poll() is not None:
                code = process.returncode
                raise CannotStart(f"{self.name} ended with code {code}: {tail(log_path)}")
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        processes.wait_until(accepts, START_SECONDS, f"{self.name} on port {self.port}")

    @property
    def leaders(self):
        """The pids of the processes that were started; their trees are the server."""
        return [process.pid for process in self.started]

    def workers(self):
        """The pids of the processes that run PHP."""
        return processes.titled(self.leaders, self.worker_title)

    def await_workers(self):
        """Waits until all PHP workers are there."""
        count = self.place.workers
        processes.wait_until(
            lambda: len(self.workers()) == count, START_SECONDS, f"{count} workers of {self.name}"
        )

    def stop(self):
        """Ends the server."""
        for process in self.started:
            processes.stop(process)
        self.started = []


class Maitred(Peer):
    """maitred as `make build` leaves it, without a configuration."""

    name = "maitred"
    worker_title = "maitred-php: worker"
    program = os.environ.get("MAITRED_BIN") or os.path.join(TARGET, "release", "maitred")

    def start(self):
        path = self.installed()
        if self.place.tls:
            command = [path, "serve", "--config", self.place.file("tls.toml", self.tls_config())]
        elif self.place.booted:
            config = self.place.file("booted.toml", self.booted_config())
            command = [path, "serve", "--config", config]
        elif self.place.htaccess:
            config = self.place.file("htaccess.toml", self.htaccess_config())
            command = [path, "serve", "--config", config]
        elif self.place.cached:
            config = self.place.file("cached.toml", self.cached_config())
            command = [path, "serve", "--config", config]
        else:
            command = [path, "serve", self.place.root, "--listen", f"127.0.0.1:{self.port}"]
        command += ["--workers", str(self.place.workers)]
        command += ["--admin-socket", self.admin_socket()]
        self.await_port(*self.launch("maitred", command))

    def tls_config(self):
        """maitred.toml: the same server, over TLS."""
        cert, key = self.place.certificate()
        return f"""[tls]
listen = "127.0.0.1:{self.port}"
certificates = [{{ cert = "{cert}", key = "{key}" }}]
[[sites]]
root = "{self.place.root}"
"""

    def cached_config(self):
        """maitred.toml: the same server, with a page cache."""
        rule = "front_controller = \"/index.php\"" if self.place.front_controller else ""
        return f"""listen = ["127.0.0.1:{self.port}"]
[[sites]]
root = "{self.place.root}"
{rule}
[sites.cache]
valid = "{CACHED_MINUTES}m"
"""

    def htaccess_config(self):
        """maitred.toml: the same server, which follows .htaccess files."""
        return f"""listen = ["127.0.0.1:{self.port}"]
[[sites]]
root = "{self.place.root}"
htaccess = true
"""

    def booted_config(self):
        """maitred.toml: the same server, which boots what is named for its mode once."""
        _, mode, script, more = WAYS[self.place.booted]
        script = f'script = "{self.place.root}/{script}.php"' if script else ""
        rule = "" if script else 'front_controller = "/index.php"'
        return f"""listen = ["127.0.0.1:{self.port}"]
[pools.www]
mode = "{mode}"
{script}
{more}
[[sites]]
root = "{self.place.root}"
{rule}
"""

    def learn(self, path):
        """Requests a page until the pool preloads the classes of it."""
        until = time.monotonic() + LEARN_SECONDS
        command = [self.installed(), "status", "--json", "--admin-socket", self.admin_socket()]
        while time.monotonic() < until:
            for _ in range(LEARN_REQUESTS):
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as page:
                    page.read()
            status = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            if json.loads(status)["pools"][0]["preloading"]["classes"]:
                return
        raise CannotStart(f"{self.name} has preloaded nothing within {LEARN_SECONDS} s")

    def admin_socket(self):
        """The path of the socket that `maitred status` asks."""
        return self.place.file(f"admin-{self.port}.sock")

    def installed(self):
        """The path of the program, which must be there."""
        path = os.path.abspath(self.program)
        if not os.path.exists(path):
            raise CannotStart(f"there is no {path}; make build makes it")
        return path


class ClassicMaitred(Maitred):
    """maitred where every request runs its script from the beginning."""

    name = "maitred, classic"

    def __init__(self, place):
        super().__init__(dataclasses.replace(place, booted=""))


class MaitredWithoutHtaccess(Maitred):
    """maitred that does not look for .htaccess files."""

    name = "maitred, without"

    def __init__(self, place):
        super().__init__(dataclasses.replace(place, htaccess=False))


class Nginx(Peer):
    """nginx alone, for static files."""

    name = "nginx"

    def __init__(self, place):
        super().__init__(place)
        self.own_http2_port = free_port()

    @property
    def http2_port(self):
        """A port without TLS speaks HTTP/2 or HTTP/1.1."""
        return self.own_http2_port

    def start(self):
        config = self.place.file(f"nginx-{self.port}.conf", self.nginx_config())
        nginx = program("nginx")
        self.await_port(*self.launch("nginx", [nginx, "-p", self.place.directory, "-c", config]))

    def php_rule(self):
        """What becomes of PHP scripts: without PHP, their source is no answer."""
        return "deny all;"

    def upstreams(self):
        """nginx's configuration of its upstream."""
        return ""

    def nginx_config(self):
        """nginx.conf."""
        user = f"user {WORKER_USER};" if IS_ROOT else ""
        temporary = "\n  ".join(
            f"{kind}_temp_path {self.place.file(f'nginx-{self.port}-{kind}')};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        tls, lines = "", ""
        if self.place.tls:
            cert, key = self.place.certificate()
            # The same cipher as maitred's.
            tls, lines = "ssl", f"""ssl_certificate {cert}; ssl_certificate_key {key};
    ssl_protocols TLSv1.2 TLSv1.3; ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;"""
        # A plain site does without try_files, which costs nginx one more system call per request.
        rule = ""
        if self.place.front_controller:
            rule = "try_files $uri $uri/ /index.php$is_args$args;"
        return f"""{user}
daemon off;
worker_processes {NGINX_WORKERS};
pid {self.place.file(f"nginx-{self.port}.pid")};
error_log {self.place.file(f"nginx-{self.port}.error")};
events {{ worker_connections 4096; }}
http {{
  include /etc/nginx/mime.types;
  default_type application/octet-stream;
  access_log off;
  sendfile on;
  tcp_nopush on;
  gzip off;
  keepalive_requests 1000000000;
  keepalive_timeout 65;
  {temporary}
  {self.upstreams()}
  server {{
    listen 127.0.0.1:{self.port} {tls};
    listen 127.0.0.1:{self.http2_port} {tls} http2;
    {lines}
    root {self.place.root};
    index index.php index.html;
    location / {{ {rule} }}
    location ~ \\.php$ {{ {self.php_rule()} }}
  }}
}}
"""


class NginxFpm(Nginx):
    """nginx in front of php-fpm's static pool, over a Unix socket."""

    name = "nginx + php-fpm"
    worker_title = "php-fpm: pool"

    def start(self):
        config = self.place.file(f"fpm-{self.port}.conf", self.fpm_config())
        command = [*self.fpm_command(), "--nodaemonize", "--fpm-config", config]
        fpm, log = self.launch("fpm", command)

        def listens():
            if fpm.poll() is not None:
                raise CannotStart(f"php-fpm ended with code {fpm.returncode}: {tail(log)}")
            return os.path.exists(self.socket())

        processes.wait_until(listens, START_SECONDS, "php-fpm's socket")
        super().start()

    def fpm_command(self):
        """The program that runs the pool, and the words that make it php-fpm."""
        return [php_fpm()]

    def socket(self):
        """The path of php-fpm's socket."""
        return self.place.file(f"fpm-{self.port}.sock")

    def php_rule(self):
        kept = ""
        if self.place.cached:
            kept = f"fastcgi_cache pages; fastcgi_cache_valid 200 {CACHED_MINUTES}m;"
        return f"include /etc/nginx/fastcgi.conf; fastcgi_pass unix:{self.socket()}; {kept}"

    def upstreams(self):
        if not self.place.cached:
            return super().upstreams()
        path = self.place.file(f"nginx-{self.port}-pages")
        key = "$scheme$request_method$host$request_uri"
        return f"fastcgi_cache_path {path} keys_zone=pages:10m; fastcgi_cache_key {key};"

    def fpm_config(self):
        """php-fpm.conf."""
        user = f"user = {WORKER_USER}\ngroup = {WORKER_USER}\n" if IS_ROOT else ""
        return f"""[global]
error_log = {self.place.file(f"fpm-{self.port}.error")}
daemonize = no
[www]
{user}listen = {self.socket()}
listen.mode = 0666
pm = static
pm.max_children = {self.place.workers}
"""


class NginxFpmWithJit(NginxFpm):
    """The same, with the compiler of OPcache."""

    name = "nginx + php-fpm, opcache.jit = tracing"

    def fpm_command(self):
        entries = [word for name, value in JIT for word in ("-d", f"{name}={value}")]
        return [*super().fpm_command(), *entries]


class ApacheModPhp(Peer):
    """Apache's prefork model with mod_php.

    mod_php ties a PHP to each connection, so its processes are as many as the most connections
    of any row, and not as few as the other servers' workers.
    """

    name = "Apache + mod_php"
    worker_title = "apache2"
    max_connections = 64

    def start(self):
        config = self.place.file(f"apache-{self.port}.conf", self.config())
        env = dict(os.environ, PHP_INI_SCAN_DIR=os.path.join(php_ini_directory(), "conf.d"))
        command = [program("apache2"), "-f", config, "-DFOREGROUND"]
        self.await_port(*self.launch("apache", command, env))

    def config(self):
        """apache2.conf."""
        count = self.max_connections + 8
        user = f"User {WORKER_USER}\nGroup {WORKER_USER}" if IS_ROOT else ""
        more = ("rewrite", "env") if self.place.htaccess else ()
        override = "All" if self.place.htaccess else "None"
        modules = "\n".join(
            f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so"
            for name in ("mpm_prefork", "authz_core", "mime", "dir", *more)
        )
        return f"""ServerRoot {self.place.directory}
ServerName 127.0.0.1
Listen 127.0.0.1:{self.port}
PidFile {self.place.file(f"apache-{self.port}.pid")}
DefaultRuntimeDir {self.place.directory}
ErrorLog {self.place.file(f"apache-{self.port}.error")}
{modules}
LoadModule php_module {apache_php_module()}
{user}
PHPIniDir {php_ini_directory()}
StartServers {count}
MinSpareServers 1
MaxSpareServers {count}
ServerLimit {count}
MaxRequestWorkers {count}
MaxConnectionsPerChild 0
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 65
TypesConfig /etc/mime.types
DocumentRoot {self.place.root}
DirectoryIndex index.php index.html
<Directory {self.place.root}>
  Require all granted
  AllowOverride {override}
</Directory>
<FilesMatch "\\.php$">
  SetHandler application/x-httpd-php
</FilesMatch>
"""


def tail(log_path):
    """The last of what a server said."""
    with open(log_path, encoding="utf-8", errors="replace") as log:
        return log.read().strip()[-600:]


def program(name):
    """The path of an installed program."""
    tools = os.path.join(TARGET, "tools", "bin")
    places = [os.environ.get("PATH", ""), "/usr/sbin", "/sbin", tools]
    path = shutil.which(name, path=":".join(places))
    if path is None:
        raise CannotStart(f"{name} is not installed; scripts/setup-bench installs it")
    return path


def newest(pattern, what):
    """The installed path that matches a pattern, with the highest version number in it."""
    paths = glob.glob(pattern)
    if not paths:
        raise CannotStart(f"{what} is not installed; scripts/setup-test installs it")
    return max(paths, key=lambda path: [int(part) for part in re.findall(r"\d+", path)])


def php_fpm():
    """Debian's php-fpm program."""
    return newest("/usr/sbin/php-fpm*", "php-fpm")


def php_ini_directory():
    """The directory with php-fpm's php.ini and conf.d, which all servers here use."""
    version = re.search(r"fpm([\d.]+)$", php_fpm()).group(1)
    return f"/etc/php/{version}/fpm"


def apache_php_module():
    """mod_php of the same version as php-fpm."""
    version = php_ini_directory().split("/")[3]
    return newest(f"/usr/lib/apache2/modules/libphp{version}.so", f"libapache2-mod-php{version}")


def free_port():
    """A free loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def versions(generators=("wrk", "oha")):
    """What was measured with what, as {program: version}."""
    asked = {
        "nginx": [program("nginx"), "-v"],
        "php-fpm": [php_fpm(), "--version"],
        "Apache": [program("apache2"), "-v"],
    }
    for name in generators:
        # Few rows need oha, which takes minutes to build.
        with contextlib.suppress(CannotStart):
            asked[name] = [program(name), "-v" if name == "wrk" else "--version"]
    found = {}
    for name, command in asked.items():
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        number = re.search(r"\d+\.\d+(\.\d+)?", done.stdout + done.stderr)
        found[name] = number.group(0) if number else "unknown"
    return found
