// HTTP as bytes in and bytes out: framing, order, limits, what a client's leaving does.
#include "server/http/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/str_cat.h"

namespace pewter::server {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

// A session with a handler that keeps the exchanges for the test to answer.
struct Wire {
  explicit Wire(HttpLimits limits = {}) {
    service.limits = limits;
    service.headers = {{"X-Common", "1"}};
    service.handler = [this](const std::shared_ptr<Exchange>& exchange) {
      exchanges.push_back(exchange);
      if (answer_at_once) exchange->respond({.body = "{}"});
    };
    service.busy = [this](int change) { busy += change; };
    service.draining = [this] { return draining; };
    service.served = [this](const ServedRequest& served) {
      log.push_back(str_cat(served.status, served.aborted ? " aborted" : ""));
    };
    session = HttpSession::make(
        service, "test", [](const std::function<void()>& function) { function(); },
        [this] { ++changes; });
  }
  std::string send(std::string_view bytes) {
    session->receive(bytes);
    return take();
  }
  std::string take() { return std::exchange(session->output(), {}); }

  HttpService service;
  std::vector<std::shared_ptr<Exchange>> exchanges;
  std::vector<std::string> log;
  bool answer_at_once = false, draining = false;
  int busy = 0, changes = 0;
  std::shared_ptr<HttpSession> session;
};

struct Watcher final : Activity {
  explicit Watcher(int& count) : gone(count) {}
  void client_gone() override { ++gone; }
  void tick(Clock::time_point) override { ++ticks; }
  int& gone;
  int ticks = 0;
};

const std::string kGet = "GET /a%20b?x=1 HTTP/1.1\r\nHost: h\r\n\r\n";

std::string post(const std::string& body, const std::string& headers = "") {
  return str_cat("POST /p HTTP/1.1\r\nHost: h\r\n", headers, "Content-Length: ", body.size(),
                 "\r\n\r\n", body);
}

TEST(Session, ReadsARequestAndAnswers) {
  Wire wire;
  EXPECT_THAT(wire.send("GET /a%20b?x=1 HTTP/1.1\r\nHost: h\r\nX-Request-Id: abc\r\n\r\n"),
              IsEmpty());
  ASSERT_EQ(wire.exchanges.size(), 1u);
  const HttpRequest& request = wire.exchanges[0]->request();
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.path, "/a b");
  EXPECT_EQ(request.id, "abc");
  EXPECT_EQ(*request.header("hOST"), "h");
  EXPECT_EQ(wire.busy, 1);
  wire.exchanges[0]->respond({.headers = {{"X-Own", "2"}}, .body = "hello"});
  EXPECT_EQ(wire.take(),
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\nX-Own: 2\r\n"
            "X-Common: 1\r\nX-Request-Id: abc\r\n\r\nhello");
  EXPECT_EQ(wire.busy, 0);
  EXPECT_FALSE(wire.session->finished());
  EXPECT_THAT(wire.log, testing::ElementsAre("200"));
}

TEST(Session, ReadsAnyCutOfABody) {
  for (const std::string& message :
       {post("some body"), std::string("POST /p HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
                                       "4;ext=1\r\nsome\r\n5\r\n body\r\n0\r\nTrailer: x\r\n\r\n")})
    for (size_t piece = 1; piece <= message.size(); ++piece) {
      Wire wire;
      for (size_t at = 0; at < message.size(); at += piece)
        wire.session->receive(std::string_view(message).substr(at, piece));
      ASSERT_EQ(wire.exchanges.size(), 1u) << piece;
      EXPECT_EQ(wire.exchanges[0]->request().body, "some body") << piece;
    }
}

