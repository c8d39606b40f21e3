"""Holds what the build made against what must be: a line a check, exit status 2 with sentences where it fails.

Takes an app for macOS, a frozen folder of Linux, or a tree of wheels for either, on any machine:
`python packaging/verify_bundle.py dist/Tunesmith.app`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import elf_checks
import file_checks
import macho_checks
from bundle import Finding, open_bundle

LIMIT_MB = 700


def verify(root: Path, limit_mb: int = LIMIT_MB) -> list[Finding]:
    """Every check that applies to what lies at `root`. OSError or ValueError where it can't be read."""
    bundle = open_bundle(root)
    findings = [
        file_checks.size_within(bundle, limit_mb),
        file_checks.no_leftovers(bundle),
        file_checks.names_apart(bundle),
        file_checks.links_stay_inside(bundle),
    ]
    findings += macho_checks.of(bundle)
    findings += elf_checks.of(bundle)
    if bundle.plist is not None:
        findings.append(file_checks.described(bundle, bundle.plist))
    if bundle.is_program:
        findings += [file_checks.complete(bundle), file_checks.licensed(bundle)]
    return findings


def report(findings: Sequence[Finding]) -> str:
    """A line a check that holds, a block of sentences for each that doesn't."""
    lines = []
    for check, held, problems in findings:
        lines.append(f"{'FAIL' if problems else 'ok  '}  {check:<14}  {f'{len(problems)} found' if problems else held}")
        lines += [f"      {problem}" for problem in problems]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the report; 0 where everything holds, 2 where something doesn't."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bundle", type=Path, help="an .app, a frozen folder, or a folder of installed wheels")
    parser.add_argument("--limit", type=int, default=LIMIT_MB, metavar="MB", help="the largest size (%(default)s)")
    parser.add_argument("--only", metavar="CHECK", help="one check, by the name that the report gives it")
    options = parser.parse_args(argv)
    try:
        findings = verify(options.bundle, options.limit)
    except (OSError, ValueError) as error:
        print(f"{options.bundle} can't be read as a bundle: {error}", file=sys.stderr)
        return 2
    if options.only:
        findings = [finding for finding in findings if finding.check == options.only]
    if not findings:
        print(f"{options.bundle} has nothing that a check called {options.only} holds.", file=sys.stderr)
        return 2
    print(report(findings))
    return 2 if any(finding.problems for finding in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
