"""The parts of the package that must agree agree: the C header, its ctypes mirror, and the version."""

from __future__ import annotations

import ctypes
import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sage_attention
from sage_attention import _native

ROOT = Path(__file__).parents[1]
HEADER = ROOT / "core/include/sage_attention.h"
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
VERSION = re.search(r'^version = "(.+)"$', PYPROJECT, re.MULTILINE)[1]

# A structure in C -> its mirror
STRUCTURES = {
    "sage_attention_graph": _native.GraphArgument,
    "sage_attention_sampling": _native.Sampling,
    "sage_attention_sample": _native.Sample,
    "sage_attention_node_type": _native.NodeType,
    "sage_attention_relation": _native.Relation,
    "sage_attention_hetero_sampling": _native.HeteroSampling,
    "sage_attention_walking": _native.Walking,
    "sage_attention_sampled_type": _native.SampledType,
    "sage_attention_sampled_relation": _native.SampledRelation,
    "sage_attention_hetero_sample": _native.HeteroSample,
    "sage_attention_guide": _native.Guide,
    "sage_attention_guided_hop": _native.GuidedHop,
    "sage_attention_problem": _native.Problem,
    "sage_attention_result": _native.Result,
    "sage_attention_transposed": _native.Transposed,
    "sage_attention_gradients": _native.Gradients,
    "sage_attention_raw_problem": _native.RawProblem,
    "sage_attention_raw_gradients": _native.RawGradients,
}
SCALARS = {
    "double": ctypes.c_double,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
}


@pytest.fixture(scope="module")
def header():
    """The header without comments."""
    return re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.DOTALL)


def declared_functions(header):
    """name -> (C type of the result, C types of the arguments)."""
    functions = {}
    for result, name, arguments in re.findall(
        r"SAGE_ATTENTION_API\s+([\w\s*]+?)\s*\b(sage_attention_\w+)\s*\(([^)]*)\)\s*;", header
    ):
        listed = [] if arguments.strip() == "void" else arguments.split(",")
        functions[name] = (result, [re.sub(r"\w+\s*$", "", argument) for argument in listed])
    return functions


def declared_fields(header, structure):
    """(C type, name) of each field, in order."""
    body = re.search(rf"typedef struct {structure} \{{(.*?)\}}\s*{structure};", header, re.DOTALL)[1]
    fields = [re.fullmatch(r"(.*?)(\w+)", field.strip(), re.DOTALL) for field in body.split(";")[:-1]]
    return [(field[1].strip(), field[2]) for field in fields]


def mirrored_type(c_type):
    """What ctypes should say for a C type."""
    name = re.sub(r"\bconst\b|\s", "", c_type)
    stars = len(name) - len(name.rstrip("*"))
    name = name.rstrip("*")
    if name == "void" and not stars:
        return None
    if name in STRUCTURES and stars:
        mirrored = STRUCTURES[name]
        for _ in range(stars):
            mirrored = ctypes.POINTER(mirrored)
        return mirrored
    if name == "char" and stars:
        return ctypes.c_char_p
    if stars:
        return ctypes.c_void_p
    return STRUCTURES.get(name) or SCALARS[name]


def test_functions_agree(header):
    declared = declared_functions(header)
    assert len(declared) == len(re.findall(r"^SAGE_ATTENTION_API", header, re.MULTILINE))
    expected = {
        name: (mirrored_type(result), [mirrored_type(argument) for argument in arguments])
        for name, (result, arguments) in declared.items()
    }
    assert expected == _native._SIGNATURES


def test_every_structure_is_mirrored(header):
    assert set(re.findall(r"typedef struct (\w+) \{", header)) == set(STRUCTURES)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_fields_agree(header, structure):
    expected = [(name, mirrored_type(c_type)) for c_type, name in declared_fields(header, structure)]
    assert expected == list(STRUCTURES[structure]._fields_)


def test_layouts_agree(tmp_path):
    """Offsets and sizes, as a C compiler sees them."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("no C compiler")
    places = [(name, field[0]) for name, mirror in STRUCTURES.items() for field in mirror._fields_]
    expected = [ctypes.sizeof(mirror) for mirror in STRUCTURES.values()]
    expected += [getattr(STRUCTURES[name], field).offset for name, field in places]
    numbers = [f"sizeof({name})" for name in STRUCTURES] + [f"offsetof({n}, {f})" for n, f in places]
    source, program = tmp_path / "layout.c", tmp_path / "layout.exe"
    prints = "\n".join(f'printf("%d\\n", (int)({number}));' for number in numbers)
    source.write_text(f"#include <stdio.h>\n#include <sage_attention.h>\nint main(void) {{\n{prints}\nreturn 0;\n}}\n")
    strict = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]  # the header is plain C
    subprocess.run([compiler, *strict, "-I", HEADER.parent, source, "-o", program], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert dict(zip(numbers, map(int, printed.split()))) == dict(zip(numbers, expected))


def test_abi_version_agrees(header):
    declared = int(re.search(r"#define SAGE_ATTENTION_ABI_VERSION (\d+)", header)[1])
    assert declared == _native.ABI_VERSION == _native.library().sage_attention_abi_version()


def test_enumerations_agree(header):
    values = {name: int(value) for name, value in re.findall(r"SAGE_ATTENTION_(\w+) = (\d+)", header)}
    by_name = {**_native.SCORES, **_native.STRATEGIES, **_native.GUIDES, **_native.TABLE_KINDS}
    mirrored = {name.upper(): value for name, value in by_name.items()}
    mirrored |= {name: getattr(_native, name) for name in ("FLOAT32", "FLOAT64", "INT32", "INT64")}
    mirrored |= {name: getattr(_native, f"_{name}") for name in ("INVALID_ARGUMENT", "OUT_OF_MEMORY", "UNSUPPORTED")}
    assert mirrored == {name: value for name, value in values.items() if name != "OK"}
    assert values["OK"] == 0


def test_versions_agree():
    assert sage_attention.__version__ == VERSION
    assert _native.library().sage_attention_version().decode() == VERSION
    assert f"## [{VERSION}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def installed():
    """The installed distribution that sage_attention was imported from."""
    try:
        found = importlib.metadata.distribution("sage-graph-attention")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("not installed")
    if not Path(found.locate_file("sage_attention/__init__.py")).samefile(sage_attention.__file__):
        pytest.skip("another one is installed")
    return found


def test_installed_version_agrees(installed):
    assert installed.version == VERSION


def test_installed_package_is_whole(installed):
    """Every file of the source tree, the library, and nothing else."""
    package = ROOT / "src/sage_attention"
    source = [path.relative_to(package.parent) for path in package.rglob("*") if path.is_file()]
    generated = (".pyc", ".so", ".dll", ".dylib")
    expected = {
        file.as_posix()
        for file in source
        if file.suffix not in generated and not any(part.startswith(".") for part in file.parts)
    }
    files = {file.as_posix() for file in installed.files if file.parts[0] == package.name and file.suffix != ".pyc"}
    assert files == expected | {f"sage_attention/{_native._path().name}"}


def test_command_line_is_installed():
    done = subprocess.run(
        [sys.executable, "-m", "sage_attention", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["sage-attention", VERSION]
