"""What one test's fixtures leave for the next."""

import logging

import pytest


@pytest.fixture(scope="module")
def a_command():
    """Sets up the root logger as Hydra does, before the fixtures of any test."""
    root = logging.getLogger()
    handler = logging.NullHandler()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    return handler


def test_a_fixture_of_several_tests_leaves_the_root_logger_as_it_was(a_command):
    root = logging.getLogger()
    assert root.level == logging.WARNING
    assert a_command not in root.handlers
