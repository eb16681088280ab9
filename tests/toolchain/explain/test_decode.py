"""Bytes of consoles and editors everywhere become the text that was meant."""

from __future__ import annotations

import pytest

from sage_attention.toolchain.explain.clean import clean
from sage_attention.toolchain.explain.decode import decode
from sage_attention.toolchain.explain.mojibake import repair

LINES = {
    "gbk": "a.cpp(3): error C2065: “or”: 未声明的标识符\nLINK : fatal error LNK1104: 无法打开文件“python39.lib”\n",
    "gb18030": "ImportError: DLL load failed: 找不到指定的模块。\n",
    "big5": "a.obj : error LNK2001: 無法解析的外部符號 cublasCreate_v2\nfatal error LNK1120: 1 個無法解析的外部符號\n",
    "cp932": "x.obj : error LNK2019: 未解決の外部シンボル foo が関数 main で参照されました。\n",
    "cp949": "x.obj : error LNK2001: 확인할 수 없는 외부 기호 foo\n지정된 모듈을 찾을 수 없습니다.\n",
    "cp1251": "ImportError: DLL load failed: Не найден указанный модуль.\nошибка компоновщика\n",
    "cp866": "Системе не удается найти указанный путь.\nне является внутренней или внешней командой\n",
    "cp1252": "Das System kann die angegebene Datei nicht finden: größer, geöffnet, für, à être\n",
    "cp850": 'Der Befehl "cl" ist entweder falsch geschrieben oder konnte nicht geöffnet werden, für größer\n',
}


@pytest.mark.parametrize("encoding", LINES)
def test_legacy_encodings(encoding):
    assert decode(LINES[encoding].encode(encoding)) == LINES[encoding]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("text", LINES.values(), ids=LINES)
def test_unicode_encodings(encoding, text):
    assert decode(text.encode(encoding)).lstrip("\ufeff") == text


def test_encodings_mixed_line_by_line():
    data = "pip: 正在安装\n".encode() + LINES["gbk"].encode("gbk") + "完成 ✓\n".encode()
    assert decode(data) == "pip: 正在安装\n" + LINES["gbk"] + "完成 ✓\n"


def test_utf_16_appended_to_utf_8():
    assert decode(b"first line\n" + "第二行 LNK1104\n".encode("utf-16")) == "first line\n第二行 LNK1104\n"


def test_utf_8_appended_to_utf_16():
    plain = "second part, written by another shell with >> into the same file\nerror LNK1104\n"
    text = decode("第一部分\r\n".encode("utf-16") + plain.encode())
    assert "第一部分" in text
    assert "error LNK1104" in text


def test_a_broken_byte_spoils_one_character():
    assert decode("错误: 找不到".encode() + b"\xff\n") == "错误: 找不到\ufffd\n"


def test_any_bytes_are_text():
    assert isinstance(decode(bytes(range(256)) * 3), str)
    assert decode(b"") == ""


@pytest.mark.parametrize("read_as", ["cp1252", "gb18030", "latin-1", "cp949"])
def test_utf_8_read_as_something_else(read_as):
    meant = "ImportError: DLL load failed: 找不到指定的模块。"
    seen = meant.encode().decode(read_as, "replace")
    if "\ufffd" not in seen:
        assert repair(seen) == meant
    assert "DLL load failed" in repair(seen)


@pytest.mark.parametrize(("written", "read_as"), [("gbk", "latin-1"), ("cp932", "latin-1"), ("cp1251", "cp1252")])
def test_code_page_read_as_another(written, read_as):
    meant = {
        "gbk": "ImportError: DLL load failed: 找不到指定的模块。",
        "cp932": "ImportError: DLL load failed: 指定されたモジュールが見つかりません。",
        "cp1251": "ImportError: DLL load failed: Не найден указанный модуль.",
    }[written]
    assert repair(meant.encode(written).decode(read_as)) == meant


def test_good_text_stays():
    for text in LINES.values():
        assert repair(text) == text


def test_colours_progress_and_prefixes():
    log = (
        "\x1b[1;31merror:\x1b[0m bad\n"
        " 10%\r 50%\rerror: half way\r100%\n"
        "2026-05-01T10:00:00.123Z error: stamped\n"
        "#12 3.456 error: in docker\n"
        "  3>a.cpp(1): error C2065: 'x': undeclared identifier\n"
    )
    lines = clean(log)
    assert [line.plain for line in lines if line.number == 1] == ["error: bad"]
    assert [line.plain for line in lines if line.number == 2] == ["error: half way", "100%"]
    assert [line.plain for line in lines if line.number == 3] == ["error: stamped"]
    assert [line.plain for line in lines if line.number == 4] == ["error: in docker"]
    assert next(line.plain for line in lines if line.number == 5).startswith("a.cpp(1)")


def test_numbers_are_those_of_an_editor():
    assert [line.number for line in clean("a\r\nb\n\nd")] == [1, 2, 3, 4]


def test_escaped_output_in_one_line():
    text = r"CalledProcessError: b'building\r\na.c(3): fatal error C1083: x\r\nerror: failed\r\n'"
    assert any(line.plain.startswith("a.c(3): fatal error C1083") for line in clean(text))
