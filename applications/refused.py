"""Spellings of paths that must stay refused: encodings, case, dots, slashes, path info."""


def variants(paths):
    """Each path in all spellings."""
    return [spelling for path in paths for spelling in dict.fromkeys(spellings(path))]


def spellings(path):
    """One path in all spellings; most lead to the same file on some server."""
    folder, _, name = path.rstrip("/").rpartition("/")
    first = path.strip("/").split("/")[0]
    rest = path[len(first) + 1 :]
    yield path
    yield "/" + path
    yield folder + "//" + name
    yield folder + "/./" + name
    yield folder + "/x/../" + name
    yield folder + "/%2e/" + name
    yield folder + "/x/%2e%2e/" + name
    yield folder + "%2f" + name
    yield folder + "%2F" + name
    yield folder + "%5c" + name
    yield "/%" + format(ord(first[0]), "02x") + first[1:] + rest
    yield "/%25" + format(ord(first[0]), "02x") + first[1:] + rest
    yield "/" + first.upper() + rest
    yield folder + "/" + name.upper()
    for ending in (
        ".",
        "%2e",
        " ",
        "%20",
        "/",
        "/.",
        "//",
        "%00",
        "%00.png",
        "::$DATA",
        "~",
        ";x",
        "/x",
        "/x.php",
        "/index.php",
        "/x.png",
        "?x",
        "%3fx",
    ):
        yield path.rstrip("/") + ending
