"""The Java programs of the peers: gathered by Maven, with what they need, into ``build/peers``."""

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
    """The jars of a peer could not be had; the message has the end of what Maven said."""


def jars(peer: str) -> Path:
    """The folder with the jars of ``poms/<peer>.xml``, gathered if they are not there yet.

    It is named after the pom's content: another version has another folder. Maven has checked every checksum.
    """
    pom = POMS / f"{peer}.xml"
    version = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    folder = GATHERED / f"{peer}-{version}"
    if not folder.is_dir():
        GATHERED.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=GATHERED, prefix=f".{peer}-") as scratch:
            _gather(peer, pom, Path(scratch))
            try:
                os.rename(Path(scratch, "jars"), folder)  # whole or not at all
            except OSError:
                if not folder.is_dir():
                    raise  # else another run was faster, with the same jars
    return folder


def classpath(peer: str) -> str:
    """What to give to ``java -cp`` for that peer's programs."""
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
