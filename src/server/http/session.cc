// HttpSession with Beast's request parser, which is used for what it is best at: bytes to headers
// and bodies, one call at a time.
#include "server/http/session.h"

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/check.h"
#include "base/log.h"
#include "server/http/error_body.h"
#include "server/http/wire.h"

namespace pewter::server {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using Parser = http::request_parser<http::string_body>;

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

// The path of a target: percent-decoded and without the query, or nothing when it is not valid.
std::optional<std::string> path_of(std::string_view target) {
  return percent_decode(target.substr(0, target.find('?')));
}

class Session;

class SessionExchange final : public Exchange {
 public:
  SessionExchange(std::weak_ptr<Session> session, HttpRequest request, Executor executor)
      : session_(std::move(session)),
        request_(std::move(request)),
        executor_(std::move(executor)) {}

  const HttpRequest& request() const override { return request_; }
  Executor executor() const override { return executor_; }
  bool gone() const override;
  void attach(std::shared_ptr<Activity> activity) override;
  void respond(HttpResponse response) override;
  void start_stream(HttpResponse head) override;
  void send(std::string_view bytes) override;
  void finish() override;
  void abandon() override;
  void note(std::string text) override { note_ = std::move(text); }

 private:
  friend class Session;
  // The session, as long as this exchange is what it serves.
  std::shared_ptr<Session> session() const;

  std::weak_ptr<Session> session_;
  const HttpRequest request_;
  const Executor executor_;
  std::string note_;
};

class Session final : public HttpSession, public std::enable_shared_from_this<Session> {
 public:
  Session(const HttpService& service, std::string peer, Executor executor,
          std::function<void()> changed)
      : service_(service),
        peer_(std::move(peer)),
        executor_(std::move(executor)),
        changed_(std::move(changed)) {
    start_request();
  }
  ~Session() override { end_exchange(/*aborted=*/true); }

  void receive(std::string_view bytes) override {
    if (state_ == State::kClosed) return;  // lingering: what comes now is thrown away
    last_input_ = Clock::now();
    if (state_ == State::kHead && input_.empty() && !parser_->got_some())
      request_begin_ = last_input_;
    input_ += bytes;
    process();
  }
  void receive_end() override {
    input_ended_ = true;
    if (state_ == State::kServing) {
      // A client that has closed and one that only says no more look alike. A plain answer is still
      // tried; one that takes work is not.
      if (activity_) tell_gone();
    } else {
      close(/*linger=*/false);
    }
  }
  void abort() override {
    broken_ = true;
    close(/*linger=*/false);
  }
  void tick(Clock::time_point now) override;

  bool wants_input() const override {
    if (input_ended_ || broken_) return false;
    return state_ == State::kClosed
               ? lingers_
               : static_cast<int64_t>(input_.size()) <= service_.limits.ahead_bytes;
  }
  std::string& output() override { return output_; }
  void set_in_flight(size_t bytes) override { in_flight_ = bytes; }
  bool finished() const override { return state_ == State::kClosed; }
  bool lingers() const override { return lingers_ && !input_ended_; }
  bool broken() const override { return broken_; }

 private:
  friend class SessionExchange;
  enum class State { kHead, kBody, kServing, kClosed };

  void start_request() {
    parser_ = std::make_unique<Parser>();
    parser_->header_limit(static_cast<uint32_t>(service_.limits.header_bytes));
    parser_->body_limit(static_cast<uint64_t>(service_.limits.body_bytes));
    parser_->eager(false);
    id_.clear();
    common_ = service_.headers;
    state_ = State::kHead;
    last_input_ = request_begin_ = Clock::now();
  }

  void process();
  bool parse_some();
  bool on_head();
  void serve();
  void refuse(int status, std::string_view type, std::string_view message);
  void refuse_parse(const beast::error_code& error);
  // Which API the request being read is one of: an error has to be in its form, whatever it is.
  ErrorForm form() const;
  void append_head(const HttpResponse& response, Framing framing);

  // Of the exchange being served.
  void respond(const HttpResponse& response);
  void start_stream(const HttpResponse& head);
  void send(std::string_view bytes);
  void finish();
  void complete();
  void tell_gone() {
    if (const std::shared_ptr<Activity> activity = std::exchange(activity_, nullptr))
      activity->client_gone();
  }
  void end_exchange(bool aborted);
  void close(bool linger) {
    state_ = State::kClosed;
    lingers_ = linger;
    end_exchange(/*aborted=*/true);
  }

  const HttpService& service_;
  const std::string peer_;
  const Executor executor_;
  const std::function<void()> changed_;

  State state_ = State::kHead;
  std::unique_ptr<Parser> parser_;  // of the request being read
  std::string input_, output_;
  size_t in_flight_ = 0;
  Clock::time_point last_input_, request_begin_;
  bool processing_ = false, input_ended_ = false, lingers_ = false, broken_ = false;

