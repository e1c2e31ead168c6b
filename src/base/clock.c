#include "base/clock.h"

#include <stdlib.h>
#include <sys/timex.h>
#include <time.h>

#ifdef VARVE_TEST_HOOKS
#include <fcntl.h>
#include <unistd.h>

#include "base/bytes.h"

static int64_t hook_offset_ns(bool *ret_sync)
{
	static int fd = -2;
	unsigned char b[9] = {0};

	*ret_sync = false;
	if (fd == -2) {
		const char *path = getenv("VARVE_TEST_CLOCK");

		fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	}
	if (fd < 0 || pread(fd, b, sizeof(b), 0) < 8)
		return 0;
	*ret_sync = b[8] != 0;
	return (int64_t)varve_get_le64(b);
}
#endif

static int64_t read_clock(clockid_t id)
{
	struct timespec ts;

	(void)clock_gettime(id, &ts);
	return (int64_t)ts.tv_sec * VARVE_NS_PER_S + ts.tv_nsec;
}

static int64_t system_realtime(void *ctx)
{
	int64_t now = read_clock(CLOCK_REALTIME);

	(void)ctx;
#ifdef VARVE_TEST_HOOKS
	bool sync;

	now += hook_offset_ns(&sync);
#endif
	return now;
}

static int64_t system_boottime(void *ctx)
{
	(void)ctx;
	return read_clock(CLOCK_BOOTTIME);
}

static bool system_synchronised(void *ctx)
{
	struct timex tx = {.modes = 0};

	(void)ctx;
#ifdef VARVE_TEST_HOOKS
	bool sync;

	/* A test decides alone: the machine's own discipline would make it depend on where it runs. */
	(void)hook_offset_ns(&sync);
	if (getenv("VARVE_TEST_CLOCK"))
		return sync;
#endif
	return adjtimex(&tx) != -1 && !(tx.status & STA_UNSYNC);
}

const struct varve_clock *varve_clock_system(void)
{
	static const struct varve_clock system_clock = {
		.realtime_ns = system_realtime,
		.boottime_ns = system_boottime,
		.synchronised = system_synchronised,
	};

	return &system_clock;
}

bool varve_clock_is_moved(void)
{
#ifdef VARVE_TEST_HOOKS
	return getenv("VARVE_TEST_CLOCK") != NULL;
#else
	return false;
#endif
}

int64_t varve_clock_step_ns(void)
{
	return varve_clock_is_moved() ? VARVE_NS_PER_S / 100 : VARVE_NS_PER_S;
}

int64_t varve_clock_monotonic_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * VARVE_NS_PER_S + t.tv_nsec;
}
