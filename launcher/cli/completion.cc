// The scripts' fixed parts, and the tables in them that come from the flags.
//
// The protocols: "Programmable Completion" in bash(1); zshcompsys(1), _arguments
// and _values.
#include "launcher/cli/completion.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "launcher/cli/flags.h"

namespace ddl::cli {
namespace {

// What a flag's value is, as far as a shell can help with it.
enum class ValueKind : std::uint8_t { kNone, kOther, kWords, kFile, kDirectory };

ValueKind KindOf(const FlagSpec& flag) {
  if (!flag.takes_value()) {
    return ValueKind::kNone;
  }
  if (!flag.choices.empty()) {
    return ValueKind::kWords;
  }
  if (flag.value_name == "FILE") {
    return ValueKind::kFile;
  }
  return flag.value_name == "DIR" ? ValueKind::kDirectory : ValueKind::kOther;
}

// What a shell offers; not what would be refused anyway.
bool IsOffered(const FlagSpec& flag, Command command) {
  return flag.BelongsTo(command) && flag.group != FlagGroup::kRefused;
}

// ---- bash -----------------------------------------------------------------------

constexpr std::string_view kBashHead =
    R"(# bash completion for ddlaunch, made by: ddlaunch --print-completion bash
# For this shell:  source <(ddlaunch --print-completion bash)
# For all of them: ddlaunch --print-completion bash \
#                    > ~/.local/share/bash-completion/completions/ddlaunch

# What the value of flag $1 may be: sets choices, list (several of them) and kind.
_ddlaunch_value() {
  choices='' list='' kind=''
  case $1 in
)";

constexpr std::string_view kBashMiddle = R"(  esac
}

_ddlaunch() {
)";

// Bash splits at = and : too (COMP_WORDBREAKS), and replaces only the last piece.
constexpr std::string_view kBashTail = R"(
  # The words up to the cursor, put together again.
  local -a words=()
  local left=$COMP_LINE piece i
  for ((i = 0; i <= COMP_CWORD; i++)); do
    piece=${COMP_WORDS[i]}
    if ((i == 0)) || [[ $left == [[:space:]]* ]]; then
      left=${left#"${left%%[![:space:]]*}"}
      words+=('')
    fi
    if ((i == COMP_CWORD)); then
      piece=${piece:0:COMP_POINT - (${#COMP_LINE} - ${#left})}
    fi
    left=${left#"$piece"}
    words[-1]+=$piece
  done
  [[ $piece == *[!=:]* ]] || piece=''

  local current=${words[-1]} last=$((${#words[@]} - 1)) flags=$launch
  i=1
  if ((last > 1)) && [[ ${words[1]} =~ ^(coordinator|plan|tune)$ ]]; then
    flags=${!words[1]} i=2
  fi

  # Where the cursor is: at a flag's value, at the program's own words, or else.
  local word flag='' value=$current in_program=''
  for (( ; i < last; i++)); do
    word=${words[i]}
    if [[ $word == -- ]]; then
      ((i + 1 == last)) || in_program=1
      flag=--
      break
    elif [[ $word == --* ]]; then
      word=${word//_/-}
      [[ $word != *=* && " $flags " == *" $word= "* ]] || continue
    elif [[ $word == -?* ]]; then
      [[ " $valued " == *" $word "* ]] || continue
    else
      in_program=1
      break
    fi
    ((++i == last)) && flag=$word
  done
  if [[ $in_program ]]; then
    compopt -o default
    return
  fi
  if [[ ! $flag && $current == --*=* ]]; then
    flag=${current%%=*} value=${current#*=}
    flag=${flag//_/-}
  fi

  local before=${current%"$value"} choices list kind name
  local -a found=()
  if [[ $flag && $flag != -- ]]; then
    _ddlaunch_value "$flag"
    if [[ $list && $value == *,* ]]; then
      before+=${value%,*}, value=${value##*,}
    fi
    case $kind in
      file) mapfile -t found < <(compgen -f -- "$value") ;;
      dir) mapfile -t found < <(compgen -d -- "$value") ;;
      *) mapfile -t found < <(compgen -W "$choices" -- "$value") ;;
    esac
    [[ $kind ]] && compopt -o filenames
  elif [[ $flag != -- && $current == -* ]]; then
    for name in $flags; do
      if [[ $current == --*_* ]]; then
        name=${name#--} name=--${name//-/_}
      fi
      [[ $name == "$current"* ]] && found+=("$name")
    done
  else
    mapfile -t found < <(compgen -f -- "$current")
    if ((last == 1)); then
      for name in coordinator plan tune; do
        [[ $name == "$current"* ]] && found+=("$name")
      done
    fi
    compopt -o filenames
  fi

  local skip=$((${#current} - ${#piece}))
  COMPREPLY=()
  for name in "${found[@]}"; do
    name=$before$name
    [[ $flag || $current == -* ]] && name=${name:skip}
    COMPREPLY+=("$name")
  done
  [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
  return 0
}

complete -F _ddlaunch ddlaunch
)";

std::string BashValueCase(const FlagSpec& flag) {
  std::string names = absl::StrCat("--", std::string(flag.name));
  if (flag.short_name != 0) {
    absl::StrAppend(&names, " | -", std::string(1, flag.short_name));
  }
  std::string sets;
  switch (KindOf(flag)) {
    case ValueKind::kNone:
    case ValueKind::kOther:
      return "";
    case ValueKind::kWords:
      sets = absl::StrCat("choices='", std::string(flag.choices), "'",
                          flag.takes_list() ? " list=1" : "");
      break;
    case ValueKind::kFile:
      sets = "kind=file";
      break;
    case ValueKind::kDirectory:
      sets = "kind=dir";
      break;
  }
  return absl::StrCat("    ", names, ") ", sets, " ;;\n");
}

// "--nnodes= --standalone -m": a flag that takes a value ends with =.
std::string BashFlags(Command command) {
  std::string words;
  for (const FlagSpec& flag : AllFlags()) {
    if (IsOffered(flag, command)) {
      absl::StrAppend(&words, words.empty() ? "" : " ", "--", std::string(flag.name),
                      flag.takes_value() ? "=" : "");
    }
  }
  return words;
}

std::string ShortFlagsWithValue() {
  std::string words;
  for (const FlagSpec& flag : AllFlags()) {
    if (flag.short_name != 0 && flag.takes_value()) {
      absl::StrAppend(&words, words.empty() ? "-" : " -", std::string(1, flag.short_name));
    }
  }
  return words;
}

std::string BashScript() {
  std::string script(kBashHead);
  for (const FlagSpec& flag : AllFlags()) {
    absl::StrAppend(&script, BashValueCase(flag));
  }
  absl::StrAppend(&script, std::string(kBashMiddle));
  absl::StrAppend(&script, "  local launch='", BashFlags(Command::kLaunch), "'\n");
  absl::StrAppend(&script, "  local coordinator='", BashFlags(Command::kCoordinator), "'\n");
  absl::StrAppend(&script, "  local plan='", BashFlags(Command::kPlan), "'\n");
  absl::StrAppend(&script, "  local tune='", BashFlags(Command::kTune), "'\n");
  absl::StrAppend(&script, "  local valued='", ShortFlagsWithValue(), "'\n");
  return script.append(kBashTail);
}

// ---- zsh ------------------------------------------------------------------------

constexpr std::string_view kZshHead = R"(#compdef ddlaunch
# zsh completion for ddlaunch, made by: ddlaunch --print-completion zsh
# For this shell:  source <(ddlaunch --print-completion zsh)
# For all of them: ddlaunch --print-completion zsh > DIR/_ddlaunch, DIR being one of
#                  $fpath, named there before compinit

_ddlaunch_program() {
  (( CURRENT == 2 )) && compadd -- coordinator plan tune
  _files
}

_ddlaunch() {
  local -a launch coordinator plan tune flags
  local i name
)";

// A flag may be written with _ for -, which _arguments does not know.
constexpr std::string_view kZshTail = R"(
  flags=($launch)
  if (( CURRENT > 2 )) && [[ $words[2] == (coordinator|plan|tune) ]]; then
    flags=(${(P)words[2]})
    shift words
    (( CURRENT-- ))
    [[ $words[1] == tune ]] && flags+=('1:program:_files' '*::argument: _files')
  else
    flags+=('1:program:_ddlaunch_program' '*::argument: _files')
  fi
  for (( i = 2; i <= CURRENT; i++ )); do
    [[ $words[i] == --?* ]] || continue
    name=${words[i]%%=*}
    (( ${flags[(I)*${name//_/-}*]} )) || continue
    words[i]=${name//_/-}${words[i]#$name}
    (( i == CURRENT )) && PREFIX=${words[i]}
  done
  _arguments -s -S -A '-*' $flags
}

if [[ ${funcstack[1]} == _ddlaunch ]]; then
  _ddlaunch "$@"
else
  compdef _ddlaunch ddlaunch
fi
)";

// A text inside '...' and a spec of _arguments, where [ ] and : have a meaning.
std::string ZshText(std::string_view text) {
  return absl::StrReplaceAll(
      std::string(text),
      {{"\\", "\\\\"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}, {"'", "'\\''"}});
}

std::string ZshAction(const FlagSpec& flag) {
  switch (KindOf(flag)) {
    case ValueKind::kNone:
      return "";
    case ValueKind::kOther:
      return absl::StrCat(":", ZshText(flag.value_name), ":");
    case ValueKind::kFile:
      return ":file:_files";
    case ValueKind::kDirectory:
      return ":directory:_files -/";
    case ValueKind::kWords:
      break;
  }
  std::string words;
  for (std::string_view word : ChoicesOf(flag)) {
    const bool has_value = word.ends_with('=');
    word.remove_suffix(has_value ? 1 : 0);
    absl::StrAppend(&words, " ", std::string(word), has_value ? "\\:value\\:" : "");
  }
  return flag.takes_list()
             ? absl::StrCat(":value:_values -s , value", words)
             : absl::StrCat(":", ZshText(flag.value_name), ":(", words.substr(1), ")");
}

std::string ZshSpecs(const FlagSpec& flag) {
  const std::string name = absl::StrCat("--", std::string(flag.name));
  const std::string rest = absl::StrCat("[", ZshText(flag.help), "]", ZshAction(flag), "'\n");
  const char* const joint = flag.takes_value() ? "=" : "";
  if (flag.short_name == 0) {
    return absl::StrCat("    '", name, joint, rest);
  }
  const std::string short_name = absl::StrCat("-", std::string(1, flag.short_name));
  const std::string either = absl::StrCat("    '(", short_name, " ", name, ")");
  return absl::StrCat(either, short_name, flag.takes_value() ? "+" : "", rest, either, name, joint,
                      rest);
}

std::string ZshScript() {
  std::string script(kZshHead);
  struct List {
    Command command;
    std::string_view name;
  };
  constexpr std::array<List, 4> kLists = {{{Command::kLaunch, "launch"},
                                           {Command::kCoordinator, "coordinator"},
                                           {Command::kPlan, "plan"},
                                           {Command::kTune, "tune"}}};
  for (const List& list : kLists) {
    absl::StrAppend(&script, "  ", std::string(list.name), "=(\n");
    for (const FlagSpec& flag : AllFlags()) {
      absl::StrAppend(&script, IsOffered(flag, list.command) ? ZshSpecs(flag) : "");
    }
    absl::StrAppend(&script, "  )\n");
  }
  return script.append(kZshTail);
}

}  // namespace

absl::StatusOr<std::string> CompletionScript(std::string_view shell) {
  if (shell == "bash") {
    return BashScript();
  }
  if (shell == "zsh") {
    return ZshScript();
  }
  return absl::InvalidArgumentError(
      shell == "tcsh" ? "there is none for tcsh, only for bash and zsh" : "must be bash or zsh");
}

}  // namespace ddl::cli
