"""The output folder of a run: every file is written beside its place and then renamed into it.

Whoever looks into the folder, at any moment and after any failure, sees whole files only: the old one or the
new one. A full disk, a missing permission or a file that another program does not let go of is one line that names
the file and says what to do.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Callable, Union

import numpy as np
import numpy.typing as npt

from sage_attention._paths import check_name, shown_path, system_path
from sage_attention.errors import ArgumentError, DataError, MissingDependencyError, SageAttentionError
from sage_attention.recipes.interrupts import undisturbed
from sage_attention.recipes.system_errors import BRIEFLY, is_read_only, patiently, reason_and_remedy, write_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "all_or_nothing",
    "atomic_write",
    "prepare_output_folder",
    "write_json",
    "write_npy",
    "write_safetensors",
    "write_text",
]

PathLike = Union[str, "os.PathLike[str]"]

# Short, so that it fits wherever the real name fits; no process ever writes a file of this pattern for keeps.
_TEMPORARY_PREFIX, _TEMPORARY_SUFFIX = ".sage-", ".tmp"
_STALE_SECONDS = 24 * 3600.0
_PROBE_BYTES = 4096

_NO_FSYNC = {errno.EINVAL, getattr(errno, "ENOTSUP", errno.EINVAL), errno.ENOSYS}


def _temporary_beside(path: Path) -> Path:
    return path.with_name(f"{_TEMPORARY_PREFIX}{secrets.token_hex(6)}{_TEMPORARY_SUFFIX}")


def _flush_to_disk(file: IO[Any]) -> None:
    file.flush()
    try:
        os.fsync(file.fileno())
    except OSError as error:
        if error.errno not in _NO_FSYNC:  # some network file systems cannot; the rename is still whole there
            raise


def _refuse_what_stays(path: Path) -> None:
    """Refuses a place whose file must not be replaced."""
    if path.is_dir():
        hint = "move it away or choose another name"
        raise SageAttentionError(f"{shown_path(path)}: cannot be written: a folder is in its place, not a file; {hint}")
    if path.exists() and not path.is_file():
        raise SageAttentionError(f"{shown_path(path)}: cannot be written: it is not a file; choose another name")
    if is_read_only(path):
        hint = "take its read-only mark away (attrib -r) or choose another name"
        raise SageAttentionError(f"{shown_path(path)}: cannot be written: the file is read-only; {hint}")


@contextlib.contextmanager
def atomic_write(path: PathLike, *, encoding: str | None = None) -> Iterator[IO[Any]]:
    """Open a file that appears under its name only once it is complete.

    Inside the block a temporary file in the same folder is written. When the block ends well it is flushed
    to the disk and renamed; when it raises, Ctrl-C included, it is removed and what stood there before stays.

    Args:
        path: The file to write. A link is followed; a folder or a device is refused.
        encoding: None for a binary file, else the encoding of a text file; lines end with LF everywhere.

    Yields:
        The open temporary file.

    Raises:
        SageAttentionError: The file cannot be written: no space, no permission, no such folder, not a file.

    Example:
        >>> with atomic_write("numbers.txt", encoding="utf-8") as file:
        ...     _ = file.write("1 2 3")
    """
    check_name(path)
    target = system_path(os.path.realpath(path) if os.path.islink(path) else path)  # noqa: PTH114 - Path raises
    temporary = _temporary_beside(target)
    try:
        _refuse_what_stays(target)
        # Mode x and not mkstemp: the file gets the permissions that any other file of this user would get.
        with temporary.open(
            "xb" if encoding is None else "x", encoding=encoding, newline=None if encoding is None else "\n"
        ) as file:
            yield file
            _flush_to_disk(file)
        patiently(os.replace, temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            patiently(temporary.unlink, delays=BRIEFLY)
        if isinstance(error, OSError) and not isinstance(error, SageAttentionError):
            raise write_error(Path(path), error) from error
        raise


def _remove_stale_temporaries(folder: Path) -> None:
    """Clear what a killed run left; a day old at least, for another run may be writing here right now."""
    for leftover in folder.glob(f"{_TEMPORARY_PREFIX}*{_TEMPORARY_SUFFIX}"):
        with contextlib.suppress(OSError):
            if time.time() - leftover.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


def _expanded(path: Path) -> Path:
    """The path with the home folder in place of a leading ``~`` or ``~user``.

    Raises:
        RuntimeError: It is not known. On Windows Python guesses that of others: beside the user's own.
    """
    if not path.parts or not path.parts[0].startswith("~"):
        return path
    home = Path(path.parts[0]).expanduser()
    if not home.is_dir():
        raise RuntimeError(path.parts[0])
    return home.joinpath(*path.parts[1:])


def prepare_output_folder(path: PathLike, resume: bool = False) -> Path:
    """Make sure that a folder exists and can be written, before hours of work depend on it.

    Nothing in it is deleted: a second run into the same folder replaces its own files, no others.

    Args:
        path: The folder; created with its parents if missing. A leading ``~`` is the home folder.
        resume: The folder must be there already, for an earlier run is to be continued.

    Returns:
        The folder, ``~`` expanded; on Windows in the form that allows long paths, where it is long.

    Raises:
        DataError: A file is in its place, it cannot be created or written, no space is left on its disk, or
            there is nothing to resume.

    Example:
        >>> folder = prepare_output_folder("runs/first try")
        >>> folder.is_dir()
        True
    """
    check_name(path)
    expected = "a folder that can be written"
    try:
        folder = system_path(_expanded(Path(path)))
    except RuntimeError as error:
        raise DataError(
            os.fspath(path), expected, "a home folder that is not known", hint="write the path out"
        ) from error
    move_away = "choose another folder or move the file away"
    probe = _temporary_beside(folder / "probe")
    try:
        if resume and not folder.exists():
            hint = "check its name or start without resuming"
            raise DataError(folder, "the folder of an earlier run to resume", "no such folder", hint=hint)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with probe.open("xb") as file:
                file.write(b"\0" * _PROBE_BYTES)
                _flush_to_disk(file)
        finally:
            with contextlib.suppress(OSError):
                patiently(probe.unlink, delays=BRIEFLY)
    except (FileExistsError, NotADirectoryError) as error:
        raise DataError(folder, expected, "a file in its place or in its path", hint=move_away) from error
    except OSError as error:
        reason, remedy = reason_and_remedy(error)
        raise DataError(folder, expected, reason, hint=remedy) from error
    except DataError:  # a ValueError too
        raise
    except ValueError as error:  # a NUL character in the path
        raise DataError(folder, expected, error) from error
    _remove_stale_temporaries(folder)
    return folder


@contextlib.contextmanager
def all_or_nothing(folder: PathLike, mark: str | None = None) -> Iterator[Path]:
    """Files that belong together: written into a folder beside, then renamed into place one after the other.

    Args:
        folder: Where the files shall be.
        mark: The file whose presence says that all are there: the first to go and the last to come. So even a power
            cut between two renames leaves no mixture that looks complete.

    Yields:
        The folder to write them into. What it holds at the end replaces files of the same names in `folder`; after an
        error, or Ctrl-C, nothing in `folder` has changed.

    Raises:
        SageAttentionError: A file cannot be put in place.

    Example:
        >>> with all_or_nothing(".") as beside:
        ...     _ = (beside / "numbers.txt").write_text("1 2 3")
    """
    home = system_path(folder)
    beside = _temporary_beside(home / "results")
    try:
        beside.mkdir()
        yield beside
        with undisturbed() as came:
            _put_in_place(beside, home, mark, stop=lambda: bool(came))
    except OSError as error:
        raise write_error(home, error) from error
    except SageAttentionError as error:  # of a writer, about a place the user has never heard of
        raise SageAttentionError(str(error).replace(shown_path(beside), shown_path(home))) from error
    finally:
        with undisturbed(), contextlib.suppress(OSError):
            patiently(shutil.rmtree, beside, delays=BRIEFLY)


def _put_in_place(beside: Path, home: Path, mark: str | None, stop: Callable[[], bool]) -> None:
    """Renames all files of one folder into another, the mark last; if one cannot be, all are as before."""
    names = sorted((path.name for path in beside.iterdir()), key=lambda name: (name == mark, name))
    for name in names:
        _refuse_what_stays(system_path(home / name))
    earlier: Path | None = None
    done: list[str] = []
    target = home
    try:
        for name in names:
            target = system_path(home / name)
            with contextlib.suppress(FileNotFoundError):
                patiently(os.rename, target, target, stop=stop)  # changes nothing, and Windows refuses it if held
        earlier = _second_names(names, home, beside / "earlier")
        if mark is not None:
            target = system_path(home / mark)
            with contextlib.suppress(FileNotFoundError):
                patiently(target.unlink, stop=stop)
        for name in names:
            target = system_path(home / name)
            patiently(os.replace, system_path(beside / name), target, stop=stop)
            done.append(name)
    except OSError as error:
        if earlier is not None:
            _put_back(done, home, earlier)
        if stop():
            raise KeyboardInterrupt from None
        raise write_error(target, error) from error


def _second_names(names: list[str], home: Path, earlier: Path) -> Path | None:
    """Gives the files that are to be replaced a second name; None where the file system has none to give."""
    try:
        earlier.mkdir()
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.link(system_path(home / name), system_path(earlier / name))
    except (OSError, NotImplementedError):
        return None
    return earlier


def _put_back(done: list[str], home: Path, earlier: Path) -> None:
    """Undoes what `_put_in_place` has done so far."""
    before = {path.name for path in earlier.iterdir()}
    for name in done:
        if name not in before:
            with contextlib.suppress(OSError):
                patiently(system_path(home / name).unlink, delays=BRIEFLY)
    for name in before:
        with contextlib.suppress(OSError):
            patiently(os.replace, system_path(earlier / name), system_path(home / name), delays=BRIEFLY)


def write_text(path: PathLike, text: str) -> None:
    """Write a text file, UTF-8, whole or not at all.

    Args:
        path: The file.
        text: Its content. Half surrogates, as undecodable file names give, are replaced by ``?``.

    Raises:
        SageAttentionError: The file cannot be written.
    """
    content = text.encode("utf-8", errors="replace")
    with atomic_write(path) as file:
        file.write(content)


def _plain(value: Any, where: str) -> Any:
    """Bring a value to what JSON knows; NaN and infinities become null, as strict JSON has neither."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, np.generic):
        return _plain(value.item(), where)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.ndarray):
        return _plain(value.tolist(), where)
    if isinstance(value, dict):
        return {str(key): _plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{number}]") for number, item in enumerate(value)]
    raise ArgumentError(where, "something JSON can hold", type(value).__name__)


