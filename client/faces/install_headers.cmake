# At `cmake --install`: <tutti/faces/burn.h> and so on, and all that they include, no more. Installed headers say
# "tutti/proto/types.h" where the source says "proto/types.h": a user's project may have a folder proto, too.
# Given: SOURCE, FACES, and HEADERS, the folder of tutti's headers.
cmake_policy(VERSION 3.25)
cmake_path(ABSOLUTE_PATH HEADERS BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}")

function(install_header name text)
  file(CONFIGURE OUTPUT "$ENV{DESTDIR}${HEADERS}/${name}" CONTENT "${text}" @ONLY)  # Writes only what is new.
  file(CHMOD "$ENV{DESTDIR}${HEADERS}/${name}" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES "${HEADERS}/${name}")
  set(CMAKE_INSTALL_MANIFEST_FILES ${CMAKE_INSTALL_MANIFEST_FILES} PARENT_SCOPE)
endfunction()

foreach(face IN LISTS FACES)
  install_header(faces/${face}.h "#include \"tutti/client/faces/${face}/${face}.h\"\n")
  list(APPEND headers client/faces/${face}/${face}.h)
endforeach()
set(seen client/tutti.h proto/tutti_types.h)  # Are installed anyway.
while(headers)
  list(POP_FRONT headers header)
  if(header IN_LIST seen)
    continue()
  endif()
  list(APPEND seen ${header})
  file(READ ${SOURCE}/${header} text)
  string(REGEX MATCHALL "#include \"[^\"]+" included "${text}")
  list(TRANSFORM included REPLACE "#include \"" "")
  list(APPEND headers ${included})
  string(REPLACE "#include \"" "#include \"tutti/" text "${text}")
  string(REPLACE "\"tutti/client/tutti.h\"" "\"tutti/tutti.h\"" text "${text}")
  install_header(${header} "${text}")
endwhile()
