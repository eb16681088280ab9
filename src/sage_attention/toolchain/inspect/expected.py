"""Which functions a library shall export: from a C header or a list."""

from __future__ import annotations

import re
from pathlib import Path

from sage_attention.errors import ArgumentError, DataError

__all__ = ["expected_exports"]

_LARGEST = 16 << 20
_MARK = re.compile(
    r"__declspec\s*\(\s*dllexport|visibility\s*\(\s*\"default\"|\b[A-Z][A-Z0-9_]*(?:API|EXPORT|EXPORTS)\b"
)


def expected_exports(option: str | None) -> tuple[str, ...]:
    """The names that ``--expect-exports`` stands for.

    Args:
        option: A header, a text file with names, or names with commas between them.

    Raises:
        ArgumentError: There is no name in it.
        DataError: The file cannot be read.

    Example:
        >>> expected_exports("f,g")
        ('f', 'g')
    """
    if option is None:
        return ()
    path = Path(option)
    if path.suffix.lower() in (".h", ".hh", ".hpp", ".hxx") or path.is_file():
        try:
            if path.stat().st_size > _LARGEST:
                raise DataError(path, f"a header of at most {_LARGEST >> 20} MiB", path.stat().st_size)
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise DataError(path, "a header or a list of names", error.strerror or error) from error
        names = declared(text) if "(" in text else re.findall(r"^\s*([^\s#;]+)", text, re.MULTILINE)
    else:
        names = [name.strip() for name in option.split(",") if name.strip()]
    if not names:
        raise ArgumentError("--expect-exports", "a header that declares functions, or names", option)
    return tuple(dict.fromkeys(names))


def declared(text: str) -> list[str]:
    """The functions that a C header declares; those marked for export alone, if any is.

    Example:
        >>> declared("MY_API int f(int x); static int g(void); typedef int (*h)(int);")
        ['f']
    """
    text = re.sub(r"/\*(?:.*?\*/|.*)|//[^\n]*", " ", text, flags=re.DOTALL)  # one without an end reaches to the end
    text = re.sub(r"^[ \t]*#(?:\\\r?\n|[^\n])*", " ", text, flags=re.MULTILINE)
    text = re.sub(r'extern\s*"C"\s*\{', " ", text)
    found = []
    for statement in map(str.strip, re.split(r"[;{}]", text)):
        match = re.fullmatch(r"([\w\s*&:<>,()\"]*?[\s*&])(\w+)\s*\(([^()]*)\)(?:\s*noexcept)?", statement)
        if match and not re.match(r"(typedef|static|inline|return|template)\b", statement):
            found.append((match[2], bool(_MARK.search(match[1]))))
    marked = [name for name, is_marked in found if is_marked]
    return marked or [name for name, _ in found]