def write_json(path: PathLike, value: Any) -> None:
    """Write a JSON file, UTF-8, indented, whole or not at all.

    Args:
        path: The file.
        value: Dictionaries, lists, strings, numbers, paths, NumPy scalars and arrays. NaN and infinity become
            ``null``.

    Raises:
        ArgumentError: The value holds something JSON cannot express.
        SageAttentionError: The file cannot be written.

    Example:
        >>> write_json("metrics.json", {"test_accuracy": np.float32(0.5), "epochs": 3})
    """
    write_text(path, json.dumps(_plain(value, "value"), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


class _WriteOnly:
    """Hides that a file is a real one: NumPy then writes through it and errors keep their number."""

    def __init__(self, file: IO[bytes]) -> None:
        self.write = file.write


def write_npy(path: PathLike, array: npt.ArrayLike) -> None:
    """Write an array as ``.npy``, whole or not at all, never pickled.

    Args:
        path: The file.
        array: Any shape, any dtype but object.

    Raises:
        ArgumentError: The array holds Python objects.
        SageAttentionError: The file cannot be written.

    Example:
        >>> write_npy("embeddings.npy", np.zeros((3, 2), dtype=np.float32))
    """
    values = np.asarray(array)
    if values.dtype.hasobject:
        raise ArgumentError("array", "an array of numbers or strings", f"dtype {values.dtype}")
    with atomic_write(path) as file:
        np.save(_WriteOnly(file), values, allow_pickle=False)


def write_safetensors(
    path: PathLike, tensors: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str] | None = None
) -> None:
    """Write named arrays as a safetensors file, whole or not at all.

    Args:
        path: The file.
        tensors: Arrays by name.
        metadata: Strings by name, kept in the file's header.

    Raises:
        ArgumentError: A metadata value is no string, or a dtype has no place in the format.
        MissingDependencyError: safetensors is not installed.
        SageAttentionError: The file cannot be written.

    Example:
        >>> write_safetensors("model.safetensors", {"weight": np.eye(2, dtype=np.float32)}, {"heads": "8"})
    """
    try:
        from safetensors.numpy import save
    except ImportError as error:
        raise MissingDependencyError("safetensors", "Writing a model", "apply") from error
    for name, text in (metadata or {}).items():
        if not isinstance(text, str):
            raise ArgumentError(f"metadata[{name!r}]", "a string", type(text).__name__)
    arrays = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise ArgumentError(f"tensors[{name!r}]", "an array of numbers or booleans", f"dtype {array.dtype}")
    content = save(arrays, metadata=dict(metadata or {}))
    with atomic_write(path) as file:
        file.write(content)
