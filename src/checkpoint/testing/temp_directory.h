// A directory of a test's own, gone with it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "checkpoint/safetensors_writer.h"

namespace pewter {

class TempDirectory {
 public:
  TempDirectory() {
    std::string name = testing::TempDir() + "/pewter-XXXXXX";
    CHECK(::mkdtemp(name.data()) != nullptr, "cannot make ", name);
    path_ = name;
  }
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  std::string path(const std::string& name = "") const {
    return name.empty() ? path_ : path_ + "/" + name;
  }
  // Makes the directories on the way.
  void write(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    write_file(path(name), bytes).value();
  }
  void write(const std::string& name, std::span<const TensorData> tensors) const {
    write(name, safetensors_bytes(tensors));
  }

 private:
  std::string path_;
};

}  // namespace pewter
