#include "server/http/server.h"

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/log.h"
#include "server/http/connection.h"

namespace pewter::server {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {
constexpr std::chrono::milliseconds kTick{250};
// After accept fails (no descriptors left): how long until it is tried again.
constexpr std::chrono::milliseconds kAcceptPause{100};
}  // namespace

struct Lane {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  asio::steady_timer timer{context};
  std::vector<std::shared_ptr<Connection>> connections;  // the lane's thread only
  std::thread thread;

  void start_ticking(std::atomic<int64_t>& count) {
    timer.expires_after(kTick);
    timer.async_wait([this, &count](error_code error) {
      if (error) return;
      const Clock::time_point now = Clock::now();
      // A connection's end may come from within: the list itself changes only here.
      for (const std::shared_ptr<Connection>& connection : connections) connection->tick(now);
      count -= static_cast<int64_t>(
          std::erase_if(connections, [](const auto& connection) { return connection->closed(); }));
      start_ticking(count);
    });
  }
};

struct HttpServer::Impl {
  HttpService service;
  HttpServerOptions options;
  std::atomic<bool> draining{false};
  std::atomic<int64_t> connections{0};
  mutable std::mutex mutex;
  std::condition_variable idle;
  int64_t busy = 0;  // guarded by mutex
  std::vector<std::shared_ptr<Lane>> lanes;
  std::unique_ptr<tcp::acceptor> acceptor;           // on the first lane
  std::unique_ptr<asio::steady_timer> accept_timer;  // likewise
  size_t next_lane = 0;
  int port = 0;

  Status listen();
  void accept();
  void adopt(tcp::socket socket, Lane& lane);
};

Status HttpServer::Impl::listen() {
  error_code error;
  asio::io_context& context = lanes.front()->context;
  tcp::resolver resolver(context);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty())
    return Error{ErrorCode::kInvalidArgument,
                 str_cat("host ", options.host, ": ", error ? error.message() : "no address")};
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor = std::make_unique<tcp::acceptor>(context);
  accept_timer = std::make_unique<asio::steady_timer>(context);
  acceptor->open(endpoint.protocol(), error);
  if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && options.send_buffer_bytes > 0)
    acceptor->set_option(asio::socket_base::send_buffer_size(options.send_buffer_bytes), error);
  if (!error) acceptor->bind(endpoint, error);
  if (!error) acceptor->listen(asio::socket_base::max_listen_connections, error);
  if (error == asio::error::address_in_use)
    return Error{ErrorCode::kUnavailable,
                 str_cat("port ", options.port, " of ", options.host,
                         " is in use by another program; choose another with --port")};
  if (error)
    return Error{ErrorCode::kUnavailable, str_cat("cannot listen on ", options.host, ":",
                                                  options.port, ": ", error.message())};
  port = acceptor->local_endpoint().port();
  return {};
}

void HttpServer::Impl::accept() {
  Lane& lane = *lanes[next_lane++ % lanes.size()];
  acceptor->async_accept(lane.context, [this, &lane](error_code error, tcp::socket socket) {
    if (error == asio::error::operation_aborted || !acceptor->is_open()) return;
    if (error) {
      LOG_WARNING("cannot accept a connection: ", error.message());
      accept_timer->expires_after(kAcceptPause);
      accept_timer->async_wait([this](error_code stopped) {
        if (!stopped) accept();
      });
      return;
    }
    if (connections >= options.most_connections)
      LOG_WARNING("refused a connection: there are ", options.most_connections, " already");
    else
      adopt(std::move(socket), lane);
    accept();
  });
}

void HttpServer::Impl::adopt(tcp::socket socket, Lane& lane) {
  ++connections;
  error_code error;
  socket.set_option(tcp::no_delay(true), error);
  const tcp::endpoint remote = socket.remote_endpoint(error);
  const std::string peer = error ? "?" : str_cat(remote.address().to_string(), ":", remote.port());
  auto connection = std::make_shared<Connection>(std::move(socket), service);
  std::weak_ptr<Lane> weak;
  for (const std::shared_ptr<Lane>& each : lanes)
    if (each.get() == &lane) weak = each;
  const Executor executor = [weak](std::function<void()> function) {
    if (const std::shared_ptr<Lane> target = weak.lock())
      asio::post(target->context, std::move(function));
  };
  asio::post(lane.context, [&lane, connection, peer, executor] {
    lane.connections.push_back(connection);
    connection->start(peer, executor);
  });
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpServerOptions& options,
                                                      HttpService service) {
  auto impl = std::make_unique<Impl>();
  Impl* raw = impl.get();
  raw->options = options;
  raw->service = std::move(service);
  raw->service.draining = [raw] { return raw->draining.load(); };
  raw->service.busy = [raw](int change) {
    const std::lock_guard lock(raw->mutex);
    raw->busy += change;
    if (raw->busy == 0) raw->idle.notify_all();
  };
  for (int i = 0; i < std::max(options.threads, 1); ++i)
    raw->lanes.push_back(std::make_shared<Lane>());
  TRY(raw->listen());
  for (const std::shared_ptr<Lane>& lane : raw->lanes) {
    lane->start_ticking(raw->connections);
    lane->thread = std::thread([&context = lane->context] { context.run(); });
  }
  asio::post(raw->lanes.front()->context, [raw] { raw->accept(); });
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

// NOLINTNEXTLINE(bugprone-exception-escape): only memory could run out, and that ends the program
HttpServer::~HttpServer() {
  drain();
  for (const std::shared_ptr<Lane>& lane : impl_->lanes)
    asio::post(lane->context, [&lane = *lane] {
      for (const std::shared_ptr<Connection>& connection : lane.connections) connection->close();
      lane.connections.clear();
      lane.context.stop();
    });
  for (const std::shared_ptr<Lane>& lane : impl_->lanes) lane->thread.join();
  impl_->acceptor.reset();
  impl_->accept_timer.reset();
  // Sessions, and the answers they keep, end before the lanes that others post to.
  for (const std::shared_ptr<Lane>& lane : impl_->lanes) lane->connections.clear();
}

int HttpServer::port() const { return impl_->port; }

std::string HttpServer::address() const {
  const bool v6 = impl_->options.host.find(':') != std::string::npos;
  return str_cat("http://", v6 ? "[" : "", impl_->options.host, v6 ? "]" : "", ":", impl_->port);
}

void HttpServer::drain() {
  if (impl_->draining.exchange(true)) return;
  asio::post(impl_->lanes.front()->context, [impl = impl_.get()] {
    error_code ignored;
    impl->acceptor->close(ignored);
    impl->accept_timer->cancel();
  });
}

bool HttpServer::wait_idle(std::chrono::milliseconds longest) {
  std::unique_lock lock(impl_->mutex);
  return impl_->idle.wait_for(lock, longest, [this] { return impl_->busy == 0; });
}

int64_t HttpServer::busy() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->busy;
}

int64_t HttpServer::connections() const { return impl_->connections; }

}  // namespace pewter::server
