"""The jars of the peers' Java programs, which Maven gathers into ``build/peers``, with all that they need."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

POMS = Path(__file__).with_name("poms")
GATHERED = Path(__file__).resolve().parents[2] / "build" / "peers"


class JarsMissing(Exception):
    """Maven could not get the jars of a peer; the message has the end of its output."""


def jars(peer: str) -> Path:
    """Return the folder with the jars of ``poms/<peer>.xml``; they are gathered if they are not there yet.

    The folder is named after the pom's content, so another version has another one. Maven checks every checksum.
    """
    pom = POMS / f"{peer}.xml"
    version = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    folder = GATHERED / f"{peer}-{version}"
    if not folder.is_dir():
        GATHERED.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=GATHERED, prefix=f".{peer}-") as scratch:
            _gather(peer, pom, Path(scratch))
            try:
                os.rename(Path(scratch, "jars"), folder)  # a folder appears only when it is complete
            except OSError:
                if not folder.is_dir():
                    raise  # otherwise another run was faster, with the same jars
    return folder


def classpath(peer: str) -> str:
    """Return the argument of ``java -cp`` for that peer's programs."""
    return f"{jars(peer)}/*"


def _gather(peer: str, pom: Path, scratch: Path) -> None:
    if shutil.which("mvn") is None:
        raise JarsMissing(
            f"the jars of {peer} are not there and Maven is not installed: .ci/need-debian mvn=maven installs it"
        )
    shutil.copy(pom, scratch / "pom.xml")
    command = ["mvn", "--batch-mode", "--quiet", "--strict-checksums", "--file", "pom.xml"]
    command += ["dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars"]
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise JarsMissing(f"Maven could not gather the jars of {peer} by {pom.name}:\n{said}")
