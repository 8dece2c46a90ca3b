"""Test that broker, coordinator and embedded log refuse other systems than Linux; the clients need nothing of it."""

import subprocess
import sys

import pytest

from tests.support.repository import ROOT

FORMATS = {
    "journal",
    "journal.arguments",
    "journal.compiled",
    "journal.due_time",
    "journal.formats.envelope",
    "journal.records.schedule_records",
    "journal.scheduled_id",
    "journal.formats",
    "journal.records",
    "journal.records.access_entries",
    "journal.records.access_records",
    "journal.formats.filenames",
    "journal.records.record_base",
    "journal.records.record_parts",
    "journal.formats.checkpoint_rows",
    "journal.formats.checksum",
    "journal.formats.compression",
    "journal.constants",
    "journal.errors",
    "journal.formats.frame",
    "journal.formats.frame_header",
    "journal.formats.frame_stamp",
    "journal.formats.octets",
    "journal.records.record_bytes",
    "journal.records.record_header",
    "journal.formats.frame_times",
    "journal.records.group_entries",
    "journal.records.queue_entries",
    "journal.records.queue_records",
    "journal.records.stream_entries",
    "journal.records.stream_records",
    "journal.formats.offset_set_bytes",
    "journal.formats.version",
    "journal.message_headers",
    "journal.offset_set",
    "journal.parties",
    "journal.quantities",
    "journal.random_id",
    "journal.records.record",
    "journal.records.restored",
    "journal.settings",
    "journal.transaction_states",
    "journal.words",
    "journal.xid",
}
"""Formats, names, errors, and how these are written: all that a client needs of the journal."""

CLIENTS = (
    "txbroker.errors",
    "txbroker.client.blocking",
    "txbroker.client.asyncio",
    "txbroker.client.twisted",
    "txbroker.databases.blocking",
    "txbroker.databases.asyncio",
    "txbroker.databases.twisted",
    "txbroker.databases.adapters.sqlite",
    "txbroker.databases.adapters.postgresql",
    "txbroker.databases.adapters.mysql",
    "txbroker.databases.sqlalchemy",
    "txbroker.databases.django",
)


def python(code: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.sampled
@pytest.mark.parametrize("module", CLIENTS)
def test_a_client_takes_only_formats_names_and_errors_of_the_journal(module):
    """Seen with every import of ``journal`` loading the whole engine."""
    said = python(f"import sys, {module}; print(*[n for n in sys.modules if n.split('.')[0] == 'journal'])")
    assert set(said.split()) <= FORMATS


@pytest.mark.slow
def test_the_log_is_loaded_when_it_is_asked_for_and_listed_before():
    said = python(
        "import sys, journal; print({'open', 'Log'} <= set(dir(journal)), 'journal.embedded' in sys.modules); "
        "print(journal.open.__module__, journal.Log.__module__, journal.open is journal.embedded.open_log)"
    )
    assert said.split() == ["True", "False", "journal.embedded", "journal.embedded", "True"]
    assert python("import journal; print(hasattr(journal, 'nothing'))") == "False\n"


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize(
    "code",
    [
        "import journal; journal.open",
        "import journal.engine.engine",
        "import txbroker; txbroker.join",
        "import txbroker.coordinator",
        "import txbroker.server.service",
        "import txbroker.drill.drill",
    ],
)
def test_what_runs_on_linux_only_says_so_where_it_is_imported(code):
    said = python(
        "from twisted.internet import reactor\n"  # it decides by os.name what it imports
        "import tests.support.elsewhere\nfrom txbroker import errors\n"
        f"try: {code}\nexcept errors.PlatformUnsupported as error: print(isinstance(error, ImportError), error)"
    )
    assert said.startswith(
        "True txbroker's broker, its coordinator and the embedded log run on Linux only, and "
    )
    assert "Nothing was opened" in said
    assert "txbroker.connect()" in said


def test_it_is_linux_that_is_asked_for_whatever_the_system_has():
    said = python(
        "import sys; sys.platform = 'freebsd13'\n"
        "try: import journal.vfs.filesystem\nexcept ImportError as error: print(type(error).__name__, error)"
    )
    assert said.startswith("PlatformUnsupported")
    assert "this is freebsd13" in said
