"""Fatal errors of cl and link that explain themselves by their number, whatever the language of the text beside it."""

from __future__ import annotations

import pytest

from sage_attention.toolchain.explain import explain

COMPILER = {
    "compiler_file_unwritable": "1037 1068 1082 1084 1085 1086 1087 1088 1089",
    "compiler_internal_error": "1001 1073 1352 1505 1506 1901 1904",
    "compiler_out_of_memory": "1002 1060 1076",
    "cpp_cli_source": "1107 1113 1114 1190 1191 1192 1195 1197 1205 1206 1207 1208 1209 1210 1211 1308 1353 1383",
    "msvc_source_limit": "1005 1009 1013 1014 1026 1035 1038 1045 1046 1053 1054 1055 1061 1063 1064 1065 1067 1091 "
    "1110 1111 1112 1126 1202 1312 1313 1508 1509",
    "msvc_tool_dll_missing": "1108 1109 1120 1309 1350 1351 1356 1510",
    "msvc_version_mixed": "1047 1900",
    "path_too_long": "1081",
    "pdb_contention": "1033 1036 1041 1051 1090 1300 1301",
    "pgo_profile_stale": "1302 1305 1306 1307 1310 1384",
    "precompiled_header_stale": "1010 1023 1079 1094 1382 1852 1853 1854",
    "source_not_balanced": "1004 1012 1016 1018 1019 1020 1022 1070 1071 1075 1201",
}
LINKER = {
    "bad_linker_flag": "1117 1118 1146 1224 1237 1287",
    "bitness_mismatch": "1112 1113",
    "cpp_cli_source": "1256 1302 1306 1309 1312 1313 1314",
    "linked_as_program": "1221 1245 1561",
    "msvc_version_mixed": "1196 1257",
    "object_file_corrupt": "1103 1106 1107 1127 1136 1143 1179 1187 1188 1223 1235 1282",
    "output_is_also_input": "1149",
    "pdb_contention": "1200 1201 1207 1209 1318",
    "pgo_profile_stale": "1264 1265 1266 1267 1268 1269 1277",
}
ONLY_PASSED_ON = ("C1003", "C1903", "LNK1120", "LNK1141", "LNK1152", "LNK1319")
LINES = [(f"a.cpp(7): fatal error C{code}: ‥", cause) for cause, codes in COMPILER.items() for code in codes.split()]
LINES += [(f"a.obj : fatal error LNK{code}: ‥", cause) for cause, codes in LINKER.items() for code in codes.split()]


@pytest.mark.parametrize(("line", "cause"), LINES, ids=[line.split()[-2] for line, _ in LINES])
def test_code(line, cause):
    answer = explain(line)
    assert answer.verdict == "explained"
    assert answer.findings[0].cause == cause


@pytest.mark.parametrize("code", ONLY_PASSED_ON)
def test_code_that_gives_no_reason(code):
    assert explain(f"a.obj : fatal error {code}: ‥").verdict == "insufficient"
