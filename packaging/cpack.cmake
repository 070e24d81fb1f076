# Debian packages: vudad (daemon and tools), libvuda (what programs load), libvuda-dev (what they are built with), vuda-probe-pair (what
# `vuda-probe limit` runs on a real GPU). scripts/package.sh builds them; -DCMAKE_INSTALL_PREFIX=/usr and without benchmarks. Each one's
# files are listed in debian/PACKAGE/files, which the test `installed_files` and scripts/check_package.sh compare.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME vuda)
set(CPACK_PACKAGE_VENDOR "The VUDA authors")
set(CPACK_PACKAGE_CONTACT "The VUDA authors <vuda@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_STRIP_FILES ON)
# The configuration has an absolute place, /etc.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_COMPONENTS_ALL vudad libvuda libvuda-dev)
if(TARGET vuda-probe-pair)
    list(APPEND CPACK_COMPONENTS_ALL vuda-probe-pair)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(debian ${PROJECT_SOURCE_DIR}/packaging/debian)
set(version "${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}")

set(CPACK_DEBIAN_VUDAD_PACKAGE_NAME vudad)
set(CPACK_DEBIAN_VUDAD_PACKAGE_SECTION admin)
# The users and groups are made by systemd-sysusers.
set(CPACK_DEBIAN_VUDAD_PACKAGE_DEPENDS "libvuda (= ${version}), systemd | systemd-standalone-sysusers, passwd")
set(CPACK_DEBIAN_VUDAD_PACKAGE_SUGGESTS vuda-probe-pair)
set(CPACK_DEBIAN_VUDAD_PACKAGE_CONTROL_EXTRA
    "${debian}/vudad/postinst;${debian}/vudad/prerm;${debian}/vudad/postrm;${debian}/vudad/conffiles")
set(CPACK_COMPONENT_VUDAD_DESCRIPTION
"Daemon and tools: vudad keeps the timeslice groups of renderers that want to
share their GPU, and hands them to the CUDA programs that may run in them.
vudactl runs unmodified programs so that they share, and shows and steers who
shares with whom. A simulated GPU, for machines without one, is included.")

set(CPACK_DEBIAN_LIBVUDA_PACKAGE_NAME libvuda)
set(CPACK_DEBIAN_LIBVUDA_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBVUDA_PACKAGE_CONTROL_EXTRA "${debian}/libvuda/shlibs;${debian}/libvuda/triggers")
set(CPACK_COMPONENT_LIBVUDA_DESCRIPTION
"What programs load to share a GPU through vudad: the preloaded shim and the
Vulkan layer, which vudactl enables for unmodified programs, and libvuda.so for
those that want to ask themselves. Programs that are not started through
vudactl notice none of them.")

set(CPACK_DEBIAN_LIBVUDA-DEV_PACKAGE_NAME libvuda-dev)
set(CPACK_DEBIAN_LIBVUDA-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBVUDA-DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_LIBVUDA-DEV_PACKAGE_DEPENDS "libvuda (= ${version})")
set(CPACK_COMPONENT_LIBVUDA-DEV_DESCRIPTION
"Headers of libvuda.so (C, and a wrapper for C++), and what pkg-config and CMake
need to find it.")

set(CPACK_DEBIAN_VUDA-PROBE-PAIR_PACKAGE_NAME vuda-probe-pair)
set(CPACK_DEBIAN_VUDA-PROBE-PAIR_PACKAGE_SECTION utils)
# vuda-probe of the same version, and with it the shim.
set(CPACK_DEBIAN_VUDA-PROBE-PAIR_PACKAGE_DEPENDS "vudad (= ${version})")
set(CPACK_COMPONENT_VUDA-PROBE-PAIR_DESCRIPTION
"What vuda-probe runs to look how much shared memory a kernel may use beside
graphics on this machine's NVIDIA GPU: a small Vulkan renderer and a CUDA
context in one process.")

# Copyright and changelogs. The date is SOURCE_DATE_EPOCH's where it is set, so that the same commit makes the same package.
find_program(VUDA_GZIP gzip)
if(VUDA_GZIP)
    string(TIMESTAMP VUDA_DEBIAN_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
    set(VUDA_DEBIAN_VERSION ${version})
    set(VUDA_DEBIAN_CONTACT ${CPACK_PACKAGE_CONTACT})
    configure_file(${debian}/changelog.in ${CMAKE_CURRENT_BINARY_DIR}/changelog.Debian @ONLY)
    configure_file(${PROJECT_SOURCE_DIR}/CHANGELOG.md ${CMAKE_CURRENT_BINARY_DIR}/changelog COPYONLY)
    foreach(name changelog changelog.Debian)
        execute_process(COMMAND ${VUDA_GZIP} -9nkf ${CMAKE_CURRENT_BINARY_DIR}/${name} COMMAND_ERROR_IS_FATAL ANY)
    endforeach()
    foreach(package IN LISTS CPACK_COMPONENTS_ALL)
        install(FILES ${debian}/copyright ${CMAKE_CURRENT_BINARY_DIR}/changelog.gz ${CMAKE_CURRENT_BINARY_DIR}/changelog.Debian.gz
                DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${package})
    endforeach()
    foreach(package IN LISTS CPACK_COMPONENTS_ALL)
        install(FILES ${debian}/${package}/lintian-overrides DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides
                RENAME ${package} COMPONENT ${package})
    endforeach()
endif()

include(CPack)
