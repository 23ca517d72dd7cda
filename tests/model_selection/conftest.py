"""Searches make many reports; to read the versions of libraries takes longer than to fit."""

import pytest


@pytest.fixture(autouse=True)
def versions(monkeypatch):
    monkeypatch.setattr("sklearn_dpgen.accounting._report.metadata.version", lambda name: "0")
