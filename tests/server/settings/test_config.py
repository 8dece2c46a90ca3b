"""Test the flat list of settings, from a file and the command line; unknown ones are refused by name."""

import os

import pytest

from journal.constants import MIB
from txbroker.broker.sessions.settings import DAY, SECOND
from txbroker.errors import InvalidSetting
from txbroker.server.settings import config


def refusal(*sources):
    with pytest.raises(InvalidSetting) as refused:
        config.merged(*sources)
    return str(refused.value)


def written(tmp_path, text):
    path = tmp_path / "broker.toml"
    path.write_text(text)
    return str(path)


def test_only_the_directory_has_to_be_said():
    made = config.merged({"data": "d"})
    assert made.service.data == os.path.abspath("d"), "twistd may change the directory before it starts"
    assert made.service.listen == (config.DEFAULT_LISTEN,)
    assert "data" in refusal({})
    assert "data" in refusal({"data": ""})


def test_a_file_of_keys_on_the_command_line_is_meant_from_where_the_process_starts():
    made = config.merged({"data": "d", "token_issuers": "https://idp txbroker idp.jwks"})
    assert made.service.token_issuers == (f"https://idp txbroker {os.path.abspath('idp.jwks')}",)


def test_later_sources_win():
    made = config.merged({"data": "d", "max_sessions": 1, "max_topics": 2}, {"max_sessions": 3})
    assert (made.broker.max_sessions, made.broker.max_topics) == (3, 2)


def test_each_part_gets_its_settings():
    made = config.merged(
        {
            "data": "d",
            "stop_timeout": "2s",
            "max_groups": 7,
            "pool_bytes": 64 * MIB,
            "max_transaction_bytes": 9 * MIB,
            "max_outcomes": 11,
        }
    )
    assert made.service.stop_timeout == 2 * SECOND
    assert made.broker.max_groups == 7
    assert made.journal.pool_bytes == 64 * MIB
    assert made.journal.limits.bytes == 9 * MIB
    assert made.journal.limits.outcomes == 11


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("90s", 90 * SECOND),
        ("1m30s", 90 * SECOND),
        ("2d", 2 * DAY),
        ("1500ms", 1_500_000),
    ],
)
def test_a_duration_has_a_unit(text, value):
    assert config.merged({"data": "d", "message_timeout": text}).service.message_timeout == value


@pytest.mark.parametrize("text", ["", "fast", "5parsecs", "-1s", "5KiB", "1e9", -5, 1.5, True, None, []])
def test_what_is_not_a_duration_is_refused(text):
    assert "message_timeout: " in refusal({"data": "d", "message_timeout": text})


@pytest.mark.parametrize("number", [30, "30", 60_000_000])
def test_a_duration_without_a_unit_is_refused_with_what_to_write(number):
    said = refusal({"data": "d", "message_timeout": number})
    assert f"setting message_timeout: '{number}' has no unit: write '{number}s' for seconds" in said


@pytest.mark.parametrize("zero", [0, "0", "0s"])
def test_nothing_needs_no_unit_where_nothing_means_something(zero):
    assert config.merged({"data": "d", "max_fetch_wait": zero}).broker.max_fetch_wait == 0
    assert "message_timeout is 0s, it must be a duration from 1s" in refusal(
        {"data": "d", "message_timeout": zero}
    )


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("max_frame", "5s", "'5s' is not a size"),
        ("max_sessions", "5KiB", "'5KiB' is not a whole number"),
        ("max_sessions", "5s", "'5s' is not a whole number"),
        ("checkpoint_interval", "5MiB", "'5MiB' is not a duration"),
        ("max_transaction_bytes", "1h", "'1h' is not a size"),
        ("max_transactions", "1KiB", "'1KiB' is not a whole number"),
    ],
)
def test_a_unit_of_another_kind_is_refused(name, value, said):
    assert f"setting {name}: {said}" in refusal({"data": "d", name: value})


