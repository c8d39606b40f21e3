"""The program's icon in every size, from its drawing: PNG files and macOS's .icns."""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ET
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, Qt
from PySide6.QtGui import QImage, QImageWriter, QPainter
from PySide6.QtSvg import QSvgRenderer

# At these sizes and below, in pixels, what is finer than a pixel is left out.
_PLAIN = 32
_DETAIL = "detail"
_SVG = "{http://www.w3.org/2000/svg}"

# Apple's types by pixels. A retina size and the plain one of as many pixels are two entries of the same picture.
_PNG_TYPES = {
    32: ["ic11"], 64: ["ic12"], 128: ["ic07"], 256: ["ic13", "ic08"], 512: ["ic14", "ic09"], 1024: ["ic10"],
}  # fmt: skip
# For these an app's icon must not be PNG: macOS shows it garbled.
_ARGB_TYPES = {16: ["ic04"], 32: ["ic05"]}
_LITERAL = 128  # the most bytes that one control byte announces


def write_icns(svg: Path, path: Path) -> None:
    """Writes the drawing `svg` as a macOS icon with all sizes from 16 to 1024 pixels.

    The format: https://en.wikipedia.org/wiki/Apple_Icon_Image_format
    """
    entries = [(kind, _argb(render(svg, size))) for size, kinds in _ARGB_TYPES.items() for kind in kinds]
    entries += [(kind, _png(render(svg, size))) for size, kinds in _PNG_TYPES.items() for kind in kinds]
    body = b"".join(kind.encode() + struct.pack(">I", 8 + len(data)) + data for kind, data in entries)
    path.write_bytes(b"icns" + struct.pack(">I", 8 + len(body)) + body)


def write_png(svg: Path, path: Path, size: int) -> None:
    """Writes the drawing as a square PNG of `size` pixels."""
    path.write_bytes(_png(render(svg, size)))


def render(svg: Path, size: int) -> QImage:
    """The drawing at `size` by `size` pixels, premultiplied ARGB; what is too fine for the size is left out."""
    image = QImage(size, size, QImage.Format.Format_ARGB32_Premultiplied)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    QSvgRenderer(QByteArray(_drawing(svg, plain=size <= _PLAIN))).render(painter)
    painter.end()
    return image


def _drawing(svg: Path, *, plain: bool) -> bytes:
    root = ET.fromstring(svg.read_bytes())  # noqa: S314  our own drawing
    if plain:
        for group in root.findall(f"{_SVG}g[@id='{_DETAIL}']"):
            root.remove(group)
    return ET.tostring(root)


def _png(image: QImage) -> bytes:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    QImageWriter(buffer, QByteArray(b"png")).write(image)
    return bytes(buffer.data().data())


def _argb(image: QImage) -> bytes:
    """Alpha, red, green and blue one after another, in the format's run-length code without a run.

    macOS drops a run at the very end, so all bytes are written as they are.
    """
    straight = image.convertToFormat(QImage.Format.Format_ARGB32)  # kept: its bytes live no longer than it
    pixels = bytes(straight.constBits())  # blue first in memory
    planes = b"".join(pixels[channel::4] for channel in (3, 2, 1, 0))
    count = len(planes) // 4
    coded = bytearray(b"ARGB")
    for start in range(0, 4 * count, _LITERAL):
        coded.append(_LITERAL - 1)
        coded += planes[start : start + _LITERAL]
    return bytes(coded)
