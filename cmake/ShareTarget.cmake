# SPDX-License-Identifier: MIT
#
# share_target(NAME): the flags every target of ours carries. Nothing here is global, so a target
# that needs others (a test that wraps malloc, a CUDA example) says so itself.
#
# What is compiled names no folder of this machine: sources are called as in the tree (base/clock.c),
# and the build's folder is the root of the tree. So an object is the same, byte for byte, in each
# build folder and each copy of the tree, and what ccache has from one it has for all. A debugger that
# is started in the root finds the sources.

# ccache, if it is there, compiles nothing twice. To share what it has with other folders and copies
# of the tree, it gives paths to the compiler that start at the build's folder.
option(SHARE_CCACHE "Compile by way of ccache, where there is one" ON)
find_program(SHARE_CCACHE_PROGRAM ccache)
mark_as_advanced(SHARE_CCACHE_PROGRAM)
if(SHARE_CCACHE AND SHARE_CCACHE_PROGRAM)
  foreach(language C CXX)
    if(NOT CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER
        env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=true ${SHARE_CCACHE_PROGRAM})
    endif()
  endforeach()
endif()

file(RELATIVE_PATH SHARE_UP ${CMAKE_BINARY_DIR} ${PROJECT_SOURCE_DIR})
if(NOT SHARE_UP)
  set(SHARE_UP ./)
endif()

# With gcc, undefined behaviour ends a program by an instruction that is none, and AddressSanitizer says
# where (handle_sigill=1, cmake/ShareTest.cmake). The library that would say what it was costs a third
# of the time that a process takes to start and to look for leaks.
set(SHARE_TRAP)
if(SHARE_SANITIZE MATCHES "address.*undefined" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  set(SHARE_TRAP -fsanitize-undefined-trap-on-error)
endif()

# Every program that AddressSanitizer looks at has this: what LeakSanitizer reads when it ends.
if(SHARE_SANITIZE MATCHES "address" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  # It runs before AddressSanitizer is ready.
  add_library(share-roots OBJECT ${PROJECT_SOURCE_DIR}/tests/harness/roots.c)
  target_compile_definitions(share-roots PRIVATE _GNU_SOURCE)
  target_compile_options(share-roots PRIVATE -O2)
endif()

# Where nobody waits for one changed file, the sources of a room are compiled as one: what they include is
# read once for all of them. (In a room, what is static has a name that no other source has: rooms_test.)
# Tests that replace a function as programs are linked (--wrap) need each source by itself.
option(SHARE_BUILD_ROOMS "Compile the sources of a room as one" OFF)
function(share_build_rooms name)
  get_target_property(sources ${name} SOURCES)
  foreach(source IN LISTS sources)
    if(source MATCHES "\\.c$" AND NOT IS_ABSOLUTE ${source})
      get_filename_component(room ${source} DIRECTORY)
      string(REPLACE / _ room "room_${room}")
      set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${room})
    endif()
  endforeach()
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # A variable of a function may have the name of what is static in another source.
  target_compile_options(${name} PRIVATE -Wno-shadow)
endfunction()

function(share_target name)
  get_target_property(type ${name} TYPE)
  if(TARGET share-roots AND type STREQUAL "EXECUTABLE")
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:share-roots>)
  endif()
  target_compile_options(${name} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wundef -Wcast-align -Wcast-qual -Wwrite-strings
    -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wpointer-arith
    -Wformat=2 -Wimplicit-fallthrough -Wno-gnu-zero-variadic-macro-arguments
    # what writes a record reads it as well, by the types of its members
    $<$<COMPILE_LANGUAGE:C>:-Werror=incompatible-pointer-types>
    -fvisibility=hidden -fno-common
    # the last one that fits counts
    -ffile-prefix-map=${PROJECT_SOURCE_DIR}/= -ffile-prefix-map=${SHARE_UP}=
    -ffile-prefix-map=${CMAKE_BINARY_DIR}=.)
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
  if(SHARE_BUILD_ROOMS AND NOT CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/tests")
    share_build_rooms(${name})
  endif()
  if(SHARE_WERROR)
    target_compile_options(${name} PRIVATE -Werror)
  endif()
  if(SHARE_SANITIZE)
    target_compile_options(${name} PRIVATE
      -fsanitize=${SHARE_SANITIZE} ${SHARE_TRAP} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${name} PRIVATE -fsanitize=${SHARE_SANITIZE} ${SHARE_TRAP})
  elseif(CMAKE_BUILD_TYPE MATCHES "Rel")
    target_compile_options(${name} PRIVATE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
      -fstack-protector-strong)
  endif()
endfunction()
