"""Text out of a file's bytes: which encoding it has, and in words what can't be decoded."""

from __future__ import annotations

import codecs
import io
from pathlib import Path
from typing import TextIO

from engine.data.problems import Problem, error
from engine.errors import EngineError

MAX_LINE = 64 * 1024**2  # characters of one line or one record
BYTE_ORDER_MARK = "\ufeff"
_HEAD_BYTES = 64 * 1024
_NOT_TEXT = {
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a zip archive or an office document",
    b"\x1f\x8b": "a gzip archive",
}
_LOST = "lost-utf-16"

# A half character or an odd byte of UTF-16 becomes a mark that no decoded text holds, as the bytes that are not UTF-8
# do by "surrogateescape": reading goes on, and `TextFile.whole` finds the row that has it.
codecs.register_error(_LOST, lambda cause: ("\udcff", cause.end if isinstance(cause, UnicodeDecodeError) else 0))


class TextFile:
    """A file of text, open: UTF-8, or UTF-16 where its first bytes show it. EngineError where it is neither."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._text: TextIO | None = None  # held: it would close the file when it is let go
        self._bytes = open_bytes(path, _HEAD_BYTES)
        try:
            self.encoding = _encoding(path, self._bytes.peek(4)[:4])
        except BaseException:
            self.close()
            raise

    def text(self, newline: str | None) -> TextIO:
        """The file's characters, lines ended as `newline` of `io.TextIOWrapper` says; open as long as this is."""
        lost = "surrogateescape" if self.encoding == "utf-8" else _LOST
        self._text = io.TextIOWrapper(self._bytes, self.encoding, lost, newline)
        return self._text

    def head(self) -> str:
        """The first characters of the file, without moving on in it: 16,000 or more of them."""
        return self._bytes.peek(_HEAD_BYTES).decode(self.encoding, "replace").removeprefix(BYTE_ORDER_MARK)

    def whole(self, line: int, text: str) -> str | Problem:
        """`whole_text` of this file."""
        return whole_text(text, line, self.encoding)

    def tell(self) -> int:
        """The bytes read so far."""
        return self._bytes.tell()

    def close(self) -> None:
        self._bytes.close()


def open_bytes(path: Path, buffer_size: int = io.DEFAULT_BUFFER_SIZE) -> io.BufferedReader:
    """The file, open for reading. EngineError where there is no such file."""
    try:
        if path.exists() and not path.is_file():
            raise EngineError(f"The data {path} is a folder or a device.", "Choose a file.")
        return io.BufferedReader(path.open("rb", buffering=0), buffer_size)
    except (OSError, ValueError) as cause:  # ValueError: a zero character in the name
        reason = cause.strerror if isinstance(cause, OSError) else cause
        raise EngineError(f"The data {path} can't be read: {reason}.", "Check its name and place.") from cause


def _encoding(path: Path, head: bytes) -> str:
    """UTF-8, or UTF-16 by its byte order mark or by the zero in every other byte of its first two characters."""
    if kind := next((kind for start, kind in _NOT_TEXT.items() if head.startswith(start)), ""):
        raise EngineError(
            f"The data {path.name} is {kind}, not text as its name says.",
            "Unpack it, or save it as CSV or text; a Parquet file's name ends in .parquet.",
        )
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)) or head.count(0) == 3:
        raise EngineError(
            f"The data {path.name} is UTF-32 text, which is not read.",
            "Open it in a text editor and save it with the encoding UTF-8.",
        )
    zeros = [byte == 0 for byte in head]
    if head.startswith(codecs.BOM_UTF16_LE) or zeros == [False, True, False, True]:
        return "utf-16-le"
    if head.startswith(codecs.BOM_UTF16_BE) or zeros == [True, False, True, False]:
        return "utf-16-be"
    return "utf-8"


def whole_text(text: str, line: int, encoding: str) -> str | Problem:
    """The text as it is meant, or the problem that it can't be decoded. `line` is where it begins."""
    if is_whole(text):
        return text
    if encoding != "utf-8":
        return error(
            line,
            "encoding",
            f"Line {line} holds a zero or a broken character: the file was read as {encoding.upper()[:6]}.",
            "Open the file in a text editor, look at that line and save it with the encoding UTF-8.",
        )
    return _undecoded(line, text.encode("utf-8", "surrogateescape"))


def is_whole(text: str) -> bool:
    """Whether all of a text that was read from a file could be decoded, and none of it is a zero."""
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _undecoded(line: int, raw: bytes) -> Problem:
    try:
        raw.decode()
        byte = raw.index(b"\0")
    except UnicodeDecodeError as cause:
        byte = cause.start
    codec, name = likely_encoding(raw)
    return error(
        line,
        "encoding",
        f"Line {line} is not UTF-8 text: its byte {byte + 1} is 0x{raw[byte]:02X}, which looks like {name}.",
        "Convert the file to UTF-8: open it in a text editor and save it with the encoding UTF-8.",
        cure="convert" if codec else "skip",
    )


def likely_encoding(raw: bytes) -> tuple[str, str]:
    """The codec ("" where none fits) and the name of what bytes that are not UTF-8 may be."""
    if b"\0" in raw:
        return "", "UTF-16 or a file that is no text"
    if not any(0x80 <= byte < 0xA0 for byte in raw):
        return "cp1252", "Latin-1"
    try:
        raw.decode("cp1252")
    except UnicodeDecodeError:
        return "", "an encoding that is not known here"
    return "cp1252", "Windows-1252"
