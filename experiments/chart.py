"""Charts as SVG that loads nothing from elsewhere: bars with their spread, and lines."""

import math
import re
from xml.sax.saxutils import escape

WIDTH = 860
LABELS = 370
RIGHT = 90
ROW = 22
TOP = 46
PLOT_HEIGHT = 300
LEFT = 70
LEGEND = 210
NOTE = 20
COLOURS = {"maitred": "#b3402a", "nginx": "#2f6f4f", "prefork": "#4b5ea3", "event": "#8a6d1d"}
SPARE = ("#b3402a", "#2f6f4f", "#4b5ea3", "#8a6d1d", "#6b4a8a", "#3b8ea5", "#c77d2e", "#777777")
STYLE = (
    "text{font:12px sans-serif;fill:#222}.t{font-weight:bold;font-size:14px}"
    ".g{stroke:#ddd}.s{fill:#666;font-size:11px}"
)


def picture(height, parts):
    """The whole file."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">\n<style>{STYLE}</style>\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n{body}\n</svg>\n'
    )


def text(x, y, words, anchor="start", kind=""):
    """Words at a place."""
    name = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{name}>{escape(words)}</text>'


def noted(svg, words):
    """A chart with a line below it that says of what its figures are."""
    height = int(re.search(r'height="(\d+)" role', svg).group(1))
    for old, new in (
        (f"0 0 {WIDTH} {height}", f"0 0 {WIDTH} {height + NOTE}"),
        (f'height="{height}" role', f'height="{height + NOTE}" role'),
        (f'height="{height}" fill="#fff"', f'height="{height + NOTE}" fill="#fff"'),
        ("</svg>", f'{text(10, height + NOTE - 6, words, kind="s")}\n</svg>'),
    ):
        svg = svg.replace(old, new, 1)
    return svg


def ticks(most):
    """Round figures from 0 to at least `most`, about five."""
    step = 10 ** math.floor(math.log10(most / 4)) if most > 0 else 1
    step *= next(times for times in (1, 2, 5, 10) if most / (step * times) <= 5)
    return [step * number for number in range(math.ceil(most / step) + 1)]


def named(value):
    """A figure at an axis or a bar."""
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def bars(title, unit, rows):
    """A bar for each of `(label, colour, values)`: the median, with a line from least to most."""
    drawn = [(label, colour, sorted(values)) for label, colour, values in rows if values]
    marks = ticks(max((values[-1] for _, _, values in drawn), default=1) or 1)
    scale = (WIDTH - LABELS - RIGHT) / marks[-1]
    height = TOP + ROW * len(drawn) + 34
    parts = [text(10, 22, title, kind="t")]
    for mark in marks:
        x = LABELS + mark * scale
        parts.append(
            f'<line class="g" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - 26}"/>'
        )
        parts.append(text(x, height - 10, named(mark), "middle", "s"))
    parts.append(text(WIDTH - 8, height - 10, unit, "end", "s"))
    for number, (label, colour, values) in enumerate(drawn):
        y = TOP + ROW * number
        middle = (
            values[(len(values) - 1) // 2]
            if len(values) % 2
            else sum(values[len(values) // 2 - 1 : len(values) // 2 + 1]) / 2
        )
        parts.append(text(LABELS - 8, y + 11, label, "end"))
        parts.append(
            f'<rect x="{LABELS}" y="{y}" width="{max(1, middle * scale):.1f}" height="14" '
            f'fill="{colour}"/>'
        )
        least, most = LABELS + values[0] * scale, LABELS + values[-1] * scale
        if most - least > 1:
            parts.append(f'<path d="M{least:.1f} {y + 7}H{most:.1f}" stroke="#111"/>')
        parts.append(text(max(most, LABELS + middle * scale) + 6, y + 11, named(middle)))
    return picture(height, parts)


def lines(title, across, up, series, logarithmic=False):
    """A line for each of `(label, [(x, y)])`."""
    series = [(label, some) for label, some in series if some]
    points = [point for _, some in series for point in some]
    most_x = max((x for x, _ in points), default=1) or 1
    least_x = min((x for x, _ in points), default=1)
    marks = ticks(max((y for _, y in points), default=1) or 1)
    width, bottom = WIDTH - LEFT - LEGEND, TOP + PLOT_HEIGHT

    def place(x, y):
        share = x / most_x
        if logarithmic:
            share = math.log(x / least_x) / (math.log(most_x / least_x) or 1)
        return LEFT + width * share, bottom - PLOT_HEIGHT * y / marks[-1]

    parts = [text(10, 22, title, kind="t"), text(10, TOP - 8, up, kind="s")]
    for mark in marks:
        y = place(least_x or 1, mark)[1]
        parts.append(f'<line class="g" x1="{LEFT}" x2="{LEFT + width}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(text(LEFT - 6, y + 4, named(mark), "end", "s"))
    xs = sorted({x for x, _ in points}) if logarithmic else ticks(most_x)
    for x in (x for x in xs if x <= most_x):
        parts.append(text(place(x, 0)[0], bottom + 16, named(x), "middle", "s"))
    parts.append(text(LEFT + width, bottom + 32, across, "end", "s"))
    for number, (label, some) in enumerate(series):
        colour = SPARE[number % len(SPARE)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in some))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if logarithmic:
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
                for x, y in (place(*point) for point in some)
            ]
        y = TOP + 10 + 18 * number
        parts.append(
            f'<rect x="{LEFT + width + 14}" y="{y - 9}" width="10" height="10" fill="{colour}"/>'
        )
        parts.append(text(LEFT + width + 30, y, label, kind="s"))
    return picture(bottom + 42, parts)
