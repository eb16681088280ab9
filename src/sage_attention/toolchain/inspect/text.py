"""The report for people: each file, the tree of what it needs with the reason beside each line, then the findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import crt
from .findings import Finding, few, phrase
from .manylinux import demands
from .model import version_text
from .python_abi import initialised_modules
from .survey import linux_policy
from .tree import DEEPEST, FAILING, Node, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .survey import Survey, Surveyed

__all__ = ["outcome_text", "render"]

_SYMBOLS = {"error": "✗", "warning": "!", "note": "·"}
_MANY = 5  # files; of more, those with nothing to say get one line
_LONGEST_CHAIN = 8
_QUIET = ("api_set", "known", "assumed_system", "policy", "c_library", "system", "macos")
_WORDS = {
    "en": {
        "exports": "exports", "loads": "import", "ctypes": "ctypes.CDLL", "clean": "nothing to complain of",
        "release": "release", "debug": "debug", "python": "Python", "needs": "needs",
        "torch_stable": "torch: stable ABI", "torch_cpp": "torch: C++ names of one release", "module": "module",
        "library": "library", "program": "program", "unreadable": "cannot be read",
        "fits": "fits", "but": "but for",
        "stable": "stable ABI", "fix": "→",
        "count": "errors: {errors}, warnings: {warnings}, notes: {notes}",
    },
    "zh": {
        "exports": "个导出", "loads": "导入", "ctypes": "ctypes.CDLL", "clean": "没有问题",
        "release": "发布版", "debug": "调试版", "python": "Python", "needs": "需要",
        "torch_stable": "torch：稳定 ABI", "torch_cpp": "torch：某一版本的 C++ 名称", "module": "模块",
        "library": "库", "program": "程序", "unreadable": "无法读取", "fits": "符合", "but": "除了",
        "stable": "稳定 ABI", "fix": "→",
        "count": "错误 {errors}，警告 {warnings}，提示 {notes}",
    },
}  # fmt: skip


def render(found: Survey, findings: list[Finding], language: str, verbose: bool) -> Iterator[str]:
    """The lines of the report.

    Args:
        found: The facts.
        findings: The conclusions.
        language: ``en`` or ``zh``.
        verbose: Every library on its own line, and every export's name.
    """
    words = _WORDS[language]
    title = found.subject.title
    if found.subject.tags:
        title = f"{found.subject.title.replace(chr(92), '/').rpartition('/')[2]}  [{found.subject.tags.text}]"
    yield title
    policy, foreign = linux_policy(found)
    if policy:
        but = f" ({words['but']} {few(foreign, 6)})" if foreign else ""
        yield f"  {words['fits']} {policy}{but}"
    shown = [file for file in found.files if verbose or not file.reached]
    told = {item.file for item in findings}
    fine = [f for f in shown if f.outcome.kind == "ok" and f.name not in told] if len(shown) > _MANY else []
    for file in shown:
        if file in fine and not verbose:
            yield f"  ✓ {file.name}: {', '.join(_facts(file, words))}"
            continue
        yield ""
        yield f"  {file.name}"
        yield f"    {', '.join(_facts(file, words))}"
        if file.role != "program":
            how = words["loads"] if file.role == "module" else words["ctypes"]
            yield f"    {how}: {outcome_text(file, language)}"
        for demand in _newest(file):
            yield f"    {words['needs']} {demand}"
        if not file.reached:
            yield from _tree(file.nodes, language, verbose, "    ")
        if verbose and file.binary.exports:
            names = sorted(name for name in file.binary.exports if not name.startswith("#"))
            yield f"    {words['exports']}: {', '.join(names)}"
    for name, why in found.unreadable:
        yield ""
        yield f"  ✗ {name}: {words['unreadable']}: {why}"
    yield ""
    yield from _findings(findings, language)
    counts = {f"{level}s": sum(item.severity == level for item in findings) for level in _SYMBOLS}
    yield words["clean"] if not findings else words["count"].format(**counts)


def _facts(file: Surveyed, words: dict[str, str]) -> Iterator[str]:
    binary = file.binary
    yield words[file.role]
    yield f"{binary.format} {binary.machine}"
    if binary.pe is not None:
        yield crt.toolset(binary)
        flavours = crt.flavours(binary)
        yield f"{' + '.join(flavours)} ({words['debug' if '/MDd' in flavours else 'release']})"
    if binary.macho is not None and binary.macho.min_os:
        yield f"{binary.macho.platform} {version_text(binary.macho.min_os)}+"
    if file.role == "module":
        use = file.python
        version = file.version and version_text(file.version)
        stable = use.stable or (file.module is not None and file.module.abi3)
        yield f"{words['python']} {words['stable'] if stable else version or '?'}"
        own = initialised_modules(binary)
        yield few((f"PyInit_{name}" for name in own), 2) if own else f"0 {words['exports']} PyInit_"
    else:
        count = sum(not name.startswith("#") for name in binary.exports)
        yield f"{count} {words['exports']}"
    if file.torch.kind != "none":
        yield words[f"torch_{file.torch.kind}"]


def _newest(file: Surveyed) -> Iterator[str]:
    """The newest version of each family of system symbols, and what needs it."""
    seen = set()
    for demand in demands(file.binary):
        if demand.family not in seen:
            seen.add(demand.family)
            yield f"{demand.text} ({demand.library}): {few(demand.symbols, 4) or '-'}"


def outcome_text(file: Surveyed, language: str) -> str:
    """What an import ends in, in one line."""
    text = _outcome_text(file.outcome, language)
    if file.after_torch is None:
        return text
    later = _outcome_text(file.after_torch, language)
    if file.after_torch == file.outcome:
        return later
    if language == "zh":
        return f"先 `import torch`：{later}；否则：{text}"
    return f"after `import torch`: {later}; without: {text}"


def _outcome_text(outcome: Outcome, language: str) -> str:
    key = f"{outcome.kind}_{outcome.winerror}" if outcome.winerror else outcome.kind
    mark = {"ok": "✓", "not_followed": "·"}.get(outcome.kind, "✗")
    chain = (*outcome.via, outcome.culprit)
    culprit = " → ".join(chain if len(chain) <= _LONGEST_CHAIN else (*chain[:3], "…", *chain[-2:]))
    return f"{mark} {phrase('outcomes', key, language, culprit=culprit, detail=few(outcome.detail))}"


def _tree(nodes: list[Node], language: str, verbose: bool, indent: str) -> Iterator[str]:
    shown = [node for node in nodes if verbose or node.state not in _QUIET or node.missing_symbols]
    quiet: dict[str, list[Node]] = {}
    for node in nodes:
        if node not in shown:
            quiet.setdefault(node.state, []).append(node)
    rows = [(node.name, node, [node]) for node in shown] + [
        (_several(group), group[0], group) for group in quiet.values()
    ]
    width = min(44, max((len(name) for name, _, group in rows if len(group) == 1), default=0))
    for number, (name, node, group) in enumerate(rows):
        last = number == len(rows) - 1
        bad = node.state in FAILING or bool(node.missing_symbols)
        mark = ("!" if node.delayed or node.weak else "✗") if bad else "✓"
        reason = phrase("states", node.state, language, place=node.place)
        if len(group) == 1 and node.missing_symbols:
            reason += f" – {few(node.missing_symbols)}"
        if node.delayed:
            reason += {"en": " (at the first call)", "zh": "（首次调用时）"}[language]
        if node.weak:
            reason += {"en": " (may be absent)", "zh": "（可以缺失）"}[language]
        yield f"{indent}{'└─' if last else '├─'} {mark} {name:{width}}  {reason}"
        if len(indent) < 3 * DEEPEST:
            yield from _tree(node.children, language, verbose, indent + ("   " if last else "│  "))


def _several(group: list[Node]) -> str:
    names = [node.name for node in group]
    return ", ".join(names[:3]) + (f" (+{len(names) - 3})" if len(names) > 3 else "")


def _findings(findings: list[Finding], language: str) -> Iterator[str]:
    """Each kind once, with the files it is about."""
    grouped: dict[tuple[str, str, str, str], list[str]] = {}
    for item in findings:
        title, fix = item.words(language)
        grouped.setdefault((item.severity, item.code, title, fix), []).append(item.file)
    for (severity, _, title, fix), files in grouped.items():
        yield f"{_SYMBOLS[severity]} {few(files)}: {title}"
        if fix:
            yield f"    {_WORDS[language]['fix']} {fix}"
    if findings:
        yield ""
