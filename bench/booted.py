"""Applications that are booted once: those of tests/fixtures, with a database of their own."""

import os
import shutil
import sqlite3

import peers

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "fixtures")
APPLICATIONS = {"symfony": "Symfony", "illuminate": "Illuminate"}
GOODS = 20
# Milliseconds of processor time that a boot takes, for the curve.
BOOTS = (2, 5, 20, 80)


BOOTS_FOR = """<?php
function used() {{
    $u = getrusage(); // Only the sum of both is exact.
    return ($u['ru_utime.tv_sec'] + $u['ru_stime.tv_sec']) * 1000 + ($u['ru_utime.tv_usec'] + $u['ru_stime.tv_usec']) / 1000;
}}
$until = used() + {milliseconds};
while (used() < $until) {{ for ($i = 0; $i < 1000; $i++) {{ $made[$i % 500] = "service $i"; }} }}
if (function_exists('maitred_snapshot')) {{ maitred_snapshot(); }}
echo '<html>thing ', (int) substr($_SERVER['REQUEST_URI'], 7), ' of ', count($made), '</html>';
"""


def that_boots_for(directory, milliseconds):
    """A document root whose script takes so long before it looks at its request."""
    root = os.path.join(directory, f"boot-{milliseconds}")
    os.mkdir(root)
    for name in ("index.php", "snapshot.php"):
        with open(os.path.join(root, name), "w", encoding="ascii") as script:
            script.write(BOOTS_FOR.format(milliseconds=milliseconds))
    return root


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
