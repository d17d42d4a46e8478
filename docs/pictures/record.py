"""Records a terminal as a picture that moves: what a command shows, and when.

``.venv-site/bin/python docs/pictures/record.py gate.svg -- .venv/bin/perfgate gate`` runs the command in a terminal of
100 columns and writes gate.svg, which browsers and GitHub play. The text is the command's own; minutes of training are
played in less than a minute, and the picture's title says how much faster that is.
"""

from __future__ import annotations

import argparse
import codecs
import fcntl
import html
import os
import pty
import shlex
import struct
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path

import pyte

COLUMNS, ROWS = 100, 30
LONGEST_S, SHORTEST_FRAME_S, LAST_FRAME_S = 40.0, 0.4, 10.0
COLUMN_PX, ROW_PX, MARGIN_PX = 8.0, 18, 12
COLOURS = {"red": "#ff7b72", "green": "#7ee787", "brown": "#e3b341", "cyan": "#79c0ff", "blue": "#79c0ff"}

Line = tuple[tuple[str, str, bool], ...]
"""Runs of characters: text, colour, bold."""


@dataclass(frozen=True)
class Frame:
    starts_s: float
    lines: tuple[Line, ...]


def lines_of(screen: pyte.Screen) -> tuple[Line, ...]:
    lines = []
    for row in range(screen.lines):
        runs: list[tuple[str, str, bool]] = []
        for column in range(screen.columns):
            at = screen.buffer[row][column]
            if runs and runs[-1][1:] == (at.fg, at.bold):
                runs[-1] = (runs[-1][0] + at.data, at.fg, at.bold)
            else:
                runs.append((at.data, at.fg, at.bold))
        if runs and not runs[-1][0].strip():
            runs.pop()
        lines.append(tuple(runs))
    return tuple(lines)


def record(command: list[str]) -> tuple[list[Frame], int]:
    """The frames, and the command's exit code."""
    screen = pyte.Screen(COLUMNS, ROWS)
    screen.set_mode(pyte.modes.LNM)
    stream, decoder = pyte.Stream(screen), codecs.getincrementaldecoder("utf-8")("replace")
    stream.feed(f"$ {shlex.join(command)}\n")
    frames = [Frame(0.0, lines_of(screen))]
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS))
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    began = time.monotonic()
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:  # How Linux says that the other side is closed.
            break
        os.write(sys.stdout.fileno(), read)
        stream.feed(decoder.decode(read))
        frames.append(Frame(time.monotonic() - began, lines_of(screen)))
    return frames, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def faster(frames: list[Frame]) -> tuple[list[Frame], float]:
    """The frames as they are played, and how many times as fast that is."""
    times = max(1.0, frames[-1].starts_s / LONGEST_S)
    played = [frames[0]]
    for frame in frames[1:]:
        starts_s = frame.starts_s / times
        if starts_s - played[-1].starts_s < SHORTEST_FRAME_S:
            played[-1] = Frame(played[-1].starts_s, frame.lines)
        elif frame.lines != played[-1].lines:
            played.append(Frame(starts_s, frame.lines))
    return played, times


def drawn(frames: list[Frame], title: str) -> str:
    """All frames one below the other as an SVG, which moves up by a frame whenever the next one starts."""
    width, height = round(COLUMNS * COLUMN_PX + 2 * MARGIN_PX), ROWS * ROW_PX + 2 * MARGIN_PX
    names: dict[Line, str] = {}
    strip = []
    for at, frame in enumerate(frames):
        for row, line in enumerate(frame.lines):
            if line:
                name = names.setdefault(line, f"l{len(names)}")
                strip.append(f'<use href="#{name}" y="{at * height + (row + 1) * ROW_PX}"/>')
    whole_s = frames[-1].starts_s + LAST_FRAME_S
    moves = "".join(
        f"{100 * frame.starts_s / whole_s:.3f}%{{transform:translateY(-{at * height}px)}}"
        for at, frame in enumerate(frames)
    )
    last = (len(frames) - 1) * height
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<title>{html.escape(title)}</title>",
        "<style>text{font:13.3px monospace;fill:#e6edf3;white-space:pre}"
        f"#strip{{transform:translateY(-{last}px)}}@keyframes play{{{moves}}}"
        "@media (prefers-reduced-motion:no-preference)"
        f"{{#strip{{animation:play {whole_s:.2f}s step-end infinite}}}}</style>",
        "<defs>",
        *(f'<text id="{name}" x="{MARGIN_PX}">{_spans(line)}</text>' for line, name in names.items()),
        "</defs>",
        f'<rect width="{width}" height="{height}" rx="6" fill="#0d1117"/>',
        f'<g id="strip">{"".join(strip)}</g>',
        "</svg>\n",
    ])  # fmt: skip


def _spans(line: Line) -> str:
    shown, column = [], 0
    for words, colour, bold in line:
        style = (f' fill="{COLOURS[colour]}"' if colour in COLOURS else "") + (' font-weight="bold"' if bold else "")
        place = f' x="{MARGIN_PX + column * COLUMN_PX:g}"'
        shown.append(f"<tspan{place}{style}>{html.escape(words.rstrip())}</tspan>" if words.strip() else "")
        column += len(words)
    return "".join(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description="Record what a command shows in a terminal as an SVG that moves.")
    parser.add_argument("picture", type=Path)
    parser.add_argument("command", nargs="+", help="after --")
    asked = parser.parse_args()
    frames, code = record(asked.command)
    played, times = faster(frames)
    title = f"{shlex.join(asked.command)}, played {times:.0f} times as fast"
    asked.picture.write_text(drawn(played, title), encoding="utf-8")
    print(f"{asked.picture}: {title}, {len(played)} frames, exit code {code}")


if __name__ == "__main__":
    main()
