"""Test ``txbroker config``: what it says of settings is what a broker makes of them."""

import json

import jsonschema
import pytest

from tests.cli.invocations import runner

run = runner("tcp:127.0.0.1:1")  # no broker is asked


@pytest.fixture
def file(tmp_path):
    """Writes a settings file, and returns its path."""

    def write(text):
        path = tmp_path / "broker.toml"
        path.write_text(text)
        return str(path)

    return write


GOOD = 'data = "d"\nmax_sessions = 5\nmessage_timeout = "30s"\nhttp = "tcp:7655:interface=127.0.0.1"\n'
BAD = {
    "max_session = 5\n": "did you mean 'max_sessions'?",
    "max_sessions = 0\n": "max_sessions",
    "message_timeout = 30\n": "message_timeout",
    'token_issuers = "https://idp txbroker /none.jwks"\n': "the keys of https://idp in /none.jwks cannot be read",
    'token_issuers = "https://idp"\n': "is not an issuer, an audience and a file of keys",
    'http = "tcp:7655"\n': "who could read all metrics",
    'http = "tls:7655:cert=/none.pem"\n': "/none.pem cannot be read: No such file",
    'listen = "ssl:7655:privateKey=/none.pem"\n': "ssl: endpoints are not taken",
    'http_token_file = "/nothing/here"\n': "http_token_file /nothing/here cannot be read",
    'pool_bytes = "16MiB"\n': "at least twice max_request",
    "max_sessions = \n": "is not TOML",
}


def test_settings_with_which_a_broker_starts_are_valid(file):
    assert run("config", "check", file(GOOD)).stdout == "The settings are valid.\n"
    assert json.loads(run("config", "check", "--json").stdout) == {"valid": True}
    run("config", "check", file('listen = "tcp:7654"\n'))  # it waits until one has to log in


@pytest.mark.parametrize("text", BAD)
def test_the_setting_that_is_wrong_is_named(file, text):
    assert BAD[text] in " ".join(run("config", "check", file(text), code=1).stderr.split())


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("no/such.toml",), 2, "no/such.toml cannot be read"),
        (("--set", "max_sessions"), 1, "it must be NAME=VALUE"),
        (("--set", "nothing=5"), 1, "there is no setting 'nothing'"),
        (("--set", "max_sessions=x"), 1, "max_sessions"),
    ],
)
def test_what_cannot_be_read_as_settings_is_refused(words, code, said):
    assert said in " ".join(run("config", "check", *words, code=code).stderr.split())


def test_it_is_shown_where_each_value_comes_from(file):
    path = file(GOOD)
    shown = json.loads(run("config", "show", path, "--set", "max_sessions=7", "--json").stdout)
    assert shown == {
        "data": {"value": shown["data"]["value"], "from": path},
        "http": {"value": "tcp:7655:interface=127.0.0.1", "from": path},
        "max_sessions": {"value": "7", "from": "--set"},
        "message_timeout": {"value": "30s", "from": path},
    }
    assert shown["data"]["value"].endswith("/d")
    assert "data" not in json.loads(run("config", "show", "--all", "--json").stdout)
    whole = json.loads(run("config", "show", path, "--all", "--json").stdout)
    assert whole["max_topics"] == {"value": "5000", "from": "default"}
    assert whole["http_token_file"] == {"value": "none", "from": "default"}
    assert len(whole) > 60
    table = run("config", "show", path).stdout
    assert "max_sessions" in table
    assert "max_topics" not in table
    assert run("config", "show").stdout == "All settings have their defaults (--all shows them).\n"


class TestTheSchema:
    """A file that a broker takes is valid by the schema, and nearly all that it does not take is not."""

    @pytest.fixture
    def schema(self):
        made = json.loads(run("config", "schema").stdout)
        jsonschema.Draft202012Validator.check_schema(made)
        return jsonschema.Draft202012Validator(made)

    def test_it_takes_files_that_a_broker_takes(self, schema):
        assert schema.is_valid(
            {"data": "d", "max_sessions": 5, "message_timeout": "1h30m", "orphan_age": "off"}
        )
        assert schema.is_valid(
            {"listen": ["tcp:1:interface=127.0.0.1"], "pool_bytes": "64MiB", "insecure_open": True}
        )
        assert schema.is_valid({"rejoin_timeout": 0, "max_fetch_wait": "0"})
        assert schema.is_valid({})

    @pytest.mark.parametrize(
        "document",
        [
            {"max_session": 5},
            {"max_sessions": "many"},
            {"max_sessions": -1},
            {"message_timeout": 30},
            {"message_timeout": "30"},
            {"message_timeout": "off"},
            {"pool_bytes": "64MB"},
            {"orphan_action": "explode"},
            {"insecure_open": "yes"},
            {"listen": 5},
        ],
    )
    def test_it_finds_what_a_broker_refuses(self, schema, document):
        assert not schema.is_valid(document)

    def test_every_default_is_valid_and_what_a_broker_has_without_it(self, schema):
        properties = schema.schema["properties"]
        defaults = {name: each["default"] for name, each in properties.items() if "default" in each}
        assert set(properties) - set(defaults) == {"data"}
        schema.validate(defaults)
        words = [f"{name}={value}" for name, value in defaults.items() if isinstance(value, str) and value]
        given = [part for word in words for part in ("--set", word)]
        assert json.loads(run("config", "show", *given, "--json", "--all").stdout) == {
            name: {
                **each,
                "from": "--set" if any(word.startswith(f"{name}=") for word in words) else "default",
            }
            for name, each in json.loads(run("config", "show", "--json", "--all").stdout).items()
        }


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o604])
def test_a_token_of_the_metrics_that_others_may_read_is_refused_as_passwords_are(file, tmp_path, mode):
    token = tmp_path / "token"
    token.write_text("s3cret")
    token.chmod(mode)
    words = ("config", "check", file(f'http_token_file = "{token}"\n'))
    if mode & 0o077 and not (mode == 0o640 and token.stat().st_uid == 0):
        said = " ".join(run(*words, code=1).stderr.split())
        assert f"may be read by others (mode {mode:04o}). Allow it to its owner: chmod 600" in said
    else:
        run(*words)
