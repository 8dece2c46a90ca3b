"""Filters of groups on the command line, against a real broker."""

import pytest

pytestmark = pytest.mark.slow


def test_a_group_is_told_what_it_reads(run, run_json, topic):
    said = run_json("groups", "alter", topic, "--tag", "eu", "--tag", "express")
    assert (said["tags"], said["retry"]) == (["eu", "express"], None)
    text = run("groups", "describe", topic).stdout.replace("\n", " ")
    assert "It reads only messages with the tag eu or express." in text
    assert run_json("groups", "describe", topic)["tags"] == ["eu", "express"]
    assert run_json("groups", "alter", topic, "--attempts", "3")["tags"] == ["eu", "express"]
    assert run_json("groups", "alter", topic, "--no-tags")["tags"] == []
    assert "It reads only" not in run("groups", "describe", topic).stdout


def test_what_is_no_tag_is_refused(run, topic):
    assert "say --tag or --no-tags" in run("groups", "alter", topic, "--tag", "x", "--no-tags", code=2).stderr
    assert "1 to 255 bytes" in run("groups", "alter", topic, "--tag", "", code=3).stderr
