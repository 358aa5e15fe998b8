"""Fixtures: a connection to a scripted server, and templates that are compiled once."""

from types import CodeType

import pytest
from flask import Flask
from jinja2 import BytecodeCache
from jinja2.bccache import Bucket

from tests.kube.conftest import connection, server

__all__ = ["connection", "server"]


class CompiledTemplates(BytecodeCache):
    """Cache of compiled templates, shared by the applications of all tests of a process."""

    def __init__(self) -> None:
        self._code: dict[str, CodeType] = {}

    def load_bytecode(self, tokens: Bucket) -> None:
        tokens.code = self._code.get(tokens.key + tokens.checksum)

    def dump_bytecode(self, tokens: Bucket) -> None:
        assert tokens.code is not None
        self._code[tokens.key + tokens.checksum] = tokens.code


@pytest.fixture(scope="session", autouse=True)
def compiled_templates() -> None:
    Flask.jinja_options = {"bytecode_cache": CompiledTemplates()}
