#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Line plots as SVG: throughput by clients and speed by context, from the JSON of the other tools.

    plot.py clients OUT.svg LOAD.json ...       files of load.py; a line for each server label
    plot.py context OUT.svg BENCH.jsonl ...     output of `hearth bench --json`; a line for each numerics
                                                and threads, of one sequence's decode cases
    plot.py --title TEXT ...

Several results at one place give their median. The plots have no background and one grey for their text, so
they can be read on light and dark pages. Standard library only.
"""
import argparse
import json
import math
import statistics
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 44, 56
COLOURS = ["#3b82f6", "#f97316", "#10b981", "#a855f7", "#ef4444", "#0891b2", "#ca8a04", "#db2777"]
GREY = "#808890"


def read_lines(path):
    """The objects of a file of JSON lines."""
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.startswith("{")]


def clients_series(paths):
    """label -> {clients: [tokens/s]}"""
    series = {}
    for path in paths:
        with open(path, encoding="utf-8") as f:
            for row in json.load(f)["rows"]:
                if "clients" in row and "output_tok_s" in row:
                    series.setdefault(row["server"], {}).setdefault(row["clients"], []) \
                        .append(row["output_tok_s"])
    return series


def context_series(paths):
    series = {}
    for path in paths:
        for row in read_lines(path):
            if row.get("test") == "decode" and row["batch"] == 1:
                label = f"{row['numerics']}, {row['threads']} thread" + "s" * (row["threads"] > 1)
                series.setdefault(label, {}).setdefault(row["context"], []).append(row["tok_s"])
    return series


def nice_step(most, n=5):
    """A step of 1, 2 or 5 times a power of ten that divides `most` into about n parts."""
    raw = most / n
    power = 10 ** math.floor(math.log10(raw))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= raw)


def text(x, y, what, anchor="middle", size=12, extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" {extra}>{escape(what)}</text>'


class Axes:
    """x: the values that occur, evenly spaced; y: from 0."""

    def __init__(self, series):
        self.xs = sorted({x for points in series.values() for x in points})
        most = max(y for points in series.values() for y in points.values())
        self.step = nice_step(most)
        self.top = self.step * math.ceil(most / self.step * 1.001)

    def x(self, value):
        n = max(len(self.xs) - 1, 1)
        return LEFT + 20 + (WIDTH - LEFT - RIGHT - 40) * self.xs.index(value) / n

    def y(self, value):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.top

    def draw(self, x_label, y_label):
        out, value = [], 0
        while value <= self.top * 1.0001:
            y = self.y(value)
            out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GREY}" '
                       f'stroke-opacity="{0.7 if value == 0 else 0.25}"/>')
            out.append(text(LEFT - 8, y + 4, f"{value:,.10g}", "end"))
            value += self.step
        for x in self.xs:
            out.append(text(self.x(x), HEIGHT - BOTTOM + 18, f"{x:,}"))
        middle = TOP + (HEIGHT - TOP - BOTTOM) / 2
        out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, x_label, size=13))
        out.append(text(18, middle, y_label, size=13, extra=f'transform="rotate(-90 18 {middle:.1f})"'))
        return out


def label_places(ends):
    """Moves the labels at the lines' ends apart: ends is [(y, label, colour)]."""
    placed, last = [], -1e9
    for y, label, colour in sorted(ends):
        last = max(y, last + 15)
        placed.append((last, label, colour))
    return placed


def draw(series, title, x_label, y_label):
    """The whole picture. series: label -> {x: y}, in the order of their colours."""
    axes = Axes(series)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
           f'height="{HEIGHT}" font-family="sans-serif" fill="{GREY}">',
           f"<title>{escape(title)}</title>", text(LEFT, 24, title, "start", 15, 'font-weight="bold"')]
    out += axes.draw(x_label, y_label)
    ends = []
    for i, (label, points) in enumerate(series.items()):
        colour = COLOURS[i % len(COLOURS)]
        places = [(axes.x(x), axes.y(y)) for x, y in sorted(points.items())]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        for (x, y), (at, value) in zip(places, sorted(points.items())):
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}">'
                       f"<title>{escape(label)}: {value:,.1f} at {at:,}</title></circle>")
        ends.append((places[-1][1] + 4, label, colour))
    out += [text(WIDTH - RIGHT + 6, y, label, "start", 12, f'style="fill:{colour}"')
            for y, label, colour in label_places(ends)]
    return "\n".join([*out, "</svg>", ""])


KINDS = {
    "clients": (clients_series, "Tokens generated a second, by clients", "clients at once"),
    "context": (context_series, "Tokens decoded a second, by context", "tokens in the context"),
}


def write_plot(kind, out, paths, title=None):
    """False where the files hold nothing to draw."""
    read, preset, x_label = KINDS[kind]
    series = {label: {x: statistics.median(v) for x, v in points.items()}
              for label, points in read(paths).items()}
    if not series:
        return False
    with open(out, "w", encoding="utf-8") as f:
        f.write(draw(series, title or preset, x_label, "tokens/s"))
    return True


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("kind", choices=sorted(KINDS))
    p.add_argument("out")
    p.add_argument("results", nargs="+")
    p.add_argument("--title")
    a = p.parse_args()
    if not write_plot(a.kind, a.out, a.results, a.title):
        sys.exit("nothing to draw in these files")


if __name__ == "__main__":
    main()
