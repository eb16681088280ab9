"""The explainer's own words, in the languages it speaks."""

from __future__ import annotations

__all__ = ["words"]

_WORDS = {
    "en": {
        "unknown_title": "A failure without a known signature",
        "unknown_why": "These are the first lines that report an error. What follows them is most often a consequence.",
        "unknown_send": "The 30 lines before and after the first quoted line, and the command that was run",
        "insufficient_title": "Something failed, but the log does not say what",
        "insufficient_why": "These lines pass on that a command failed. The reason was printed earlier, or elsewhere.",
        "empty": "The log: there is nothing in it",
        "harmless_title": "Only harmless warnings, no failure",
        "no_failure": "No failure in this log.",
        "sure": "certain",
        "likely": "likely",
        "possible": "possible",
        "undecided": "the log does not decide",
        "fix": "What to do",
        "candidates": "It can be one of these, the likeliest first; what decides:",
        "needed": "If that is not it, look up or send:",
        "send": "Send these:",
        "first": "Mend them in this order; a later one may vanish with an earlier one.",
        "machine": "This machine",
        "no_machine": "--doctor: the facts of this machine could not be gathered",
        "speaks_for": "speaks for it",
        "speaks_against": "speaks against it",
    },
    "zh": {
        "unknown_title": "有失败，但不是已知的特征",
        "unknown_why": "以下是最先报告错误的几行；它们之后的内容多半只是后果。",
        "unknown_send": "引用的第一行前后各 30 行，以及所运行的命令",
        "insufficient_title": "有步骤失败了，但日志没有说明原因",
        "insufficient_why": "这些行只是转述某个命令失败了，真正的原因在更早的地方，或在别处输出。",
        "empty": "日志本身：里面什么也没有",
        "harmless_title": "只有无害的警告，没有失败",
        "no_failure": "这份日志里没有失败。",
        "sure": "确定",
        "likely": "很可能",
        "possible": "可能",
        "undecided": "仅凭日志无法断定",
        "fix": "怎么办",
        "candidates": "可能是下列之一，越靠前越可能；由什么判定：",
        "needed": "如果不是这个原因，请查看或提供：",
        "send": "请提供：",
        "first": "请按此顺序修复；修好前面的，后面的可能随之消失。",
        "machine": "本机",
        "no_machine": "--doctor:无法收集本机信息",
        "speaks_for": "支持这一原因",
        "speaks_against": "不支持这一原因",
    },
}


def words(language: str) -> dict[str, str]:
    """The words in a language.

    Args:
        language: ``"en"`` or ``"zh"``.
    """
    return _WORDS["zh" if language == "zh" else "en"]
