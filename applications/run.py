#!/usr/bin/env python3
"""Compares packaged applications on maitred with nginx + php-fpm, and with Apache + mod_php."""

import argparse
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "bench"))

import catalogue
import comparison
import database
import processes
import results
import servers


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="NAMES", help="only these: dokuwiki,cacti")
    parser.add_argument("--against", default="nginx,apache", help="the peers (nginx,apache)")
    parser.add_argument("--packages", action="store_true", help="list the packages")
    parser.add_argument("--list", action="store_true", help="list the applications")
    parser.add_argument(
        "--page", action="store_true", help="write docs/guide/tested-applications.md"
    )
    options = parser.parse_args()
    known = {each.key: each for each in catalogue.ALL}
    wanted = [name.strip() for name in options.only.split(",") if name.strip()] or list(known)
    if set(wanted) - set(known):
        parser.error(f"unknown: {', '.join(sorted(set(wanted) - set(known)))}; see --list")
    options.chosen = [known[name] for name in wanted]
    return options


def main():
    """Runs the comparison; the exit code is 1 if something differs."""
    options = arguments()
    if options.packages or options.list:
        for each in options.chosen:
            print("\n".join(each.packages if options.packages else [each.key]))
        return 0
    if not os.path.exists("/run/applications-root"):
        print("Start this with `make applications`: it needs the private root.", file=sys.stderr)
        return 2
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    target = os.path.join(HERE, "..", "target")
    servers.Maitred.program = os.environ.get("MAITRED_BIN", os.path.join(target, "release/maitred"))
    processes.adopt_orphans()
    rows = []
    try:
        for application in options.chosen:
            row = comparison.run(application(), options.against.split(","))
            results.show(row)
            results.store(row)
            rows.append(row)
        if options.page:
            results.write_page()
    finally:
        database.stop()
        processes.kill_descendants()

    return 1 if any(row.differs() for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