TEST(Session, ServesPipelinedRequestsInOrder) {
  Wire wire;
  wire.send(post("1") + post("2") + "\r\n" + post("3"));
  ASSERT_EQ(wire.exchanges.size(), 1u);
  EXPECT_EQ(wire.busy, 1);
  wire.exchanges[0]->respond({.body = "one"});
  ASSERT_EQ(wire.exchanges.size(), 2u);
  EXPECT_EQ(wire.exchanges[1]->request().body, "2");
  wire.answer_at_once = true;  // the third is answered within its handler
  wire.exchanges[1]->respond({.body = "two"});
  ASSERT_EQ(wire.exchanges.size(), 3u);
  EXPECT_THAT(wire.take(), testing::ContainsRegex("one(.|\n)*two(.|\n)*\\{\\}"));
  // An exchange that is over says nothing any more.
  wire.exchanges[0]->send("late");
  EXPECT_THAT(wire.take(), IsEmpty());
}

TEST(Session, StreamsInChunksAndKeepsAlive) {
  Wire wire;
  wire.send(kGet);
  wire.exchanges[0]->start_stream({.content_type = "text/event-stream"});
  EXPECT_THAT(wire.take(), HasSubstr("Transfer-Encoding: chunked\r\n"));
  wire.exchanges[0]->send("0123456789abcdef");
  EXPECT_EQ(wire.take(), "10\r\n0123456789abcdef\r\n");
  wire.exchanges[0]->finish();
  EXPECT_EQ(wire.take(), "0\r\n\r\n");
  EXPECT_FALSE(wire.session->finished());
  EXPECT_GT(wire.changes, 0);
  wire.send(kGet);
  EXPECT_EQ(wire.exchanges.size(), 2u);
}

TEST(Session, GivesOldClientsNoChunks) {
  Wire wire;
  wire.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  wire.exchanges[0]->start_stream({});
  EXPECT_THAT(wire.take(), AllOf(Not(HasSubstr("chunked")), HasSubstr("Connection: close")));
  wire.exchanges[0]->send("text");
  wire.exchanges[0]->finish();
  EXPECT_EQ(wire.take(), "text");
  EXPECT_TRUE(wire.session->finished());
}

TEST(Session, HeadHasNoBody) {
  Wire wire;
  wire.answer_at_once = true;
  EXPECT_THAT(wire.send("HEAD / HTTP/1.1\r\n\r\n"),
              AllOf(HasSubstr("Content-Length: 2\r\n"), EndsWith("\r\n\r\n")));
}

TEST(Session, AnswersExpect) {
  Wire wire;
  wire.answer_at_once = true;
  EXPECT_EQ(wire.send("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"),
            "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_THAT(wire.send("ok"), StartsWith("HTTP/1.1 200 OK"));
  // With the body already there, nobody waits.
  EXPECT_THAT(wire.send(post("ok", "Expect: 100-continue\r\n")), StartsWith("HTTP/1.1 200 OK"));
  EXPECT_THAT(wire.send(post("ok", "Expect: miracles\r\n")), StartsWith("HTTP/1.1 417"));
}

TEST(Session, HoldsTheLimits) {
  const HttpLimits limits{.body_bytes = 10, .header_bytes = 200};
  Wire big(limits);
  // Refused at the header: no byte of the body is waited for.
  EXPECT_THAT(big.send("POST / HTTP/1.1\r\nContent-Length: 11\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 413"), HasSubstr("\"error\""), HasSubstr("10 bytes")));
  EXPECT_TRUE(big.session->finished());
  EXPECT_TRUE(big.session->lingers());
  EXPECT_THAT(big.send("rest of the body"), IsEmpty());
  Wire chunked(limits);
  EXPECT_THAT(chunked.send("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n" +
                           std::string(255, 'x')),
              StartsWith("HTTP/1.1 413"));
  Wire header(limits);
  EXPECT_THAT(header.send("GET / HTTP/1.1\r\nX: " + std::string(300, 'x')),
              StartsWith("HTTP/1.1 431"));
}