def test_a_size_may_be_a_number_of_bytes():
    for value in (65_536, "65536", "64KiB"):
        assert config.merged({"data": "d", "max_fetch": value}).broker.max_fetch == 65_536


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("data", 5),
        ("listen", []),
        ("listen", [5]),
        ("message_timeout", 0),
        ("message_timeout", 1.5),
        ("message_timeout", True),
        ("max_sessions", 0),
        ("orphan_action", "shrug"),
        ("pool_bytes", 1),
        ("max_transaction_bytes", "many"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_setting(name, value):
    assert name in refusal({"data": "d", name: value})


def test_a_setting_that_is_off_by_default_can_be_switched_on():
    assert config.merged({"data": "d"}).broker.orphan_age is None
    made = config.merged({"data": "d", "orphan_age": "7d", "orphan_action": "rollback"})
    assert made.broker.orphan_age == 7 * DAY
    assert made.broker.orphan_action == "rollback"


def test_every_setting_but_the_directory_has_a_default_that_is_in_order():
    defaults = config.defaults()
    assert set(config.KNOWN) - set(defaults) == {"data"}
    written = {
        name: config.readable(name, value)
        for name, value in defaults.items()
        if value not in (defaults["listen"], (), "")
    }
    made = config.merged({"data": "d"}, written)
    assert made == config.merged({"data": "d"})


class TestTheFile:
    def test_it_holds_the_same_names(self, tmp_path):
        path = written(tmp_path, 'listen = ["tcp:1", "unix:/s"]\nmax_sessions = 5\nidle_timeout = "1h"\n')
        made = config.merged({"data": "d"}, config.read_file(path))
        assert made.service.listen == ("tcp:1", "unix:/s")
        assert made.broker.max_sessions == 5
        assert made.broker.idle_timeout == 3600 * SECOND

    def test_a_directory_in_it_is_meant_from_where_it_lies(self, tmp_path):
        assert config.read_file(written(tmp_path, 'data = "here"'))["data"] == str(tmp_path / "here")
        assert config.read_file(written(tmp_path, 'data = "/else/where"'))["data"] == "/else/where"

    @pytest.mark.parametrize("form", ["{}", "[{}]"], ids=["one", "a list"])
    def test_so_are_the_files_of_keys_of_issuers(self, tmp_path, form):
        def path_of(text):
            given = config.read_file(written(tmp_path, f"token_issuers = {form.format(text)}"))
            [described] = config.merged({"data": "d"}, given).service.token_issuers
            assert described.startswith("https://idp txbroker ")
            return described.split(maxsplit=2)[2]

        assert path_of('"https://idp txbroker keys of/idp.jwks"') == str(tmp_path / "keys of" / "idp.jwks")
        assert path_of('"https://idp  txbroker  /etc/idp.jwks"') == "/etc/idp.jwks"

    def test_what_is_no_issuer_stays_as_it_is_until_it_is_refused(self, tmp_path):
        given = config.read_file(written(tmp_path, 'token_issuers = ["https://idp txbroker"]'))
        assert given["token_issuers"] == ["https://idp txbroker"]
        assert "token_issuers is [7]" in refusal({"data": "d"}, {"token_issuers": [7]})

    def test_an_unknown_setting_is_refused_with_the_nearest_one(self, tmp_path):
        with pytest.raises(
            InvalidSetting, match=r"'max_session' \(in .*broker.toml\); did you mean 'max_sessions'"
        ):
            config.read_file(written(tmp_path, "max_session = 5"))

    def test_an_unknown_setting_like_none_there_is_is_refused_with_all_there_are(self, tmp_path):
        with pytest.raises(InvalidSetting, match=r"known are .*max_sessions"):
            config.read_file(written(tmp_path, "[quux]\na = 5"))

    def test_what_is_not_toml_is_refused_with_the_place(self, tmp_path):
        with pytest.raises(InvalidSetting, match=r"not TOML.*line 1"):
            config.read_file(written(tmp_path, "max_sessions: 5"))

    def test_one_that_is_not_there_is_refused(self, tmp_path):
        with pytest.raises(InvalidSetting, match="cannot be read: No such file"):
            config.read_file(str(tmp_path / "none.toml"))


def test_a_pool_that_the_largest_request_does_not_fit_into_is_refused():
    with pytest.raises(InvalidSetting, match="pool_bytes is 8MiB, it must be at least twice max_request"):
        config.merged({"data": "d", "pool_bytes": 8 * MIB})
    assert config.merged({"data": "d", "pool_bytes": 8 * MIB, "max_request": 4 * MIB, "max_frame": MIB})


def test_a_choice_that_there_is_not_is_refused_with_those_there_are():
    with pytest.raises(
        InvalidSetting, match="orphan_action is 'foo', it must be one of alert, rollback, commit"
    ):
        config.merged({"data": "d", "orphan_action": "foo"})
