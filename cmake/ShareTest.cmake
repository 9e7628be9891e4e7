# SPDX-License-Identifier: MIT
#
# share_add_test(NAME [OPTIMIZED] SOURCES file... [LIBRARIES target...] [LABELS label...]
#                [TIMEOUT seconds])
#   A Criterion program, built and registered with CTest. The first source is the test's own; the
#   others may be those of other tests, too. OPTIMIZED: see share_test_target().
#
# share_shared_sources(OUT source...)
#   What stands for these in the sources of a program: each is compiled once for all tests, so it has
#   no flags of one of them.
#
# share_cores(N TEST...)
#   These keep so many cores busy. CTest starts two tests for each core with a sanitizer and three without
#   (scripts/test), as most of them wait for processes for half of their time or longer. One that keeps all
#   cores busy says one less: CTest would start it when no other runs, which is after all others.
#
# share_long(SECONDS TEST...)
#   These take about so long. CTest starts the longest first, so that none is left alone at the end.
#
# share_test_target(NAME)
#   The flags of a test's own code, in place of share_target(). It runs for a moment, and compiling it
#   takes longer than that, so nobody optimises it. Where an inline function of a header is what is
#   tested, the test has to be OPTIMIZED: it is compiled like the programs that are installed.
#
# share_add_program_test(NAME COMMAND command... [NEEDS target...] [LABELS label...]
#                        [TIMEOUT seconds])
#   A script or plain program. Exit code 77 says "skipped", as with all our tests. Where one of the
#   targets (or the program) is not built yet, the test fails and says how to build it.
#
# Criterion cannot run under ThreadSanitizer (its issue 274), so in a build for that, share_add_test
# makes nothing, and says so once; programs with a main() of their own run there.

if(SHARE_SANITIZE MATCHES "thread")
  message(STATUS "Tests: ThreadSanitizer build, without the Criterion tests (Criterion issue 274)")
else()
  pkg_check_modules(CRITERION REQUIRED IMPORTED_TARGET criterion>=2.4)
endif()

set(SHARE_TEST_BUILT ${CMAKE_CURRENT_LIST_DIR}/../tests/harness/built.sh)
# For those who run what a user has, and those who install it.
set(SHARE_TEST_PROGRAMS share-broker share-agent share-run sharectl)
set(SHARE_TEST_INSTALLED ${SHARE_TEST_PROGRAMS} share-exporter share share-static)
foreach(target manual html)
  if(TARGET ${target})
    list(APPEND SHARE_TEST_INSTALLED ${target})
  endif()
endforeach()

function(share_add_program_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "COMMAND;NEEDS;LABELS")
  if(NOT arg_COMMAND OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR
      "share_add_program_test(${name}): needs COMMAND, NEEDS, LABELS and TIMEOUT only")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()

  list(POP_FRONT arg_COMMAND program)
  set(emulator)
  if(TARGET ${program})
    list(APPEND arg_NEEDS ${program})
    set(program $<TARGET_FILE:${program}>)
    if(CMAKE_CROSSCOMPILING)
      set(emulator ${CMAKE_CROSSCOMPILING_EMULATOR} -E LD_PRELOAD=$<TARGET_FILE:share-under-qemu>)
    endif()
  endif()
  set(needs)
  foreach(target IN LISTS arg_NEEDS)
    get_target_property(made ${target} SHARE_MADE) # for one that is neither program nor library
    if(NOT made)
      set(made $<TARGET_FILE:${target}>)
    endif()
    list(APPEND needs ${target} ${made})
  endforeach()
  add_test(NAME ${name} COMMAND ${SHARE_TEST_BUILT} ${CMAKE_BINARY_DIR} ${needs} --
    ${emulator} ${program} ${arg_COMMAND})
  # Sanitizers may find something in a process whose exit code nobody sees, and Criterion forgives
  # what fails in a .fini: their words count.
  set_tests_properties(${name} PROPERTIES
    LABELS "${arg_LABELS}"
    TIMEOUT ${arg_TIMEOUT}
    SKIP_RETURN_CODE 77
    FAIL_REGULAR_EXPRESSION
      "LeakSanitizer|AddressSanitizer|runtime error:|ThreadSanitizer|BUG:|Assertion Failed")
  set(environment
    SHARE_ABORT_ON_BUG=1
    ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:handle_sigill=1
    UBSAN_OPTIONS=print_stacktrace=1
    TSAN_OPTIONS=halt_on_error=1
    SHARE_TEST_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
    SHARE_TEST_SOURCE=${PROJECT_SOURCE_DIR})
  if(CMAKE_CROSSCOMPILING)
    list(APPEND environment QEMU_LD_PREFIX=${CMAKE_SYSROOT}
      SHARE_UNDER_QEMU=$<TARGET_FILE:share-under-qemu>)
  endif()
  set_property(TEST ${name} PROPERTY ENVIRONMENT "${environment}")
