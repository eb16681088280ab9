"""What the gate asks of a native library, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass, field


class UnreadableError(Exception):
    """The bytes are not a library of the format that was expected, or a damaged one."""


@dataclass(frozen=True)
class Code:
    """One section of instructions."""

    name: str
    address: int
    data: bytes


@dataclass
class Library:
    """A shared library, read from a file of any of the three formats.

    Attributes:
        system: ``"linux"``, ``"windows"`` or ``"macos"``, which is to say ELF, PE or Mach-O.
        machine: ``"x86_64"``, ``"aarch64"``, or what the file says where it is neither.
        needs: The libraries it asks the loader for.
        exports: The names it offers.
        code: Its sections of instructions.
        versions: ELF: the versions of symbols that it needs, such as ``"GLIBC_2.17"``.
        minimum_os: Mach-O: the oldest system it says it runs on.
        weaknesses: Protections of the format that are missing, and what should not be in a library that is shipped.
    """

    system: str
    machine: str
    needs: set[str] = field(default_factory=set)
    exports: set[str] = field(default_factory=set)
    code: list[Code] = field(default_factory=list)
    versions: set[str] = field(default_factory=set)
    minimum_os: tuple[int, int] | None = None
    weaknesses: list[str] = field(default_factory=list)

    def add_code(self, file: bytes, name: str, address: int, offset: int, size: int) -> None:
        """Takes a section of instructions.

        Raises:
            UnreadableError: It is not within the file, or one of several that share bytes: thousands may.
        """
        if offset + size > len(file):
            raise UnreadableError("expected a whole library, got one that ends within a section")
        if size + sum(len(code.data) for code in self.code) > len(file):
            raise UnreadableError("expected a library, got a damaged one (its sections overlap)")
        self.code.append(Code(name, address, file[offset : offset + size]))
