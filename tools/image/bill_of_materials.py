"""The software bill of materials of an image: its Debian packages and its Python distributions, as CycloneDX 1.6.

    SOURCE_DATE_EPOCH=… python -m tools.image.bill_of_materials ROOT VERSION

ROOT is the file system of the image, VERSION that of kubestow, SOURCE_DATE_EPOCH the time of its source in seconds
since 1970. The document is written to standard output.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from email.parser import HeaderParser
from importlib.metadata import distributions
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL


def bill_of_materials(root: Path, version: str, created: datetime) -> str:
    """The document, in JSON: the same one for the same arguments.

    Raises FileNotFoundError if ``root`` has no descriptions of Debian packages.
    """
    image = Component(name="kubestow", version=version, type=ComponentType.CONTAINER, bom_ref="kubestow-image")
    bom = Bom(components=[*_debian_packages(root), *_python_distributions(root)])
    bom.metadata.component = image
    bom.metadata.timestamp = created
    bom.serial_number = uuid5(NAMESPACE_URL, f"{image.name}:{version}:{created.isoformat()}")
    bom.register_dependency(image, bom.components)
    document: str = JsonV1Dot6(bom).output_as_string(indent=2)
    return document


def _debian_packages(root: Path) -> Iterator[Component]:
    for file in sorted((root / "var" / "lib" / "dpkg" / "status.d").iterdir()):
        package = HeaderParser().parsestr(file.read_text(encoding="utf-8"))
        url = PackageURL(
            "deb", "debian", package["Package"], package["Version"], qualifiers={"arch": package["Architecture"]}
        )
        yield _library(url)


def _python_distributions(root: Path) -> Iterator[Component]:
    for packages in sorted(root.glob("opt/kubestow/lib/python*/site-packages")):
        for found in distributions(path=[str(packages)]):
            yield _library(PackageURL("pypi", None, found.name.lower().replace("_", "-"), found.version))


def _library(url: PackageURL) -> Component:
    return Component(name=url.name, version=url.version, type=ComponentType.LIBRARY, purl=url, bom_ref=url.to_string())


if __name__ == "__main__":
    source_date = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    sys.stdout.write(bill_of_materials(Path(sys.argv[1]), sys.argv[2], source_date))
