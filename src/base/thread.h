/*
 * What the scheduler should know of a thread. It is of the calling thread alone, needs no rights,
 * and does nothing where the kernel does not know it (slices: Linux 6.12).
 */
#pragma once

/* It works on what somebody waits for, but who only appends must not wait behind it: five nice
 * levels below the process, in long slices, which whoever has a shorter one may interrupt when he
 * wakes up. */
void varve_thread_in_background(void);
