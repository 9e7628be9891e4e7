# SPDX-License-Identifier: MIT
#
# Builds for arm64 on another machine, against the packages in .cache/arm64 (scripts/test arm64
# puts them there). Tests run under qemu's emulation of a process.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(CMAKE_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../.cache/arm64)
cmake_path(NORMAL_PATH CMAKE_SYSROOT)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

set(ENV{PKG_CONFIG_DIR} "")
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR}
  ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)

set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)

# CUDA's headers are the same for all machines, so this machine's serve.
find_path(SHARE_CUDA_INCLUDE_DIR cuda.h HINTS $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda
  PATH_SUFFIXES include NO_CMAKE_FIND_ROOT_PATH)

# What qemu 7.2 does not emulate, or not as the kernel does: these do not run.
set(skipped
  process/runs_without_its_main_thread                        # threads that outlive main's
  packet/a_look_says_whether_descriptors_come_and_takes_none  # MSG_PEEK with descriptors
  packet/a_socket_is_without_descriptors_if_none_had_come_before_it_refused_them # SO_PASSRIGHTS
  packet/a_socket_to_which_somebody_has_sent_already_is_not_known_to_be_without  # the same
  packet/one_descriptor_too_many_loses_all_of_them            # MSG_CTRUNC
  page/only_its_readers_mapping_survives_a_fork               # MADV_DONTFORK
  timeline/a_forked_child_does_not_inherit_the_mapping        # the same
  codec/noise_is_refused_or_stays_inside_its_packet           # takes minutes there
  table/everything_is_found_at_every_size)                    # the same
list(JOIN skipped "|" skipped)
set(SHARE_NOT_UNDER_QEMU --filter "!(${skipped})")
