"""Fixtures for the tests of the recipes."""

from __future__ import annotations

import signal

import pytest


@pytest.fixture(autouse=True)
def _heeded():
    """Ctrl-C as at a prompt: a shell script's background jobs, these tests perhaps, are started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
