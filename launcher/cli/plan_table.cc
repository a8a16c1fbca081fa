// The two forms, and what was held and what moved in either.
#include "launcher/cli/plan_table.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

namespace ddl::cli {
namespace {

using Json = nlohmann::ordered_json;

// ---- what was held, and what moved ---------------------------------------------

struct BatchNumber {
  const char* name = "";   // in JSON
  const char* title = "";  // in the table
  std::optional<std::int64_t> asked;
  std::int64_t actual = 0;
};

std::array<BatchNumber, 3> BatchNumbers(const plan::Request& request, const plan::Plan& plan) {
  return {{{"global_batch_size", "global", request.global_batch_size, plan.global_batch_size},
           {"micro_batch_size", "micro", request.micro_batch_size, plan.micro_batch_size},
           {"grad_accum_steps", "accum", request.grad_accum_steps, plan.grad_accum_steps}}};
}

// "global held; micro 4 -> 2"; where micro x accumulation x world is not the global
// batch, "3 ranks x 10 + 2 x 9".
std::string HeldAndMoved(const plan::Request& request, const plan::Plan& plan) {
  std::string held;
  std::string moved;
  for (const BatchNumber& number : BatchNumbers(request, plan)) {
    if (number.asked == number.actual) {
      absl::StrAppend(&held, held.empty() ? "" : " and ", number.title);
    } else if (number.asked.has_value()) {
      absl::StrAppend(&moved, moved.empty() ? "" : ", ", number.title, " ", *number.asked, " -> ",
                      number.actual);
    }
  }
  absl::StrAppend(&held, held.empty() ? "" : " held");
  if (!plan.even()) {
    absl::StrAppend(&held, held.empty() ? "" : ", ", plan::DescribeShares(plan));
  }
  return absl::StrCat(held, held.empty() || moved.empty() ? "" : "; ", moved);
}

// ---- the table -------------------------------------------------------------------

struct Column {
  std::string title;
  std::vector<std::string> cells;
  bool left = false;
};

using Columns = std::vector<Column>;

template <typename Cell>
void AddColumn(Columns& columns, const char* title, const std::vector<WorldPlan>& worlds,
               Cell cell) {
  Column column{title, {}};
  for (const WorldPlan& world : worlds) {
    column.cells.push_back(world.plan.ok() ? absl::StrCat(cell(*world.plan)) : "-");
  }
  columns.push_back(std::move(column));
}

bool Any(const std::vector<WorldPlan>& worlds, bool (*says)(const plan::Plan&)) {
  return std::any_of(worlds.begin(), worlds.end(),
                     [=](const WorldPlan& world) { return world.plan.ok() && says(*world.plan); });
}

Columns MakeColumns(const plan::Request& request, const std::vector<WorldPlan>& worlds) {
  using plan::Plan;
  Columns columns = {{"world", {}}};
  for (const WorldPlan& world : worlds) {
    columns[0].cells.push_back(absl::StrCat(world.world_size));
  }
  AddColumn(columns, "micro", worlds, [](const Plan& p) { return p.micro_batch_size; });
  AddColumn(columns, "accum", worlds, [](const Plan& p) { return p.grad_accum_steps; });
  AddColumn(columns, "global", worlds, [](const Plan& p) { return p.global_batch_size; });
  if (Any(worlds, [](const Plan& p) { return p.learning_rate.has_value(); })) {
    AddColumn(columns, "rate", worlds, [](const Plan& p) { return *p.learning_rate; });
  }
  if (Any(worlds, [](const Plan& p) { return p.warmup_samples > 0; })) {
    AddColumn(columns, "warm-up", worlds, [](const Plan& p) { return p.warmup_steps; });
  }
  if (Any(worlds, [](const Plan& p) { return p.total_samples > 0; })) {
    AddColumn(columns, "steps", worlds, [](const Plan& p) { return p.total_steps; });
  }
  if (request.scale_adam.value_or(false)) {
    AddColumn(columns, "beta1", worlds, [](const Plan& p) { return p.adam->beta1; });
    AddColumn(columns, "beta2", worlds, [](const Plan& p) { return p.adam->beta2; });
    AddColumn(columns, "eps", worlds, [](const Plan& p) { return p.adam->eps; });
  }
  Column words{"of what was asked for", {}, true};
  for (const WorldPlan& world : worlds) {
    words.cells.push_back(world.plan.ok() ? HeldAndMoved(request, *world.plan)
                                          : "no plan, see below");
  }
  columns.push_back(std::move(words));
  return columns;
}

void AppendCell(std::string& line, const std::string& text, std::size_t width, bool left) {
  constexpr std::string_view kGap = "  ";
  line.append(line.empty() ? "" : kGap);
  line.append(left ? 0 : width - text.size(), ' ');
  line.append(text);
}

std::string Lines(const Columns& columns) {
  std::vector<std::string> lines(1 + columns[0].cells.size());
  for (const Column& column : columns) {
    std::size_t width = column.title.size();
    for (const std::string& cell : column.cells) {
      width = std::max(width, cell.size());
    }
    AppendCell(lines[0], column.title, width, column.left);
    for (std::size_t i = 0; i < column.cells.size(); ++i) {
      AppendCell(lines[i + 1], column.cells[i], width, column.left);
    }
  }
  std::string text;
  for (const std::string& line : lines) {
    absl::StrAppend(&text, line.substr(0, line.find_last_not_of(' ') + 1), "\n");
  }
  return text;
}

std::vector<std::string> Words(const std::string& text) {
  return absl::StrSplit(text, ' ', absl::SkipEmpty());
}

// At most 100 columns, if the words allow it; further lines are indented.
std::string Wrapped(const std::string& text) {
  constexpr std::size_t kWidth = 100;
  std::string wrapped;
  std::size_t column = 0;
  for (const std::string& word : Words(text)) {
    if (column > 0 && column + 1 + word.size() > kWidth) {
      absl::StrAppend(&wrapped, "\n ");
      column = 1;
    }
    absl::StrAppend(&wrapped, column > 0 ? " " : "", word);
    column += (column > 0 ? 1 : 0) + word.size();
  }
  return wrapped + "\n";
}

// "world 3", "worlds 5..7, 9".
std::string WorldsText(const std::vector<std::int64_t>& worlds) {
  std::string text(worlds.size() == 1 ? "world" : "worlds");
  for (std::size_t i = 0; i < worlds.size();) {
    std::size_t last = i;
    while (last + 1 < worlds.size() && worlds[last + 1] == worlds[last] + 1) {
      ++last;
    }
    absl::StrAppend(&text, i == 0 ? " " : ", ", worlds[i]);
    if (last > i) {
      absl::StrAppend(&text, "..", worlds[last]);
    }
    i = last + 1;
  }
  return text;
}

// What is to be said below the table of one world: why it has no plan, or what its
// numbers do not show.
std::vector<std::string> Notes(const plan::Request& request, const WorldPlan& world) {
  return world.plan.ok() ? plan::Warnings(request, *world.plan)
                         : std::vector<std::string>{std::string(world.plan.status().message())};
}

// Each note once, for all worlds of which it is true.
std::string AllNotes(const plan::Request& request, const std::vector<WorldPlan>& worlds) {
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> notes;
  std::map<std::string, std::size_t> places;
  for (const WorldPlan& world : worlds) {
    for (const std::string& note : Notes(request, world)) {
      const auto place = places.emplace(note, notes.size()).first;
      if (place->second == notes.size()) {
        notes.emplace_back(note, std::vector<std::int64_t>());
      }
      notes[place->second].second.push_back(world.world_size);
    }
  }
  std::string text;
  for (const auto& [note, of] : notes) {
    absl::StrAppend(&text, Wrapped(absl::StrCat(WorldsText(of), ": ", note)));
  }
  return text;
}

// ---- JSON ---------------------------------------------------------------------------

// From the flags' own text, which has each number in the form that reads back.
Json RequestJson(const plan::Request& request) {
  Json json = Json::object();
  for (const std::string& word : Words(plan::Describe(request))) {
    const std::size_t equals = word.find('=');
    const std::string name = absl::StrReplaceAll(word.substr(2, equals - 2), {{"-", "_"}});
    const std::string text = word.substr(equals + 1);
    Json value = Json::parse(text, nullptr, false);
    json[name] = value.is_discarded() ? Json(text) : std::move(value);
  }
  return json;
}

Json BatchJson(const plan::Plan& plan) {
  const std::int64_t larger = plan.global_batch_size % plan.world_size;
  return {{"global_batch_size", plan.global_batch_size},
          {"micro_batch_size", plan.micro_batch_size},
          {"grad_accum_steps", plan.grad_accum_steps},
          {"rank_batch_sizes",
           {plan::RankBatchSize(plan, 0), plan::RankBatchSize(plan, plan.world_size - 1)}},
          {"ranks_with_the_largest", larger == 0 ? plan.world_size : larger},
          {"even", plan.even()}};
}

Json Unless(bool unknown, Json value) {
  return unknown ? Json() : std::move(value);
}

void AddScheduleJson(const plan::Plan& plan, Json& json) {
  const bool no_total = plan.total_samples == 0;
  const bool no_steps = plan.lr_decay != plan::LrDecay::kStep;
  json["learning_rate"] = Unless(!plan.learning_rate.has_value(), plan.learning_rate.value_or(0));
  json["warmup_samples"] = plan.warmup_samples;
  json["warmup_steps"] = plan.warmup_steps;
  json["warmup_start_lr"] = plan.warmup_start_lr;
  json["total_samples"] = Unless(no_total, plan.total_samples);
  json["total_steps"] = Unless(no_total, plan.total_steps);
  json["lr_decay"] = plan::ToString(plan.lr_decay);
  json["lr_decay_samples"] = Unless(no_steps, plan.lr_decay_samples);
  json["lr_decay_factor"] = Unless(no_steps, plan.lr_decay_factor);
  json["adam"] = nullptr;
  if (plan.adam.has_value()) {
    json["adam"] = {
        {"beta1", plan.adam->beta1}, {"beta2", plan.adam->beta2}, {"eps", plan.adam->eps}};
  }
}

Json WorldJson(const plan::Request& request, const WorldPlan& world) {
  Json json = {{"world_size", world.world_size}};
  if (!world.plan.ok()) {
    json["error"] = std::string(world.plan.status().message());
    return json;
  }
  json.update(BatchJson(*world.plan));
  AddScheduleJson(*world.plan, json);
  json["hash"] = plan::Hash(*world.plan);
  json["held"] = Json::array();
  json["moved"] = Json::object();
  for (const BatchNumber& number : BatchNumbers(request, *world.plan)) {
    if (number.asked == number.actual) {
      json["held"].push_back(number.name);
    } else if (number.asked.has_value()) {
      json["moved"][number.name] = {{"asked", *number.asked}, {"actual", number.actual}};
    }
  }
  const std::string remark = plan::Compare(request, *world.plan);
  json["remark"] = Unless(remark.empty(), remark);
  json["warnings"] = plan::Warnings(request, *world.plan);
  return json;
}

}  // namespace

std::string PlanTable(const plan::Request& request, const std::vector<WorldPlan>& worlds) {
  return Lines(MakeColumns(request, worlds)) + AllNotes(request, worlds);
}

std::string PlanJson(const plan::Request& request, const std::vector<WorldPlan>& worlds) {
  constexpr int kIndent = 2;
  Json json = {{"request", RequestJson(request)}, {"worlds", Json::array()}};
  for (const WorldPlan& world : worlds) {
    json["worlds"].push_back(WorldJson(request, world));
  }
  return json.dump(kIndent) + "\n";
}

}  // namespace ddl::cli
