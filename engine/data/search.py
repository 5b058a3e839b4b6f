"""Where published data sets lie: the folders that are looked at, and what is found there."""

from pathlib import Path

from engine.data.formats.layout import Layout
from engine.data.sets import REGISTRY


def folders_to_search(name: str, layout: Layout, root: Path | None) -> list[Path]:
    """Where a data set may lie: root/<name>, root/<layout's folder>, root itself if it is that folder, the system's."""
    places: list[Path] = []
    if root is not None:
        places.append(root / name)
        for folder in layout.folders:
            parts = Path(folder).parts
            places += [root / name / folder, root / folder]
            for length in range(len(parts), 0, -1):
                if root.parts[-length:] == parts[:length]:
                    places.append(root.joinpath(*parts[length:]))
        if root.name == name:
            places.append(root)
    return list(dict.fromkeys([*places, *REGISTRY[name].system_folders]))


def find(name: str, root: Path | None) -> tuple[Layout, Path] | None:
    """The first folder that holds the data set in a known layout; nothing is decoded."""
    for layout in REGISTRY[name].layouts:
        for folder in folders_to_search(name, layout, root):
            if folder.is_dir() and layout.match(folder):
                return layout, folder
    return None


def find_part(name: str, root: Path | None) -> tuple[Path, tuple[str, ...]] | None:
    """A folder that holds some files of a layout, and those that it lacks; asked when `find` has found nothing."""
    for layout in REGISTRY[name].layouts:
        for folder in folders_to_search(name, layout, root):
            if folder.is_dir() and (missing := layout.lacks(folder)):
                return folder, missing
    return None


def find_below(name: str, folder: Path) -> tuple[Layout, Path] | None:
    """The same in a folder that somebody says holds this data set, whatever the folder is called."""
    for layout in REGISTRY[name].layouts:
        for place in (folder, *(folder / inner for inner in layout.folders)):
            if place.is_dir() and layout.match(place):
                return layout, place
    return None
