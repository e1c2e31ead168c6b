/*
 * What the scheduler should know of a thread. It is of the calling thread alone, needs no rights,
 * and does nothing where the kernel does not know it (slices: Linux 6.12).
 */
#pragma once

#include <stdint.h>

/* It works on what somebody waits for, but who only appends must not wait behind it: five nice
 * levels below the process, in long slices, which whoever has a shorter one may interrupt when he
 * wakes up. */
void varve_thread_in_background(void);

/* A long work in small pieces by a thread that comes before others: after each millisecond of it, it pauses for a
 * millisecond, so that whoever shares its processor waits no longer than that. Begin with all zeros; call it
 * after each piece, with no lock held that others wait for. */
struct varve_pace {
	int64_t since_ns; /* of the monotonic clock; 0: not begun */
};
void varve_thread_pace(struct varve_pace *p);
