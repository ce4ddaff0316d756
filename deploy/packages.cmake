# Debian packages, by CPack: tuttid, libtutti0, libtutti-dev, python3-tutti. deploy/package runs it.
set(debian ${CMAKE_SOURCE_DIR}/deploy/debian)
set(made ${CMAKE_BINARY_DIR}/debian)
set(TUTTI_MAINTAINER "Tutti developers <tutti@users.noreply.github.com>"
    CACHE STRING "Who answers for the packages, with an address")
set(CPACK_PACKAGE_CONTACT "${TUTTI_MAINTAINER}")
string(TIMESTAMP TUTTI_PACKAGE_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
configure_file(${debian}/changelog.in ${made}/changelog @ONLY)
find_program(GZIP gzip REQUIRED)
execute_process(COMMAND ${GZIP} --best --no-name --force ${made}/changelog COMMAND_ERROR_IS_FATAL ANY)

# tutti_package(<package> COMPONENTS ... DEPENDS ... SECTION ... SUMMARY ... TEXT ... [SCRIPTS ...])
# One package of some components of `cmake --install`.
function(tutti_package name)
  cmake_parse_arguments(DEB "" "DEPENDS;SECTION;SUMMARY;TEXT" "COMPONENTS;SCRIPTS" ${ARGN})
  list(GET DEB_COMPONENTS 0 first)
  install(FILES ${debian}/copyright ${made}/changelog.gz DESTINATION share/doc/${name} COMPONENT ${first})
  string(TOUPPER ${name} key)
  foreach(component ${DEB_COMPONENTS})
    string(TOUPPER ${component} upper)
    set(CPACK_COMPONENT_${upper}_GROUP ${name} PARENT_SCOPE)
  endforeach()
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_FILE_NAME DEB-DEFAULT PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_SECTION ${DEB_SECTION} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_DEPENDS ${DEB_DEPENDS} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_DESCRIPTION "${DEB_SUMMARY}\n${DEB_TEXT}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_CONTROL_EXTRA ${DEB_SCRIPTS} PARENT_SCOPE)
endfunction()

set(version ${PROJECT_VERSION})
tutti_package(tuttid
  COMPONENTS daemon system
  DEPENDS "libtutti0 (= ${version}), init-system-helpers (>= 1.54)" SECTION net
  SUMMARY "collective communication: the daemon of a node, and the command line"
  TEXT "Tutti reduces, broadcasts and gathers the tensors of training processes, within
a node and across nodes. The agent of a node admits them and starts a worker
for each job. Jobs outlive a restart of the agent, and so an upgrade."
  SCRIPTS ${debian}/conffiles ${debian}/postinst ${debian}/prerm ${debian}/postrm)
tutti_package(libtutti0
  COMPONENTS library DEPENDS "" SECTION libs
  SUMMARY "collective communication: the library of training processes"
  TEXT "Programs join a job of Tutti with it and hand their tensors to the daemon of
their node, package tuttid."
  SCRIPTS ${debian}/shlibs ${debian}/triggers)
tutti_package(libtutti-dev
  COMPONENTS development DEPENDS "libtutti0 (= ${version})" SECTION libdevel
  SUMMARY "collective communication: headers for C and C++"
  TEXT "Headers of libtutti, for C and C++20, with a CMake package and for pkg-config,
and the archive of its faces.")
tutti_package(python3-tutti
  COMPONENTS python DEPENDS "libtutti0 (= ${version}), python3 (>= 3.10), python3-numpy" SECTION python
  SUMMARY "collective communication: the Python package"
  TEXT "Collectives on NumPy arrays and all that has DLPack, and a backend of
torch.distributed."
  SCRIPTS ${debian}/python3/postinst ${debian}/python3/prerm)
set(CPACK_DEBIAN_PYTHON3-TUTTI_PACKAGE_ARCHITECTURE all)

# What Python knows of its distributions: torch.distributed finds the backend by the entry point. The commands are
# those of tuttid. Without a RECORD pip leaves the files to dpkg.
set(dist_info tutti_collectives-${version}.dist-info)
configure_file(${debian}/python3/METADATA.in ${made}/${dist_info}/METADATA @ONLY)
file(READ ${CMAKE_SOURCE_DIR}/pyproject.toml pyproject)
if(NOT pyproject MATCHES "\n\\[project[.]entry-points[.]\"([a-z.]+)\"\\]\n([a-z]+) = \"([a-z.:]+)\"\n")
  message(FATAL_ERROR "pyproject.toml has no entry point")
endif()
file(WRITE ${made}/${dist_info}/entry_points.txt "[${CMAKE_MATCH_1}]\n${CMAKE_MATCH_2} = ${CMAKE_MATCH_3}\n")
install(DIRECTORY ${made}/${dist_info} DESTINATION ${TUTTI_PYTHON_DIR} COMPONENT python)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tutti)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL daemon system library development python)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
