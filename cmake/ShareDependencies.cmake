# SPDX-License-Identifier: MIT
#
# Everything we take from others, in one place. Each is a package of Debian 12 and Ubuntu 24.04.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(EVENT REQUIRED IMPORTED_TARGET libevent_core>=2.1)
if(NOT SKBUILD)
  pkg_check_modules(EVENT_HTTP REQUIRED IMPORTED_TARGET libevent_extra>=2.1 libevent_core>=2.1)
endif()
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson>=2.13)
pkg_check_modules(BSD REQUIRED IMPORTED_TARGET libbsd>=0.11)
pkg_check_modules(SMARTCOLS REQUIRED IMPORTED_TARGET smartcols>=2.36)
pkg_check_modules(NCURSES REQUIRED IMPORTED_TARGET ncursesw>=6.2)

pkg_check_modules(EVENT_TLS IMPORTED_TARGET libevent_openssl>=2.1 libevent_core>=2.1 openssl>=3.0)
if(EVENT_TLS_FOUND)
  pkg_check_modules(UCX IMPORTED_TARGET ucx>=1.13)
endif()

# For wheels. Debian's libevent asks for glibc 2.36, only to have random numbers; linked in, it has
# them from libbsd, as whatever is linked before the libc.
option(SHARE_STATIC_LIBEVENT "Link libevent into share-broker" OFF)
set(SHARE_EVENT PkgConfig::EVENT)
if(SHARE_STATIC_LIBEVENT)
  find_library(SHARE_EVENT_ARCHIVE libevent_core.a HINTS ${EVENT_LIBDIR} REQUIRED)
  set(SHARE_EVENT ${SHARE_EVENT_ARCHIVE})
endif()

find_path(SHARE_CUDA_INCLUDE_DIR cuda.h
  HINTS $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda PATH_SUFFIXES include)
if(SHARE_CUDA_INCLUDE_DIR)
  message(STATUS "CUDA headers: ${SHARE_CUDA_INCLUDE_DIR}")
else()
  message(STATUS "CUDA headers: not found; building without the GPU kinds")
endif()

# NVTX 3, of the CUDA Toolkit or by itself: headers alone. Without them there are no ranges.
find_path(SHARE_NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h
  HINTS ${SHARE_CUDA_INCLUDE_DIR} /usr/local/cuda PATH_SUFFIXES include)
