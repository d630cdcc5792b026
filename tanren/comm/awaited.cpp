#include "tanren/comm/awaited.h"

#include <algorithm>
#include <string_view>

namespace tanren {

namespace {

constexpr const char* kWaited = " waited for ";

}  // namespace

std::string text_of_ranks(const std::vector<int>& ranks) {
  constexpr size_t kMostRanks = 8;
  const size_t num = std::min(ranks.size(), kMostRanks);
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < num; ++i) text += (i == 0 ? " " : ", ") + to_text(ranks[i]);
  if (ranks.size() > num) text += fmt::format(" and {} more", ranks.size() - num);
  return text;
}

int Waits::holder(int rank) const {
  std::vector<bool> seen(num_ranks, false);
  while (!seen[static_cast<size_t>(rank)]) {
    seen[static_cast<size_t>(rank)] = true;
    const int after = next(rank);
    if (after < 0) break;
    rank = after;
  }
  return rank;
}

std::string Waits::of_holder(int rank) const {
  if (has_left && has_left(rank)) return "it has left";
  const std::string awaited = what(rank);
  if (awaited.empty()) return "it waits for no other rank; its own code does not come back";
  if (next(rank) < 0) return "it waits itself for " + awaited + ", in which no other rank is late";
  return "it waits itself for " + awaited +
         "; these ranks wait for each other: their messages and sums do not match";
}

std::string Waits::of_late(int rank) const {
  const int last = holder(rank);
  if (last == rank) return of_holder(rank);
  return fmt::format("it waits for {}, and rank {}{} holds it up: {}", what(rank), last,
                     place ? ", at " + place(last) + "," : "", of_holder(last));
}

std::string told_while_waiting(const std::string& why, int rank, const Awaited& awaited) {
  if (awaited.rank < 0 || why.find(awaited.what) != std::string::npos) return why;
  return fmt::format("{}; rank {}{}{}", why, rank, kWaited, awaited.what);
}

std::string without_waits(const std::string& told) {
  const size_t waited = told.rfind(kWaited), begin = told.rfind("; rank ", waited);
  if (waited == std::string::npos || begin == std::string::npos) return told;
  const size_t number = begin + std::string_view("; rank ").size();
  const bool is_rank = number < waited && told.find_first_not_of("0123456789", number) == waited;
  return is_rank ? told.substr(0, begin) : told;
}

}  // namespace tanren
