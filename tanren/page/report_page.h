// The frame of the report's page: style, script, escaping. The page contains everything that it
// needs, loads nothing, and is black on white, so that it can be printed.
#pragma once

#include <string>
#include <string_view>

namespace tanren {

// For text and for attributes in double quotes.
std::string escaped(std::string_view text);
// From the doctype to the opened body; `title` is escaped here.
std::string page_head(std::string_view title);
// An element with this id and JSON that a script of the page reads. No text in `json` can close the
// element.
std::string json_element(std::string_view id, std::string_view json);
// The end of the page, with `script` in it. The page must be readable without the script. `script`
// must not contain "</script".
std::string page_end(std::string_view script = {});

}  // namespace tanren
