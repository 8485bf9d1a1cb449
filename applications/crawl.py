"""Finds the pages and assets of an application from its links, and compares each of them."""

import re
import urllib.parse

import visitor
import compare

CSS_URL = re.compile(r"""url\(\s*['"]?([^'")]+)['"]?\s*\)""")
# Links that change something, or end the session.
LEAVES = re.compile(
    r"(?i)log-?_?out|logoff|delete|remove|drop|truncate|do=revert|action=rollback"
    r"|[&?](status|processlist|variables)="
)
TRIES = 3


def links_of(response, base, leaves=LEAVES):
    """The targets of this host that a response names: pages, and assets."""
    if response.media_type in ("text/html", "application/xhtml+xml"):
        found = visitor.Forms(response.text)
        pages, assets = found.links, found.assets
    elif response.media_type == "text/css":
        pages, assets = [], CSS_URL.findall(response.text)
    else:
        pages, assets = [], []
    local = lambda urls: [each for each in map(lambda url: resolve(base, url), urls) if each]
    return [each for each in local(pages) if not leaves.search(each)], local(assets)


def resolve(base, url):
    """The target of a URL on a page, or None if it is of another host or scheme."""
    try:
        split = urllib.parse.urlsplit(
            urllib.parse.urljoin(f"http://{visitor.HOST}{base}", url.strip())
        )
    except ValueError:
        return None
    if split.scheme != "http" or split.netloc != visitor.HOST:
        return None
    target = urllib.parse.urlunsplit(("", "", split.path or "/", split.query, ""))
    return urllib.parse.quote(target, safe="/?&=%+:;,@!$'()*~[]|-._#\\")


def discover(fetch, starts, most_pages, most_assets):
    """Targets in the order of their discovery, by a breadth-first walk with a fetch function."""
    pages, assets = list(dict.fromkeys(starts)), []
    place = 0
    while place < len(pages) and place < most_pages:
        more, files = links_of(fetch(pages[place]), pages[place])
        pages += [each for each in dict.fromkeys(more) if each not in pages]
        assets += [each for each in dict.fromkeys(files) if each not in assets]
        place += 1
    pages = pages[:most_pages]
    return pages, [each for each in assets if each not in pages][:most_assets]


class Crawl:
    """Requests that are compared between a peer and maitred, and what differs."""

    def __init__(self, peer, own):
        self.peer, self.own = peer, own
        self.count = 0
        self.found = []

    def compare(self, target, method="GET", headers=(), label="", decode=False):
        """Compares one request, a few times if it differs: a page may vary by itself."""
        self.count += 1
        for _ in range(TRIES):
            sent = [
                visitor.send(each, target, method, headers)
                for each in (self.peer, self.own, self.peer)
            ]
            if decode:
                sent = [each.decoded() for each in sent]
                for each in sent:
                    each.headers = without_coding(each.headers)
            one, own, two = sent
            request = f"{label or method} {target}"
            differences = compare.compare(compare.Pair(one, two, own), request)
            if not differences:
                break
        self.found += [(f"{label or method} {target}", text) for text in differences]
        return one, own

    def page(self, target):
        """Compares a page or an asset in all ways: GET, HEAD, compressed, conditional, ranges."""
        one, own = self.compare(target)
        self.compare(target, "HEAD")
        if one.status == 200:
            self.compare(target, headers=[("Accept-Encoding", "gzip")], label="gzip", decode=True)
            self._conditional(target, one, own)
        if one.header("ETag") and one.header("Last-Modified") and not one.header("Set-Cookie"):
            for wanted in ("bytes=0-9", "bytes=-5", "bytes=99999999-", "bytes=0-1,4-5"):
                self._range(target, wanted)

    def _range(self, target, wanted):
        if "," not in wanted:
            self.compare(target, headers=[("Range", wanted)], label=f"Range {wanted}")
            return
        # The boundary of the parts is each server's own.
        self.count += 1
        sent = [
            visitor.send(each, target, headers=[("Range", wanted)])
            for each in (self.peer, self.own)
        ]
        pair = compare.Pair(sent[0], sent[0], sent[1])
        request = f"Range {wanted} {target}"
        if sent[0].status != sent[1].status and not compare.is_named_status(pair, request):
            self.found.append((request, f"status {sent[1].status}, peer {sent[0].status}"))

    def _conditional(self, target, one, own):
        """Each server is asked with the validators that it has sent itself."""
        pairs = [("ETag", "If-None-Match"), ("Last-Modified", "If-Modified-Since")]
        for given, condition in pairs:
            values = [each.header(given) for each in (one, own)]
            if not all(values):
                continue
            self.count += 1
            statuses = self._statuses(target, condition, values)
            if statuses[0] != statuses[1]:
                # A script may have got another validator meanwhile.
                again = [visitor.send(each, target).header(given) for each in (self.peer, self.own)]
                statuses = self._statuses(target, condition, again)
            if statuses[0] != statuses[1]:
                text = f"status {statuses[1]}, peer {statuses[0]}"
                self.found.append((f"{condition} {target}", text))

    def _statuses(self, target, condition, values):
        """The statuses of both servers to a condition with their own validators."""
        return [
            visitor.send(address, target, headers=[(condition, value)]).status
            for address, value in zip((self.peer, self.own), values)
        ]


def without_coding(headers):
    """Headers apart from those of the content coding, which is each server's choice."""
    names = ("content-encoding", "vary", "etag")
    return [(name, value) for name, value in headers if name.lower() not in names]
