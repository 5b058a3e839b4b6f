"""Image files in a folder for each domain, and in it one for each class."""

from pathlib import Path

from engine.data.formats.image_folders import (
    count_images,
    has_class_images,
    image_contents,
    images_in,
    in_order,
    subfolders,
)
from engine.data.formats.layout import Contents, Layout


def domain_layout(title: str, folders: tuple[str, ...], domains: tuple[str, ...]) -> Layout:
    def match(folder: Path) -> bool:
        return any(has_class_images(folder / domain) for domain in domains)

    def present(folder: Path) -> list[str]:
        return [domain for domain in domains if (folder / domain).is_dir()]

    def lists(folder: Path) -> list[Path]:
        """The publisher's lists of test images, where they lie beside the images."""
        places = [base / f"{d}_test.txt" for d in present(folder) for base in (folder, folder / "splits")]
        return [path for path in places if path.is_file()]

    def files(folder: Path) -> list[Path]:
        images = [
            path
            for domain in present(folder)
            for name in subfolders(folder / domain)
            for path in images_in(folder / domain / name)
        ]
        return [*lists(folder), *images]

    def read(folder: Path) -> Contents:
        found = present(folder)
        names = in_order({name for domain in found for name in subfolders(folder / domain)})
        number = {name: position for position, name in enumerate(names)}
        test = {
            line.rpartition(" ")[0].strip()
            for path in lists(folder)
            for line in path.read_text("utf-8", errors="replace").splitlines()
        }
        rows = [
            (path, number[name], f"{domain}/{name}/{path.name}" in test, position)
            for position, domain in enumerate(found)
            for name in subfolders(folder / domain)
            for path in images_in(folder / domain / name)
        ]
        return image_contents(rows, names, found, folder)

    return Layout(title, folders, match, files, read, count_images(files))
