// What an action of a checkpoint complains of.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"

namespace lockstep::checkpoint {

inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
    return "no error";
  } catch (const base::UserError& error) {
    EXPECT_EQ(error.code(), base::ExitCode::checkpoint);
    return error.what();
  }
}

}  // namespace lockstep::checkpoint
