"""What a person can save and send after a mistake or a crash, and what it does not tell of them."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtCore import qVersion
from PySide6.QtWidgets import QPushButton

from app import places, report
from app.report import impersonal
from engine.errors import EngineError
from engine.events import Failed

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/Users/anna/Letters to Bob/may.jsonl could not be read", "~/…/may.jsonl could not be read"),
        ("moved /Users/anna/a.csv to /Volumes/Anna's disk/b/c.csv.", "moved ~/a.csv to ~/…/c.csv."),
        ("'data': '/home/anna/x/y.jsonl', 'rank': 8", "'data': '~/…/y.jsonl', 'rank': 8"),
        ("in /Users/anna", "in ~"),
        ("/usr/lib/libc.so and 3/4", "/usr/lib/libc.so and 3/4"),
        ("/srv/bob/Kündigung.csv", "~/Kündigung.csv"),
        ("/srv/bob/mail/Kündigung.csv, line 3", "~/…/Kündigung.csv, line 3"),
        ("/srv/bobby/x.csv", "/srv/bobby/x.csv"),
        (f'File "{ROOT}/app/window.py", line 7', 'File "[Tunesmith]/app/window.py", line 7'),
        (f'File "{Path(sys.prefix)}/lib/x.py"', 'File "[Python]/lib/x.py"'),
    ],
)
def test_paths_do_not_tell_whose_they_are(monkeypatch, text, told):
    monkeypatch.setenv("HOME", "/srv/bob")
    assert impersonal(text) == told


@pytest.fixture
def log(home):
    handler = places.start_log()
    yield logging.getLogger("app.test")
    for name in places.LOGS:
        logging.getLogger(name).removeHandler(handler)
    handler.close()


def test_a_report_has_what_explains_a_mistake(log, monkeypatch, home):
    monkeypatch.setenv("HOME", "/srv/bob")
    for number in range(300):
        log.critical("entry %d of /srv/bob/mail/x.csv", number)
    text = report.report("The window fell over.", "Traceback: ZeroDivisionError")
    for part in ("The window fell over.", "ZeroDivisionError", f"Qt {qVersion()}", "MLX ", "GB in all", "entry 299"):
        assert part in text
    assert "entry 99 " not in text
    assert "/srv/bob" not in text
    assert str(home) not in text


def test_a_report_without_a_log_says_so(home):
    assert "There is no log." in report.report("Nothing.")


def test_a_report_is_saved_where_the_person_says(window, tmp_path):
    window.help.save_report(tmp_path / "Bericht ü.txt", "It fell over.")
    assert "It fell over." in (tmp_path / "Bericht ü.txt").read_text(encoding="utf-8")
    assert window.data_page.notices.shown == []


def test_a_report_that_cannot_be_saved_is_a_card(window, tmp_path):
    window.help.save_report(tmp_path / "gone" / "report.txt")
    (notice,) = window.data_page.notices.shown
    assert "could not be written" in notice.message
    with pytest.raises(EngineError) as refused:
        report.save("", tmp_path / "gone" / "report.txt")
    assert refused.value.kind == "disk"


def test_a_missing_log_is_a_card(window):
    window.help.show_log()
    (notice,) = window.data_page.notices.shown
    assert "There is no log" in notice.message


def test_a_mistake_offers_a_report(window):
    window.show_mistake(Failed("internal", "Something went wrong.", "Send us the details.", "Traceback"))
    (notice,) = window.data_page.notices.shown
    assert "Save Report…" in {one.text() for one in notice.findChildren(QPushButton)}


def test_a_crash_is_told_at_the_next_start(window):
    window.tell_crash("Fatal Python error: Aborted")
    (notice,) = window.data_page.notices.shown
    assert not notice.is_failure  # the demo and the self-test go on
    assert "Fatal Python error" in notice.details.content.toPlainText()
    assert "Save Report…" in {one.text() for one in notice.findChildren(QPushButton)}


# -- crashes that no Python code sees


def run(code: str) -> subprocess.CompletedProcess[str]:
    code = (
        f"from app import places; from app.crashes import CrashTrace\ntrace = CrashTrace(places.crash_file())\n{code}"
    )
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_crash_inside_qt_leaves_a_trace(home):
    assert run("from PySide6.QtCore import qFatal\ndef draw(): qFatal('no')\ndraw()").returncode < 0
    told = run("print(trace.last)\ntrace.close()")
    assert told.returncode == 0
    assert "Fatal Python error: Aborted" in told.stdout
    assert "in draw" in told.stdout
    assert run("print(trace.last)").stdout == "\n"


@pytest.mark.parametrize("end", ["trace.close()", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_an_end_that_was_no_crash_leaves_none(home, end):
    run(end)
    assert run("print(repr(trace.last))").stdout == "''\n"


def test_a_disk_that_refuses_a_trace_is_no_obstacle(home):
    places.log_file().parent.write_text("a file where the folder would be", encoding="utf-8")
    assert run("trace.close()\nprint('well')").stdout == "well\n"


def test_the_packaged_programs_folder_is_told_as_its_own(monkeypatch):
    inside = str(places.RESOURCES.parent)
    monkeypatch.setattr(sys, "prefix", inside)
    monkeypatch.setattr(sys, "base_prefix", inside)
    assert report.impersonal(f"{inside}/mlx/lib/libmlx.dylib") == "[Tunesmith]/mlx/lib/libmlx.dylib"