TEST(Session, EndsChunksByteByByte) {
  for (const std::string body : {"0\r\n\r\n", "2\r\nab\r\n0\r\n\r\n", "0\r\nX: y\r\n\r\n"}) {
    Wire wire;
    wire.answer_at_once = true;
    wire.send("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
    std::string answer;
    for (const char byte : body) {
      EXPECT_THAT(answer, IsEmpty()) << body;
      answer += wire.send(std::string(1, byte));
    }
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK")) << body;
  }
  Wire counted;  // the same bytes, but no chunk
  counted.answer_at_once = true;
  EXPECT_THAT(counted.send(post("0\r\n")), StartsWith("HTTP/1.1 200 OK"));
}

// Clients of Anthropic's API read its form alone, whatever part of a request was wrong.
TEST(Session, RefusesInTheFormOfTheApi) {
  const HttpLimits limits{.body_bytes = 10, .header_bytes = 200};
  const auto refused = [&limits](const std::string& bytes, int seconds = 0) {
    Wire wire(limits);
    std::string answer = wire.send(bytes);
    if (seconds > 0) wire.session->tick(Clock::now() + std::chrono::seconds(seconds));
    return answer + wire.take();
  };
  const auto is = [](const char* status, const char* type) {
    return AllOf(StartsWith(str_cat("HTTP/1.1 ", status)),
                 HasSubstr(R"({"type":"error","error":{"type":")" + std::string(type) + "\""));
  };
  const std::string begin = "POST /v1/messages?beta=true HTTP/1.1\r\n";
  EXPECT_THAT(refused(begin + "Content-Length: 11\r\n\r\n"), is("413", "request_too_large"));
  EXPECT_THAT(refused(begin + "Transfer-Encoding: chunked\r\n\r\nff\r\n" + std::string(255, 'x')),
              is("413", "request_too_large"));
  EXPECT_THAT(refused(begin + "X: " + std::string(300, 'x')), is("431", "invalid_request_error"));
  EXPECT_THAT(refused(begin + "Expect: miracles\r\n\r\n"), is("417", "invalid_request_error"));
  EXPECT_THAT(refused(begin + "Transfer-Encoding: gzip\r\n\r\n"), is("501", "api_error"));
  EXPECT_THAT(refused(begin + "Content-Length: x\r\n\r\n"), is("400", "invalid_request_error"));
  EXPECT_THAT(refused(begin + "X: ", 40), is("408", "invalid_request_error"));
  EXPECT_THAT(refused(begin + "Content-Length: 9\r\n\r\nabc", 40),
              is("408", "invalid_request_error"));
  // Another path, and none at all.
  EXPECT_THAT(refused("POST /v1/messagesx HTTP/1.1\r\nContent-Length: 11\r\n\r\n"),
              HasSubstr(R"({"error":{"message":)"));
  EXPECT_THAT(refused("POST", 40), HasSubstr(R"({"error":{"message":)"));
}

