import pytest

from sage_attention.toolchain.wording import choose_language


@pytest.mark.parametrize(
    ("option", "environ", "expected"),
    [
        (None, {}, "en"),
        (None, {"LANG": "zh_CN.UTF-8"}, "zh"),
        (None, {"LANG": "zh_TW"}, "zh"),
        (None, {"LANG": "de_DE.UTF-8"}, "en"),
        (None, {"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        (None, {"LC_ALL": "", "LANG": "zh_CN"}, "zh"),
        ("en", {"LANG": "zh_CN"}, "en"),
        ("zh", {}, "zh"),
    ],
)
def test_language(option, environ, expected):
    assert choose_language(option, environ) == expected


def test_language_of_this_process():
    assert choose_language() in ("en", "zh")
