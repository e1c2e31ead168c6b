/* What unit tests of every layer share. */
#pragma once

#include <check.h>

/* A header of tests is for several binaries, each of which uses a part of it. */
#define T_FN __attribute__((unused)) static

/* The step of a loop over all there is of something. Sanitized, each step costs about ten times as much, and
 * what a sanitizer could find shows in one of n of them as well; the plain build takes every one. */
#ifdef __SANITIZE_ADDRESS__
#define T_ONE_IN(n) (n)
#else
#define T_ONE_IN(n) 1
#endif
