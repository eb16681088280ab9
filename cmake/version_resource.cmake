# sage_attention_version_resource(target): gives a DLL the project's version, as Explorer and crash reports show it.
# Microsoft's tools compile a script. zig's resource compiler is built when first called, a minute or two, and CMake knows
# none for it: for such compilers the same bytes are written in assembly.

set(SAGE_ATTENTION_VERSION_STRINGS
  FileDescription "SageAttention for graphs"
  FileVersion "${PROJECT_VERSION}"
  InternalName "sage_attention"
  LegalCopyright "Apache License 2.0"
  OriginalFilename "sage_attention.dll"
  ProductName "sage-graph-attention"
  ProductVersion "${PROJECT_VERSION}")
set(SAGE_ATTENTION_NUMERIC_VERSION
  "${PROJECT_VERSION_MAJOR}, ${PROJECT_VERSION_MINOR}, ${PROJECT_VERSION_PATCH}, 0")
if(MSVC)
  enable_language(RC)
endif()

# The bytes of an ASCII string in UTF-16, with its end.
function(sage_attention_utf16 text result)
  string(HEX "${text}" bytes)
  string(REGEX REPLACE "(..)" "0x\\1, 0, " bytes "${bytes}")
  set(${result} ".byte ${bytes}0, 0" PARENT_SCOPE)
endfunction()

function(sage_attention_version_script file)
  set(values "")
  set(strings ${SAGE_ATTENTION_VERSION_STRINGS})
  while(strings)
    list(GET strings 0 key)
    list(GET strings 1 value)
    list(REMOVE_AT strings 0 1)
    string(APPEND values "      VALUE \"${key}\", \"${value}\"\n")
  endwhile()
  file(CONFIGURE OUTPUT ${file} CONTENT [[
1 VERSIONINFO
FILEVERSION @SAGE_ATTENTION_NUMERIC_VERSION@
PRODUCTVERSION @SAGE_ATTENTION_NUMERIC_VERSION@
FILEOS 0x40004
FILETYPE 2
BEGIN
  BLOCK "StringFileInfo"
  BEGIN
    BLOCK "040904B0"
    BEGIN
@values@    END
  END
  BLOCK "VarFileInfo"
  BEGIN
    VALUE "Translation", 0x409, 1200
  END
END
]] @ONLY)
endfunction()

function(sage_attention_version_assembly file)
  foreach(name VS_VERSION_INFO StringFileInfo 040904B0 VarFileInfo Translation)
    sage_attention_utf16(${name} ${name})
  endforeach()
  set(values "")
  set(strings ${SAGE_ATTENTION_VERSION_STRINGS})
  while(strings)
    list(GET strings 0 key)
    list(GET strings 1 value)
    list(REMOVE_AT strings 0 1)
    string(LENGTH "${value}" length)
    math(EXPR length "${length} + 1")
    sage_attention_utf16("${key}" key)
    sage_attention_utf16("${value}" value)
    string(APPEND values ".balign 4\n1: .short 2f - 1b, ${length}, 1\n${key}\n.balign 4\n${value}\n2:\n")
  endwhile()
  set(version "${PROJECT_VERSION_MINOR}, ${PROJECT_VERSION_MAJOR}, 0, ${PROJECT_VERSION_PATCH}")
  # Directories of types, names and languages; the place of the data; VS_VERSIONINFO, each block with its length first.
  file(CONFIGURE OUTPUT ${file} CONTENT [[
__asm__(R"(
.section .rsrc, "dr"
.balign 4
.long 0, 0, 0, 0x10000, 16, 0x80000018
.long 0, 0, 0, 0x10000, 1, 0x80000030
.long 0, 0, 0, 0x10000, 0x409, 0x48
.rva .Lversion
.long .Lend - .Lversion, 0, 0
.Lversion: .short .Lend - .Lversion, 52, 0
@VS_VERSION_INFO@
.balign 4
.long 0xFEEF04BD, 0x10000
.short @version@, @version@
.long 0, 0, 0x40004, 2, 0, 0, 0
.Lstrings: .short .Lstrings_end - .Lstrings, 0, 1
@StringFileInfo@
.balign 4
.Ltable: .short .Lstrings_end - .Ltable, 0, 1
@040904B0@
@values@.Lstrings_end:
.balign 4
.Lvariables: .short .Lend - .Lvariables, 0, 1
@VarFileInfo@
.balign 4
.Ltranslation: .short .Lend - .Ltranslation, 4, 0
@Translation@
.balign 4
.short 0x409, 1200
.Lend:
)");
]] @ONLY)
endfunction()

function(sage_attention_version_resource target)
  if(MSVC)
    set(file ${CMAKE_CURRENT_BINARY_DIR}/version.rc)
    sage_attention_version_script(${file})
  else()
    set(file ${CMAKE_CURRENT_BINARY_DIR}/version_resource.cpp)
    sage_attention_version_assembly(${file})
  endif()
  target_sources(${target} PRIVATE ${file})
endfunction()
