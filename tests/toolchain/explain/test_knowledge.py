"""Every entry of the knowledge base keeps to its schema, compiles, and has a log that shows it."""

from __future__ import annotations

import re

import pytest

from sage_attention.toolchain.data_files import table, tables
from sage_attention.toolchain.explain.knowledge import load
from toolchain.explain.fixtures import INDEX, MSVC

SCHEMA = table("explain/cause.schema")
TYPES = {"object": dict, "array": list, "string": str, "number": (int, float), "integer": int}
CAUSES = load().causes


def problems(value, schema, where=""):
    """What a value has against a schema; the part of JSON Schema that ours uses."""
    if "$ref" in schema:
        return problems(value, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], where)
    if not isinstance(value, TYPES[schema["type"]]):
        return [f"{where}: not of type {schema['type']}"]
    found = []
    if isinstance(value, dict):
        found += [f"{where}: {name} is missing" for name in schema.get("required", ()) if name not in value]
        properties = schema.get("properties", {})
        for name, part in value.items():
            if name in properties:
                found += problems(part, properties[name], f"{where}/{name}")
            elif schema.get("additionalProperties") is False:
                found.append(f"{where}: {name} is unknown")
    elif isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            found.append(f"{where}: too few")
        for number, part in enumerate(value):
            found += problems(part, schema["items"], f"{where}/{number}")
    elif isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            found.append(f"{where}: too short")
        if "pattern" in schema and not re.search(schema["pattern"], value):
            found.append(f"{where}: {value!r} does not match {schema['pattern']}")
        if "enum" in schema and value not in schema["enum"]:
            found.append(f"{where}: {value!r} is none of {schema['enum']}")
    return found


@pytest.mark.parametrize("name", list(tables("explain/causes")))
def test_schema(name):
    assert problems(table(f"explain/causes/{name}"), SCHEMA) == []


def test_validator_sees_what_is_wrong():
    entry = {"causes": [{"id": "Bad id", "extra": 1}]}
    found = problems(entry, SCHEMA)
    assert any("does not match" in problem for problem in found)
    assert any("extra is unknown" in problem for problem in found)
    assert any("why is missing" in problem for problem in found)


@pytest.mark.parametrize("name", sorted(CAUSES))
def test_entry(name):
    cause = CAUSES[name]
    knowledge = load()
    kinds = {kind for kind, _ in knowledge.events} | {
        "torch_tag_differs", "python_tag_differs", "host_compiler_too_old", "host_compiler_too_new",
        "python_version_refused",
    }  # fmt: skip
    for other in cause.explains:
        assert other in CAUSES
    for signature in cause.signatures:
        re.compile(signature.pattern.source)
        assert bool(signature.event) != bool(signature.pattern.seek), signature
        assert signature.event in kinds or not signature.event
        assert all(literal == literal.lower() for literal in signature.pattern.seek)
        assert {*signature.context, *signature.unless} <= set(knowledge.observations)
        assert set(signature.candidates) <= set(CAUSES) - {name}
        assert 0 < signature.weight < 1
        for candidate in signature.candidates:
            assert CAUSES[candidate].facts, f"{candidate} has no fact that would decide for it"
    shells = {fix.shell for fix in cause.fixes}
    assert ("cmd" in shells) <= ("powershell" in shells), "a command for cmd has one for PowerShell beside it"


@pytest.mark.parametrize("name", sorted(CAUSES))
def test_every_cause_has_a_log(name):
    fragments = any(name in expected["causes"] for expected in INDEX.values())
    assert fragments or any(case["cause"] == name for case in MSVC.values())


def test_expressions_compile():
    knowledge = load()
    patterns = [pattern for _, pattern in knowledge.events]
    patterns += knowledge.observations.values()
    patterns += [one.pattern for one in (*knowledge.wrappers, *knowledge.warnings)]
    for pattern in patterns:
        re.compile(pattern.source)
        assert pattern.seek
    for pattern, packages in knowledge.packages:
        re.compile(pattern.source)
        assert set(packages) <= {"apt", "dnf", "brew", "conda"}


def test_breadth():
    assert len(CAUSES) >= 120


def test_facts_of_the_machine_are_known_by_name():
    from sage_attention.toolchain.doctor.facts import Environment, Facts, Machine, Program, PythonInstall
    from sage_attention.toolchain.explain.machine import named

    python = PythonInstall("python.exe", "3.11.9", "x64", ("running",), "python.org", "home", running=True)
    machine = Machine("win32", "x64", long_paths=True, memory=(1, 1))
    facts = Facts(machine, (python,), environment=Environment({}), programs={"ninja": Program("ninja", None)})
    known = set(named(facts))
    for cause in CAUSES.values():
        assert set(cause.machine) <= known, cause.id
