#include "base/thread.h"

#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define BACKGROUND_NICE 5
#define LONG_SLICE_NS (UINT64_C(20) * 1000 * 1000)

/* struct sched_attr of the kernel, version 0; the C library has no name for it everywhere. */
struct attr {
	uint32_t size;
	uint32_t policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

static void set_slice(uint64_t ns)
{
	struct attr attr = {.size = sizeof(attr)};

	if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) < 0)
		return;
	attr.flags = 0;
	attr.runtime = ns;
	(void)syscall(SYS_sched_setattr, 0, &attr, 0);
}

void varve_thread_in_background(void)
{
	/* The process's, since who began this thread may be in the background already. */
	int normal = getpriority(PRIO_PROCESS, (id_t)getpid());

	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), normal + BACKGROUND_NICE);
	set_slice(LONG_SLICE_NS);
}

#define PACE_NS (INT64_C(1000) * 1000)

void varve_thread_pace(struct varve_pace *p)
{
	const struct timespec pause = {.tv_nsec = PACE_NS};
	int64_t now = varve_clock_monotonic_ns();

	if (!p->since_ns)
		p->since_ns = now;
	if (now - p->since_ns < PACE_NS)
		return;
	(void)nanosleep(&pause, NULL);
	p->since_ns = varve_clock_monotonic_ns();
}
