# What a Windows DLL needs beyond its code: run-time library, linker switches, version resource.

if(MSVC)
  # The C++ run-time library inside, the C one that comes with Windows outside (hybrid): the DLL needs no redistributable,
  # and shares errno, environment and heap with Python. Debug builds too: a debug run-time library is found on developers'
  # machines only, and _DEBUG is what makes other projects ask for python3XX_d.lib.
  set(CMAKE_MSVC_RUNTIME_LIBRARY MultiThreaded)
  set(SAGE_ATTENTION_LINK_OPTIONS
    /NODEFAULTLIB:libucrt.lib /DEFAULTLIB:ucrt.lib
    /DYNAMICBASE /HIGHENTROPYVA /NXCOMPAT /guard:cf
    /Brepro /INCREMENTAL:NO)
  set(SAGE_ATTENTION_COMPILE_OPTIONS /W4 /utf-8 /GR- /guard:cf /Brepro)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "MSVC")
    # Conditions known when compiling are what templates are for (4127); code after a `return` in `if constexpr` (4702).
    list(APPEND SAGE_ATTENTION_COMPILE_OPTIONS /MP /wd4127 /wd4702)
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

# Gives `target` the project's version, as Explorer and crash reports show it.
if("${CMAKE_C_COMPILER_ARG1}" MATCHES " ?cc( |$)")
  # zig brings its own resource compiler, which CMake does not know: `zig cc ...` becomes `zig rc`.
  string(REGEX REPLACE " ?cc( .*)?$" " rc" arguments "${CMAKE_C_COMPILER_ARG1}")
  separate_arguments(arguments UNIX_COMMAND "${arguments}")
  set(SAGE_ATTENTION_RC ${CMAKE_C_COMPILER} ${arguments})
else()
  set(SAGE_ATTENTION_RC "")
  enable_language(RC)
endif()
function(sage_attention_version_resource target)
  set(script ${CMAKE_CURRENT_BINARY_DIR}/version.rc)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/version.rc.in ${script} @ONLY)
  if(SAGE_ATTENTION_RC)
    set(resource ${CMAKE_CURRENT_BINARY_DIR}/version.res)
    add_custom_command(OUTPUT ${resource} DEPENDS ${script} VERBATIM
      COMMAND ${SAGE_ATTENTION_RC} /:auto-includes none /fo ${resource} ${script})
    set_source_files_properties(${resource} PROPERTIES GENERATED TRUE EXTERNAL_OBJECT TRUE)
    target_sources(${target} PRIVATE ${resource})
  else()
    target_sources(${target} PRIVATE ${script})
  endif()
endfunction()
