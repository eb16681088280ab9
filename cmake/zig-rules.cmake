# Read by CMake after its own rules for a platform (CMAKE_USER_MAKE_RULES_OVERRIDE): zig links no macOS bundles. A
# dynamic library serves as well: ctypes loads both.
if(CMAKE_SYSTEM_NAME STREQUAL "Darwin")
  set(CMAKE_SHARED_MODULE_CREATE_C_FLAGS "-dynamiclib -Wl,-install_name,@rpath/sage_attention.so")
endif()
