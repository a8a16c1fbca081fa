#!/usr/bin/env python3
"""Proves that each rule of lint.py can fail, and that good files pass."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lint  # noqa: E402


class LintTest(unittest.TestCase):
    def findings(self, files):
        """What lint says about a tree of these files: 'path:line: text'."""
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as file:
                    file.write(text)
            found, _ = lint.lint(root)
            return [f"{path}:{line}: {text}" for path, line, text in found]

    def header(self, path, *includes):
        lines = ["// A header."] + [f"#include {i}" for i in includes]
        return self.findings({path: "\n".join(lines) + "\n"})

    def assert_one(self, found, path, words):
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(path + ":"), found)
        self.assertIn(words, found[0])

    def test_good_tree_passes(self):
        self.assertEqual(self.findings({
            "agent/CMakeLists.txt": "# Agent.\nddl_library(a SRCS base/a.cc\n  core/b.cc)\n",
            "agent/base/a.cc": '// A.\n#include <thread>\n#include "agent/base/a.h"\n',
            "agent/base/a.h": "// A.\n#include <string>\n",
            "agent/core/b.cc": '// B.\n#include <map>\n#include "absl/status/status.h"\n'
                               '#include "agent/plan/p.h"\n',
            "agent/service/x_reactor.h": '// X.\n#include <grpcpp/grpcpp.h>\n'
                                         '#include "agent/core/b.h"\n',
            "worker_sdk/include/ddl/c.h": "// C.\n#include <vector>\n#include \"ddl/nccl_id.h\"\n",
            "worker_sdk/src/d.h": '// D.\n#include "ddl/c.h"\n#include "agent/plan/p.h"\n',
            "deploy/x.sh": "#!/bin/bash\n# Does x.\n",
            "README.md": "see /home/me and network/work/x\n",
        }), [])

    def test_base_includes_plan(self):
        self.assert_one(self.header("agent/base/a.h", '"agent/plan/plan.h"'),
                        "agent/base/a.h", "wrong arrow")

    def test_plan_includes_core(self):
        self.assert_one(self.header("agent/plan/a.h", '"agent/core/types.h"'),
                        "agent/plan/a.h", "wrong arrow")

    def test_core_includes_service(self):
        self.assert_one(self.header("agent/core/a.h", '"agent/service/s.h"'),
                        "agent/core/a.h", "wrong arrow")

    def test_store_includes_service(self):
        self.assert_one(self.header("agent/store/a.h", '"agent/service/s.h"'),
                        "agent/store/a.h", "wrong arrow")

    def test_client_includes_service(self):
        self.assert_one(self.header("agent/client/a.h", '"agent/service/s.h"'),
                        "agent/client/a.h", "wrong arrow")

    def test_agent_includes_launcher(self):
        self.assert_one(self.header("agent/service/a.h", '"launcher/launch_config.h"'),
                        "agent/service/a.h", "wrong arrow")

    def test_sdk_includes_core_or_launcher(self):
        for included in ('"agent/core/types.h"', '"launcher/launch_config.h"'):
            self.assert_one(self.header("worker_sdk/src/a.h", included),
                            "worker_sdk/src/a.h", "wrong arrow")

    def test_launcher_includes_sdk(self):
        self.assert_one(self.header("launcher/a.h", '"worker_sdk/src/x.h"'),
                        "launcher/a.h", "wrong arrow")

    def test_core_includes_proto_grpc_posix_or_threads(self):
        for included in ("<grpcpp/grpcpp.h>", "<unistd.h>", "<thread>", "<random>",
                         '"absl/synchronization/mutex.h"', "<spdlog/spdlog.h>"):
            self.assertTrue(self.header("agent/core/a.h", included), included)
        self.assert_one(self.header("agent/core/a.h", '"ddlaunch/v1/plan.pb.h"'),
                        "agent/core/a.h", "wrong arrow")

    def test_core_reads_the_clock(self):
        for call in ("MonotonicNow()", "std::chrono::steady_clock::now()"):
            self.assert_one(self.findings({"agent/core/a.h": f"// A.\nauto t = {call};\n"}),
                            "agent/core/a.h", "time is passed in")

    def test_public_header_shows_what_is_behind_it(self):
        for included in ("<google/protobuf/message.h>", "<nccl.h>", "<gloo/context.h>",
                         '"agent/plan/plan.h"', '"ddlaunch/v1/plan.pb.h"'):
            self.assert_one(self.header("worker_sdk/include/ddl/a.h", included),
                            "worker_sdk/include/ddl/a.h", "public header")

    def test_header_includes_grpc_or_spdlog(self):
        self.assert_one(self.header("launcher/a.h", "<grpcpp/grpcpp.h>"), "launcher/a.h",
                        "no header includes grpcpp")
        self.assert_one(self.header("launcher/a.h", '"ddlaunch/v1/rendezvous.grpc.pb.h"'),
                        "launcher/a.h", "no header includes")
        self.assert_one(self.header("agent/service/a_reactor.h", "<spdlog/spdlog.h>"),
                        "agent/service/a_reactor.h", "logging stays")

    def test_long_file(self):
        text = "// Long.\n" + "int x;\n" * lint.MAX_LINES
        self.assert_one(self.findings({"agent/a.h": text}), "agent/a.h", "501 lines")
        self.assert_one(self.findings({"proto/a.proto": text}), "proto/a.proto", "501 lines")
        self.assertEqual(self.findings({"tests/a.h": text}), [])

    def test_no_opening_comment(self):
        for path, text in (("agent/a.h", "int x;\n"), ("tests/a.h", "\n// Late.\n"),
                           ("proto/a.proto", 'syntax = "proto3";\n'),
                           ("deploy/a.sh", "#!/bin/bash\nset -e\n"),
                           ("deploy/a.cmake", "set(x)\n"), ("agent/b.h", "")):
            self.assert_one(self.findings({path: text}), path, "no opening comment")

    def test_dead_source(self):
        tree = {"agent/x/a.cc": "// A.\n", "agent/x/CMakeLists.txt": "# X.\nlib(SRCS aa.cc)\n"}
        self.assert_one(self.findings(tree), "agent/x/a.cc", "dead code")
        for directory, name in (("agent", "x/a.cc"), ("tests", "../agent/x/a.cc"),
                                ("tests", "${PROJECT_SOURCE_DIR}/agent/x/a.cc")):
            good = {**tree, f"{directory}/CMakeLists.txt": f"# A.\nlib(SRCS {name})\n"}
            self.assertEqual(self.findings(good), [])

    def test_path_of_one_machine(self):
        path = "/" + "work/x"
        self.assert_one(self.findings({"README.md": f"see {path}\n"}), "README.md", "one machine")
        self.assert_one(self.findings({"deploy/a.sh": f"#!/bin/sh\n# A.\ncd {path}\n"}),
                        "deploy/a.sh", "one machine")

    def test_repository_without_files_is_no_pass(self):
        with tempfile.TemporaryDirectory() as root:
            self.assertEqual(lint.lint(root), ([], 0))


if __name__ == "__main__":
    unittest.main()
