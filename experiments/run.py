#!/usr/bin/env python3
"""Reruns the experiments of the tuning articles; `make experiments` calls it.

Each leaves its samples in experiments/results; docs/experiments.md and its charts are made of all
that lie there. What has been measured with the same options is not measured again without --again.
"""

import argparse
import contextlib
import datetime
import os
import resource
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "bench"))

import catalogue
import group
import lab
import page
import peers
import processes
import records
import report


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="IDS", help="only these, such as B3,memory")
    parser.add_argument("--rounds", type=int, default=3, help="times everything is measured (3)")
    parser.add_argument("--seconds", type=int, default=15, help="length of a measurement (15)")
    parser.add_argument("--again", action="store_true", help="measure also what was measured")
    parser.add_argument(
        "--first",
        action="store_true",
        help="come before other programs: a control group of processors",
    )
    parser.add_argument(
        "--arms",
        default="",
        metavar="TEXT",
        help="only servers and settings with TEXT in their names; for trying",
    )
    parser.add_argument("--results", default=os.path.join(HERE, "results"), metavar="FOLDER")
    parser.add_argument("--docs", default=os.path.join(HERE, "..", "docs"), metavar="FOLDER")
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--page", action="store_true", help="measure nothing; write the page")
    parser.add_argument(
        "--check",
        action="store_true",
        help="measure nothing; exit with 1 if the page is not what results give",
    )
    options = parser.parse_args()
    if min(options.rounds, options.seconds) < 1:
        parser.error("--rounds and --seconds take whole numbers from 1")
    known = {each.id.lower() for each in catalogue.ALL}
    options.wanted = {name.strip().lower() for name in options.only.split(",") if name.strip()}
    if options.wanted - known:
        parser.error(f"there is no {', '.join(sorted(options.wanted - known))}; --list names all")
    return options


def head_of(experiment, options):
    """When, where and how an experiment is measured."""
    ours = subprocess.run(
        [peers.Maitred.program, "--version"], capture_output=True, text=True, check=True
    )
    named = [ours.stdout.strip()]
    named += (f"{name} {version}" for name, version in peers.versions(("wrk",)).items())
    return {
        "id": experiment.id,
        "at": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": report.machine(),
        "versions": ", ".join(named),
        "commit": report.commit(),
        "command": f"make experiments ONLY={experiment.id}",
        "rounds": options.rounds,
        "seconds": options.seconds,
        "first": options.first,
    }


def is_kept(experiment, options):
    """Whether it was measured with these options."""
    path = page.path_of(options.results, experiment)
    if options.again or not os.path.exists(path):
        return False
    head = records.Records.read(path).head
    return (head["rounds"], head["seconds"]) == (options.rounds, options.seconds)


def measure(place, experiment, options):
    """Measures one experiment and keeps what it gave."""
    head = head_of(experiment, options)
    if options.arms:
        arms = experiment.arms()
        some = [arm for arm in arms if options.arms.lower() in arm.label.lower()]
        experiment.arms = lambda: some
    found = records.Records(head, list(experiment.measure(place)))
    if any(sample["figures"] for sample in found.samples):
        found.write(page.path_of(options.results, experiment))
    else:
        report.say(f"experiments: {experiment.id} gave no figures; what was there is kept")
    return not any("problem" in sample for sample in found.samples)


def run(options):
    """All that is wanted; 0, or 2 if something could not be measured."""
    os.makedirs(options.results, exist_ok=True)
    wanted = [
        each for each in catalogue.ALL if not options.wanted or each.id.lower() in options.wanted
    ]
    complete = True
    with tempfile.TemporaryDirectory(prefix="maitred-experiments-") as directory:
        os.chmod(directory, 0o755)
        place = lab.Lab(options, directory, report.say)
        try:
            for experiment in wanted:
                if is_kept(experiment, options):
                    report.say(
                        f"{experiment.id} was measured with these options; --again repeats it"
                    )
                    continue
                complete &= measure(place, experiment, options)
                page.write(page.make(catalogue.ALL, options.results), options.docs)
        finally:
            place.stop()
    return 0 if complete else 2


def without_measuring(options):
    """What needs no server; None if servers are wanted."""
    if options.list:
        for each in catalogue.ALL:
            print(f"{each.id:9} {each.title}")
        return 0
    if not (options.page or options.check):
        return None
    files = page.make(catalogue.ALL, options.results)
    if options.page:
        page.write(files, options.docs)
        return 0
    differing = page.differing(files, options.docs)
    for name in differing:
        print(f"docs/{name} is not what experiments/results give: make experiments ARGS=--page")
    return 1 if differing else 0


def main():
    """Runs, and leaves no process behind however it ends."""
    options = arguments()
    os.umask(0o022)
    found = without_measuring(options)
    if found is not None:
        return found
    processes.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with group.coming_first() if options.first else contextlib.nullcontext():
            try:
                return run(options)
            finally:
                end_all()
    except lab.NOT_MEASURED as problem:
        report.say(f"experiments: not measured: {problem}")
        return 2
    except KeyboardInterrupt:
        report.say("experiments: interrupted")
        return 130


def end_all():
    """Ends what should have ended before."""
    left = processes.kill_descendants()
    if left:
        report.say(f"experiments: ended {left} processes that were left over")


if __name__ == "__main__":
    sys.exit(main())