TEST(Session, RefusesWhatIsNoHttp) {
  for (const auto& [bytes, status] : std::vector<std::pair<std::string, std::string>>{
           {"nonsense\r\n\r\n", "400"},
           {"GET / HTTP/3.0\r\n\r\n", "505"},
           {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505"},
           {"GET /%zz HTTP/1.1\r\n\r\n", "400"},
           {"GET /%ff HTTP/1.1\r\n\r\n", "400"},
           {"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", "400"},
           {"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "400"},
           {"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "400"},
           {"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", "501"},
           {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"}}) {
    Wire wire;
    const std::string answer = wire.send(bytes);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 " + status)) << bytes;
    EXPECT_THAT(answer, HasSubstr("Connection: close"));
    EXPECT_TRUE(wire.session->finished());
    EXPECT_THAT(wire.exchanges, IsEmpty());
  }
}

TEST(Session, MakesAnIdWhereTheClientsIsUnfit) {
  Wire wire;
  wire.answer_at_once = true;
  EXPECT_THAT(wire.send("GET / HTTP/1.1\r\nX-Request-Id: a b\r\n\r\n"),
              HasSubstr("X-Request-Id: req-"));
  EXPECT_THAT(wire.send(kGet), HasSubstr("X-Request-Id: req-"));
}

TEST(Session, TellsWhenTheClientGoes) {
  for (const bool reset : {false, true}) {
    Wire wire;
    int gone = 0;
    wire.send(kGet);
    wire.exchanges[0]->attach(std::make_shared<Watcher>(gone));
    EXPECT_FALSE(wire.exchanges[0]->gone());
    if (reset)
      wire.session->abort();
    else
      wire.session->receive_end();
    EXPECT_EQ(gone, 1);
    EXPECT_TRUE(wire.exchanges[0]->gone());
    wire.exchanges[0]->abandon();
    EXPECT_EQ(gone, 1);
    EXPECT_EQ(wire.busy, 0);
    EXPECT_THAT(wire.log, testing::ElementsAre("0 aborted"));
  }
}

TEST(Session, TellsWhenTheConnectionIsDestroyed) {
  int gone = 0;
  {
    Wire wire;
    wire.send(kGet);
    wire.exchanges[0]->attach(std::make_shared<Watcher>(gone));
    wire.session.reset();
    EXPECT_TRUE(wire.exchanges[0]->gone());
  }
  EXPECT_EQ(gone, 1);
}

TEST(Session, AnswersAClientThatOnlyHasNoMoreToSay) {
  Wire wire;
  wire.send(kGet);
  wire.session->receive_end();
  wire.exchanges[0]->respond({.body = "still"});
  EXPECT_THAT(wire.take(), EndsWith("still"));
  EXPECT_TRUE(wire.session->finished());
}

TEST(Session, DropsAReaderTooFarBehind) {
  Wire wire({.unsent_bytes = 1000});
  int gone = 0;
  wire.send(kGet);
  wire.exchanges[0]->attach(std::make_shared<Watcher>(gone));
  wire.exchanges[0]->start_stream({});
  wire.take();
  wire.session->set_in_flight(600);
  wire.exchanges[0]->send(std::string(300, 'x'));
  EXPECT_FALSE(wire.session->broken());
  wire.exchanges[0]->send(std::string(300, 'x'));
  EXPECT_TRUE(wire.session->broken());
  EXPECT_EQ(gone, 1);
  wire.exchanges[0]->send("more");  // goes nowhere
}

TEST(Session, StopsReadingAheadOfItsAnswers) {
  Wire wire({.ahead_bytes = 100});
  wire.send(kGet + std::string(50, 'x'));
  EXPECT_TRUE(wire.session->wants_input());
  wire.send(std::string(100, 'x'));
  EXPECT_FALSE(wire.session->wants_input());
}

TEST(Session, HasPatienceAndNoMore) {
  const auto later = [](int seconds) { return Clock::now() + std::chrono::seconds(seconds); };
  Wire idle;
  idle.session->tick(later(60));
  EXPECT_FALSE(idle.session->finished());
  idle.session->tick(later(80));
  EXPECT_TRUE(idle.session->finished());
  EXPECT_THAT(idle.take(), IsEmpty());

  Wire head;
  head.send("GET / HT");
  head.session->tick(later(40));
  EXPECT_THAT(head.take(), StartsWith("HTTP/1.1 408"));

  Wire body;
  body.send("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc");
  body.session->tick(later(20));
  EXPECT_FALSE(body.session->finished());
  body.session->tick(later(40));
  EXPECT_THAT(body.take(), StartsWith("HTTP/1.1 408"));

  int gone = 0;
  Wire working;  // an answer may take its time, and its activity hears the clock
  working.send(kGet);
  const auto watcher = std::make_shared<Watcher>(gone);
  working.exchanges[0]->attach(watcher);
  working.session->tick(later(10000));
  EXPECT_EQ(watcher->ticks, 1);
  EXPECT_FALSE(working.session->finished());
}

TEST(Session, EndsIdleConnectionsWhenDraining) {
  Wire wire;
  wire.send(kGet);
  wire.draining = true;
  wire.session->tick(Clock::now());
  EXPECT_FALSE(wire.session->finished());  // an answer is being made
  wire.exchanges[0]->respond({});
  EXPECT_THAT(wire.take(), HasSubstr("Connection: close"));
  EXPECT_TRUE(wire.session->finished());
  Wire idle;
  idle.draining = true;
  idle.session->tick(Clock::now());
  EXPECT_TRUE(idle.session->finished());
}

}  // namespace
}  // namespace pewter::server
