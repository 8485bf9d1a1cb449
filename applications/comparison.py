"""Compares one application: its pages anonymously, a person's use of it, and refused paths."""

import traceback

import application as base
import visitor
import compare
import crawl
import refused
import results
import servers

PEERS = {
    "nginx": (servers.Nginx, servers.Maitred),
    "apache": (servers.Apache, servers.Htaccess),
}


def run_all(application, names):
    """A row for each peer."""
    rows = results.Row(application.key, application.version())
    application.set_up()
    application.save()
    for name in names:
        peer, own = PEERS[name]
        part = results.Part(name)
        rows.parts.append(part)
        compare_pages(application, (peer, own), part)
        compare_use(application, (peer, own), part)
    return rows


def run(application, names):
    """As above; a set-up that fails is a row with its reason."""
    try:
        return run_all(application, names)
    except Exception as error:
        traceback.print_exc()
        return results.Row(application.key, application.version(), failed=f"{error}")


def compare_pages(application, pair, part):
    """Both servers side by side: what a crawler finds, and what is refused."""
    servers.clear()
    application.restore()
    peer, own = pair
    with peer(application) as one, own(application) as other:
        fetch = lambda target: visitor.send(one.address, target)
        pages, assets = crawl.discover(
            fetch, application.starts, application.pages, application.assets
        )
        walk = crawl.Crawl(one.address, other.address)
        for target in pages + assets:
            walk.page(target)
        for target in refused.variants(application.refused):
            walk.compare(target, label="refused")
    part.add("crawl", walk.count, walk.found)


def compare_use(application, pair, part):
    """One server after the other, each from the same state; the peer before and after maitred, so
    that what depends on the time differs between its two as well."""
    if type(application).use is base.Application.use:
        return
    first, own, second = (use_on(application, server) for server in (pair[0], pair[1], pair[0]))
    steps = [first, second, own]
    found = []
    targets = [[label for label, _ in each] for each in steps]
    if len(targets[0]) != len(targets[2]):
        found.append(("use", f"{len(targets[2])} steps, peer {len(targets[0])}"))
    for (label, one), (_, two), (own_label, own) in zip(*steps):
        differences = compare.compare(compare.Pair(one, two, own), own_label)
        found += [(f"use: {own_label}", text) for text in differences]
        found += [("use", label)] if label.startswith("no form") else []
    part.add("use", len(targets[0]), found)
    part.statuses = [one.status for _, one in steps[0]]


def use_on(application, server):
    """The steps of a person with one server."""
    servers.clear()
    application.restore()
    with server(application) as running:
        session = visitor.Session(running.address)
        application.use(session)
        return session.steps


def look_around(session, starts, most=20, leaves=crawl.LEAVES):
    """Visits pages as a logged-in person, found by their links on this server."""
    place, targets = 0, list(starts)
    while place < min(len(targets), most):
        response = session.request(targets[place])
        more, _ = crawl.links_of(response, targets[place], leaves)
        targets += [each for each in dict.fromkeys(more) if each not in targets]
        place += 1
