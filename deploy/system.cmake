# What makes the agent a service of the system: unit and settings. Below /usr the settings lie in
# /etc, as the agent expects; below another prefix they lie in its etc/, and the unit names them.
# Settings that are there are kept.
set(system_files ${CMAKE_BINARY_DIR}/system)
install(CODE "
  set(unit \"${system_files}/tuttid.service\")
  set(etc \"\${CMAKE_INSTALL_PREFIX}/etc\")
  if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
    set(etc /etc)
  endif()
  file(READ \"${CMAKE_SOURCE_DIR}/deploy/systemd/tuttid.service\" text)
  set(program \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/tuttid\")
  string(REPLACE /usr/bin/tuttid \"\${program}\" text \"\${text}\")
  string(REPLACE /etc/tutti/ \"\${etc}/tutti/\" text \"\${text}\")
  file(WRITE \"\${unit}\" \"\${text}\")
  file(INSTALL \"\${unit}\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/lib/systemd/system\")
  if(NOT EXISTS \"\$ENV{DESTDIR}\${etc}/tutti/tuttid.conf\")
    file(INSTALL \"${CMAKE_SOURCE_DIR}/deploy/tuttid.conf\" DESTINATION \"\${etc}/tutti\")
  endif()" COMPONENT system)

# Manual pages and completions, from --help and the table of settings.
find_program(TUTTI_MANUAL_PYTHON python3)
if(TUTTI_MANUAL_PYTHON AND NOT TUTTI_SANITIZER)
  set(manual ${CMAKE_BINARY_DIR}/manual)
  add_custom_command(
    OUTPUT ${manual}/completions/tutti
    COMMAND ${TUTTI_MANUAL_PYTHON} ${CMAKE_SOURCE_DIR}/deploy/manual
            $<TARGET_FILE_DIR:tuttid> ${manual} ${PROJECT_VERSION}
    DEPENDS tuttid tutti-cli ${CMAKE_SOURCE_DIR}/deploy/manual ${CMAKE_SOURCE_DIR}/docs/generate
    COMMENT "Manual pages and completions" VERBATIM)
  add_custom_target(manual ALL DEPENDS ${manual}/completions/tutti)
  install(DIRECTORY ${manual}/man DESTINATION ${CMAKE_INSTALL_DATADIR} COMPONENT system)
  install(DIRECTORY ${manual}/completions DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion
          COMPONENT system)
  install(DIRECTORY ${manual}/vendor-completions DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh COMPONENT system)
  install(DIRECTORY ${manual}/vendor_completions.d DESTINATION ${CMAKE_INSTALL_DATADIR}/fish COMPONENT system)
endif()
