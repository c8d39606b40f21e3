"""Light and dark: the colours, the palette and the style sheet of the window, from one table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication

from app.places import RESOURCES


@dataclass(frozen=True)
class Colors:
    """One scheme. `fill` is the accent under white text, `well` the ground of fields and tracks."""

    dark: bool
    ground: str
    card: str
    text: str
    secondary: str
    accent: str
    fill: str
    fill_pressed: str
    well: str
    line: str
    grid: str
    selection: str
    trained: str
    green: str = "#2E9E5B"
    amber: str = "#C98A00"
    red: str = "#D33A2C"
    forward: str = "#4C9BFF"
    head: str = "#B07CE8"
    backward: str = "#F08A4B"
    valid: str = "#2E9E5B"

    @property
    def train(self) -> str:
        return self.accent


LIGHT = Colors(
    dark=False, ground="#F5F5F7", card="#FFFFFF", text="#1D1D1F", secondary="#6E6E73", accent="#0A66D8",
    fill="#0A66D8", fill_pressed="#0854B3", well="#EDEDF0", line="#D9D9DE", grid="#E8E8EC",
    selection="#CFE2FA", trained="#D3E5FF",
)  # fmt: skip
DARK = Colors(
    dark=True, ground="#1E1E20", card="#2A2A2D", text="#F2F2F4", secondary="#A1A1A6", accent="#4C9BFF",
    fill="#1F6FE0", fill_pressed="#1A5DBD", well="#39393D", line="#48484D", grid="#38383C",
    selection="#2C4A73", trained="#203F66", green="#3DBB70", amber="#E0A526", red="#F0604F", valid="#3DBB70",
)  # fmt: skip


class Theme(QObject):
    """The scheme in force. It follows the system until `prefer` says otherwise.

    Signals:
        changed(): the colours are others now; painted widgets repaint, plots take new pens.
    """

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.colors = LIGHT
        self.preference = Qt.ColorScheme.Unknown  # Unknown: the system's

    def install(self, app: QApplication) -> None:
        """Dresses the whole application and follows the system from now on."""
        app.setStyle("Fusion")
        app.setFont(font())
        hints = app.styleHints()
        hints.colorSchemeChanged.connect(self.follow, Qt.ConnectionType.UniqueConnection)
        self.follow(hints.colorScheme())

    def follow(self, system: Qt.ColorScheme) -> None:
        """Takes the system's scheme, where no preference of one's own stands against it."""
        wanted = system if self.preference == Qt.ColorScheme.Unknown else self.preference
        self.colors = DARK if wanted == Qt.ColorScheme.Dark else LIGHT
        app = QApplication.instance()
        if isinstance(app, QApplication):
            app.setPalette(_palette(self.colors))
            app.setStyleSheet(_style_sheet(self.colors))
        self.changed.emit()

    def prefer(self, scheme: Qt.ColorScheme) -> None:
        """Light, Dark, or Unknown to follow the system."""
        self.preference = scheme
        self.follow(QGuiApplication.styleHints().colorScheme())


@cache
def theme() -> Theme:
    """The one theme of this process."""
    return Theme()


def colors() -> Colors:
    """The colours in force now; ask when painting, never keep them."""
    return theme().colors


def font(pixels: int = 13, *, bold: bool = False, mono: bool = False) -> QFont:
    """The system's font in one of the sizes 11, 13, 17, 28, with figures of equal width."""
    kind = QFontDatabase.SystemFont.FixedFont if mono else QFontDatabase.SystemFont.GeneralFont
    result = QFontDatabase.systemFont(kind)
    result.setPixelSize(pixels)
    result.setWeight(QFont.Weight.DemiBold if bold else QFont.Weight.Normal)
    result.setFeature(QFont.Tag("tnum"), 1)
    return result


def _palette(c: Colors) -> QPalette:
    role = QPalette.ColorRole
    palette = QPalette()
    for name, color in {
        role.Window: c.ground, role.WindowText: c.text, role.Base: c.card, role.AlternateBase: c.ground,
        role.Text: c.text, role.Button: c.card, role.ButtonText: c.text, role.BrightText: c.red,
        role.ToolTipBase: c.card, role.ToolTipText: c.text, role.PlaceholderText: c.secondary,
        role.Highlight: c.selection, role.HighlightedText: c.text, role.Link: c.accent, role.Accent: c.accent,
        role.Light: c.card, role.Midlight: c.well, role.Mid: c.line, role.Dark: c.secondary,
        role.Shadow: c.line,
    }.items():  # fmt: skip
        palette.setColor(name, QColor(color))
    for name in (role.WindowText, role.Text, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, name, QColor(c.secondary))
    return palette


def _style_sheet(c: Colors) -> str:
    """The style sheet, its @names replaced: @icons is the folder of the small arrows, inside of quotation marks."""
    text = (RESOURCES / "texts" / "window.qss").read_text(encoding="utf-8")
    names = {name: str(value) for name, value in vars(c).items()}
    names |= {
        "train": c.train,
        "icons": (RESOURCES / "icons").as_posix().replace("\\", "\\\\").replace('"', '\\"'),
        "shade": "dark" if c.dark else "light",
    }
    return re.sub(rf"@({'|'.join(names)})\b", lambda name: names[name[1]], text)
