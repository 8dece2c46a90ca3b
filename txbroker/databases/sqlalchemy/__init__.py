"""SQLAlchemy 2: ``txbroker.atomic`` with its Sessions and Connections, and :func:`carry` for ``session.commit()``."""

from __future__ import annotations

try:
    import sqlalchemy as _sqlalchemy
except ImportError as error:
    raise ImportError(
        f"txbroker.databases.sqlalchemy needs SQLAlchemy 2, which is not installed ({error}): "
        "pip install 'txbroker[sqlalchemy]'"
    ) from error
if int(_sqlalchemy.__version__.partition(".")[0]) < 2:
    raise ImportError(
        f"txbroker.databases.sqlalchemy needs SQLAlchemy 2, found {_sqlalchemy.__version__}: "
        "pip install 'txbroker[sqlalchemy]'"
    )

from txbroker.databases.sqlalchemy.adapters import adapt
from txbroker.databases.sqlalchemy.session_messages import Messages, carry

__all__ = ["Messages", "adapt", "carry"]
