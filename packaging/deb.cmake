# SPDX-License-Identifier: MIT
#
# Debian packages, one of each component of install(); scripts/package makes them. A file that is
# installed without a component belongs to no package, which tests/package_test.sh finds.

set(SHARE_PACKAGE_RELEASE 1 CACHE STRING "What follows the version in that of Debian packages")

find_program(dpkg dpkg-shlibdeps)
if(NOT dpkg)
  return()
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "maintainers of share <maintainers@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_SET_DESTDIR ON) # the configuration is in /etc, whatever the prefix
set(CPACK_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL broker library dev tools exporter)
if(TARGET share-bridge)
  list(APPEND CPACK_COMPONENTS_ALL bridge)
endif()
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_SOURCE_DIR}/deb/finish.cmake)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${SHARE_PACKAGE_RELEASE})
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# No program is in that one, and CPack would start two for each of its 400 pages.
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(version ${PROJECT_VERSION}-${SHARE_PACKAGE_RELEASE})
set(library libshare${PROJECT_VERSION_MAJOR})

# package(COMPONENT NAME SECTION SUMMARY TEXT), and what its maintainer scripts start, if anything
function(package component name section summary text)
  string(TOUPPER ${component} key)
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_COMPONENT_${key}_DESCRIPTION "${summary}\n${text}" PARENT_SCOPE)
  set(extra)
  set(UNITS ${ARGN})
  list(JOIN UNITS " " UNITS)
  if(UNITS)
    foreach(script postinst prerm postrm)
      configure_file(deb/${script}.in deb/${component}/${script} @ONLY)
      file(CHMOD ${CMAKE_CURRENT_BINARY_DIR}/deb/${component}/${script} PERMISSIONS
        OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
      list(APPEND extra ${CMAKE_CURRENT_BINARY_DIR}/deb/${component}/${script})
    endforeach()
  endif()
  if(component STREQUAL "broker")
    list(APPEND extra ${CMAKE_CURRENT_SOURCE_DIR}/deb/conffiles)
  elseif(component STREQUAL "library")
    configure_file(deb/shlibs.in deb/library/shlibs @ONLY)
    list(APPEND extra ${CMAKE_CURRENT_BINARY_DIR}/deb/library/shlibs
      ${CMAKE_CURRENT_SOURCE_DIR}/deb/triggers)
  endif()
  set(CPACK_DEBIAN_${key}_PACKAGE_CONTROL_EXTRA "${extra}" PARENT_SCOPE)
  # Terms, and what is new, where Debian looks for them. Only packages have these.
  set(doc ${CMAKE_INSTALL_DATADIR}/doc/${name})
  install(FILES deb/copyright DESTINATION ${doc} COMPONENT ${component} EXCLUDE_FROM_ALL)
  configure_file(deb/changelog.in deb/${component}/changelog.Debian @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/deb/${component}/changelog.Debian DESTINATION ${doc}
    COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC) # of SOURCE_DATE_EPOCH, if that is set
package(broker share-broker admin "broker of memory shared between processes"
  "A daemon that owns host and GPU memory and hands it to the processes of a
machine, with its agent for GPUs, its units for systemd and a configuration."
  share-broker.socket share-broker.service)
package(library ${library} libs "client library of share-broker"
  "Programs allocate, publish and exchange memory with it that a broker owns.")
package(dev libshare-dev libdevel "files to build programs with libshare"
  "Headers, archive, pkg-config and CMake files, manual pages and examples.")
package(tools share-tools utils "sharectl and share-run"
  "sharectl shows and changes what a broker has; share-run starts a broker for
one command.")
package(exporter share-exporter net "metrics of share-broker for Prometheus"
  "Serves metrics, and a page that shows them live, at the loopback device."
  share-exporter.service)
if(TARGET share-bridge)
  package(bridge share-bridge net "share-broker's memory on other hosts"
    "Names, channels and services of one host appear on another, by UCX.")
endif()

# The unit reloads by sharectl, and archives need jansson. dpkg-shlibdeps takes the library for a private
# one, as it is in no package yet.
set(CPACK_DEBIAN_BROKER_PACKAGE_DEPENDS "share-tools (= ${version}), init-system-helpers (>= 1.54~)")
set(CPACK_DEBIAN_EXPORTER_PACKAGE_DEPENDS
  "${library} (= ${version}), init-system-helpers (>= 1.54~)")
set(CPACK_DEBIAN_BRIDGE_PACKAGE_DEPENDS "${library} (= ${version})")
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "${library} (= ${version})")
set(CPACK_DEBIAN_EXPORTER_PACKAGE_RECOMMENDS "share-broker")
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${library} (= ${version}), libjansson-dev")
set(CPACK_DEBIAN_TOOLS_PACKAGE_RECOMMENDS "share-broker (= ${version})")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS "share-broker")

install(FILES broker.json DESTINATION /etc/share COMPONENT broker EXCLUDE_FROM_ALL)
include(CPack)
