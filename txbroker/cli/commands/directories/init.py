"""``txbroker init``: makes what a broker needs before its first start: data directory, first user, settings file."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import click

from journal.records.access_entries import User
from journal.vfs.filesystem import OSFilesystem
from txbroker.cli.directory.data_directory import check_place, is_started
from txbroker.cli.directory.ownership import Owner, make_private, owner_named
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Command, Invocation, pass_invocation
from txbroker.cli.output import emit
from txbroker.cli.passwords import password_of
from txbroker.cli.plugin import look_for_plugin
from txbroker.client.login.verifier import verifier_of
from txbroker.errors import InvalidSetting
from txbroker.server.settings.config import DEFAULT_LISTEN, Config, merged, read_file
from txbroker.server.settings.first_file import text_of

PASSWORD_BYTES = 18
"""Random bytes of a password that is made here."""
FILE_MODE = 0o644
"""No setting is a secret: those are in files that settings name."""


@click.command(cls=Command, short_help="Make data directory, first user and settings file of a broker.")
@click.option(
    "--data", type=click.Path(file_okay=False), help="The directory of the data; made if it is missing."
)
@click.option("--config", "file", type=click.Path(dir_okay=False), help="The settings file to write.")
@click.option(
    "--listen", multiple=True, metavar="ENDPOINT",
    help=f"Where clients come in, for the file to write. Repeatable. Default {DEFAULT_LISTEN}.",
)  # fmt: skip
@click.option("--admin", default="admin", show_default=True, metavar="NAME", help="The first user.")
@click.option(
    "--password-file", type=click.Path(dir_okay=False), help="Its password; - reads standard input."
)
@click.option("--generate-password", is_flag=True, help="Make its password, and show it once.")
@click.option("--owner", metavar="USER", help="The user of the system that the broker will run as; for root.")
@click.option(
    "--if-not-exists", is_flag=True, help="Leave a file, and data with a login, that there are already."
)
@pass_invocation
def init(
    invocation: Invocation,
    data: str | None,
    file: str | None,
    listen: tuple[str, ...],
    admin: str,
    password_file: str | None,
    generate_password: bool,
    owner: str | None,
    if_not_exists: bool,
) -> None:
    """Make what a broker needs before its first start.

    That is: the directory of the data, which nobody else may read; its first user, who may administer the broker, and
    from then on everybody has to log in; and a settings file for 'txbroker serve --config', with a word about each
    setting. Without --config no file is written. The password is asked for, unless --password-file or
    --generate-password says otherwise. Nothing is ever overwritten: exits with 1 if the file exists, or the data is
    used. With --if-not-exists each of both is left as it is; the settings are those of the file, then.
    """
    if generate_password and password_file is not None:
        raise Failure(
            "--generate-password and --password-file contradict each other; nothing was done", Exit.USAGE
        )
    look_for_plugin()
    has_file = file is not None and os.path.lexists(file)
    if has_file and not if_not_exists:
        raise Failure(
            f"{file} exists; nothing was done. --if-not-exists leaves it, and makes the rest", Exit.NO
        )
    if listen and (has_file or file is None):
        raise Failure("--listen is for the file to write, and none is; nothing was done", Exit.USAGE)
    identity = owner_named(owner)
    _check_endpoints(listen)
    with _prepared(None if has_file else file, data, listen or (DEFAULT_LISTEN,)) as temporary:
        config = _config(temporary or file, data)
        password = (
            secrets.token_urlsafe(PASSWORD_BYTES) if generate_password else password_of(admin, password_file)
        )
        made = _make_data(config, User(admin, verifier_of(password)), identity, if_not_exists)
        if temporary is not None and file is not None:
            _put_in_place(temporary, file)
    shown = password if generate_password and made else ""
    _tell(invocation, config.service.data, file, temporary is not None, admin if made else "", shown)


def _check_endpoints(listen: tuple[str, ...]) -> None:
    """Raise ``Failure`` for what is no endpoint, which the first start would refuse. Certificates may come later."""
    from twisted.internet import reactor

    from txbroker.server.endpoints.listening import check_form

    try:
        for description in listen:
            check_form(reactor, description)
    except InvalidSetting as error:
        raise Failure(f"--listen {error}; nothing was done", Exit.USAGE) from error


@contextmanager
def _prepared(file: str | None, data: str | None, listen: tuple[str, ...]) -> Iterator[str | None]:
    """Write the settings beside the file that is to have them, as a file that is gone in the end; None for no file."""
    if file is None:
        yield None
        return
    if data is None:
        raise Failure("where is the data to be kept? Say --data DIRECTORY; nothing was done", Exit.USAGE)
    try:
        handle, temporary = tempfile.mkstemp(
            ".toml", ".txbroker-init-", os.path.dirname(os.path.abspath(file))
        )
    except OSError as error:
        raise Failure(f"{file} cannot be written: {error.strerror}; nothing was done", Exit.USAGE) from error
    try:
        with open(handle, "w", encoding="utf-8") as written:
            os.fchmod(written.fileno(), FILE_MODE)
            written.write(text_of(os.path.abspath(data), listen))
            written.flush()
            os.fsync(written.fileno())
        yield temporary
    finally:
        os.unlink(temporary)


def _put_in_place(temporary: str, file: str) -> None:
    """Give the written settings their name; a file that has come in between is left."""
    try:
        os.link(temporary, file)
    except FileExistsError:
        raise Failure(
            f"{file} was made by somebody else meanwhile, and was left as it is. The data and its first user are made",
            Exit.NO,
        ) from None
    directory = os.open(os.path.dirname(os.path.abspath(file)), os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _config(file: str | None, data: str | None) -> Config:
    """Return the settings. Files that they name are not looked at: who serves may have them, and we not yet."""
    given = {} if data is None else {"data": data}
    try:
        return merged({} if file is None else read_file(file), given)
    except InvalidSetting as error:
        raise Failure(f"{error}; nothing was done", Exit.USAGE) from error


@contextmanager
def _acting_as(identity: Owner | None) -> Iterator[None]:
    """Do what follows as another user, so that every file is its from its first moment on."""
    if identity is None:
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    os.setgroups([identity.group])
    os.setegid(identity.group)
    os.seteuid(identity.user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def _make_data(config: Config, user: User, identity: Owner | None, if_not_exists: bool) -> bool:
    """Make the directory and its first user; return whether that was done, or there was one already."""
    from txbroker.server.first_user import Found, make_first_user
    from txbroker.server.start_failures import unopened

    data = config.service.data
    if not is_started(data):
        check_place(data)
    try:
        opener = make_private(data, identity)
        with _acting_as(opener):
            found = make_first_user(OSFilesystem(data), config, user, "txbroker init")
    except OSError as error:
        raise Failure(f"{unopened(data)}: {error}", Exit.USAGE) from error
    if found is Found.CLOSED and not if_not_exists:
        raise Failure(
            f"{data} is used, and everybody has to log in there; nothing was changed. --if-not-exists leaves it, and "
            "makes the rest",
            Exit.NO,
        )
    if found is Found.OPEN:
        raise Failure(
            f"{data} is used, and nobody has to log in there; nothing was changed. Start a broker on it, and have "
            f"everybody log in, by 'users add', 'access allow' and 'access enable' of 'txbroker --broker "
            f"unix:{data}/admin.sock'; or name an empty directory",
            Exit.NO,
        )
    return found is Found.UNUSED


def _tell(
    invocation: Invocation, data: str, file: str | None, is_written: bool, user: str, password: str
) -> None:
    """Tell what was made: ``user``, and a password that was made here, are "" if there was data."""
    document = {"data": data, "user": user or None, "config": file, "config_written": is_written}
    if password:
        document["password"] = password
    lines = [
        f"{data} is the directory of the data, and {user} its first user, who may administer the broker. Everybody has "
        "to log in."
        if user
        else f"{data} is used, and everybody has to log in: it was left as it is."
    ]
    if file is not None:
        lines.append(f"{file} {'has the settings' if is_written else 'was left as it is'}.")
    if password:
        lines.append(f"The password of {user}, which nothing shows again: {password}")
    start = f"--config {file}" if file is not None else f"--data {data}"
    lines.append(f"Start the broker with: txbroker serve {start}")
    emit(invocation.as_json, document, lambda: "\n".join(lines))
