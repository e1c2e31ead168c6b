/* Threads that work for long: they pause. */
#include "../lib/unit.h"
#include "base/thread.h"

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define MS INT64_C(1000000)

static int64_t now(void)
{
	struct timespec t;

	ck_assert_int_eq(clock_gettime(CLOCK_MONOTONIC, &t), 0);
	return (int64_t)t.tv_sec * 1000 * MS + t.tv_nsec;
}

/* However long the work, no stretch of it is much longer than a millisecond; each is followed by a pause. */
START_TEST(test_pace)
{
	struct varve_pace pace = {0};
	int64_t begun, at;

	varve_thread_pace(&pace);
	begun = now();
	for (int i = 0; i < 5; i++) {
		int64_t pause_from;

		while (now() - begun < MS)
			;
		pause_from = now();
		varve_thread_pace(&pace);
		begun = now();
		ck_assert_int_ge(begun - pause_from, MS);
	}
	/* Nothing but the call itself in between: no pause, unless somebody else had the processor for that long. */
	for (int i = 0;; i++) {
		at = now();
		varve_thread_pace(&pace);
		if (now() - at < MS)
			break;
		ck_assert_int_lt(i, 100);
	}
}
END_TEST

T_MAIN("thread", 60)
{
	tcase_add_test(tc, test_pace);
}