endfunction()

if(NOT CMAKE_CROSSCOMPILING)
  find_program(SHARE_LLD ld.lld)
endif()
mark_as_advanced(SHARE_LLD)

function(share_test_target name)
  share_target(${name})
  if(SHARE_LLD) # takes half of the time; what is installed is linked by the system's linker
    target_link_options(${name} PRIVATE -fuse-ld=lld)
  endif()
  if(CMAKE_BUILD_TYPE MATCHES "Rel")
    target_compile_options(${name} PRIVATE "SHELL:-O0 -U_FORTIFY_SOURCE") # which wants to be optimised
  endif()
endfunction()

function(share_shared_sources out)
  set(objects)
  foreach(source IN LISTS ARGN)
    get_filename_component(source ${source} ABSOLUTE)
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${source})
    string(REGEX REPLACE "\\.c$" "" name ${name})
    string(MAKE_C_IDENTIFIER ${name} name)
    if(NOT TARGET ${name})
      add_library(${name} OBJECT ${source})
      target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
      target_link_libraries(${name} PRIVATE share-headers PkgConfig::JANSSON
        $<TARGET_NAME_IF_EXISTS:PkgConfig::CRITERION>)
      if(SHARE_CUDA_INCLUDE_DIR)
        target_include_directories(${name} SYSTEM PRIVATE ${SHARE_CUDA_INCLUDE_DIR})
      endif()
      if(name MATCHES "^tests_" AND NOT name MATCHES "^tests_(themes_fuzz|ring)_")
        share_test_target(${name})
      else()
        share_target(${name})
      endif()
    endif()
    list(APPEND objects $<TARGET_OBJECTS:${name}>)
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()

function(share_cores number)
  set(of_each_core 3)
  if(SHARE_SANITIZE)
    set(of_each_core 2)
  endif()
  math(EXPR slots "${of_each_core} * ${number}")
  foreach(test IN LISTS ARGN)
    if(TEST ${test})
      set_tests_properties(${test} PROPERTIES PROCESSORS ${slots})
    endif()
  endforeach()
endfunction()

function(share_long seconds)
  foreach(test IN LISTS ARGN)
    if(TEST ${test})
      set_tests_properties(${test} PROPERTIES COST ${seconds})
    endif()
  endforeach()
endfunction()

function(share_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "OPTIMIZED" "TIMEOUT" "SOURCES;LIBRARIES;LABELS")
  if(NOT arg_SOURCES OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR
      "share_add_test(${name}): needs OPTIMIZED, SOURCES, LIBRARIES, LABELS and TIMEOUT only")
  endif()
  if(SHARE_SANITIZE MATCHES "thread")
    return()
  endif()

  list(POP_FRONT arg_SOURCES own)
  if(SHARE_SANITIZE MATCHES "address")
    list(APPEND arg_SOURCES ${PROJECT_SOURCE_DIR}/tests/harness/leaks.c)
  endif()
  share_shared_sources(shared ${arg_SOURCES})
  add_executable(${name} ${own} ${shared})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} PkgConfig::CRITERION)
  if(arg_OPTIMIZED)
    share_target(${name})
  else()
    share_test_target(${name})
  endif()
  # Not among the programs that are installed.
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})

  share_add_program_test(${name} COMMAND ${name} ${SHARE_NOT_UNDER_QEMU} LABELS ${arg_LABELS} TIMEOUT ${arg_TIMEOUT})
endfunction()
