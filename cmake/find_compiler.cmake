# Included before project(): where Windows has no compiler at all, says so in one line instead of CMake's own twenty.
# Visual Studio's generator is chosen only where there is a compiler, and finds it without a developer prompt.
if(CMAKE_HOST_WIN32 AND NOT CMAKE_GENERATOR MATCHES "Visual Studio" AND NOT CMAKE_TOOLCHAIN_FILE
   AND NOT CMAKE_CXX_COMPILER AND NOT DEFINED ENV{CXX})
  find_program(SAGE_ATTENTION_A_COMPILER NAMES cl clang-cl c++ g++ clang++)
  mark_as_advanced(SAGE_ATTENTION_A_COMPILER)
  if(NOT SAGE_ATTENTION_A_COMPILER)
    # The space in front keeps CMake from breaking the line.
    message(FATAL_ERROR " No C++ compiler: install \"Build Tools for Visual Studio\" (2019 or newer) with its workload "
      "\"Desktop development with C++\"; or take the published wheel, which needs none: "
      "pip install --only-binary :all: sage-graph-attention")
  endif()
endif()
