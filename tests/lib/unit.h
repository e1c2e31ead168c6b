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

/* Runs all of it. The exit status of the test. */
T_FN int t_main(Suite *s)
{
	SRunner *sr = srunner_create(s);
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}

/* The main function of a test of one case. What follows in braces adds its functions, each of which may take so
 * many seconds, to `tc`. */
#define T_MAIN(name, seconds)                                                                      \
	static void t_add_tests(TCase *tc);                                                        \
	int main(void)                                                                             \
	{                                                                                          \
		Suite *t_suite = suite_create(name);                                               \
		TCase *t_case = tcase_create(name);                                                \
                                                                                                   \
		tcase_set_timeout(t_case, seconds);                                                \
		t_add_tests(t_case);                                                               \
		suite_add_tcase(t_suite, t_case);                                                  \
		return t_main(t_suite);                                                            \
	}                                                                                          \
	static void t_add_tests(TCase *tc)
