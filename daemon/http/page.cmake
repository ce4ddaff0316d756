# The page is a file of its own, so that editors and browsers know it, and a string in the agent.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/http/page.html)
file(READ ${CMAKE_CURRENT_SOURCE_DIR}/http/page.html PAGE_HTML)
configure_file(${CMAKE_CURRENT_SOURCE_DIR}/http/page.cc.in ${CMAKE_CURRENT_BINARY_DIR}/http/page.cc @ONLY)
target_sources(tutti_http PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/http/page.cc)
