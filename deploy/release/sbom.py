#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""sbom.py TREE OUT: writes OUT/hearth-VERSION.cdx.json, a CycloneDX bill of materials, of what portable.py made: the
program with its commit, and each library that the tarball and the wheel carry, with Debian package, licence and hash.
The .deb carries no library. Needs requirements.txt; the result is checked against CycloneDX's schema and depends on
its inputs and SOURCE_DATE_EPOCH alone."""
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import uuid

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

LICENSES = LicenseFactory()


def sha256_of(path):
    with open(path, "rb") as f:
        return [HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(f.read()).hexdigest())]


def library(row):
    distribution = {"arch": "amd64", "distro": "debian-12"}
    return Component(
        name=os.path.basename(row["file"]), version=row["version"], type=ComponentType.LIBRARY, bom_ref=row["file"],
        licenses=[LICENSES.make_from_string(row["license"])],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=row["sha256"])],
        purl=PackageURL("deb", "debian", row["package"].split(":")[0], row["version"], distribution),
        properties=[Property(name="hearth:source-package", value=row["source"]),
                    Property(name="hearth:carried-by", value="tarball" if row["file"].startswith("glibc/") else "tarball, wheel")])


def main():
    tree, out = sys.argv[1].rstrip("/"), sys.argv[2]
    version = re.match(r"hearth-([0-9.]+)-", os.path.basename(tree)).group(1)
    program = os.path.join(tree, "bin", "hearth")
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    commit = re.search(r"\(commit (\S+)\)", shown).group(1)
    with open(os.path.join(tree, "libraries.json"), encoding="utf-8") as f:
        rows = json.load(f)

    hearth = Component(name="hearth", version=version, type=ComponentType.APPLICATION, bom_ref="hearth",
                       licenses=[LICENSES.make_from_string("MIT")], hashes=sha256_of(program),
                       properties=[Property(name="hearth:commit", value=commit)])
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"hearth-{version}-{commit}"))
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc)
    bom.metadata.component = hearth
    libraries = [library(row) for row in rows]
    for component in libraries:
        bom.components.add(component)
    bom.register_dependency(hearth, libraries)

    text = JsonV1Dot6(bom).output_as_string(indent=1) + "\n"
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem:
        sys.exit(f"the bill of materials is not valid: {problem}")
    path = os.path.join(out, f"hearth-{version}.cdx.json")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    print(path)


if __name__ == "__main__":
    main()
