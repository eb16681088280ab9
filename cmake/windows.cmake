# What a Windows DLL needs beyond its code: run-time library, linker switches, version resource (version_resource.cmake).

if(MSVC)
  # The C++ run-time library inside, the C one that comes with Windows outside (hybrid): the DLL needs no redistributable,
  # and shares errno, environment and heap with Python. Debug builds too: a debug run-time library is found on developers'
  # machines only, and _DEBUG is what makes other projects ask for python3XX_d.lib.
  set(CMAKE_MSVC_RUNTIME_LIBRARY MultiThreaded)
  set(SAGE_ATTENTION_LINK_OPTIONS
    /NODEFAULTLIB:libucrt.lib /DEFAULTLIB:ucrt.lib
    /DYNAMICBASE /HIGHENTROPYVA /NXCOMPAT /guard:cf
    /Brepro /INCREMENTAL:NO)
  # "_CRT_...": no warnings that getenv and its like should be Microsoft's own.
  set(SAGE_ATTENTION_COMPILE_OPTIONS /W4 /D_CRT_SECURE_NO_WARNINGS /utf-8 /GR- /guard:cf /Brepro)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "MSVC")
    # Conditions known when compiling are what templates are for (4127); code after a `return` in `if constexpr` (4702).
    list(APPEND SAGE_ATTENTION_COMPILE_OPTIONS /MP /wd4127 /wd4702)
    # Or each function inlined everywhere is compiled by itself, too: five times the work for the kernels.
    list(APPEND SAGE_ATTENTION_COMPILE_OPTIONS /Zc:inline)
  else()
    list(APPEND SAGE_ATTENTION_COMPILE_OPTIONS -Wshadow /clang:-ffp-contract=off /clang:-fno-math-errno)
  endif()
  if(SAGE_ATTENTION_PDB)
    list(APPEND SAGE_ATTENTION_COMPILE_OPTIONS /Z7)
    # /DEBUG alone would keep what nothing refers to; the path in the DLL is the file's name alone.
    list(APPEND SAGE_ATTENTION_LINK_OPTIONS /DEBUG /OPT:REF /OPT:ICF /PDBALTPATH:%_PDB%)
  endif()
  # Debug information in the object files: a common PDB file would make parallel compilers wait for one another.
  foreach(language C CXX)
    foreach(type DEBUG RELWITHDEBINFO)
      string(REPLACE "/Zi" "/Z7" CMAKE_${language}_FLAGS_${type} "${CMAKE_${language}_FLAGS_${type}}")
    endforeach()
  endforeach()
  set(CMAKE_C_STANDARD_LIBRARIES kernel32.lib)
  set(CMAKE_CXX_STANDARD_LIBRARIES kernel32.lib)
else()
  set(CMAKE_C_STANDARD_LIBRARIES "")
  set(CMAKE_CXX_STANDARD_LIBRARIES "")
endif()

include(${CMAKE_CURRENT_LIST_DIR}/version_resource.cmake)
