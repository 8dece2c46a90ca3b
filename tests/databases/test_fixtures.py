"""Test that the databases of tests are real, private, and force their commits as in production."""

import contextlib
import os
import pwd
import sqlite3

import psycopg
import pytest

from demo import postgresql as postgresql_module
from demo.database_process import DatabaseFailed, children, runs
from demo.postgresql import PostgresqlServer
from tests.databases.fixtures import new_folder

pytestmark = pytest.mark.slow


def asked(database, question):
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute(question)
        return cursor.fetchone()[0]


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_gets_an_empty_postgresql_database(postgresql, turn):
    with postgresql.connect() as connection:
        connection.execute("CREATE TABLE made_here (id int)")


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_gets_an_empty_mariadb_database(mariadb, turn):
    with mariadb.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE made_here (id int)")


def test_the_sqlite_file_can_be_made(sqlite):
    assert not sqlite.exists()
    with sqlite3.connect(sqlite) as connection:
        connection.execute("CREATE TABLE made_here (id int)")
    connection.close()
    assert sqlite.exists()


def test_postgresql_is_15_of_debian_forced_and_on_no_port(postgresql):
    assert asked(postgresql, "SHOW server_version").startswith("15.")
    assert asked(postgresql, "SHOW fsync") == "on"
    assert asked(postgresql, "SHOW synchronous_commit") == "on"
    assert asked(postgresql, "SHOW listen_addresses") == ""


def test_mariadb_is_forced_and_on_no_port(mariadb):
    assert "MariaDB" in asked(mariadb, "SELECT version()")
    assert asked(mariadb, "SELECT @@innodb_flush_log_at_trx_commit") == 1
    assert asked(mariadb, "SELECT @@skip_networking") == 1


def test_the_servers_run_as_their_own_users_if_root_starts_them_and_else_as_whoever_does(
    postgresql_server, mariadb_server
):
    for server, user in ((postgresql_server, "postgres"), (mariadb_server, "mysql")):
        expected = os.geteuid() or pwd.getpwnam(user).pw_uid
        assert os.stat(f"/proc/{server.pid}").st_uid == expected


def test_postgresql_prepares_only_where_it_was_asked_for(postgresql, postgresql_two_phase):
    def prepare(database):
        with contextlib.closing(database.connect()) as connection:
            connection.tpc_begin(connection.xid(1, "one", "branch"))
            connection.execute("SELECT 1")
            connection.tpc_prepare()

    with pytest.raises(psycopg.NotSupportedError, match="prepared transactions are disabled"):
        prepare(postgresql)
    prepare(postgresql_two_phase)
    assert len(postgresql_two_phase.prepared()) == 1  # and dropping the database gets over it


def test_a_killed_postmaster_takes_its_connections_along_and_keeps_what_was_committed(
    postgresql_server_to_kill,
):
    server = postgresql_server_to_kill
    database = server.create_database()
    with database.connect(autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (id int)")
        connection.execute("INSERT INTO kept VALUES (1)")
    idle = database.connect()
    idle.execute("INSERT INTO kept VALUES (2)")
    processes = children(server.pid)
    assert idle.info.backend_pid in processes
    server.kill()
    assert server.pid is None
    assert not any(map(runs, processes))
    with pytest.raises(psycopg.OperationalError):
        idle.execute("SELECT 1")
    idle.close()
    server.start()
    with database.connect() as connection:
        assert connection.execute("SELECT id FROM kept").fetchall() == [(1,)]


def test_a_killed_postmaster_can_be_started_again_while_a_connection_waits_for_a_lock(
    postgresql_server_to_kill,
):
    server = postgresql_server_to_kill
    database = server.create_database()
    with database.connect(autocommit=True) as connection:
        connection.execute("CREATE TABLE decided (xid text PRIMARY KEY)")
    first, second = database.connect(), database.connect()
    first.execute("INSERT INTO decided VALUES ('x')")
    second.execute("SET lock_timeout = 0")
    second.pgconn.send_query(b"INSERT INTO decided VALUES ('x')")
    second.pgconn.flush()
    for _ in range(3):
        server.kill()
        server.start()
    with database.connect() as connection:
        assert connection.execute("SELECT count(*) FROM decided").fetchone() == (0,)
    first.close()
    second.close()


def test_an_orderly_stop_does_not_wait_for_those_who_are_connected(postgresql_server_to_kill):
    with postgresql_server_to_kill.connect() as connection:
        connection.execute("SELECT 1")
        postgresql_server_to_kill.stop()
        assert postgresql_server_to_kill.pid is None
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_a_server_that_is_not_installed_says_which_command_installs_it(tmp_path, monkeypatch):
    monkeypatch.setattr(postgresql_module, "BINARIES", tmp_path / "bin")
    with pytest.raises(DatabaseFailed, match=r"\.ci/need-debian '.*/bin/postgres=postgresql-15'"):
        PostgresqlServer(tmp_path / "folder").start()


def test_a_server_that_cannot_start_shows_the_end_of_its_log():
    server = PostgresqlServer(new_folder(), {"shared_buffers": "nonsense"})
    try:
        with pytest.raises(DatabaseFailed, match=r"(?s)ended with 1.*invalid value for parameter"):
            server.start()
    finally:
        server.remove()
