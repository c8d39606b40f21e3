"""Signatures and Apple's approval: codesign inside out, notarytool, stapler, spctl."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from commands import Run
from macho import is_macho

from engine.errors import EngineError

# Apple says yes some time before its servers tell others.
_TICKET_WAITS = (15, 30, 60, 120)

ENTITLEMENTS = Path(__file__).resolve().parent / "entitlements.plist"


def sign_app(run: Run, app: Path, identity: str | None) -> None:
    """Signs every Mach-O file of `app`, then its frameworks, then itself; ad hoc without an identity.

    With one, under the hardened runtime and with a timestamp, as notarization asks.
    """
    *inner, whole = inside_out(app)
    for parts in inner:
        run("codesign", "--force", *_how(identity), *parts)
    run("codesign", "--force", *_how(identity), "--entitlements", ENTITLEMENTS, *whole)


def sign_image(run: Run, image: Path, identity: str) -> None:
    """Signs a disk image."""
    run("codesign", "--force", "--timestamp", "--sign", identity, image)


def inside_out(app: Path) -> list[list[Path]]:
    """What to sign, in order: loose Mach-O files, then frameworks, the deepest first, then the app itself.

    Before it is built (a dry run) a pattern stands for what will be inside.
    """
    if not app.exists():
        return [[app / "Contents/**/Mach-O"], [app / "Contents/Frameworks/*.framework"], [app]]
    frameworks = [path for path in app.rglob("*.framework") if path.is_dir() and not path.is_symlink()]
    # A framework's own library gets its signature with the framework, the app's program with the app.
    sealed = {app / "Contents" / "MacOS" / app.stem}
    for framework in frameworks:
        sealed.update((framework / "Versions").glob(f"*/{framework.stem}"))
    loose = [path for path in app.rglob("*") if is_macho(path) and path not in sealed]
    steps = [_deepest_first(loose), _deepest_first(frameworks), [app]]
    return [step for step in steps if step]


def _deepest_first(paths: Sequence[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: (-len(path.parts), path))


def _how(identity: str | None) -> list[str]:
    if identity is None:
        # Not hardened: its library validation wants one team for all files, and ad hoc signatures have none.
        return ["--timestamp=none", "--sign", "-"]
    return ["--options", "runtime", "--timestamp", "--sign", identity]


def verify_signature(run: Run, app: Path) -> None:
    """Holds the app against its signature: EngineError where a file was changed, added or left out."""
    run("codesign", "--verify", "--deep", "--strict", "--verbose=2", app)


def assess_app(run: Run, app: Path) -> None:
    """Asks Gatekeeper whether it would start the app after a download."""
    run("spctl", "--assess", "--type", "execute", "--verbose=4", app)


def assess_image(run: Run, image: Path) -> None:
    """Asks Gatekeeper whether it would open the disk image after a download."""
    run("spctl", "--assess", "--type", "open", "--context", "context:primary-signature", "--verbose=4", image)


def notarize(run: Run, archive: Path, credentials: Sequence[str]) -> None:
    """Has Apple check a .zip or .dmg and waits for the answer. EngineError with Apple's log where it says no."""
    answer = run("xcrun", "notarytool", "submit", archive, *credentials, "--wait", "--output-format", "json")
    if answer is None:
        return
    # notarytool's own status is 0 whatever the verdict.
    verdict = json.loads(answer)
    if verdict.get("status") != "Accepted":
        run("xcrun", "notarytool", "log", verdict["id"], *credentials)
        raise EngineError(
            f"Apple did not accept {archive.name}: {verdict.get('status', 'no status')}.",
            "The log above names each file and what is wrong with it.",
        )


def staple(run: Run, target: Path, wait: Callable[[float], None] = time.sleep) -> None:
    """Fastens Apple's approval to an app or image, so that a Mac without network finds it too.

    EngineError where the approval is not to be had minutes after it was given.
    """
    for seconds in _TICKET_WAITS:
        try:
            run("xcrun", "stapler", "staple", target)
            break
        except EngineError as error:
            print(f"{error.message} Apple may not hand out its approval yet: again in {seconds} s.", flush=True)
            wait(seconds)
    else:
        run("xcrun", "stapler", "staple", target)
    run("xcrun", "stapler", "validate", target)
