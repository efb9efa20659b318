#include "server/http/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "server/testing/recorded_exchange.h"

namespace pewter::server {
namespace {

using testing::HasSubstr;

HttpResponse dispatch(const Router& router, const std::string& method, const std::string& path) {
  const auto exchange =
      std::make_shared<RecordedExchange>(HttpRequest{.method = method, .path = path});
  router.dispatch(exchange);
  return exchange->response.value();
}

Router make_router() {
  Router router;
  const auto says = [](const std::string& body) {
    return [body](const std::shared_ptr<Exchange>& exchange) { exchange->respond({.body = body}); };
  };
  router.add("GET", "/models", says("list"));
  router.add("GET", "/models/", says("one"));
  router.add("POST", "/models", says("made"));
  return router;
}

TEST(Router, FindsTheHandler) {
  const Router router = make_router();
  EXPECT_EQ(dispatch(router, "GET", "/models").body, "list");
  EXPECT_EQ(dispatch(router, "HEAD", "/models").body, "list");
  EXPECT_EQ(dispatch(router, "POST", "/models").body, "made");
  EXPECT_EQ(dispatch(router, "GET", "/models/a/b").body, "one");
}

TEST(Router, SaysWhatIsWrong) {
  const Router router = make_router();
  for (const char* path : {"/models/", "/modelsx", "/", ""}) {
    const HttpResponse missing = dispatch(router, "GET", path);
    EXPECT_EQ(missing.status, 404) << path;
    EXPECT_EQ(Json::parse(missing.body).value().find("error")->find("type")->as_string(),
              "NotFoundError");
  }
  const HttpResponse wrong = dispatch(router, "DELETE", "/models");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(*find_header(wrong.headers, "Allow"), "GET, HEAD, POST, OPTIONS");
}

TEST(Router, AnswersPreflights) {
  const HttpResponse response = dispatch(make_router(), "OPTIONS", "/models");
  EXPECT_EQ(response.status, 204);
  EXPECT_THAT(*find_header(response.headers, "Access-Control-Allow-Methods"), HasSubstr("POST"));
  EXPECT_EQ(dispatch(make_router(), "OPTIONS", "/else").status, 204);
}

TEST(Message, DecodesPaths) {
  EXPECT_EQ(percent_decode("/a%2Fb%c3%a9"), "/a/bé");
  for (const char* bad : {"%", "%4", "%4x", "%00", "%ff"})
    EXPECT_EQ(percent_decode(bad), std::nullopt) << bad;
}

std::string shown(const Headers& headers) {
  std::string text;
  for (const auto& [name, value] : headers) text += name + ": " + value + "; ";
  return text;
}

TEST(Cors, LetsEveryoneAskByDefault) {
  EXPECT_EQ(shown(cors_headers({}, {.headers = {{"Origin", "http://a"}}})),
            "Access-Control-Allow-Origin: *; ");
  EXPECT_THAT(
      shown(preflight_headers({}, {}, "GET, POST")),
      HasSubstr("Allow-Methods: GET, POST; Access-Control-Allow-Headers: *, Authorization;"));
  const HttpRequest asks{.headers = {{"Access-Control-Request-Headers", "x-api-key"}}};
  EXPECT_THAT(shown(preflight_headers({}, asks, "GET")), HasSubstr("Allow-Headers: x-api-key;"));
}

TEST(Cors, LetsThoseAskWhoAreNamed) {
  const CorsOptions options{.origins = {"http://a", "http://b"},
                            .methods = {"POST"},
                            .headers = {"x", "y"},
                            .credentials = true};
  EXPECT_TRUE(options.validate());
  EXPECT_EQ(shown(cors_headers(options, {.headers = {{"Origin", "http://b"}}})),
            "Vary: Origin; Access-Control-Allow-Origin: http://b; "
            "Access-Control-Allow-Credentials: true; ");
  EXPECT_EQ(shown(cors_headers(options, {.headers = {{"Origin", "http://c"}}})), "Vary: Origin; ");
  EXPECT_EQ(shown(cors_headers(options, {})), "Vary: Origin; ");
  EXPECT_THAT(shown(preflight_headers(options, {}, "GET, POST")),
              HasSubstr("Allow-Methods: POST; Access-Control-Allow-Headers: x, y;"));
  EXPECT_FALSE((CorsOptions{.credentials = true}.validate()));
}

}  // namespace
}  // namespace pewter::server
