"""Applications that are booted once: those of tests/fixtures, with a database of their own."""

import os
import shutil
import sqlite3

import peers

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "fixtures")
APPLICATIONS = {"symfony": "Symfony", "illuminate": "Illuminate"}
GOODS = 20


def unpack(directory, name):
    """A copy of an application where the servers may read it; returns its document root."""
    folder = os.path.join(directory, name)
    shutil.copytree(os.path.join(FIXTURES, name), folder)
    var = os.path.join(folder, "var")
    os.mkdir(var)
    path = os.path.join(var, "goods.sqlite")
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT)")
        names = [(number, f"thing {number}") for number in range(1, GOODS + 1)]
        database.executemany("INSERT INTO goods VALUES (?, ?)", names)
    database.close()
    if peers.IS_ROOT:
        for path in (var, path):
            shutil.chown(path, peers.WORKER_USER, peers.WORKER_USER)
    return os.path.join(folder, "public")
