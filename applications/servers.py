"""maitred and its peers before the same files, each at a loopback address of its own.

They run in the private root that scripts/applications makes, one after the other at one state of
the files and databases, or side by side for pages that change nothing.
"""

import glob
import os
import re
import shutil
import subprocess
import time

import visitor
import processes

RUN = "/run/applications"
USER = "www-data"
WORKERS = 4
START_SECONDS = 30
NGINX_FASTCGI = """
        fastcgi_split_path_info ^(.+?\\.php)(/.*)$;
        try_files $fastcgi_script_name =404;
        set $path_info $fastcgi_path_info;
        include /etc/nginx/fastcgi.conf;
        fastcgi_param PATH_INFO $path_info;
        fastcgi_read_timeout 60s;
        # Messages of PHP share the buffer of the header, which is full at once otherwise: a 502.
        fastcgi_buffer_size 256k;
        fastcgi_buffers 8 256k;
        fastcgi_pass unix:/run/applications/fpm.sock;"""
APACHE_MODULES = (
    "mpm_prefork access_compat alias auth_basic authn_core authn_file authz_core authz_host "
    "authz_user authz_groupfile autoindex deflate dir env expires filter headers mime negotiation "
    "rewrite setenvif"
).split()


class CannotStart(Exception):
    """A server ended instead of serving."""


