# SPDX-License-Identifier: MIT
#
# CPack runs this when the files of all packages lie there: manual pages and changelogs are packed as
# Debian wants them, without a name or a time in them.

file(GLOB_RECURSE pages ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*)
list(FILTER pages INCLUDE REGEX "/man/man[1-9]/|/changelog.Debian$")
set(files)
foreach(page ${pages})
  if(IS_SYMLINK ${page})
    file(READ_SYMLINK ${page} target)
    file(CREATE_LINK ${target}.gz ${page}.gz SYMBOLIC)
    file(REMOVE ${page})
  else()
    list(APPEND files ${page})
  endif()
endforeach()
execute_process(COMMAND gzip -9nf ${files} COMMAND_ERROR_IS_FATAL ANY)