  // The request being served.
  std::shared_ptr<SessionExchange> exchange_;
  std::shared_ptr<Activity> activity_;
  int status_ = 0;
  bool keep_alive_ = false, chunked_ = false, is_head_ = false, is_http10_ = false;
  bool streaming_ = false;
  std::string id_;
  Headers common_;  // of the answer in work
};

std::shared_ptr<Session> SessionExchange::session() const {
  std::shared_ptr<Session> session = session_.lock();
  return session && session->exchange_.get() == this ? session : nullptr;
}
bool SessionExchange::gone() const {
  const std::shared_ptr<Session> session = this->session();
  return !session || session->input_ended_;
}
void SessionExchange::attach(std::shared_ptr<Activity> activity) {
  if (const auto session = this->session()) session->activity_ = std::move(activity);
}
void SessionExchange::respond(HttpResponse response) {
  if (const auto session = this->session()) session->respond(response);
}
void SessionExchange::start_stream(HttpResponse head) {
  if (const auto session = this->session()) session->start_stream(head);
}
void SessionExchange::send(std::string_view bytes) {
  if (const auto session = this->session()) session->send(bytes);
}
void SessionExchange::finish() {
  if (const auto session = this->session()) session->finish();
}
void SessionExchange::abandon() {
  if (const auto session = this->session()) {
    session->abort();
    session->changed_();
  }
}

// Not re-entered: an answer that is given within the handler leads back here by the loop.
void Session::process() {
  if (processing_) return;
  processing_ = true;
  while ((state_ == State::kHead || state_ == State::kBody) && parse_some()) {
  }
  processing_ = false;
}

// False when more input is needed.
bool Session::parse_some() {
  if (state_ == State::kHead && !parser_->got_some())
    // Empty lines before a request are allowed and mean nothing.
    input_.erase(0, std::min(input_.find_first_not_of("\r\n"), input_.size()));
  if (input_.empty()) return false;
  // Once it has seen a body without chunks end, Beast takes it for granted that the end's last
  // line has come: builds with assertions would stop where it comes byte by byte.
  constexpr std::string_view kLastChunk = "0\r\n", kEnd = "0\r\n\r\n";
  if (state_ == State::kBody && parser_->chunked() && input_.size() < kEnd.size() &&
      input_.starts_with(kLastChunk))
    return false;
  beast::error_code error;
  const size_t used = parser_->put(boost::asio::buffer(input_), error);
  input_.erase(0, used);
  if (error && error != http::error::need_more) {
    refuse_parse(error);
    return true;
  }
  if (state_ == State::kHead && parser_->is_header_done() && !on_head()) return true;
  if (parser_->is_done()) {
    serve();
    return true;
  }
  return !error && used > 0 && !input_.empty();
}

// The headers are complete; false when the request was refused for them.
bool Session::on_head() {
  const auto& message = parser_->get();
  state_ = State::kBody;
  parser_->eager(true);
  if (message.version() != 10 && message.version() != 11) {
    refuse(505, "BadRequestError", "only HTTP/1.1 and HTTP/1.0 are understood");
    return false;
  }
  if (message.find(http::field::transfer_encoding) != message.end() && !parser_->chunked()) {
    refuse(501, "BadRequestError", "Transfer-Encoding: only chunked is understood");
    return false;
  }
  const auto expect = message.find(http::field::expect);
  if (expect == message.end() || message.version() == 10) return true;
  if (!equal_ignoring_case(view(expect->value()), "100-continue")) {
    refuse(417, "BadRequestError", "Expect: only 100-continue is understood");
    return false;
  }
  if (!parser_->is_done() && input_.empty()) output_ += "HTTP/1.1 100 Continue\r\n\r\n";
  return true;
}

void Session::serve() {
  Parser::value_type message = parser_->release();
  HttpRequest request{.method = std::string(view(message.method_string())),
                      .peer = peer_,
                      .is_http10 = message.version() == 10};
  for (const auto& field : message)
    request.headers.emplace_back(std::string(view(field.name_string())),
                                 std::string(view(field.value())));
  request.body = std::move(message.body());
  request.id = request_id(request.header("X-Request-Id"));
  is_head_ = request.method == "HEAD";
  is_http10_ = request.is_http10;
  keep_alive_ = message.keep_alive();
  id_ = request.id;
  const std::optional<std::string> path = path_of(view(message.target()));
  if (!path) {
    refuse(400, "BadRequestError", "the path of the request is not valid");
    return;
  }
  request.path = *path;
  if (service_.headers_for)
    for (auto& header : service_.headers_for(request)) common_.push_back(std::move(header));

  state_ = State::kServing;
  request_begin_ = Clock::now();
  if (service_.busy) service_.busy(+1);
  exchange_ = std::make_shared<SessionExchange>(weak_from_this(), std::move(request), executor_);
  const std::shared_ptr<Exchange> exchange = exchange_;
  service_.handler(exchange);
}

void Session::refuse_parse(const beast::error_code& error) {
  if (error == http::error::body_limit)
    return refuse(
        413, "BadRequestError",
        str_cat("the body is larger than the limit of ", service_.limits.body_bytes, " bytes"));
  if (error == http::error::header_limit)
    return refuse(431, "BadRequestError",
                  str_cat("the headers are larger than the limit of ", service_.limits.header_bytes,
                          " bytes"));
  if (error == http::error::bad_version)
    return refuse(505, "BadRequestError", "only HTTP/1.1 and HTTP/1.0 are understood");
  refuse(400, "BadRequestError", str_cat("not a valid HTTP request: ", error.message()));
}

ErrorForm Session::form() const {
  std::string_view target = view(parser_->get().target());
  if (target.empty()) {
    // The first line has not been taken: METHOD TARGET VERSION, as far as it has come.
    const std::string_view line = std::string_view(input_).substr(0, input_.find('\r'));
    const size_t blank = line.find(' ');
    if (blank != std::string_view::npos) target = line.substr(blank + 1);
    target = target.substr(0, target.find(' '));
  }
  return error_form(path_of(target).value_or(""));
}

// Answers a request that could not be read to its end: after that, nobody knows where the next one
// begins.
void Session::refuse(int status, std::string_view type, std::string_view message) {
  keep_alive_ = is_head_ = false;
  if (id_.empty()) id_ = request_id(nullptr);
  const HttpResponse response{
      .status = status,
      .body = error_body(form(), {.status = status, .type = type, .message = message})};
  append_head(response, Framing::kLength);
  output_ += response.body;
  if (service_.served) {
    const HttpRequest unread{.method = "-", .path = "-", .id = id_, .peer = peer_};
    const std::string note(message);
    service_.served({.request = unread, .status = status, .note = note});
  }
  input_.clear();
  close(/*linger=*/true);
}

void Session::append_head(const HttpResponse& response, Framing framing) {
  server::append_head(output_, response,
                      {.framing = framing,
                       .common = common_,
                       .id = id_,
                       .close = !keep_alive_,
                       .keep_alive = keep_alive_ && is_http10_});
}

void Session::respond(const HttpResponse& response) {
  CHECK(!streaming_ && status_ == 0, "a second answer to one request");
  if (input_ended_ || (service_.draining && service_.draining())) keep_alive_ = false;
  status_ = response.status;
  // 204 has no body and says nothing about one.
  append_head(response, status_ == 204 ? Framing::kNone : Framing::kLength);
  if (!is_head_) output_ += response.body;
  complete();
}

void Session::start_stream(const HttpResponse& head) {
  CHECK(!streaming_ && status_ == 0, "a second answer to one request");
  status_ = head.status;
  streaming_ = true;
  chunked_ = !is_http10_;
  if (is_http10_ || (service_.draining && service_.draining())) keep_alive_ = false;
  append_head(head, chunked_ ? Framing::kChunked : Framing::kToEnd);
  send(head.body);
  changed_();
}

void Session::send(std::string_view bytes) {
  CHECK(streaming_, "a piece of an answer that has not begun");
  if (bytes.empty() || is_head_) return;
  if (chunked_)
    append_chunk(output_, bytes);
  else
    output_ += bytes;
  if (static_cast<int64_t>(output_.size() + in_flight_) > service_.limits.unsent_bytes) {
    LOG_WARNING(peer_, ": the client is ", output_.size() + in_flight_,
                " bytes behind its stream and is dropped");
    abort();
  }
  changed_();
}

void Session::finish() {
  CHECK(streaming_, "the end of an answer that has not begun");
  if (chunked_ && !is_head_) append_last_chunk(output_);
  complete();
}

// The answer is in output_.
void Session::complete() {
  activity_.reset();
  end_exchange(/*aborted=*/false);
  if (keep_alive_ && !input_ended_) {
    start_request();
    process();
  } else {
    close(/*linger=*/!input_.empty());
  }
  changed_();
}

void Session::end_exchange(bool aborted) {
  if (!exchange_) return;
  const std::shared_ptr<SessionExchange> exchange = std::exchange(exchange_, nullptr);
  tell_gone();
  if (service_.served)
    service_.served(
        {.request = exchange->request(),
         .status = status_,
         .aborted = aborted,
         .seconds = std::chrono::duration<double>(Clock::now() - request_begin_).count(),
         .note = exchange->note_});
  status_ = 0;
  streaming_ = chunked_ = false;
  if (service_.busy) service_.busy(-1);
}

void Session::tick(Clock::time_point now) {
  const HttpLimits& limits = service_.limits;
  switch (state_) {
    case State::kHead:
      if (!parser_->got_some() && input_.empty()) {
        if (now - last_input_ > limits.idle || (service_.draining && service_.draining()))
          close(/*linger=*/false);
      } else if (now - request_begin_ > limits.head) {
        refuse(408, "BadRequestError", "the headers of the request did not come in time");
      }
      break;
    case State::kBody:
      if (now - last_input_ > limits.body)
        refuse(408, "BadRequestError", "the body of the request did not come in time");
      break;
    case State::kServing:
      if (const std::shared_ptr<Activity> activity = activity_) activity->tick(now);
      break;
    case State::kClosed:
      break;
  }
}

}  // namespace

std::shared_ptr<HttpSession> HttpSession::make(const HttpService& service, std::string peer,
                                               Executor executor, std::function<void()> changed) {
  return std::make_shared<Session>(service, std::move(peer), std::move(executor),
                                   std::move(changed));
}

}  // namespace pewter::server