def write(name, text):
    """Writes a file of this run and returns its path."""
    path = os.path.join(RUN, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def newest(pattern):
    """The last of the paths that a pattern matches."""
    found = sorted(glob.glob(pattern))
    if not found:
        raise CannotStart(f"nothing matches {pattern}")
    return found[-1]


class Server:
    """Processes that serve an application at an address, until the end of a `with` block."""

    name = address = ""

    def __init__(self, application):
        self.application = application
        self.started = []

    def __enter__(self):
        os.makedirs(RUN, exist_ok=True)
        try:
            self.start()
            self._await()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def launch(self, command, env=None):
        """Starts a process with its output in the log of the server."""
        with open(self.log(), "ab") as log:
            self.started.append(processes.start(command, log, env))

    def log(self):
        """The path of what the processes print."""
        return os.path.join(RUN, f"{self.name}.log")

    def _await(self):
        until = time.monotonic() + START_SECONDS
        while visitor.send(self.address, "/favicon.ico").status == 0:
            if any(each.poll() is not None for each in self.started) or time.monotonic() > until:
                with open(self.log(), encoding="utf-8", errors="replace") as log:
                    raise CannotStart(f"{self.name}: {log.read()[-1500:]}")
            time.sleep(0.05)

    def stop(self):
        """Ends the processes."""
        for each in reversed(self.started):
            processes.stop(each)
        self.started = []


def fpm_conf():
    """php-fpm's configuration, which `maitred import` reads as well."""
    return (
        f"[global]\nerror_log = {RUN}/fpm.log\ndaemonize = no\n[www]\nuser = {USER}\n"
        f"group = {USER}\nlisten = {RUN}/fpm.sock\nlisten.owner = {USER}\nlisten.group = {USER}\n"
        f"pm = static\npm.max_children = {WORKERS}\n"
    )


def nginx_conf(application, address):
    """nginx's configuration with the application's rules."""
    rules = application.nginx or "location / { try_files $uri $uri/ =404; }"
    scripts = (
        "" if "fastcgi_pass" in rules else f"location ~ [^/]\\.php(/|$) {{{NGINX_FASTCGI}\n    }}"
    )
    rules = rules.replace("@FASTCGI@", NGINX_FASTCGI)
    return f"""user {USER};
daemon off;
worker_processes 1;
pid {RUN}/nginx.pid;
error_log {RUN}/nginx.log warn;
events {{ worker_connections 1024; }}
http {{
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    sendfile on;
    access_log off;
    gzip on;
    client_max_body_size 64m;
    client_body_temp_path {RUN}/nginx-body;
    fastcgi_temp_path {RUN}/nginx-fastcgi;
    proxy_temp_path {RUN}/nginx-proxy;
    uwsgi_temp_path {RUN}/nginx-uwsgi;
    scgi_temp_path {RUN}/nginx-scgi;
    server {{
        listen {address}:80 default_server;
        server_name {visitor.HOST};
        root {application.root};
        index index.php index.html;
        {rules}
        {scripts}
    }}
}}
"""


class Nginx(Server):
    """nginx before php-fpm."""

    name, address = "nginx", "127.0.0.2"

    def start(self):
        fpm = write("fpm.conf", fpm_conf())
        self.launch([newest("/usr/sbin/php-fpm?*"), "--nodaemonize", "--fpm-config", fpm])
        processes.wait_until(lambda: os.path.exists(f"{RUN}/fpm.sock"), START_SECONDS, "php-fpm")
        conf = write("nginx.conf", nginx_conf(self.application, self.address))
        self.launch(["nginx", "-e", f"{RUN}/nginx.log", "-c", conf])


class Apache(Server):
    """Apache with mod_php, php-fpm's php.ini, and `.htaccess` files in force."""

    name, address = "apache", "127.0.0.3"

    def start(self):
        modules = "/usr/lib/apache2/modules"
        lines = [f"LoadModule {each}_module {modules}/mod_{each}.so" for each in APACHE_MODULES]
        lines.append(f"LoadModule php_module {newest(modules + '/libphp*.so')}")
        root = self.application.root
        ini = newest("/etc/php/*/fpm/php.ini")
        conf = "\n".join(lines) + f"""
ServerRoot {RUN}
ServerName {visitor.HOST}
Listen {self.address}:80
PidFile {RUN}/apache.pid
DefaultRuntimeDir {RUN}
ErrorLog {RUN}/apache.log
PHPINIDir {os.path.dirname(ini)}
User {USER}
Group {USER}
StartServers 2
MaxRequestWorkers 8
TypesConfig /etc/mime.types
DirectoryIndex index.php index.html
AddHandler application/x-httpd-php .php
<FilesMatch "^\\.ht">
    Require all denied
</FilesMatch>
DocumentRoot {root}
<Directory {root}>
    AllowOverride All
    Require all granted
    Options FollowSymLinks
</Directory>
{self.application.apache}
"""
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        self.launch(["apache2", "-f", write("apache.conf", conf), "-DFOREGROUND"], env)


class Maitred(Server):
    """maitred with the imported configuration of nginx and php-fpm."""

    name, address = "maitred", "127.0.0.1"
    program = ""

    def start(self):
        conf = write("maitred.toml", self.config())
        self.launch([self.program, "serve", "--config", conf])

    def config(self):
        """maitred.toml: what `maitred import` makes, at this address."""
        nginx = write("import-nginx.conf", nginx_conf(self.application, self.address))
        fpm = write("import-fpm.conf", fpm_conf())
        command = [self.program, "import", "nginx", nginx, "--php-fpm", fpm]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        write("import-report.txt", made.stderr)
        if made.returncode not in (0, 3):
            raise CannotStart(f"maitred import: {made.stderr[-1500:]}")
        text = re.sub(r"(?m)^(error_log|admin_socket) .*\n", "", made.stdout)
        return f'admin_socket = "{RUN}/admin.sock"\n{text}'


class Preset(Maitred):
    """maitred with the application's own configuration."""

    def config(self):
        return self.head() + f'root = "{self.application.root}"\n{self.application.maitred}\n'

    def head(self):
        """What every configuration of one site has."""
        return (
            f'listen = "{self.address}:80"\nadmin_socket = "{RUN}/admin.sock"\n'
            f'[pools.www]\nuser = "{USER}"\nmax_children = {WORKERS}\npm = "static"\n'
            f'[[sites]]\nhosts = ["{visitor.HOST}"]\npool = "www"\nmax_body_size = "64m"\n'
        )


class Htaccess(Preset):
    """maitred with the application's `.htaccess` files in force."""

    def config(self):
        return self.head() + f'root = "{self.application.root}"\nhtaccess = true\n'


def clear():
    """Forgets the logs and sockets of the servers before."""
    shutil.rmtree(RUN, ignore_errors=True)
