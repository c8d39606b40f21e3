"""What macOS is told about the app: Info.plist, as the spec gives it to PyInstaller."""

from __future__ import annotations

from typing import Any

NAME = "Tunesmith"
IDENTIFIER = "app.tunesmith.Tunesmith"
# The oldest macOS that every shipped binary runs on: mlx-metal's oldest wheel decides.
MINIMUM_MACOS = "14.0"

# Types that macOS has no declaration of: without one it can't tell such files from any other.
_JSON_LINES = "org.jsonlines.jsonl"
_PARQUET = "org.apache.parquet"
_MARKDOWN = "net.daringfireball.markdown"

_DATA_TYPES = [
    _JSON_LINES,
    "public.json",
    "public.comma-separated-values-text",
    "public.tab-separated-values-text",
    _PARQUET,
    "public.plain-text",
    _MARKDOWN,
]

_WHY = "Tunesmith reads the training data and models that you choose {where}, and saves there what you ask it to."


def info_plist(version: str) -> dict[str, Any]:
    """Info.plist's keys for `version`, without those that PyInstaller adds (executable, icon, package type)."""
    return {
        "CFBundleIdentifier": IDENTIFIER,
        "CFBundleName": NAME,
        "CFBundleDisplayName": NAME,
        "CFBundleShortVersionString": version,
        "CFBundleVersion": version,
        "CFBundleDevelopmentRegion": "en",
        "LSMinimumSystemVersion": MINIMUM_MACOS,
        "LSApplicationCategoryType": "public.app-category.developer-tools",
        "NSPrincipalClass": "NSApplication",
        "NSHighResolutionCapable": True,
        # False: the window follows the system into dark mode.
        "NSRequiresAquaSystemAppearance": False,
        "NSHumanReadableCopyright": "Apache License 2.0",
        "CFBundleDocumentTypes": [
            _document_type("Training data", _DATA_TYPES),
            # A run is a plain folder, which a person can also drop on the icon.
            _document_type("Run folder", ["public.folder"]),
        ],
        "UTImportedTypeDeclarations": [
            _imported(_JSON_LINES, "JSON Lines", ["public.text"], ["jsonl", "ndjson"], "application/jsonl"),
            _imported(_PARQUET, "Apache Parquet", ["public.data"], ["parquet"], "application/vnd.apache.parquet"),
            _imported(_MARKDOWN, "Markdown", ["public.plain-text"], ["md", "markdown"], "text/markdown"),
        ],
        "NSDesktopFolderUsageDescription": _WHY.format(where="on the desktop"),
        "NSDocumentsFolderUsageDescription": _WHY.format(where="in Documents"),
        "NSDownloadsFolderUsageDescription": _WHY.format(where="in Downloads"),
        "NSRemovableVolumesUsageDescription": _WHY.format(where="on this disk"),
        "NSNetworkVolumesUsageDescription": _WHY.format(where="on this server"),
    }


def _document_type(name: str, types: list[str]) -> dict[str, Any]:
    # Alternate: offered under Open With, never the one that a double click starts.
    return {
        "CFBundleTypeName": name,
        "CFBundleTypeRole": "Viewer",
        "LSHandlerRank": "Alternate",
        "LSItemContentTypes": types,
    }


def _imported(identifier: str, name: str, kinds: list[str], extensions: list[str], mime: str) -> dict[str, Any]:
    return {
        "UTTypeIdentifier": identifier,
        "UTTypeDescription": name,
        "UTTypeConformsTo": kinds,
        "UTTypeTagSpecification": {"public.filename-extension": extensions, "public.mime-type": [mime]},
    }
