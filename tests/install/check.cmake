# Installs the client from BUILD, builds a user's project against it and runs it, and imports the Python package from
# there. Run: cmake -DBUILD=... -DSOURCE=... -DCC=... -DCXX=... [-DPYTHON=...] -P check.cmake
set(PREFIX ${BUILD}/install-check/prefix)
set(PROJECT ${BUILD}/install-check/project)
file(REMOVE_RECURSE ${BUILD}/install-check)

function(run)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=TUTTI_RANK --unset=TUTTI_LIBRARY --unset=PYTHONPATH ${ARGN}
                  COMMAND_ERROR_IS_FATAL ANY)
endfunction()

foreach(component library development python)
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX} --component ${component})
endforeach()
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${PROJECT} -DCMAKE_PREFIX_PATH=${PREFIX})
run(${CMAKE_COMMAND} --build ${PROJECT})
run(${PROJECT}/consumer_c)
run(${PROJECT}/consumer_cxx)
foreach(face average_gradients burn cross_device distribute)
  run(${BUILD}/bin/tutti run --per-host 1 -- ${PROJECT}/${face})
endforeach()
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${PROJECT} -DMORE_COMPONENTS=absent ERROR_VARIABLE errors)
if(NOT errors MATCHES "tutti has no component \"absent\", only \"faces\"")
  message(FATAL_ERROR "An unknown component: ${errors}")
endif()
# With no flag but the library's name, as where the prefix is /usr.
file(GLOB_RECURSE library ${PREFIX}/libtutti.so)
cmake_path(GET library PARENT_PATH libraries)
set(found CPATH=${PREFIX}/include LIBRARY_PATH=${libraries} LD_LIBRARY_PATH=${libraries})
run(${found} ${CC} ${SOURCE}/consumer_c.c -o ${PROJECT}/plain_c -ltutti)
run(${found} ${CXX} -std=c++20 ${SOURCE}/consumer_cxx.cc -o ${PROJECT}/plain_cxx -ltutti)
set(strict -Wall -Wextra -Wpedantic -Werror)
run(${found} ${CXX} -std=c++20 ${strict} ${SOURCE}/consumer_faces.cc -o ${PROJECT}/plain_faces -ltutti_faces -ltutti)
run(${found} ${PROJECT}/plain_c)
run(${found} ${PROJECT}/plain_cxx)
run(${found} ${BUILD}/bin/tutti run --per-host 1 -- ${PROJECT}/plain_faces)
if(PYTHON)
  run(PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=${PREFIX}/share/tutti/python ${PYTHON} -c
      "import tutti._library as a, tutti._frameworks as b
for name in (a.library._name, b.library._name): assert name.startswith('${PREFIX}'), name")
endif()
