"""What the operating system's refusals mean to a user, and which of them are worth waiting for.

On Windows a file that anybody has open can often not be renamed, replaced or removed. Virus scanners and indexers
open every fresh file for a moment; Excel and viewers keep theirs for as long as a person looks.
"""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from sage_attention._paths import shown_path
from sage_attention.errors import SageAttentionError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BRIEFLY", "LONG", "is_held", "is_read_only", "patiently", "reason_and_remedy", "write_error"]

T = TypeVar("T")

# Seconds between tries: what a scanner takes for a small file, and for a large one.
BRIEFLY = (0.05, 0.1, 0.2, 0.4, 0.8)
LONG = (*BRIEFLY, *(1.0,) * 8)

_NO_SPACE = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG}
_NO_PERMISSION = {errno.EACCES, errno.EPERM}
_WINDOWS_DISK_FULL = {39, 112}  # ERROR_HANDLE_DISK_FULL, ERROR_DISK_FULL
_WINDOWS_ACCESS_DENIED = 5
_WINDOWS_IN_USE = {32, 33, 1224}  # ERROR_SHARING_VIOLATION, ERROR_LOCK_VIOLATION, ERROR_USER_MAPPED_FILE
_WINDOWS_CLOUD = range(358, 405)  # ERROR_CLOUD_FILE_...
_WINDOWS_NAME_TOO_LONG = 206


def _windows_code(error: BaseException) -> int | None:
    code = getattr(error, "winerror", None)
    return code if isinstance(code, int) else None


def is_held(error: OSError) -> bool:
    """Whether another program may be holding the file, so that trying again can help.

    Args:
        error: What a rename, a removal or an opening has raised.
    """
    code = _windows_code(error)
    if code is None:  # the C runtime, under `open`, keeps the number to itself
        return os.name == "nt" and error.errno == errno.EACCES
    return code == _WINDOWS_ACCESS_DENIED or code in _WINDOWS_IN_USE


def patiently(
    action: Callable[..., T],
    *arguments: Any,
    delays: tuple[float, ...] = LONG,
    stop: Callable[[], bool] = lambda: False,
) -> T:
    """Does something to a file, again and again while another program holds it.

    Args:
        action: What to do; called with `arguments`.
        *arguments: Its arguments.
        delays: Seconds to wait after each refusal.
        stop: Asked after each refusal; True gives up.

    Returns:
        What the action returns.

    Raises:
        OSError: The last refusal, or another error at once.

    Example:
        >>> patiently(len, "abc")
        3
    """
    for delay in delays:
        try:
            return action(*arguments)
        except OSError as error:  # noqa: PERF203 - it is what the loop is for
            if not is_held(error) or stop():
                raise
            time.sleep(delay)
    return action(*arguments)


def is_read_only(path: Path) -> bool:
    """Whether a file bears the read-only mark of Windows, which also forbids to replace it.

    Args:
        path: A file that exists, or not.
    """
    return os.name == "nt" and path.is_file() and not os.access(path, os.W_OK)


def reason_and_remedy(error: OSError) -> tuple[str, str]:
    """What a system's error means to a user, and what the user can do.

    Args:
        error: The error.

    Returns:
        Both, for one line.
    """
    code, windows_code = error.errno, _windows_code(error)
    if code in _NO_SPACE or windows_code in _WINDOWS_DISK_FULL:
        return (
            "no space left there (or a quota or size limit is reached)",
            "free some space or choose another folder",
        )
    if windows_code in _WINDOWS_IN_USE:
        return "the file is open in another program", "close it there (Excel, a viewer, another run) and run again"
    if windows_code in _WINDOWS_CLOUD:
        return "OneDrive or another cloud service holds it back", "let it finish or choose a folder it does not keep"
    if code == errno.EROFS:
        return "the disk is read-only", "choose another folder"
    if code in _NO_PERMISSION and os.name == "nt":
        return (
            "permission denied, or open in another program (Excel, a viewer, another run)",
            "close it there, allow writing there, or choose another folder",
        )
    if code in _NO_PERMISSION:
        return "permission denied", "allow writing there or choose another folder"
    if code == errno.ENAMETOOLONG or windows_code == _WINDOWS_NAME_TOO_LONG:
        return "the path is too long", "choose a shorter one"
    if code in (errno.ENOENT, errno.ENOTDIR):
        if os.name == "nt":  # Controlled folder access of Windows Security says so, too
            return "the folder does not exist, or Windows Security guards it", "create it or choose another folder"
        return "the folder does not exist", "create it first"
    return error.strerror or str(error) or type(error).__name__, "check the disk or choose another folder"


def write_error(path: Path, error: OSError) -> SageAttentionError:
    """The error for a file that cannot be written: one line with the reason and what to do."""
    reason, remedy = reason_and_remedy(error)
    return SageAttentionError(f"{shown_path(path)}: cannot be written: {reason}; {remedy}")
