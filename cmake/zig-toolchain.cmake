# Cross-compiles with zig (pip install ziglang): -DCMAKE_TOOLCHAIN_FILE=cmake/zig-toolchain.cmake, and in the
# environment ZIG, the path of the program, and ZIG_TARGET, such as aarch64-linux-gnu.2.17. The environment, since
# CMake reads this file anew for each compiler check and passes no variables to it there.
foreach(name ZIG ZIG_TARGET)
  if("$ENV{${name}}" STREQUAL "")
    message(FATAL_ERROR "zig-toolchain.cmake: expected the environment variable ${name} to be set, got nothing")
  endif()
endforeach()
if(NOT "$ENV{ZIG_TARGET}" MATCHES "^(x86_64|aarch64)-(linux|windows|macos)[-.]")
  message(FATAL_ERROR "ZIG_TARGET: expected (x86_64|aarch64)-(linux|windows|macos)..., got '$ENV{ZIG_TARGET}'")
endif()
set(CMAKE_SYSTEM_PROCESSOR ${CMAKE_MATCH_1})
set(ZIG_SYSTEM_linux Linux)
set(ZIG_SYSTEM_windows Windows)
set(ZIG_SYSTEM_macos Darwin)
set(CMAKE_SYSTEM_NAME ${ZIG_SYSTEM_${CMAKE_MATCH_2}})

# Without a processor zig takes one of its own choice for some targets, and the host's for native ones.
set(ZIG_PROCESSOR_x86_64 -mcpu=x86_64)
set(ZIG_PROCESSOR_aarch64 -mcpu=generic)
set(ZIG_OPTIONS -target $ENV{ZIG_TARGET} ${ZIG_PROCESSOR_${CMAKE_SYSTEM_PROCESSOR}})
set(CMAKE_C_COMPILER "$ENV{ZIG}" cc ${ZIG_OPTIONS})
# "c++" would build and link the C++ standard library, minutes for each target, of which nothing is used.
set(CMAKE_CXX_COMPILER "$ENV{ZIG}" cc ${ZIG_OPTIONS})
set(CMAKE_MODULE_LINKER_FLAGS_INIT -s)  # no symbols beyond the exported ones, no debug information
set(CMAKE_STRIP "")                     # the host's would not know the format
set(CMAKE_USER_MAKE_RULES_OVERRIDE ${CMAKE_CURRENT_LIST_DIR}/zig-rules.cmake)
# CMake would link a dozen Windows libraries by default, some of which zig compiles first, for minutes. zig adds by itself
# the two that are needed.
set(CMAKE_C_STANDARD_LIBRARIES "" CACHE STRING "")
set(CMAKE_CXX_STANDARD_LIBRARIES "" CACHE STRING "")
# What "cc" adds for itself is found neither by the host's tools nor in its folders.
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE NEVER)
set(CMAKE_OSX_SYSROOT "")
set(CMAKE_OSX_ARCHITECTURES "")
