"""A WordPress of the run's own: Debian's package, on a MariaDB that listens on a socket only."""

import contextlib
import http.client
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import urllib.parse
import urllib.request

import peers
import processes

PACKAGE = "/usr/share/wordpress"
DATABASE_USER = "mysql"
START_SECONDS = 60
INSTALL_SECONDS = 120
USER = "admin"
PASSWORD = "correct-horse-battery"
TEST_COOKIE = "wordpress_test_cookie=WP%20Cookie%20check"

CONFIG = """<?php
define('DB_NAME', 'wordpress');
define('DB_USER', 'root');
define('DB_PASSWORD', '');
define('DB_HOST', 'localhost:%(socket)s');
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
%(keys)s
// One installation is served by several servers, each on its own port.
define('WP_HOME', 'http://' . $_SERVER['HTTP_HOST']);
define('WP_SITEURL', WP_HOME);
define('DISABLE_WP_CRON', true);
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
$table_prefix = 'wp_';
if (!defined('ABSPATH')) {
    define('ABSPATH', __DIR__ . '/');
}
require_once ABSPATH . 'wp-settings.php';
"""
KEYS = ("AUTH", "SECURE_AUTH", "LOGGED_IN", "NONCE")


class MariaDb:
    """A database server in a directory of its own."""

    def __init__(self, directory):
        self.directory = os.path.join(directory, "mariadb")
        self.socket = os.path.join(directory, "mariadb.sock")
        self.process = None

    def start(self):
        """Makes the data directory, starts the server, and makes the database."""
        os.mkdir(self.directory)
        user = []
        if peers.IS_ROOT:
            account = pwd.getpwnam(DATABASE_USER)
            os.chown(self.directory, account.pw_uid, account.pw_gid)
            self.socket = os.path.join(self.directory, "mariadb.sock")
            os.chmod(self.directory, 0o755)
            user = [f"--user={DATABASE_USER}"]
        common = ["--no-defaults", f"--datadir={self.directory}", *user]
        run(
            peers.program("mariadb-install-db"), *common,
            "--auth-root-authentication-method=normal", "--skip-test-db",
        )
        log_path = self.directory + ".log"
        with open(log_path, "wb") as log:
            self.process = processes.start(
                [peers.program("mariadbd"), *common, f"--socket={self.socket}",
                 "--skip-networking", "--skip-log-bin"],
                log,
            )
        processes.wait_until(self.accepts, START_SECONDS, f"MariaDB (log: {log_path})")
        self.query("CREATE DATABASE wordpress CHARACTER SET utf8mb4")

    def client(self):
        """The client's command line."""
        return [peers.program("mariadb"), "--no-defaults", "-S", self.socket, "-u", "root"]

    def accepts(self):
        """Whether the server answers."""
        if self.process.poll() is not None:
            raise peers.CannotStart("MariaDB ended instead of serving")
        asked = subprocess.run([*self.client(), "-e", "SELECT 1"], capture_output=True, check=False)
        return asked.returncode == 0

    def query(self, statement):
        """Runs one statement."""
        run(*self.client(), "-e", statement)

    def stop(self):
        """Ends the server."""
        if self.process is not None:
            processes.stop(self.process)


@contextlib.contextmanager
def unpacked(parent):
    """The document root of a WordPress that is not installed yet, with a database, for a while."""
    with tempfile.TemporaryDirectory(prefix="wordpress-", dir=parent) as directory:
        os.chmod(directory, 0o755)
        database = MariaDb(directory)
        try:
            database.start()
            yield unpack(directory, database)
        finally:
            database.stop()


def run(*command):
    """Runs a command to its end, or says what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-600:]
        raise peers.CannotStart(f"{os.path.basename(command[0])} failed: {said}")


def unpack(directory, database):
    """Copies the package's files into a document root that a web server may read."""
    root = os.path.join(directory, "wordpress")
    if not os.path.isdir(PACKAGE):
        raise peers.CannotStart("wordpress is not installed; scripts/setup-test installs it")
    # The package is a farm of links into other packages; copies of what they mean stay in the root.
    shutil.copytree(PACKAGE, root, ignore_dangling_symlinks=True)
    names = [f"{key}_{kind}" for key in KEYS for kind in ("KEY", "SALT")]
    keys = "\n".join(f"define('{name}', '{os.urandom(32).hex()}');" for name in names)
    with open(os.path.join(root, "wp-config.php"), "w", encoding="utf-8") as file:
        file.write(CONFIG % {"socket": database.socket, "keys": keys})
    return root


def asked(port, host, path, form=None, cookie=""):
    """The response to a GET, or to a POST of a form."""
    headers = {"Host": host, "Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=INSTALL_SECONDS)
    with contextlib.closing(connection):
        connection.request("POST" if form else "GET", path, form, headers)
        return connection.getresponse()


def log_in(port, host):
    """Logs the administrator in; returns the Cookie header of a browser that has done so."""
    form = urllib.parse.urlencode({
        "log": USER, "pwd": PASSWORD, "wp-submit": "Log In", "testcookie": "1",
    })
    response = asked(port, host, "/wp-login.php", form, TEST_COOKIE)
    cookies = [line.split(";")[0] for line in response.headers.get_all("Set-Cookie") or []]
    if not any(cookie.startswith("wordpress_logged_in_") for cookie in cookies):
        raise peers.CannotStart(f"WordPress did not log in, with status {response.status}")
    return "; ".join(cookies)


def first_post(port, host):
    """The path of the post that the installer has made."""
    response = asked(port, host, "/?p=1")
    address = urllib.parse.urlsplit(response.headers.get("Location", "/?p=1"))
    return address.path + (f"?{address.query}" if address.query else "")


def install(port):
    """Goes through WordPress's own installer over HTTP."""
    form = {
        "weblog_title": "Benchmark", "user_name": USER, "admin_email": "admin@example.com",
        "admin_password": PASSWORD, "admin_password2": PASSWORD,
        "pw_weak": "1", "blog_public": "0", "language": "", "Submit": "Install WordPress",
    }
    url = f"http://127.0.0.1:{port}/wp-admin/install.php?step=2"
    body = urllib.parse.urlencode(form).encode()
    with urllib.request.urlopen(url, body, INSTALL_SECONDS) as answer:
        page = answer.read().decode("utf-8", "replace")
    if "Success!" not in page:
        words = re.sub(r"<[^>]*>|\s+", " ", page)[:400]
        raise peers.CannotStart(f"WordPress's installer did not succeed: {words}")
