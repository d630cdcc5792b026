# Defines the targets `tanren_jpeg`, `tanren_spng` and `tanren_utf8proc` for the system's libraries,
# which decode images and classify characters. Used by tanren's own build and, installed beside the
# package's config file, by projects that link tanren. Lists missing ones in TANREN_CODECS_MISSING.
set(TANREN_CODECS_MISSING "")
foreach(codec IN ITEMS jpeg:jpeglib.h spng:spng.h utf8proc:utf8proc.h)
  string(REPLACE ":" ";" codec "${codec}")
  list(GET codec 0 name)
  list(GET codec 1 header)
  find_library(TANREN_${name}_LIBRARY ${name})
  find_path(TANREN_${name}_INCLUDE ${header})
  mark_as_advanced(TANREN_${name}_LIBRARY TANREN_${name}_INCLUDE)
  if(NOT TANREN_${name}_LIBRARY OR NOT TANREN_${name}_INCLUDE)
    string(APPEND TANREN_CODECS_MISSING " lib${name} (Debian: lib${name}-dev)")
  elseif(NOT TARGET tanren_${name})
    add_library(tanren_${name} UNKNOWN IMPORTED)
    set_target_properties(tanren_${name} PROPERTIES
      IMPORTED_LOCATION "${TANREN_${name}_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${TANREN_${name}_INCLUDE}")
  endif()
endforeach()
