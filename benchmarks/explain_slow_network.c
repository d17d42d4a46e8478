/* Loaded before all else (LD_PRELOAD): what is sent through sockets takes longer, by its size. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

static ssize_t delayed(ssize_t sent) {
  const char* given = getenv("PERFGATE_EXPLAIN_SECONDS_PER_MB");
  if (given && sent > 0) {
    double seconds = atof(given) * (double)sent / 1e6;
    struct timespec rest = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    /* Shorter ones would take longer than they should: a sleep ends 50 us late. */
    if (seconds > 1e-4) nanosleep(&rest, NULL);
  }
  return sent;
}

ssize_t writev(int file, const struct iovec* parts, int count) {
  static ssize_t (*own)(int, const struct iovec*, int);
  if (!own) own = (ssize_t(*)(int, const struct iovec*, int))dlsym(RTLD_NEXT, "writev");
  return delayed(own(file, parts, count));
}

ssize_t sendmsg(int file, const struct msghdr* message, int flags) {
  static ssize_t (*own)(int, const struct msghdr*, int);
  if (!own) own = (ssize_t(*)(int, const struct msghdr*, int))dlsym(RTLD_NEXT, "sendmsg");
  return delayed(own(file, message, flags));
}

ssize_t send(int file, const void* bytes, size_t size, int flags) {
  static ssize_t (*own)(int, const void*, size_t, int);
  if (!own) own = (ssize_t(*)(int, const void*, size_t, int))dlsym(RTLD_NEXT, "send");
  return delayed(own(file, bytes, size, flags));
}
