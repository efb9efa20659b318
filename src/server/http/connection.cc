#include "server/http/connection.h"

#include <boost/asio/buffer.hpp>

#include "base/log.h"

namespace pewter::server {
namespace {

using boost::system::error_code;

// How long a client that is still sending may take to read why it should not.
constexpr std::chrono::seconds kLinger{2};

}  // namespace

void Connection::start(std::string peer, Executor executor) {
  // The session must not keep its connection alive: it is the other way round.
  session_ =
      HttpSession::make(service_, std::move(peer), std::move(executor), [weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->step();
      });
  step();
}

void Connection::step() {
  if (closed_ || !session_) return;
  if (session_->broken()) return close();
  if (!is_writing_ && !session_->output().empty()) write();
  if (!is_writing_ && session_->finished()) end();
  if (!closed_ && !is_reading_ && session_->wants_input()) read();
}

void Connection::read() {
  is_reading_ = true;
  socket_.async_read_some(boost::asio::buffer(block_),
                          [self = shared_from_this()](error_code error, size_t count) {
                            self->is_reading_ = false;
                            if (self->closed_) return;
                            if (!error)
                              self->session_->receive(std::string_view(self->block_.data(), count));
                            else if (error == boost::asio::error::eof)
                              self->session_->receive_end();
                            else
                              self->session_->abort();
                            self->step();
                          });
}

void Connection::write() {
  if (written_ == writing_.size()) {
    writing_.clear();
    written_ = 0;
    writing_.swap(session_->output());
  }
  if (!is_writing_) last_write_ = Clock::now();
  is_writing_ = true;
  session_->set_in_flight(writing_.size() - written_);
  socket_.async_write_some(
      boost::asio::buffer(writing_.data() + written_, writing_.size() - written_),
      [self = shared_from_this()](error_code error, size_t count) {
        if (self->closed_) return;
        self->last_write_ = Clock::now();
        self->written_ += count;
        self->session_->set_in_flight(self->writing_.size() - self->written_);
        if (error) {
          self->is_writing_ = false;
          self->session_->abort();
        } else if (self->written_ < self->writing_.size() || !self->session_->output().empty()) {
          return self->write();
        } else {
          self->is_writing_ = false;
        }
        self->step();
      });
}

// All is written. A client that still sends would turn a plain close into a reset, and lose the
// answer: it gets our end first, and a moment to read it.
void Connection::end() {
  if (!session_->lingers()) return close();
  if (shut_) return;
  shut_ = true;
  end_ = Clock::now() + kLinger;
  error_code ignored;
  socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
}

void Connection::tick(Clock::time_point now) {
  if (closed_) return;
  if (shut_ && now > end_) return close();
  if (is_writing_ && now - last_write_ > service_.limits.write_stall) {
    LOG_WARNING("a client took nothing of its answer for ", service_.limits.write_stall.count(),
                " s and is dropped");
    return close();
  }
  session_->tick(now);
  step();
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  error_code ignored;
  socket_.close(ignored);
  const std::shared_ptr<Connection> self = shared_from_this();
  if (session_) session_->abort();
}

}  // namespace pewter::server
