"""The build of ``txbroker-compiled``: every leaf of ``journal/compiled.py`` becomes an extension module.

The modules go into a folder named after the hash of their source, never beside it: from the tree Python's source runs.
"""

import os
import runpy
import shutil
from contextlib import chdir
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist
from setuptools.errors import CCompilerError, ExecError, PlatformError

HERE = Path(__file__).resolve().parent
MARK = "journal/compiled.py"
ROOT = next(folder for folder in (HERE, HERE.parents[1]) if (folder / MARK).is_file())
"""The folder of the packages: this one in a source distribution, else that of the checkout."""

CHOICE = runpy.run_path(str(ROOT / MARK))
SOURCES = CHOICE["source_files"]()
PACKAGE = CHOICE["PACKAGE"]
HASH = CHOICE["source_hash"]((name, (ROOT / name).read_bytes()) for name in SOURCES)
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,  # annotations are for mypy: an int of Python's has no bounds, the .pxd says which have
    "boundscheck": True,
    "wraparound": True,
    "cdivision": False,          # division as Python's
    "overflowcheck": True,       # an OverflowError where Python's int would have gone on, never a wrong number
    "embedsignature": False,
}  # fmt: skip


class BuildCompiled(build_ext):
    """Compiles into a folder named after the hash of the source, never in place; says what is missing if it cannot."""

    def run(self) -> None:
        """Compile all leaves; fails with what is missing."""
        if self.inplace or self.editable_mode:
            raise PlatformError(
                "txbroker-compiled is not installed editable: a module compiled in place would be imported in "
                "the place of a source that has changed since. Build its wheel and install that"
            )
        for folder in Path(self.build_lib, PACKAGE).glob("*/"):
            shutil.rmtree(folder)  # of an earlier build: a wheel would hold both
        try:
            super().run()
        except (CCompilerError, ExecError, PlatformError) as error:
            raise PlatformError(
                f"the modules of txbroker-compiled cannot be compiled here: {error}. They need a C compiler and the "
                "headers of this Python (on Debian: apt-get install gcc python3-dev). txbroker works without "
                "txbroker-compiled, slower"
            ) from error

    def get_ext_fullpath(self, ext_name: str) -> str:
        """Return where a compiled module goes."""
        suffix = self.get_ext_filename("x").removeprefix("x")
        return os.path.join(self.build_lib, PACKAGE, HASH, ext_name + suffix)


class SourceDistribution(sdist):
    """Adds the source to compile, which lies above this folder in the checkout."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Put the source into the folder that becomes the distribution."""
        super().make_release_tree(base_dir, files)
        packages = {str(parent) for name in SOURCES for parent in Path(name).parents if parent.name}
        for name in [MARK, *SOURCES, *(f"{package}/__init__.py" for package in packages)]:
            target = Path(base_dir) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
        # The list of sources also names the C files, by where they lie here: so no two builds would be the same.
        for listed in Path(base_dir).glob("*.egg-info/SOURCES.txt"):
            lines = listed.read_text().splitlines()
            listed.unlink()  # it may be a link to that of the checkout
            listed.write_text("".join(f"{line}\n" for line in lines if not line.startswith("/")))


def extensions() -> list[Extension]:
    """Return the leaves, turned into C."""
    leaves = [
        Extension(
            name, [name.replace(".", "/") + ".py"], extra_compile_args=["-O2", "-g0", "-fno-strict-aliasing"]
        )
        for name in CHOICE["LEAVES"]
    ]
    with chdir(ROOT):
        return cythonize(
            leaves,
            build_dir=str(HERE / "build" / "c"),
            compiler_directives=DIRECTIVES,
            include_path=["."],
            quiet=True,
        )


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildCompiled, "sdist": SourceDistribution})
