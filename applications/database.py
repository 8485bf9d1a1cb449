"""A MariaDB of the run, at the usual socket of the private root."""

import os
import shutil
import subprocess
import time

import processes

DATA = "/run/applications-data"
SOCKET = "/run/mysqld/mysqld.sock"
PASSWORD = "pass-phrase"
START_SECONDS = 30
RUNNING = []


def create(*names):
    """Makes an empty server with these databases, each with a user of its name."""
    stop()
    shutil.rmtree(DATA, ignore_errors=True)
    os.makedirs(os.path.dirname(SOCKET), exist_ok=True)
    shutil.chown(os.path.dirname(SOCKET), "mysql", "mysql")
    command = ["mariadb-install-db", "--user=mysql", f"--datadir={DATA}", "--skip-test-db"]
    command.append("--auth-root-authentication-method=socket")
    subprocess.run(command, check=True, capture_output=True)
    start()
    for name in names:
        run(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        for host in ("localhost", "127.0.0.1"):
            run(f"CREATE USER {name}@{host} IDENTIFIED BY '{PASSWORD}'")
            run(f"GRANT ALL ON {name}.* TO {name}@{host}")


def start():
    """Starts the server and waits until it accepts connections."""
    command = ["mariadbd", "--no-defaults", "--user=mysql", f"--datadir={DATA}"]
    command += [
        f"--socket={SOCKET}",
        "--bind-address=127.0.0.1",
        "--innodb-flush-log-at-trx-commit=0",
    ]
    command += ["--character-set-server=utf8mb4", "--collation-server=utf8mb4_unicode_ci"]
    with open("/run/applications-mariadb.log", "ab") as log:
        RUNNING.append(processes.start(command, log))
    until = time.monotonic() + START_SECONDS
    while subprocess.run(["mariadb-admin", "ping"], capture_output=True, check=False).returncode:
        if time.monotonic() > until:
            raise TimeoutError("MariaDB does not start; see /run/applications-mariadb.log")
        time.sleep(0.05)


def stop():
    """Ends the server."""
    while RUNNING:
        processes.stop(RUNNING.pop())


def run(statement, name=""):
    """Runs SQL as root."""
    command = ["mariadb", *([name] if name else [])]
    done = subprocess.run(command, input=statement, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"MariaDB: {done.stderr}")
    return done.stdout


def load(name, path):
    """Runs a file of SQL in a database."""
    with open(path, encoding="utf-8") as file:
        return run(file.read(), name)
