"""What a binary takes from PyTorch: the stable ABI, which lasts, or C++ names, which fit one release."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .lists import windows_names

if TYPE_CHECKING:
    from .model import Binary

__all__ = ["TorchUse", "torch_use"]

# Itanium and Microsoft manglings of names in the namespaces c10, at, torch and caffe2
_CPP = re.compile(r"_Z\w*?(?:N[KVrO]*(?:3c10|2at|5torch|6caffe2))|\?.*@(?:c10|at|torch|caffe2)@@")
_STABLE = re.compile(r"(aoti_torch|torch|aotriton)_[a-z]\w*")


@dataclass(frozen=True)
class TorchUse:
    """What a binary takes from PyTorch.

    Attributes:
        stable: C functions of the stable ABI.
        cpp: C++ names.
        libraries: Libraries of PyTorch that it asks for.
    """

    stable: tuple[str, ...] = ()
    cpp: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """``none``, ``stable`` (any later release will do) or ``cpp`` (the very release it was built with)."""
        return "cpp" if self.cpp else "stable" if self.stable or self.libraries else "none"


def torch_use(binary: Binary) -> TorchUse:
    """What a binary takes from PyTorch."""
    libraries = []
    symbols: set[str] = set()
    for needed in binary.needed:
        name = needed.library.rpartition("/")[2].lower()
        bare = re.sub(r"^lib|\.(dll|so|dylib)[.\d]*$", "", name)
        if f"{bare}.dll" in windows_names("torch_before_import") and bare not in (
            "libiomp5md",
            "uv",
            "fbgemm",
            "asmjit",
        ):
            libraries.append(needed.library)
            symbols.update(needed.symbols)
    if binary.pe is None:
        symbols.update(binary.undefined)
    cpp = tuple(sorted(symbol for symbol in symbols if _CPP.match(symbol)))
    stable = tuple(sorted(symbol for symbol in symbols if _STABLE.fullmatch(symbol)))
    return TorchUse(stable if libraries or cpp else (), cpp if libraries or binary.pe is None else (), tuple(libraries))
