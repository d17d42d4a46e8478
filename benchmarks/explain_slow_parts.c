/* Loaded before all else (LD_PRELOAD): what is sent through sockets takes longer, by its size; and a process computes
   more slowly, as on a slower core. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>

static double now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* ---- a slow network */

/* A sleep ends late, so short ones are put together, and what one took too long the next ones leave out. */
static const double shortest_sleep = 1e-3;
static _Thread_local double owed;

static ssize_t delayed(ssize_t sent) {
  const char* given = getenv("PERFGATE_EXPLAIN_SECONDS_PER_MB");
  if (!given || sent <= 0) return sent;
  int error = errno;
  owed += atof(given) * (double)sent / 1e6;
  if (owed > shortest_sleep) {
    struct timespec rest = {(time_t)owed, (long)((owed - (double)(time_t)owed) * 1e9)};
    double began = now(CLOCK_MONOTONIC);
    nanosleep(&rest, NULL);
    owed -= now(CLOCK_MONOTONIC) - began;
  }
  errno = error;
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

/* ---- a slow core */

static const long tick_microseconds = 4000;
static double slower_by, counted_to;

/* Every few milliseconds of computing, the share of what was computed since then, once more. */
static void compute_longer(int number) {
  static atomic_flag busy = ATOMIC_FLAG_INIT;
  if (atomic_flag_test_and_set(&busy)) return;
  int error = errno;
  double until = now(CLOCK_THREAD_CPUTIME_ID) + slower_by * (now(CLOCK_PROCESS_CPUTIME_ID) - counted_to);
  while (now(CLOCK_THREAD_CPUTIME_ID) < until) {
  }
  counted_to = now(CLOCK_PROCESS_CPUTIME_ID);
  errno = error;
  atomic_flag_clear(&busy);
  (void)number;
}

/* From now on this process takes a share more of its cores for whatever it computes. Returns 0, or -1. */
int slow_core(double share) {
  struct sigaction action = {.sa_handler = compute_longer, .sa_flags = SA_RESTART};
  struct itimerval every = {{0, tick_microseconds}, {0, tick_microseconds}};
  slower_by = share;
  counted_to = now(CLOCK_PROCESS_CPUTIME_ID);
  return sigaction(SIGPROF, &action, NULL) || setitimer(ITIMER_PROF, &every, NULL) ? -1 : 0;
}
