// Finding the program, and refusing what cannot be run with its reason.
#include "launcher/cli/program.h"

#include "launcher/exit_code.h"
#include "tests/unit/cli/cli_fixture.h"

namespace ddl::cli {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;

class Program : public CliTest {
 protected:
  Program() { python_ = WriteFile("path/python3", "#!/bin/sh\n", true); }

  std::vector<std::string> Argv(const std::vector<std::string>& args) const {
    return Launch(args).config.argv;
  }
  std::string Refused(const std::vector<std::string>& args, int exit_code) const {
    const absl::Status status = Parse(args).status();
    EXPECT_EQ(ExitCodeFor(status), exit_code) << status;
    return std::string(status.message());
  }

  std::string python_;
};

TEST_F(Program, PythonScript_RunsByPython3OfPath) {  // 5, 6
  WriteFile("cwd/tr ain.py", "", false);
  const LaunchCommand command = Launch({"./tr ain.py", "x"});
  EXPECT_THAT(command.config.argv, ElementsAre(python_, "-u", "./tr ain.py", "x"));
  EXPECT_EQ(command.config.program_name, "./tr ain.py");
  EXPECT_EQ(command.config.cwd, "") << "the caller's directory is kept";
  EXPECT_THAT(TextsOf(command.notices), Contains("./tr ain.py runs by " + python_));
}

TEST_F(Program, PythonExec_WinsOverPath) {
  WriteFile("cwd/t.py", "", false);
  const std::string other = WriteFile("venv/bin/python", "#!/bin/sh\n", true);
  around_.environment["PYTHON_EXEC"] = other;
  EXPECT_THAT(Argv({"t.py"}), ElementsAre(other, "-u", "t.py"));
  around_.environment["PYTHON_EXEC"] = "python3";
  EXPECT_THAT(Argv({"t.py"}), ElementsAre(python_, "-u", "t.py"));
  around_.environment["PYTHON_EXEC"] = "/nowhere/python";
  EXPECT_THAT(Refused({"t.py"}, kNotFound), HasSubstr("PYTHON_EXEC=/nowhere/python"));
}

TEST_F(Program, NoPythonOnPath_IsSaid) {
  WriteFile("cwd/t.py", "", false);
  around_.environment["PATH"] = dir_ + "/self";
  EXPECT_THAT(Refused({"t.py"}, kNotFound), HasSubstr("no python3 on PATH"));
}

TEST_F(Program, MissingScript_IsNotFound) {
  EXPECT_THAT(Refused({"none.py"}, kNotFound), AllOf(HasSubstr("none.py"), HasSubstr("/cwd")));
}

TEST_F(Program, ScriptThatLooksLikeAFlag_IsNoFlagOfPython) {
  WriteFile("cwd/-x.py", "", false);
  EXPECT_THAT(Argv({"--", "-x.py", "a"}), ElementsAre(python_, "-u", "./-x.py", "a"));
}

TEST_F(Program, Module_RunsByDashM) {  // 5
  EXPECT_THAT(Argv({"-m", "pkg.mod", "a"}), ElementsAre(python_, "-u", "-m", "pkg.mod", "a"));
}

TEST_F(Program, RunPath_RunsByRunpy) {
  WriteFile("cwd/script", "", false);
  EXPECT_THAT(Argv({"--run-path", "script", "a"}),
              ElementsAre(python_, "-u", "-c", HasSubstr("runpy.run_path"), "script", "a"));
}

TEST_F(Program, NoPython_RunsAPyFileDirectly) {
  const std::string script = WriteFile("cwd/t.py", "#!/bin/sh\n", true);
  EXPECT_THAT(Argv({"--no-python", "t.py"}), ElementsAre(script));
}

TEST_F(Program, ExecutableByPath_RunsDirectly) {
  const std::string script = WriteFile("cwd/sub/run.sh", "#!/bin/sh\n", true);
  EXPECT_THAT(Argv({"./sub/run.sh", "a", "b c"}),
              ElementsAre(dir_ + "/cwd/./sub/run.sh", "a", "b c"));
  EXPECT_THAT(Argv({script}), ElementsAre(script));
  EXPECT_THAT(Argv({"/bin/true"}), ElementsAre("/bin/true"));
}

TEST_F(Program, BareName_IsLookedForHereThenOnPathThenBesideDdlaunch) {
  const std::string beside = WriteFile("self/train_bin", "#!/bin/sh\n", true);
  EXPECT_THAT(Argv({"train_bin"}), ElementsAre(beside));
  const std::string on_path = WriteFile("path/train_bin", "#!/bin/sh\n", true);
  EXPECT_THAT(Argv({"train_bin"}), ElementsAre(on_path));
  const std::string here = WriteFile("cwd/train_bin", "#!/bin/sh\n", true);
  EXPECT_THAT(Argv({"train_bin"}), ElementsAre(here));
}

TEST_F(Program, BareNameOfADirectoryOrPlainFileHere_DoesNotHideTheProgramOnPath) {
  std::filesystem::create_directories(dir_ + "/cwd/tool");
  const std::string tool = WriteFile("path/tool", "#!/bin/sh\n", true);
  EXPECT_THAT(Argv({"tool"}), ElementsAre(tool));
  WriteFile("cwd/other", "text", false);
  const std::string other = WriteFile("path/other", "#!/bin/sh\n", true);
  EXPECT_THAT(Argv({"other"}), ElementsAre(other));
}

TEST_F(Program, PathWithRelativeAndEmptyEntries_MeansTheCurrentDirectory) {
  around_.environment["PATH"] = "bin:";
  const std::string tool = WriteFile("cwd/bin/tool", "#!/bin/sh\n", true);
  EXPECT_THAT(Argv({"tool"}), ElementsAre(tool));
}

TEST_F(Program, MissingProgram_SaysWhereWasLooked) {
  EXPECT_EQ(Refused({"train_bin"}, kNotFound),
            "train_bin: no such program in the current directory, on PATH or beside ddlaunch");
  EXPECT_THAT(Refused({"./train_bin"}, kNotFound), HasSubstr("./train_bin: no such program"));
}

TEST_F(Program, NotExecutable_SuggestsChmod) {
  const std::string path = WriteFile("cwd/run.sh", "#!/bin/sh\n", false);
  EXPECT_THAT(Refused({"run.sh"}, kNotExecutable), HasSubstr("chmod +x " + path));
  EXPECT_THAT(Refused({"./run.sh"}, kNotExecutable), HasSubstr("not executable"));
}

TEST_F(Program, Directory_IsRefused) {
  std::filesystem::create_directories(dir_ + "/cwd/pkg");
  EXPECT_THAT(Refused({"pkg"}, kNotExecutable), HasSubstr("a directory"));
  EXPECT_THAT(Refused({"./pkg"}, kNotExecutable), HasSubstr("a directory"));
}

TEST_F(Program, MissingInterpreter_IsNamed) {
  WriteFile("cwd/a.sh", "#!/opt/none/bash -e\n", true);
  EXPECT_THAT(Refused({"./a.sh"}, kNotFound), HasSubstr("interpreter /opt/none/bash"));
  WriteFile("cwd/b.sh", "#!/usr/bin/env nonesuch\n", true);
  EXPECT_THAT(Refused({"./b.sh"}, kNotFound), HasSubstr("interpreter nonesuch is not on PATH"));
  WriteFile("cwd/c.sh", "#!/bin/sh\r\necho\r\n", true);
  EXPECT_THAT(Refused({"./c.sh"}, kNotFound), HasSubstr("CR LF"));
  WriteFile("cwd/d.sh", "#!\n", true);
  EXPECT_THAT(Refused({"./d.sh"}, kNotExecutable), HasSubstr("without an interpreter"));
}

TEST_F(Program, ExecutableTextWithoutInterpreter_IsRefused) {
  WriteFile("cwd/text", "echo hello\n", true);
  EXPECT_THAT(Refused({"./text"}, kNotExecutable), HasSubstr("#!/bin/sh"));
  WriteFile("cwd/empty", "", true);
  EXPECT_THAT(Refused({"./empty"}, kNotExecutable), HasSubstr("neither a binary"));
}

TEST_F(Program, UnknownBinaryFormat_IsLeftToTheKernel) {
  const std::string path = WriteFile("cwd/image", std::string_view("MZ\0\1", 4), true);
  EXPECT_THAT(Argv({"./image"}), ElementsAre(dir_ + "/cwd/./image"));
  EXPECT_FALSE(path.empty());
}

}  // namespace
}  // namespace ddl::cli
