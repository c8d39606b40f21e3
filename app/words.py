"""Numbers and durations as a person reads them, in one place."""

from __future__ import annotations

import math

from engine.config import GB

THIN = "\N{NARROW NO-BREAK SPACE}"


def memory(size: float) -> str:
    """Bytes as "1.9 GB"; below a tenth of a GB as "38 MB"."""
    if size >= 0.1 * GB:
        return f"{size / GB:.1f} GB"
    return f"{size / 1024**2:.0f} MB"


def memory_closely(size: float) -> str:
    """Bytes like `memory`, with the figure more that tells two sizes apart that are a few percent off each other."""
    return f"{size / GB:.2f} GB" if 0.1 * GB <= size < 10 * GB else memory(size)


def memory_beyond(size: float, limit: float) -> str:
    """Bytes like `memory`, with the figures that show where they are more than `limit`: "0.62 GB" beyond 0.6 GB."""
    if size <= limit or memory(size) != memory(limit):
        return memory(size)
    hundredths = f"{math.ceil(100 * size / GB) / 100:.2f} GB"
    return hundredths if size >= 0.1 * GB else memory(size)


def size(number: int) -> str:
    """Bytes of a file as "1.9 GB", "38 MB" or "4 kB"."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= unit:
            return f"{number / unit:.1f} {name}" if unit == 1e9 else f"{number / unit:.0f} {name}"
    return f"{number} bytes"


def count(number: int) -> str:
    """12345 as "12 345", with thin spaces."""
    return f"{number:,}".replace(",", THIN)


def plural(number: int, one: str, many: str = "") -> str:
    """(1, "row") is "1 row", (312, "row") is "312 rows"."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """ "45 s", "8 min", "2 h 5 min": as exact as it is useful."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def seconds(value: float) -> str:
    """A short time with the figures that matter: "0.42 s", "1.9 s", "11 s"."""
    if value < 1:
        return f"{value:.2f} s"
    return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"


def number(value: float) -> str:
    """A plain number, short: 0.0002 as "2e-4", 0.71 as "0.71", 16 as "16"."""
    if value != 0 and (abs(value) < 1e-3 or abs(value) >= 1e6):
        mantissa, _, exponent = f"{value:.2e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def loss(value: float) -> str:
    """A loss with three decimals, the tabular way; tiny ones keep their figures."""
    return f"{value:.3f}" if value >= 0.001 or value == 0 else number(value)


def percent(share: float) -> str:
    """A share from 0 to 1 as "83 %"."""
    return f"{100 * share:.0f} %"


def signed(value: float) -> str:
    """A value of either sign with three decimals and a true minus: "−1.204"."""
    return f"{value:z.3f}".replace("-", "\N{MINUS SIGN}")


def shortened(text: str, limit: int) -> str:
    """The text on one line, at most `limit` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"
