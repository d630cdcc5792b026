#include "tanren/data/text/records.h"

#include "tanren/base/text.h"

#include <algorithm>
#include <unordered_set>

namespace tanren {

namespace {

constexpr std::string_view kDelimiters = ",;\t|";

// How often a delimiter stands outside quotes.
int64_t times_outside_quotes(std::string_view header, char delimiter) {
  int64_t count = 0;
  bool quoted = false;
  for (const char c : header) {
    if (c == '"') quoted = !quoted;
    if (c == delimiter && !quoted) ++count;
  }
  return count;
}

}  // namespace

bool OpenQuote::at_end_of(std::string_view record) {
  for (; at_ < record.size(); ++at_) {
    const char c = record[at_];
    if (state_ == State::quoted) {
      if (c == '"') state_ = State::closed;
    } else if (state_ == State::closed && c == '"') {
      state_ = State::quoted;  // a quote inside the cell
    } else if (c == delimiter_) {
      state_ = State::before;
    } else if (state_ == State::before && c == '"') {
      state_ = State::quoted;
      opened_ = at_;
    } else if ((c != ' ' && c != '\t') || state_ == State::closed) {
      state_ = State::plain;
    }
  }
  return state_ == State::quoted;
}

bool Cells::split(std::string_view record, char delimiter) {
  cells_.clear();
  problem_.clear();
  unquoted_.clear();
  unquoted_.reserve(record.size());  // cells are parts of it, so it must not move
  const bool quotes = delimiter != '\t';
  const auto place_of = [&](char c, size_t from) {
    return std::min(record.find(c, from), record.size());
  };
  const auto after_blanks = [&](size_t from) {
    return std::min(record.find_first_not_of(" \t", from), record.size());
  };
  for (size_t at = 0;; ++at) {
    const size_t begin = quotes ? after_blanks(at) : at;
    if (quotes && begin < record.size() && record[begin] == '"') {
      const size_t start = unquoted_.size();
      bool is_open = true;
      for (at = begin + 1; is_open;) {
        const size_t quote = record.find('"', at);
        if (quote == std::string_view::npos) return false;
        const bool is_doubled = quote + 1 < record.size() && record[quote + 1] == '"';
        unquoted_ += record.substr(at, quote - at + (is_doubled ? 1 : 0));
        at = quote + (is_doubled ? 2 : 1);
        is_open = is_doubled;
      }
      cells_.push_back(std::string_view(unquoted_).substr(start));
      at = after_blanks(at);
      if (at < record.size() && record[at] != delimiter) {
        const std::string_view rest = record.substr(at);
        if (problem_.empty()) {
          problem_ = "a cell goes on after its closing quote with \"" +
                     std::string(trimmed(rest.substr(0, std::min<size_t>(rest.find('\n'), 20)))) +
                     "\"; write quotes inside a cell twice (\"\")";
        }
        at = place_of(delimiter, at);
      }
    } else {
      const size_t end = place_of(delimiter, at);
      cells_.push_back(record.substr(at, end - at));
      at = end;
    }
    if (at >= record.size()) return true;
  }
}

bool RecordReader::begin(std::string& record, char delimiter) {
  const bool skips_blank = skips_blank_ && delimiter != '\t';  // with tabs, a row may be only tabs
  do {
    if (!lines_.next(record)) return false;
  } while (record.empty() || (skips_blank && trimmed(record).empty()));
  line_ = lines_.number();
  return true;
}

RecordReader::Found RecordReader::complete(std::string& record, char delimiter) {
  if (delimiter == '\t' || record.find('"') == std::string::npos) return Found::record;
  OpenQuote quote(delimiter);
  while (quote.at_end_of(record)) {
    record += lines_.ending();
    if (record.size() >= longest_ || !lines_.next(more_)) {
      const auto before = record.begin() + static_cast<std::ptrdiff_t>(quote.opened());
      quote_place_ = quote.opened();
      quote_line_ = line_ + std::count(record.begin(), before, '\n');
      return Found::open_quote;
    }
    record += more_;
  }
  return Found::record;
}

void RecordReader::complete_first_cell(std::string& record, const SourceOptions& options) {
  const bool has_tabs = options.delimiter == "tab" || options.delimiter == "\t";
  if (!has_tabs && trimmed(record).starts_with('"')) complete(record, /*delimiter=*/'\0');
}

RecordReader::Found RecordReader::next(std::string& record, char delimiter) {
  return begin(record, delimiter) ? complete(record, delimiter) : Found::end;
}

bool is_tsv(const std::filesystem::path& file) {
  std::string end = file.extension().string();
  for (char& c : end) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return end == ".tsv";
}

char delimiter_of(std::string_view header, const SourceOptions& options, bool tabs,
                  const std::vector<std::string>& wanted, bool decimal_comma) {
  if (!options.delimiter.empty()) {
    return options.delimiter == "tab" ? '\t' : options.delimiter.front();
  }
  Cells cells;
  const auto fits = [&](char delimiter) {
    cells.split(header, delimiter);
    if (!cells.problem().empty()) return false;
    std::unordered_set<std::string_view> names;
    for (const std::string_view cell : cells) names.insert(trimmed(cell));
    return std::all_of(wanted.begin(), wanted.end(),
                       [&](const std::string& name) { return names.contains(name); });
  };
  if (tabs && (header.find('\t') != std::string_view::npos || fits('\t'))) return '\t';
  std::string_view candidates = kDelimiters;
  if (decimal_comma) candidates.remove_prefix(1);
  if (!wanted.empty()) {
    for (const char delimiter : candidates) {
      if (fits(delimiter)) return delimiter;
    }
  }
  return *std::max_element(candidates.begin(), candidates.end(), [&](char a, char b) {
    return times_outside_quotes(header, a) < times_outside_quotes(header, b);
  });
}

}  // namespace tanren
