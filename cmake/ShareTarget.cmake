# SPDX-License-Identifier: MIT
#
# share_target(NAME): the flags every target of ours carries. Nothing here is global, so a target
# that needs others (a test that wraps malloc, a CUDA example) says so itself.

function(share_target name)
  target_compile_options(${name} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wundef -Wcast-align -Wcast-qual -Wwrite-strings
    -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition -Wpointer-arith
    -Wformat=2 -Wimplicit-fallthrough -Wno-gnu-zero-variadic-macro-arguments
    -fvisibility=hidden -fno-common)
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
  if(SHARE_WERROR)
    target_compile_options(${name} PRIVATE -Werror)
  endif()
  if(SHARE_SANITIZE)
    target_compile_options(${name} PRIVATE
      -fsanitize=${SHARE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${name} PRIVATE -fsanitize=${SHARE_SANITIZE})
  elseif(CMAKE_BUILD_TYPE MATCHES "Rel")
    target_compile_options(${name} PRIVATE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
      -fstack-protector-strong)
  endif()
endfunction()
