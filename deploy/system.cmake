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
