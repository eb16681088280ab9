"""What Microsoft's tools say in Chinese: the same causes as for the English lines in fixtures/build_logs/msvc."""

from __future__ import annotations

import pytest

from sage_attention.toolchain.explain import explain

KERNEL = '"double __cdecl kernel(double)" (?kernel@@YANN@Z)'
MESSAGES = {
    "a.cpp(4): error C2039: “sort”: 不是“std”的成员": "standard_include_forgotten",
    'a.cpp(3): error C2039: "to_string": 不是 "std" 的成员': "standard_include_forgotten",
    f"bind.obj : error LNK2019: 无法解析的外部符号 {KERNEL}，函数 scale 中引用了该符号": "source_symbol_not_defined",
    "open.cpp(3): error C2664: “HMODULE LoadLibraryW(LPCWSTR)”: 无法将参数 1 从“const char *”转换为“LPCWSTR”": (
        "windows_unicode_mismatch"
    ),
    "names.cpp(1): error C2440: “初始化”: 无法从“const char [2]”转换为“char *”": "conformance_mode",
    "list.cpp(3): warning C4346: “iterator”: 依赖名称不是类型\nlist.cpp(3): error C2061: 语法错误: 标识符“iterator”": (
        "conformance_mode"
    ),
    "LINK : fatal error LNK1561: 必须定义入口点": "linked_as_program",
    "pairs.cpp(3): error C2429: 语言功能“结构化绑定”需要编译器标志“/std:c++17”": "cxx_standard_too_old",
    "options.cpp(2): error C7555: 使用指定的初始值设定项至少需要“/std:c++20”": "cxx_standard_too_old",
    "less.cpp(6): error C2039: “binary_function”: 不是“std”的成员": "msvc_removed_feature",
    "C:\\w\\a.c : fatal error C1083: 无法打开编译器生成的文件: “C:\\w\\build\\a.obj”: No such file or directory": (
        "output_folder_missing"
    ),
    "walk.cpp(1): fatal error C1083: 无法打开预编译头文件: “pch.pch”: No such file or directory": (
        "precompiled_header_stale"
    ),
    "tick.c(2): error C4235: 使用了非标准扩展: 不支持在此体系结构上使用“__asm”关键字": "inline_asm_x64",
    "table.c(1): error C2148: 数组的总大小不得超过 0x7fffffff 字节": "image_too_large",
    "wave.c(5): error C2088: 内置运算符“*”无法应用于类型为“_Fcomplex”的操作数": "c99_complex",
    "LINK : fatal error LNK1181: 无法打开输入文件“Files\\gsl\\lib.obj”": "space_in_path",
    "pick.cpp(9): error C2668: “add”: 对重载函数的调用不明确\npick.cpp(9): note: 尝试匹配参数列表“(unsigned long)”时": (
        "long_vs_int64"
    ),
    "sum.c(2): error C2057: 应输入常量表达式": "gcc_extension_in_source",
    "fast.c(1): error C2143: 语法错误: 缺少“)”(在“(”的前面)\nfast.c(1): error C2091: 函数返回函数": (
        "gcc_extension_in_source"
    ),
    "C:\\Python311\\python311.dll : fatal error LNK1107: 文件无效或损坏: 无法在 0x328 处读取": "object_file_corrupt",
    "sum.cpp(4): error C3016: “i”: OpenMP“for”语句中的索引变量必须是有符号整型": "openmp_version_msvc",
    "LINK : fatal error LNK1146: 没有用选项“/MT”指定的参数": "bad_linker_flag",
    "a.obj : error LNK2038: 检测到“RuntimeLibrary”的不匹配项: 值“MT_StaticRelease”不匹配值“MD_DynamicRelease”": (
        "crt_mismatch"
    ),
    "fast.obj : fatal error LNK1112: 模块计算机类型“x64”与目标计算机类型“x86”冲突": "bitness_mismatch",
}


@pytest.mark.parametrize("encoding", ["utf-8", "gbk", "utf-16"])
@pytest.mark.parametrize("message", MESSAGES)
def test_message(message, encoding):
    assert explain(message.encode(encoding)).findings[0].cause == MESSAGES[message]
