// A bounded number of places, given back when their holders go.
#include "agent/service/lobby.h"

#include <gtest/gtest.h>

#include <optional>

namespace ddl {
namespace {

TEST(Lobby, Full_SendsAwayUntilAPlaceIsGivenBack) {
  const Lobby lobby(2);
  Lobby::Place first = lobby.Enter();
  const Lobby::Place second = lobby.Enter();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(lobby.Enter(), nullptr);
  EXPECT_EQ(lobby.taken(), 2);
  first.reset();
  EXPECT_NE(lobby.Enter(), nullptr) << "and is given back at once";
  EXPECT_EQ(lobby.taken(), 1);
}

TEST(Lobby, PlaceOutlivesIt_IsGivenBackToNobody) {
  auto lobby = std::make_optional<Lobby>(1);
  Lobby::Place place = lobby->Enter();
  lobby.reset();
  place.reset();
  EXPECT_EQ(place, nullptr);
}

}  // namespace
}  // namespace ddl
