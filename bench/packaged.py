"""Applications of Debian's packages that need no database server: MediaWiki and phpMyAdmin."""

import os
import subprocess

import peers

MEDIAWIKI = "/usr/share/mediawiki"
PHPMYADMIN = "/usr/share/phpmyadmin"
PASSWORD = "a long pass phrase, for loopback only"
INSTALL_SECONDS = 120

# One installation is served by several servers, each on its own port.
SETTINGS = """
$wgServer = 'http://' . $_SERVER['HTTP_HOST'];
$wgCacheDirectory = '%(cache)s';
"""
FRONT = """<?php
define('MW_CONFIG_FILE', '%(settings)s');
chdir('%(package)s');
require '%(package)s/index.php';
"""


def mediawiki(directory):
    """Installs a wiki with a database in a file; returns its document root."""
    folder = os.path.join(directory, "mediawiki")
    data, cache, root = (os.path.join(folder, name) for name in ("data", "cache", "root"))
    for path in (data, cache, root):
        os.makedirs(path)
    install = [
        peers.program("php"), os.path.join(MEDIAWIKI, "maintenance/install.php"),
        "--dbtype", "sqlite", "--dbname", "wiki", "--dbpath", data,
        "--server", "http://127.0.0.1", "--scriptpath", "", "--pass", PASSWORD,
        "--confpath", folder, "Wiki", "Admin",
    ]
    subprocess.run(install, check=True, capture_output=True, timeout=INSTALL_SECONDS)
    settings = os.path.join(folder, "LocalSettings.php")
    with open(settings, "a", encoding="ascii") as file:
        file.write(SETTINGS % {"cache": cache})
    with open(os.path.join(root, "index.php"), "w", encoding="ascii") as file:
        file.write(FRONT % {"settings": settings, "package": MEDIAWIKI})
    give_to_workers(folder)
    return root


def phpmyadmin(_directory):
    """The package's own document root."""
    return PHPMYADMIN


def give_to_workers(folder):
    """Changes the owner of a folder and all below it."""
    if peers.IS_ROOT:
        subprocess.run(["chown", "-R", f"{peers.WORKER_USER}:", folder], check=True)


# Each with its title, its package, how to lay it out, and a page.
PAGES = (
    ("MediaWiki", MEDIAWIKI, mediawiki, "/index.php?title=Main_Page"),
    ("phpMyAdmin", PHPMYADMIN, phpmyadmin, "/index.php"),
)
