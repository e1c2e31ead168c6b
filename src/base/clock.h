/* Time, injected: the daemon uses the system's clock, tests give their own. All values are ns. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define VARVE_NS_PER_S INT64_C(1000000000)

struct varve_clock {
	int64_t (*realtime_ns)(void *ctx);  /* UTC since 1970, as the wall clock has it */
	int64_t (*boottime_ns)(void *ctx);  /* since boot, suspend included; never goes back */
	bool (*synchronised)(void *ctx);    /* the kernel says that the wall clock is disciplined */
	void *ctx;
};

/* The system's clocks: CLOCK_REALTIME, CLOCK_BOOTTIME, adjtimex(2). When built with test_hooks and
 * the environment names a file in VARVE_TEST_CLOCK, its first 8 bytes (little-endian, signed) are
 * added, in ns, to the wall clock at every reading, and a ninth byte other than 0 means
 * "synchronised"; tests move the clock by writing that file. */
const struct varve_clock *varve_clock_system(void);

/* How long a clock that is set may go unnoticed: a second; with a test's clock 10 ms. */
int64_t varve_clock_step_ns(void);

/* Whether a test moves the clock: then nothing can be promised of the future. */
bool varve_clock_is_moved(void);

static inline int64_t varve_clock_realtime(const struct varve_clock *c)
{
	return c->realtime_ns(c->ctx);
}

static inline int64_t varve_clock_boottime(const struct varve_clock *c)
{
	return c->boottime_ns(c->ctx);
}

/* CLOCK_MONOTONIC, for how long something takes: not injected, tests can't move it. */
int64_t varve_clock_monotonic_ns(void);
